"""A job on the test bed (README.md beside this file): four nodes, a parallel file system behind
slow links, the simulation of examples/particles.cc with two ranks per node. The node-local tier is
each node's own /dev/shm; the shared directory is on the parallel file system. Linux, root.
"""

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
sys.path.insert(0, os.path.join(HERE, "..", "mpi"))
sys.dont_write_bytecode = True

import tiers  # noqa: E402

NODES, RANKS, FILES = 4, 8, 2
PARTICLES = 500000  # x 38 bytes = 18 MiB per epoch, a second or two on these links
NIC_MB, OSTS, OST_MB = 20, 2, 6
# MooseFS wants 64 MiB of free space for each chunk that is being written, by the dead as well.
OST_SIZE_MB = 8192
LOCAL = "/dev/shm/tailrace"
FILE_NAME = re.compile(r"^\w+\.e(\d+)\.r(\d+)\.(\d+)of(\d+)\.tailrace(\.unfinished)?$")


class Failure(Exception):
    pass


def say(text):
    print("cluster: " + text, flush=True)


def wait_for(condition, what, longest_s=90):
    """what: a text, or a function that makes one at the end."""
    deadline = time.monotonic() + longest_s
    while not condition():
        if time.monotonic() > deadline:
            what = what() if callable(what) else what
            raise Failure("%s did not happen within %d s" % (what, longest_s))
        time.sleep(0.02)


class Cluster:
    """The test bed and the one job that may run on it."""

    def __init__(self, options):
        self.options = options
        # Mounts and host files of the bed have short names; the launcher takes no spaces.
        self.top = tempfile.mkdtemp(prefix="tailrace-cluster-", dir="/tmp")
        self.bed = os.path.join(self.top, "bed")
        self.checkpoints = os.path.join(self.bed, "pfs", "checkpoints")
        # Programs in directories with spaces are started by a link without.
        build = os.path.abspath(options.build)
        self.program, self.tool = (os.path.join(self.top, n) for n in ("particles", "tailrace"))
        os.symlink(os.path.join(build, "examples", "particles"), self.program)
        os.symlink(os.path.join(build, "tools", "tailrace"), self.tool)

    def testbed(self, *arguments, check=True):
        command = [sys.executable, TESTBED, "--dir", self.bed, *map(str, arguments)]
        done = subprocess.run(
            command,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd="/",
            check=False,
        )
        if check and done.returncode != 0:
            raise Failure(
                "testbed %s: status %d\n%s" % (arguments[0], done.returncode, done.stdout)
            )
        return done.stdout

    def up(self):
        said = self.testbed("up", "--nodes", NODES, "--nic", NIC_MB, "--osts", OSTS,
                            "--ost-rate", OST_MB, "--ost-size", OST_SIZE_MB)  # fmt: skip
        say("%s: %d nodes with %d MB/s each, MooseFS with %d servers of %d MB/s"
            % (said.strip(), NODES, NIC_MB, OSTS, OST_MB))  # fmt: skip

    def down(self):
        self.kill_ranks()
        if self.options.keep:
            say("kept: %s --dir %s status; take it down with: down" % (TESTBED, self.bed))
            return
        say(self.testbed("down", check=False).strip())
        shutil.rmtree(self.top, ignore_errors=True)

    def kill_ranks(self):
        """SIGKILL to every rank on every node that is up, and until they are gone: one that waits
        for the parallel file system dies when that has answered, and holds its locks until then.
        Each node sees only its own processes."""
        found = "$(grep -lx particles /proc/[0-9]*/comm 2>/dev/null | sed 's/comm$/status/')"
        script = (
            "ranks() { grep -l '^State:[[:space:]]*[^Z]' %s /dev/null 2>/dev/null | "
            "cut -d/ -f3; }; "
            'tries=0; while [ -n "$(ranks)" ] && [ $tries -lt 300 ]; do '
            "kill -9 $(ranks) 2>/dev/null; sleep 0.1; tries=$((tries + 1)); done" % found
        )
        for node in range(NODES):
            self.testbed("exec", "n%d" % node, "sh", "-c", script, check=False)

    def on(self, node, *words, check=True):
        return self.testbed("exec", "n%d" % node, *words, check=check)

    # ---- what lies there, seen from outside
    def root(self, name):
        """The file system as that node sees it."""
        with open(os.path.join(self.bed, "state.json"), encoding="utf-8") as file:
            return "/proc/%d/root" % json.load(file)["nodes"][name]["pid"]

    def look(self):
        locals_of_nodes = []
        for node in range(NODES):
            locals_of_nodes += tiers.nodes_in(self.root("n%d" % node) + LOCAL)
        return tiers.look(locals_of_nodes, self.root("head") + self.checkpoints)

    def shared_files(self):
        """(epoch, run) -> [names], finished or not."""
        epochs = {}
        for name in tiers.names_in(self.root("head") + self.checkpoints):
            if match := FILE_NAME.match(name):
                epochs.setdefault((int(match[1]), int(match[2])), []).append(name)
        return epochs

    def complete_epochs(self):
        return sorted(
            key[0]
            for key, names in self.shared_files().items()
            if len(names) == FILES and not any(name.endswith(".unfinished") for name in names)
        )

    def unfinished_epochs(self):
        return sorted(
            key[0]
            for key, names in self.shared_files().items()
            if any(name.endswith(".unfinished") for name in names)
        )

    def clear(self):
        """Nothing is left of earlier jobs."""
        self.testbed("exec", "head", "rm", "-rf", self.checkpoints)
        for node in range(NODES):
            self.on(node, "rm", "-rf", LOCAL, check=False)

    def verify(self, epoch="newest"):
        text = self.testbed("exec", "head", self.tool, "verify", self.checkpoints, epoch)
        say("tailrace verify: " + (text.strip().split("\n") or [""])[-1])

    # ---- power
    def power_off(self, node):
        """At once: nothing on it gets to do anything."""
        os.kill(int(self.root("n%d" % node).split("/")[2]), signal.SIGKILL)
        self.testbed("fault", "crash", "n%d" % node, check=False)

    def power_on(self, node):
        self.testbed("fault", "boot", "n%d" % node)


