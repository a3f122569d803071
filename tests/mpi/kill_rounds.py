"""Rounds of a checkpointing MPI program that is killed at random instants, and what it must come back with.
carried_test.py adds the agents.

A round starts the program (its restart is the next round's check), waits for a random instant, and sends SIGKILL:
to all ranks at once, or (or SIGTERM) to one, and to the rest a moment later while the launcher is stopped, so that
ranks live on beside a dead one; or SIGTERM to the launcher, as batch systems do, and SIGKILL to what is left a moment
later. Files, leaders and nodes change from start to start.

Never may the program meet wrong bytes, nor restore an epoch older than the newest that a killed one had said was
committed; nor, as long as the node-local tier is whole, one older than the newest that all ranks had saved.
"""
import glob
import os
import shutil
import signal
import subprocess
import time

import mpi_driver

RANKS = 4
KEEP_SHARED = 3         # as kill_loop_mpi.c sets it
LONGEST_START_S = 60
EXTRA_LIFE_S = 0.6      # how long a program may live after it has restored: some flushes
SHARE_AT_START = 0.2    # of the kills fall between the launch and the first save
SHARE_OF_ONE_RANK = 0.4
SHARE_OF_LAUNCHER = 0.2
SHARE_OF_LOST_TIERS = 0.25


class Said:
    """What the ranks of one start have said."""

    def __init__(self, directory, start):
        self.facts = []  # (rank, fact, number, more)
        for rank in range(RANKS):
            try:
                with open(os.path.join(directory, "said", f"{start}.{rank}"), encoding="utf-8") as file:
                    lines = file.read().split("\n")[:-1]
            except FileNotFoundError:
                continue
            for line in lines:
                fact, number, more = line.split(" ", 2)
                self.facts.append((rank, fact, int(number), more))

    def numbers(self, fact, rank=None):
        return [n for r, f, n, _ in self.facts if f == fact and rank in (None, r)]

    def sentences(self, fact):
        return [f"rank {r}: {f} {n} {more}" for r, f, n, more in self.facts if f == fact]

    def pids(self):
        return {rank: number for rank, fact, number, _ in self.facts if fact == "pid"}

    def saved_by_all(self):
        return min(max(self.numbers("saved", rank), default=0) for rank in range(RANKS))


