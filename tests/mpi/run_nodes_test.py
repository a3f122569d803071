"""`tailrace run` with agents, plain ones and those that carry, on four nodes of which one is lost in the middle of an
epoch: its processes, its agent and its tier vanish at once. With redundancy = partner the epoch survives: the program
goes on from it with three nodes, and the plate is in the end the same bit for bit; or it is committed without the node
and without the program.

    run_nodes_test.py --heat heat --tool tailrace --polite polite.so -- mpirun -n

The nodes are this machine under four host names. A stand-in for ssh, which tailrace run and the MPI launcher use, gives
each command the name and the node-local tier of its host, in namespaces of its own. That needs root. With
tests/testbed/src/polite.c ranks that wait leave the cores to others, and MPICH does not hang in MPI_Finalize.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import mpi_driver
from run_test import LONGEST_S, RunTest

NODES = 4
STEPS, SIZE, EVERY = 6000, 192, 200
LOST = "n2"
MOSTLY_KEPT = 1000  # only the first epoch goes to the shared directory
AGENTS = {"plain": "tailrace", "carry": "tailrace-agent-mpi"}

# ssh [options] HOST COMMAND..., on this machine. Only what runs on the host has NODE, and vanishes with it. What
# tailrace run has started lives on for a while, as an ssh does when a node loses power. The MPI launcher is to notice.
SSH = """#!/bin/sh
lives_on=no
while :; do
    case "$1 $2" in "-o BatchMode=yes") lives_on=yes;; esac
    case "$1" in -o) shift 2;; -*) shift;; *) break;; esac
done
node=$1; shift
test ! -e "{top}/gone-$node" || {{ echo "ssh: connect to host $node port 22: No route to host" >&2; exit 255; }}
NODE=$node unshare --mount --uts \
    sh -c 'hostname $NODE && mount --bind "{top}/tiers/$NODE" "{top}/local" && exec sh -c "$*"' sh "$@" &