def program_words(cluster, steps, dump=None, every=0, leaders=1, settings=()):
    """The simulation and its arguments. every: steps between checkpoints, 0 for none. leaders:
    nodes that write one file together."""
    words = [cluster.program, "--particles", PARTICLES, "--steps", steps, "--report"]
    if dump:
        words += ["--dump", dump]
    if every:
        words += ["--every", every]
        for setting in ("shared_dir=" + cluster.checkpoints, "local_dir=" + LOCAL,
                        "files=%d" % FILES, "leaders_per_file=%d" % leaders, "buffer_bytes=1MiB",
                        "writers=2", *settings):  # fmt: skip
            words += ["--set", setting]
    return [str(word) for word in words]


class Job:
    """One run of the simulation on `ranks`. Its report (JSON lines) is read by a thread that ends
    with the run."""

    def __init__(self, cluster, ranks, *arguments, **options):
        words = program_words(cluster, *arguments, **options)
        command = [sys.executable, TESTBED, "--dir", cluster.bed, "run", "-n", str(ranks), "--ppn",
                   "2", "--mpi", cluster.options.mpi, "--timeout", "120", "--", *words]  # fmt: skip
        self.facts = {}
        self.epochs = []
        self.other = []
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=cluster.top,
        )
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

    def must_run(self):
        if not self.running():
            raise Failure("the job has ended:\n" + "".join(self.other[-30:]))
        return False

    def wait(self):
        status = self.process.wait()
        self.reader.join()
        return status

    def must_succeed(self, what):
        if self.wait() != 0:
            raise Failure(
                "%s: status %d\n%s" % (what, self.process.returncode, "".join(self.other[-30:]))
            )
        return self


def same_state(right, dump, what):
    if not filecmp.cmp(right, dump, shallow=False):
        raise Failure("%s: the end state differs from the run without checkpoints" % what)
    say("%s: end state is bit for bit that of the run without checkpoints" % what)


def why_not():
    """A reason why this machine cannot hold the bed, or nothing."""
    if os.geteuid() != 0:
        return "it needs root"
    for tool in (
        "ip",
        "tc",
        "unshare",
        "nsenter",
        "gcc",
        "mfsmaster",
        "mfschunkserver",
        "mfsmount",
    ):
        if not shutil.which(tool):
            return "%s is not installed (make setup; packages of scripts/packages.txt)" % tool
    probe = subprocess.run(
        [
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--uts",
            "--ipc",
            "sh",
            "-c",
            "ip link add tb0 type veth peer name tb1 && mount -t tmpfs none /mnt",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        return "namespaces cannot be made here: " + probe.stdout.strip()
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    return None