class KillTest:
    def __init__(self, workspace, program, chance):
        self.workspace = workspace
        self.program = program
        self.chance = chance
        self.directory = workspace.directory("job")
        workspace.directory("job/said")
        self.start_number = 0
        self.committed = 0      # the newest epoch some rank ever said was committed
        self.captured = 0       # the newest epoch that all ranks saved, if no node-local tier was lost since
        self.restores = 0
        self.in_flight = 0      # kills that fell between a save and its commit
        self.starting = 0.5     # seconds from a launch to its restore, as last seen

    def launch(self, epochs=0):
        self.start_number += 1
        files, leaders = self.chance.choice([1, 1, 2, 3]), self.chance.choice([1, 1, 2])
        ranks_per_node = self.chance.choice([2, 2, 1, 3])
        cap_bytes = 0 if epochs else self.chance.choice([8, 16, 40]) << 20
        with open(os.path.join(self.workspace.path, "output"), "wb") as output:
            return self.workspace.start(RANKS, self.program, self.directory, self.start_number, files, leaders,
                                        ranks_per_node, cap_bytes, epochs, stdout=output,
                                        stderr=subprocess.STDOUT)

    def said(self):
        return Said(self.directory, self.start_number)

    def is_going(self):
        said = self.said()
        return len(said.numbers("restored") + said.numbers("fresh")) == RANKS

    def fail(self, why):
        with open(os.path.join(self.workspace.path, "output"), encoding="utf-8", errors="replace") as output:
            text = output.read()
        raise mpi_driver.Failure(f"start {self.start_number}: {why}\n--- the program's output:\n{text}")

    def sleep(self, process, seconds):
        """False when the program has ended by itself."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if process.poll() is not None:
                return False
            time.sleep(min(0.002, max(0.0, deadline - time.monotonic())))
        return process.poll() is None

    def wait_until_going(self, process):
        begin = time.monotonic()
        while not self.is_going():
            if not self.sleep(process, 0.005):
                return False
            if time.monotonic() - begin > LONGEST_START_S:
                self.fail(f"it has not restored within {LONGEST_START_S} s; {self.said().facts}")
        self.starting = time.monotonic() - begin
        return True

    def kill(self, process):
        """All at once, or one rank first while its launcher cannot see it, or by way of the launcher."""
        pids = self.said().pids()
        way = self.chance.random()
        if len(pids) == RANKS and way < SHARE_OF_ONE_RANK:
            for pid in mpi_driver.descendants() - set(pids.values()):
                os.kill(pid, signal.SIGSTOP)
            os.kill(self.chance.choice(sorted(pids.values())), self.chance.choice([signal.SIGKILL, signal.SIGTERM]))
            time.sleep(self.chance.uniform(0, 0.15))
        elif way > 1 - SHARE_OF_LAUNCHER:
            process.send_signal(signal.SIGTERM)
            time.sleep(self.chance.uniform(0, 0.15))
        mpi_driver.kill_all_descendants()

    def round(self):
        process = self.launch()
        if self.chance.random() < SHARE_AT_START:
            alive = self.sleep(process, self.chance.uniform(0, self.starting))
        else:
            alive = self.wait_until_going(process) and self.sleep(process, self.chance.uniform(0, EXTRA_LIFE_S))
        if not alive:
            self.fail(f"it ended by itself; {self.said().sentences('failed')}")
        self.kill(process)
        process.poll()
        self.judge()

    def judge(self):
        said = self.said()
        if said.sentences("wrong"):
            self.fail("; ".join(said.sentences("wrong")))
        bound = max(self.committed, self.captured)
        restored = said.numbers("restored")
        if said.numbers("fresh") and bound > 0:
            self.fail(f"nothing was restored, but epoch {self.committed} was committed and epoch "
                      f"{self.captured} lies in the node-local tier")
        if restored:
            self.restores += 1
            if min(restored) < bound:
                self.fail(f"epoch {min(restored)} was restored, but epoch {self.committed} was committed and "
                          f"epoch {self.captured} lies in the node-local tier")
        committed = max(said.numbers("committed"), default=0)
        if said.numbers("saved") and max(said.numbers("saved")) > committed:
            self.in_flight += 1
        self.committed = max(self.committed, committed)
        self.captured = max(self.captured, said.saved_by_all())

    def lose_a_tier(self):
        nodes = glob.glob(os.path.join(self.directory, "local", "*"))
        if not nodes or self.chance.random() >= SHARE_OF_LOST_TIERS:
            return
        for node in nodes if self.chance.random() < 0.5 else [self.chance.choice(nodes)]:
            shutil.rmtree(node)
        self.captured = 0

    def finish(self):
        """One more start, which ends well; then the files must be those of whole epochs and no others."""
        process = self.launch(epochs=2)
        try:
            status = process.wait(timeout=LONGEST_START_S)
        except subprocess.TimeoutExpired:
            status = f"none after {LONGEST_START_S} s"
        if status != 0 or len(self.said().numbers("closed")) != RANKS:
            self.fail(f"the last start should end well: exit status {status}; {self.said().facts}")
        self.judge()
        whole = {}
        for name in os.listdir(os.path.join(self.directory, "shared")):
            parts = mpi_driver.SHARED_FILE.match(name)
            if not parts:
                self.fail(f"{name} is left in the shared directory")
            whole.setdefault(int(parts["epoch"]), []).append((parts["run"], int(parts["K"]), int(parts["k"])))
        for epoch, files in sorted(whole.items()):
            run, count, _ = files[0]
            if sorted(files) == [(run, count, k + 1) for k in range(count)]:
                continue
            self.fail(f"epoch {epoch} is left with (run, K, k) = {sorted(files)}, not one run's K files")
        # Newer ones may have taken its place before any rank could say that they were committed.
        newer = [epoch for epoch in whole if epoch > self.committed]
        if self.committed not in whole and len(newer) < KEEP_SHARED:
            self.fail(f"epoch {self.committed} was committed, but the shared directory holds {sorted(whole)}")
