"""Powers off one node of four in each phase: while an epoch is captured, protected or flushed,
while agents drain what a dead program had captured, and while a program restores. In between the
node comes back with nothing in its memory. No start may go on from anything older than the newest
epoch that is complete, captured on all nodes, or protected by the nodes that are left.
"""

import random
import re
import time

import cluster
import tiers
from cluster import LOCAL, NODES, RANKS, Failure, Job, say, wait_for

EVERY, STEPS = 3, 100000  # a job goes on until it is hit
TRIES = 6
LOCKED_S = 120  # for so long MooseFS keeps others from a chunk that a lost node was writing


class PowerOff:
    def __init__(self, bed, seed):
        self.bed, self.chance = bed, random.Random(seed)
        self.layouts = {}  # by run
        self.bound = 0

    def start(self, redundancy, steps=STEPS, dump=None):
        settings = ["redundancy=" + redundancy, "keep_shared=3"]
        self.redundancy, self.since = redundancy, self.bed.look().newest_run()
        return Job(self.bed, RANKS, steps, dump, EVERY, 2, settings)

    def is_under_way(self, phase):
        return phase in self.bed.look().phases(RANKS, NODES, self.since)

    def wait_for_save(self, job):
        """The first of this start; what earlier ones have left is cleaned up then."""
        wait_for(
            lambda: self.bed.look().newest_run() > self.since or job.must_run(), "a first save"
        )

    def after(self, job, phase, node):
        """The job has lost a node. Finds what the next start has to restore."""
        self.bed.kill_ranks()
        job.wait()
        went_on = job.facts.get("start_step", None)
        if went_on is not None and went_on < self.bound:
            raise Failure("it went on from step %d, not %d" % (went_on, self.bound))
        seen = self.bed.look()
        if went_on is not None:
            self.layouts[seen.newest_run()] = tiers.Layout(RANKS, RANKS // NODES, self.redundancy)
        kept = seen.whole(RANKS) | seen.survivors(self.layouts)
        complete = max(self.bed.complete_epochs(), default=0)
        self.bound = max([complete, *(epoch for _, epoch in kept)])
        say("n%d off during %s, with redundancy = %s: it had gone on from %s; complete is %d, "
            "and what is left restores %d"
            % (node, phase, self.redundancy, went_on, complete, self.bound))  # fmt: skip

    def hit(self, phase, redundancy, node):
        """Powers it off in that phase, and on again."""
        for _ in range(TRIES):
            job = self.start(redundancy)
            self.wait_for_save(job)
            deadline = time.monotonic() + 20
            hit = False
            while not hit and time.monotonic() < deadline:
                hit = self.is_under_way(phase)
            self.bed.power_off(node)
            self.after(job, phase if hit else "nothing", node)
            self.bed.power_on(node)
            if hit:
                return
        raise Failure("no %s was hit in %d tries" % (phase, TRIES))

    def hit_drain(self, redundancy, node):
        """All ranks are killed in a flush, agents go on with it, and one of the nodes is lost."""
        for each in range(NODES):
            self.bed.on(each, self.bed.tool, "agent", "--local-dir", LOCAL, "--background")
        job = self.start(redundancy)
        self.wait_for_save(job)
        wait_for(lambda: self.is_under_way("flush") or job.must_run(), "a flush")
        time.sleep(1)
        self.bed.kill_ranks()
        wait_for(lambda: self.is_under_way("drain"), "the agents' work")
        self.bed.power_off(node)
        self.after(job, "drain", node)
        waits = re.compile(r"waiting for .*\b(node|some of nodes) %d\b" % node)
        others = [each for each in range(NODES) if each != node]
        status = [self.bed.tool, "agent", "status", "--local-dir", LOCAL]
        answers = {}

        def all_wait():
            answers.update((each, self.bed.on(each, *status, check=False)) for each in others)
            return all(waits.search(answer) for answer in answers.values())

        wait_for(all_wait, lambda: "agents that wait for n%d: %s" % (node, answers), LOCKED_S + 60)
        say("agents of the other nodes wait for n%d" % node)
        self.bed.power_on(node)

    def hit_restore(self, redundancy, node):
        """While the parts of the node that was lost before are rebuilt or restored."""
        job = self.start(redundancy)
        wait_for(lambda: self.bed.look().capturing or "start_step" in job.facts or job.must_run(),
                 "a rebuild")  # fmt: skip
        time.sleep(self.chance.choice([0, 0, self.chance.uniform(0, 0.2)]))
        phase = "the run after it" if "start_step" in job.facts else "restore"
        self.bed.power_off(node)
        self.after(job, phase, node)
        self.bed.power_on(node)

    def finish(self, dump):
        """Twelve steps more, to the end. Returns the number of steps."""
        steps = self.bound + 12
        job = self.start("none", steps, dump).must_succeed("the last start")
        if job.facts["start_step"] < self.bound:
            raise Failure("it went on from %d, not %d" % (job.facts["start_step"], self.bound))
        say("the last start went on from %d" % job.facts["start_step"])
        for node in range(NODES):
            self.bed.on(node, self.bed.tool, "agent", "stop", "--local-dir", LOCAL, check=False)
        return steps


def scenario(bed, right, dump, seed):
    power = PowerOff(bed, seed)
    power.hit("capture", "partner", 1)
    power.hit("protection", "xor", 2)
    power.hit("flush", "partner", 3)
    power.hit_drain("rs:2", 0)
    power.hit_restore("rs:2", 2)
    steps = power.finish(dump)
    Job(bed, RANKS, steps, right).must_succeed("the run without checkpoints")
    cluster.same_state(right, dump, "after five lost nodes")
    bed.verify()
