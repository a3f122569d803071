#!/usr/bin/env python3
"""The main job on a small cluster: four nodes, a parallel file system behind slow links, and faults.

    cluster_test.py --build build/mpich [--mpi mpich] [--keep]

Sets up the test bed (README.md beside this file) with MooseFS and runs the demo's simulation
(examples/particles.cc), two ranks per node. The node-local tier is each node's own /dev/shm; the shared
directory is on the parallel file system. In turn:

    1  a run without checkpoints, whose end state is the right one
    2  a run with checkpoints that nobody disturbs: same end state, K files per epoch, all checksums right
    3  every rank is killed in the middle of a flush in which two nodes write each file; the nodes and their local
       tiers stay
    4  the job goes on from there, one node writing each file, and in the middle of a flush a whole node crashes,
       with its local tier
    5  the job goes on with the ranks that fit on the three nodes left, to the end: same end state

No restart may go on from anything older than the newest epoch that was complete before the fault.
Needs root, network namespaces and FUSE. Without them it says so and fails; TAILRACE_CLUSTER_OPTIONAL=1 makes
that a success, for machines that cannot.
"""
import argparse
import filecmp
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTBED = os.path.join(HERE, "testbed")

NODES, RANKS, FILES = 4, 8, 2
PARTICLES = 500000           # x 38 bytes = 18 MiB per epoch, a second or two on these links
STEPS, EVERY = 60, 6
NIC_MB, OSTS, OST_MB = 20, 2, 6
FILE_NAME = re.compile(r"^\w+\.e(\d+)\.r(\d+)\.(\d+)of(\d+)\.tailrace(\.unfinished)?$")


class Failure(Exception):
    pass


def say(text):
    print("cluster: " + text, flush=True)


class Cluster:
    """The test bed and the one job that may run on it."""

    def __init__(self, options):
        self.options = options
        # Mounts and host files of the bed have short names; the launcher takes no spaces.
        self.top = tempfile.mkdtemp(prefix="tailrace-cluster-", dir="/tmp")
        self.bed = os.path.join(self.top, "bed")
        self.checkpoints = os.path.join(self.bed, "pfs", "checkpoints")
        # Programs in directories with spaces are started by a link without.
        self.program = os.path.join(self.top, "particles")
        os.symlink(os.path.join(os.path.abspath(options.build), "examples", "particles"), self.program)
        self.tool = os.path.join(os.path.abspath(options.build), "tools", "tailrace")

    def testbed(self, *arguments, check=True):
        done = subprocess.run([sys.executable, TESTBED, "--dir", self.bed, *map(str, arguments)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              cwd="/")
        if check and done.returncode != 0:
            raise Failure("testbed %s: status %d\n%s" % (arguments[0], done.returncode, done.stdout))
        return done.stdout

    def up(self):
        say(self.testbed("up", "--nodes", NODES, "--nic", NIC_MB, "--osts", OSTS, "--ost-rate", OST_MB,
                         "--ost-size", 1024).strip()
            + ": %d nodes with %d MB/s each, MooseFS with %d servers of %d MB/s"
            % (NODES, NIC_MB, OSTS, OST_MB))

    def down(self):
        self.kill_ranks()
        if self.options.keep:
            say("kept: %s --dir %s status; take it down with: down" % (TESTBED, self.bed))
            return
        say(self.testbed("down", check=False).strip())
        shutil.rmtree(self.top, ignore_errors=True)

    def kill_ranks(self):
        """SIGKILL to every rank on every node that is up, and until they are gone: one that waits for the parallel file
        system dies when that has answered, and holds its locks until then. Each node sees only its own processes."""
        for node in range(NODES):
            self.testbed("exec", "n%d" % node, "sh", "-c",
                         "ranks() { grep -l '^State:[[:space:]]*[^Z]' $(grep -lx particles /proc/[0-9]*/comm 2>/dev/null | "
                         "sed 's/comm$/status/') /dev/null 2>/dev/null | cut -d/ -f3; }; "
                         "tries=0; while [ -n \"$(ranks)\" ] && [ $tries -lt 300 ]; do "
                         "kill -9 $(ranks) 2>/dev/null; sleep 0.1; tries=$((tries + 1)); done", check=False)

    def shared_files(self):
        """(epoch, run) -> [names], finished or not."""
        epochs = {}
        for name in self.testbed("exec", "head", "ls", "-U", self.checkpoints, check=False).split("\n"):
            match = FILE_NAME.match(name)
            if match:
                epochs.setdefault((int(match[1]), int(match[2])), []).append(name)
        return epochs

    def complete_epochs(self):
        return sorted(key[0] for key, names in self.shared_files().items()
                      if len(names) == FILES and not any(n.endswith(".unfinished") for n in names))

    def unfinished_epochs(self):
        return sorted(key[0] for key, names in self.shared_files().items()
                      if any(n.endswith(".unfinished") for n in names))

    def verify(self):
        text = self.testbed("exec", "head", self.tool, "verify", self.checkpoints)
        say("tailrace verify: " + (text.strip().split("\n") or [""])[-1])


class Job:
    """One run of the simulation. Its report (JSON lines) is read by a thread that ends with the run.

    leaders: nodes that write one file together, 0 for no checkpoints at all."""

    def __init__(self, cluster, ranks, dump, leaders):
        command = [sys.executable, TESTBED, "--dir", cluster.bed, "run", "-n", str(ranks), "--ppn", "2",
                   "--mpi", cluster.options.mpi, "--timeout", "120", "--", cluster.program,
                   "--particles", str(PARTICLES), "--steps", str(STEPS), "--report"]
        if dump:
            command += ["--dump", dump]
        if leaders > 0:
            command += ["--every", str(EVERY)]
            for setting in ("shared_dir=" + cluster.checkpoints, "local_dir=/dev/shm/tailrace",
                            "files=%d" % FILES, "leaders_per_file=%d" % leaders, "buffer_bytes=1MiB", "writers=2"):
                command += ["--set", setting]
        self.facts = {}
        self.epochs = []
        self.other = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        stdin=subprocess.DEVNULL, cwd=cluster.top)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                fact = json.loads(line)
            except ValueError:
                self.other.append(line)
                continue
            self.facts.update(fact)
            if "epoch" in fact:
                self.epochs.append(fact)

    def running(self):
        return self.process.poll() is None

    def wait(self):
        status = self.process.wait()
        self.reader.join()
        return status

    def must_succeed(self, what):
        if self.wait() != 0:
            raise Failure("%s: status %d\n%s" % (what, self.process.returncode, "".join(self.other[-30:])))
        return self