wait $!
status=$?
if test -e "{top}/gone-$node" && test $lives_on = yes; then exec sleep 10000; fi
exit $status
"""


class NodesTest(RunTest):
    def __init__(self, workspace, heat, tool, chance, redundancy, polite):
        super().__init__(workspace, heat, tool, chance)
        environment = workspace.environment
        del environment["TAILRACE_RANKS_PER_NODE"]
        environment.update(TAILRACE_REDUNDANCY=redundancy, LD_PRELOAD=polite)
        self.file = "capture" if redundancy == "none" else "protect"  # none: to see the test fail
        self.path = environment["PATH"]

    def fresh(self, name, agents="none", flushes=False):
        super().fresh(name)
        self.flushes = flushes
        self.workspace.environment.update(
            TAILRACE_AGENT_CARRIES="yes" if agents == "carry" else "auto", TAILRACE_BANDWIDTH_CAP="1MiB",
            TAILRACE_SHARED_EVERY="1" if flushes else str(MOSTLY_KEPT), TAILRACE_QUEUE_POLICY="drop_oldest")
        commands = self.top / "commands"
        commands.mkdir()
        (commands / "ssh").write_text(SSH.format(top=self.top))
        (commands / "ssh").chmod(0o755)
        self.workspace.environment["PATH"] = f"{commands}:{self.path}"
        (self.top / "local").mkdir(mode=0o700)
        for number in range(NODES):
            (self.top / "tiers" / f"n{number}").mkdir(mode=0o700, parents=True)
        self.hosts = self.top / "hosts"
        self.hosts.write_text("".join(f"n{number}:1\n" for number in range(NODES)))

    def program(self, ranks=NODES, size=SIZE):
        return [*self.workspace.mpiexec, "{slots}", self.heat, str(self.top / "shared"), str(STEPS), str(size)]

    def run(self, agents, *options):
        return self.start(*options, "--nodes", self.hosts, "--launcher", "ssh", "--agents", agents, "--dir",
                          self.top / "shared")

    def processes_of(self, node):
        """Everything that runs on it."""
        found = []
        for pid in mpi_driver.descendants():
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"NODE={node}".encode() in environment:
                found.append(pid)
        return found

    def lose(self, node):
        (self.top / f"gone-{node}").touch()
        while pids := self.processes_of(node):
            self.kill(pids)
            time.sleep(0.005)
        shutil.rmtree(self.top / "tiers" / node)

    def on_all_nodes(self, pattern):
        """The epochs of which every node has such a file."""
        found = [{int(match[1]) for path in (self.top / "tiers" / f"n{number}").rglob("*")
                  if (match := re.search(pattern, path.name))} for number in range(NODES)]
        return set.intersection(*found)

    def agents(self):
        found = []
        for pid in mpi_driver.descendants():
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"tailrace-agent-mpi") or words[0].endswith(b"tailrace") and words[1] == b"agent":
                found.append(words[0])
        return found

    # ---- the tests ------------------------------------------------------------------------------------

    def undisturbed(self):
        self.fresh("undisturbed")
        self.end(self.run("none"))
        self.need(rf"attempt 1: the program ended well after .* s on {NODES} nodes")
        return self.sum()

    def lose_in_the_middle(self, agents, process):
        """Of an epoch that the nodes protect, and have a plan for if it goes to the shared directory. Returns which."""
        def ready():
            protected = self.on_all_nodes(rf"\.e(\d+)\..*\.{self.file}$")
            if self.flushes:
                protected &= self.on_all_nodes(r"\.e(\d+)\..*\.plan$")
            return max((epoch for epoch in protected - {0, *self.epochs()} if epoch > 5 * EVERY), default=0)

        self.wait_until(lambda: process.poll() is not None or ready(), "a protected epoch")
        time.sleep(self.chance.uniform(0, 0.1))
        kinds = {name.rsplit(b"/", 1)[-1].decode() for name in self.agents()}
        if process.poll() is not None or kinds != {AGENTS[agents]}:
            self.fail(f"it has ended too early, or these agents run: {kinds}")
        self.wait_until(lambda: process.poll() is not None or ready(), "a protected epoch")
        epoch = ready()
        self.lose(LOST)
        return epoch

    def goes_on(self, agents, expected):
        """Most epochs stay on the nodes. Before the next start the newest is brought to the shared directory, with what
        the lost node had captured; or, if not all nodes had its plan, the next session takes that from the others."""
        self.fresh(f"{agents}, goes on", agents)
        process = self.run(agents)
        protected = self.lose_in_the_middle(agents, process)
        self.end(process)
        self.need(rf"node {LOST} is left out: ssh: connect to host {LOST}")
        on_nodes = ", which lies on the nodes; what lost nodes had captured of it comes back from the others"
        unprotected = r"; epoch \d+ \(run 1\) waits for node \d+ \(" + LOST + r"\)"  # a newer one
        went_on = int(self.need(rf"attempt 1: .* on {NODES} nodes; it goes on from epoch (\d+) \(run 1\)"
                                rf"(?:{on_nodes})?(?:{unprotected})?\n")[0])
        restored = int(self.need(r"going on from step (\d+)")[0])
        self.need(rf"attempt 2: the program ended well after .* on {NODES - 1} nodes")
        print(f"{agents}: protected {protected}; went on from {went_on}, {restored}", flush=True)
        if not protected <= restored or restored != went_on:
            self.fail(f"protected was {protected}; it said that it goes on from {went_on}, and went on from {restored}")
        self.same(expected)

    def finishes(self, agents, expected):
        """Epochs are on their way to the shared directory. They get there without the node and without the program."""
        self.fresh(f"{agents}, finishes", agents, flushes=True)
        process = self.run(agents, "--restarts", "0")
        planned = self.lose_in_the_middle(agents, process)
        process.wait(LONGEST_S)
        self.output.close()
        there = self.epochs()
        would = self.need(rf"attempt 1: .* on {NODES} nodes; .*it would go on from epoch (\d+)")
        print(f"{agents}: planned {planned}; committed {there}; would go on from {would}", flush=True)
        if max(there, default=0) < planned or self.ranks():
            self.fail(f"epoch {planned} had a plan on all nodes, but {there} are in the shared directory")
        self.end(self.run(agents))
        if int(self.need(r"going on from step (\d+)")[0]) < max(there):
            self.fail(f"{there} were in the shared directory")
        self.same(expected)

    def same(self, expected):
        if self.sum() != expected:
            self.fail(f"the bits' sum is {self.sum()}, not {expected}")
        self.wait_until(lambda: not self.agents(), "the end of the agents")


def why_not():
    done = subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode != 0 else ""


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heat", required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--polite", required=True)
    parser.add_argument("--redundancy", default="partner")
    parser.add_argument("mpiexec", nargs="+")
    arguments = parser.parse_args()
    if why := why_not():
        print(f"skipped: this machine gives no namespaces: {why}")
        sys.exit(77)
    seed = os.environ.get("TAILRACE_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"TAILRACE_SEED={seed}", flush=True)
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        job = NodesTest(workspace, arguments.heat, arguments.tool, random.Random(int(seed)), arguments.redundancy,
                        arguments.polite)
        expected = job.undisturbed()
        for agents in AGENTS:
            job.goes_on(agents, expected)
            job.finishes(agents, expected)


mpi_driver.main(test)
