#!/usr/bin/env python3
"""The main job on a small cluster: four nodes, a parallel file system on slow links, and faults.

    cluster_test.py --build build/mpich [--mpi mpich] [--keep]

Sets up the test bed (README.md beside this file) with MooseFS. In turn:

    1  a run without checkpoints, whose end state is the right one
    2  a run with checkpoints that nobody disturbs: same end state, K files per epoch, all checksums
       right
    3  every rank is killed in the middle of a flush in which two nodes write each file; the nodes
       and their local tiers stay
    4  the job goes on from there under `tailrace run`, and in the middle of a flush a whole node
       crashes, with its local tier; `tailrace run` starts it again on the three nodes left, to the
       end: same end state
    5  a storage server is frozen for a while during a flush, and comes back: same end state, at
       once or, when MooseFS has given the server up and writes have failed, after another start
    6  one node of four is powered off in each phase (power_off.py): same end state

No restart may go on from anything older than what was complete before the fault, or what the nodes
that are left still have of it. Needs root, network namespaces and FUSE. Without them it says so and
fails; TAILRACE_CLUSTER_OPTIONAL=1 makes that a success, for machines that cannot. TAILRACE_SEED
replays its choices.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import power_off
from cluster import (
    FILES,
    LOCAL,
    NODES,
    RANKS,
    Cluster,
    Failure,
    Job,
    program_words,
    same_state,
    say,
    wait_for,
    why_not,
)

STEPS, EVERY = 60, 6
FROZEN_S = 6  # longer, and MooseFS always gives the server up


def disturb_in_mid_flush(cluster, what, leaders, least_start, fault):
    """Runs the job, and calls fault() while an epoch after the first is being flushed. Returns the
    newest epoch that was complete before. When the flush ends in the very moment of the fault, it
    is tried again."""
    for _ in range(8):
        before, under_way = cluster.complete_epochs(), 0
        job = Job(cluster, RANKS, STEPS, None, EVERY, leaders)
        while job.running():
            complete, unfinished = cluster.complete_epochs(), cluster.unfinished_epochs()
            new = [e for e in complete if e not in before]
            if new and unfinished and unfinished[-1] > complete[-1]:
                under_way = unfinished[-1]
                fault()
                break
            time.sleep(0.05)
        cluster.kill_ranks()  # what a launcher that lost a rank does, some at once and some never
        job.wait()
        if "start_step" in job.facts and job.facts["start_step"] < least_start:
            raise Failure("%s: went on at step %d although epoch %d was complete"
                          % (what, job.facts["start_step"], least_start))  # fmt: skip
        newest, left = cluster.complete_epochs(), cluster.unfinished_epochs()
        if not newest:
            raise Failure("%s: no epoch was committed\n%s" % (what, "".join(job.other[-30:])))
        least_start = newest[-1]
        # Ranks that live a moment longer may have given the epoch up and removed its files.
        under_way = max([under_way, *left])
        if under_way > newest[-1]:
            say("%s at step %d, in the middle of the flush of epoch %d; complete before: %d"
                % (what, job.facts.get("step", 0), under_way, newest[-1]))  # fmt: skip
            return newest[-1]
        say("%s: the flush had just ended; once more" % what)
    raise Failure("%s: no flush was hit in eight tries" % what)


def undisturbed(cluster, right, dump):
    job = Job(cluster, RANKS, STEPS, right).must_succeed("the run without checkpoints")
    say("%d ranks on %d nodes, without checkpoints: %.1f s"
        % (RANKS, NODES, job.facts["run_seconds"]))  # fmt: skip
    job = Job(cluster, RANKS, STEPS, dump, EVERY, 1).must_succeed("the run with checkpoints")
    same_state(right, dump, "undisturbed run")
    wanted = list(range(EVERY, STEPS + 1, EVERY))
    if cluster.complete_epochs() != wanted or cluster.unfinished_epochs():
        raise Failure("epochs %s were to be complete, not %s" % (wanted, cluster.shared_files()))
    blocked = sum(e["blocked_seconds"] for e in job.epochs)
    flush = sorted(e["flush_seconds"] for e in job.epochs)[len(job.epochs) // 2]
    size = job.epochs[0]["bytes"] / 2**20
    say("%d epochs of %.1f MiB in %d files each; run %.1f s, of which save blocked %.2f s; "
        "median flush %.1f s = %.1f MiB/s"
        % (len(wanted), size, FILES, job.facts["run_seconds"], blocked, flush, size / flush)
    )  # fmt: skip
    cluster.verify()
    cluster.clear()


def run_command(cluster, dump):
    """`tailrace run` of the simulation on the nodes that are up, as a command for this machine."""
    plan = json.loads(
        cluster.testbed("run", "--print", "-n", RANKS, "--ppn", 2, "--mpi", cluster.options.mpi)
    )
    mpirun = ["{nodes}" if word == plan["hostfile"] else word for word in plan["mpirun"]]
    mpirun[mpirun.index("-n") + 1] = "{slots}"
    commands = os.path.join(cluster.top, "commands")
    os.mkdir(commands)
    os.symlink(plan["launch"], os.path.join(commands, "ssh"))  # it is called like ssh
    hosts = shutil.copy(plan["hostfile"], os.path.join(cluster.top, "hosts"))
    state = "XDG_STATE_HOME=" + os.path.join(cluster.bed, "pfs", "state")
    return [*plan["enter"], "env", "PATH=%s:%s" % (commands, os.environ["PATH"]), state,
            "TAILRACE_LOCAL_DIR=" + LOCAL, cluster.tool, "run", "--nodes", hosts, "--launcher",
            "ssh", "--dir", cluster.checkpoints, "--", *mpirun,
            *program_words(cluster, STEPS, dump, EVERY, 1)]  # fmt: skip


def lose_a_node_under_run(cluster, right, dump, least_start):
    """`tailrace run` on four nodes, and then on three."""
    output = os.path.join(cluster.top, "run")
    with open(output, "wb") as file:
        process = subprocess.Popen(
            run_command(cluster, dump),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def said():
        with open(output, encoding="utf-8", errors="replace") as file:
            return file.read()

    def starts():
        return [int(step) for step in re.findall(r'"start_step": (\d+)', said())]

    try:
        wait_for(lambda: process.poll() is not None or starts(), "a start")
        begun = starts()[0] if starts() else 0
        wait_for(lambda: process.poll() is not None or any(
            epoch > max(cluster.complete_epochs(), default=0) > begun
            for epoch in cluster.unfinished_epochs()), "a flush after the first")  # fmt: skip
        time.sleep(1)
        newest, under_way = max(cluster.complete_epochs(), default=0), cluster.unfinished_epochs()
        cluster.power_off(2)
        say("crash of node n2 under tailrace run, in the middle of the flush of epochs %s; "
            "complete before: %d" % (under_way, newest))  # fmt: skip
        try:
            process.wait(240)
        except subprocess.TimeoutExpired:
            raise Failure("tailrace run does not end:\n" + said()[-6000:]) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = [line for line in said().splitlines() if line.startswith("tailrace run")]
    say("\n         ".join(lines))
    on_three = re.search(r"attempt 2: the program ended well after .* on 3 nodes", said())
    if process.returncode != 0 or not on_three or len(starts()) != 2:
        raise Failure(
            "tailrace run ended with status %d:\n%s" % (process.returncode, said()[-4000:])
        )
    if starts()[0] < least_start or starts()[1] < newest:
        raise Failure("it went on from steps %s, not %d and %d" % (starts(), least_start, newest))
    same_state(right, dump, "after both faults, on three nodes")
    cluster.verify()
    cluster.power_on(2)
    cluster.clear()


def go_on_after_failed_writes(cluster, job, dump):
    """The simulation ends at an epoch that was not committed. What is captured then stays."""
    said = "".join(job.other)
    if not re.search(r"epoch \d+ of run \d+ did not reach .*its captured parts stay", said):
        raise Failure("the run with a storage server that freezes:\n" + said[-6000:])
    cluster.kill_ranks()
    complete = max(cluster.complete_epochs(), default=0)
    bound = max([complete, *(epoch for _, epoch in cluster.look().whole(RANKS))])
    say("MooseFS gave oss0 up; complete is %d, captured by all is %d" % (complete, bound))
    job = Job(cluster, RANKS, STEPS // 2, dump, EVERY, 2).must_succeed("the start after that")
    if job.facts["start_step"] < bound:
        raise Failure("it went on from step %d, not %d" % (job.facts["start_step"], bound))


def freeze_a_server(cluster, right, dump):
    job = Job(cluster, RANKS, STEPS // 2, dump, EVERY, 2)
    wait_for(lambda: cluster.unfinished_epochs() or job.must_run(), "a flush")
    time.sleep(0.5)
    before = cluster.complete_epochs()
    cluster.testbed("fault", "freeze", "oss0")
    time.sleep(FROZEN_S)
    during = cluster.complete_epochs()
    cluster.testbed("fault", "thaw", "oss0")
    if job.wait() != 0:
        go_on_after_failed_writes(cluster, job, dump)
    say("oss0 was frozen for %d s; epochs complete before %s, when it went on %s, at the end %s"
        % (FROZEN_S, before, during, cluster.complete_epochs()))  # fmt: skip
    if STEPS // 2 not in cluster.complete_epochs() or cluster.unfinished_epochs():
        raise Failure("epochs are missing: %s" % cluster.shared_files())
    Job(cluster, RANKS, STEPS // 2, right).must_succeed("the run without checkpoints")
    same_state(right, dump, "with a server that was frozen")
    cluster.verify()
    cluster.clear()


def scenario(cluster, seed):
    right, dump = (os.path.join(cluster.top, name) for name in ("right", "dump"))
    begin = time.monotonic()

    def done(what):
        nonlocal begin
        say("---- %s: %.0f s" % (what, time.monotonic() - begin))
        begin = time.monotonic()

    undisturbed(cluster, right, dump)
    done("undisturbed")
    newest = disturb_in_mid_flush(cluster, "SIGKILL to all ranks", 2, 0, cluster.kill_ranks)
    lose_a_node_under_run(cluster, right, dump, newest)
    done("killed, and a node lost")
    freeze_a_server(cluster, right, dump)
    done("a storage server frozen")
    power_off.scenario(cluster, right, dump, seed)
    done("nodes powered off, phase by phase")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
            " (TAILRACE_CLUSTER_OPTIONAL=1 makes that a success)"))  # fmt: skip
        return 0 if optional else 1
    seed = os.environ.get("TAILRACE_SEED") or str(random.SystemRandom().randrange(1 << 31))
    say("TAILRACE_SEED=" + seed)
    # An end from outside takes the bed down as well.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    begin = time.time()
    cluster = Cluster(options)
    status = 1
    try:
        cluster.up()
        scenario(cluster, seed)
        status = 0
    except Failure as failure:
        say("FAILED: %s" % failure)
    finally:
        cluster.down()
    say("%s in %.0f s" % ("passed" if status == 0 else "failed", time.time() - begin))
    return status


if __name__ == "__main__":
    sys.exit(main())