def same_state(right, dump, what):
    if not filecmp.cmp(right, dump, shallow=False):
        raise Failure("%s: the end state differs from the run without checkpoints" % what)
    say("%s: end state is bit for bit that of the run without checkpoints" % what)


def disturb_in_mid_flush(cluster, what, ranks, leaders, least_start, fault):
    """Runs the job, and calls fault() while an epoch after the first is being flushed. Returns the newest
    epoch that was complete before. When the flush ends in the very moment of the fault, it is tried again."""
    for _ in range(8):
        before, under_way = cluster.complete_epochs(), 0
        job = Job(cluster, ranks, None, leaders)
        while job.running():
            complete, unfinished = cluster.complete_epochs(), cluster.unfinished_epochs()
            new = [e for e in complete if e not in before]
            if new and unfinished and unfinished[-1] > complete[-1]:
                under_way = unfinished[-1]
                fault()
                break
            time.sleep(0.05)
        cluster.kill_ranks()       # what a launcher that lost a rank does, some at once and some never
        job.wait()
        if "start_step" in job.facts and job.facts["start_step"] < least_start:
            raise Failure("%s: went on at step %d although epoch %d was complete"
                          % (what, job.facts["start_step"], least_start))
        newest, left = cluster.complete_epochs(), cluster.unfinished_epochs()
        if not newest:
            raise Failure("%s: no epoch was committed\n%s" % (what, "".join(job.other[-30:])))
        least_start = newest[-1]
        # Ranks that live a moment longer may have given the epoch up and removed its files.
        under_way = max([under_way, *left])
        if under_way > newest[-1]:
            say("%s at step %d, in the middle of the flush of epoch %d; complete before: %d"
                % (what, job.facts.get("step", 0), under_way, newest[-1]))
            return newest[-1]
        say("%s: the flush had just ended; once more" % what)
    raise Failure("%s: no flush was hit in eight tries" % what)


def scenario(cluster):
    right = os.path.join(cluster.top, "right")
    dump = os.path.join(cluster.top, "dump")

    job = Job(cluster, RANKS, right, leaders=0).must_succeed("the run without checkpoints")
    plain_seconds = job.facts["run_seconds"]
    say("%d ranks on %d nodes, without checkpoints: %.1f s" % (RANKS, NODES, plain_seconds))

    job = Job(cluster, RANKS, dump, leaders=1).must_succeed("the run with checkpoints")
    same_state(right, dump, "undisturbed run")
    wanted = list(range(EVERY, STEPS + 1, EVERY))
    if cluster.complete_epochs() != wanted or cluster.unfinished_epochs():
        raise Failure("epochs %s were to be complete, and are: %s" % (wanted, cluster.shared_files()))
    blocked = sum(e["blocked_seconds"] for e in job.epochs)
    flush = sorted(e["flush_seconds"] for e in job.epochs)[len(job.epochs) // 2]
    size = job.epochs[0]["bytes"] / 2**20
    say("%d epochs of %.1f MiB in %d files each; run %.1f s, of which save blocked %.2f s; "
        "median flush %.1f s = %.1f MiB/s"
        % (len(wanted), size, FILES, job.facts["run_seconds"], blocked, flush, size / flush))
    cluster.verify()
    cluster.testbed("exec", "head", "rm", "-rf", cluster.checkpoints)
    for node in range(NODES):
        cluster.testbed("exec", "n%d" % node, "rm", "-rf", "/dev/shm/tailrace")

    newest = disturb_in_mid_flush(cluster, "SIGKILL to all ranks", RANKS, 2, 0, cluster.kill_ranks)
    newest = disturb_in_mid_flush(cluster, "crash of node n2", RANKS, 1, newest,
                                  lambda: cluster.testbed("fault", "crash", "n2"))
    left = 2 * (NODES - 1)
    job = Job(cluster, left, dump, leaders=2).must_succeed("the restart on %d ranks" % left)
    if job.facts["start_step"] < newest:
        raise Failure("went on at step %d although epoch %d was complete" % (job.facts["start_step"], newest))
    say("restart on %d ranks and %d nodes went on at step %d" % (left, NODES - 1, job.facts["start_step"]))
    same_state(right, dump, "after both faults")
    cluster.verify()
    if cluster.unfinished_epochs():
        raise Failure("leftovers were not cleaned: %s" % cluster.shared_files())


def why_not():
    """A reason why this machine cannot hold the bed, or nothing."""
    if os.geteuid() != 0:
        return "it needs root"
    for tool in ("ip", "tc", "unshare", "nsenter", "gcc", "mfsmaster", "mfschunkserver", "mfsmount"):
        if not shutil.which(tool):
            return "%s is not installed (make setup; packages of scripts/packages.txt)" % tool
    probe = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "--uts", "--ipc", "sh", "-c",
                            "ip link add tb0 type veth peer name tb1 && mount -t tmpfs none /mnt"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if probe.returncode != 0:
        return "namespaces cannot be made here: " + probe.stdout.strip()
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build directory with examples/particles")
    parser.add_argument("--mpi", default="mpich", help="mpich or openmpi: what it was built with")
    parser.add_argument("--keep", action="store_true", help="leave the test bed up, to look at")
    options = parser.parse_args()
    if options.mpi == "none":
        say("it is an MPI job; MPI=none has none")
        return 2
    reason = why_not()
    if reason:
        optional = os.environ.get("TAILRACE_CLUSTER_OPTIONAL") == "1"
        say("cannot run on this machine: %s%s" % (reason, "" if optional else
            " (TAILRACE_CLUSTER_OPTIONAL=1 makes that a success)"))
        return 0 if optional else 1
    # An end from outside takes the bed down as well.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    begin = time.time()
    cluster = Cluster(options)
    status = 1
    try:
        cluster.up()
        scenario(cluster)
        status = 0
    except Failure as failure:
        say("FAILED: %s" % failure)
    finally:
        cluster.down()
    say("%s in %.0f s" % ("passed" if status == 0 else "failed", time.time() - begin))
    return status


if __name__ == "__main__":
    sys.exit(main())
