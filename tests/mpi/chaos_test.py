"""Kills an MPI program, its agent, both, or a node with its tier, at random instants and in every
phase, and checks that nothing wrong and nothing old comes back. chaos_job.py says what a job is,
and what is checked.

    chaos_test.py --program kill_loop_mpi --tool tailrace --kills 200 [--seed N] -- mpirun -n

There are many small jobs, some at once. Each has its own seed: the first N, the next N + 1, and so
on. So a job that fails is replayed as the first of its seed; the last lines say how. (A seed
decides choices, not instants.) TAILRACE_SEED is the seed where --seed is missing.
"""

import argparse
import collections
import contextlib
import ctypes
import json
import os
import queue
import random
import re
import signal
import subprocess
import sys
import threading
import time

import chaos_job
import mpi_driver

KILLS_PER_JOB = 25
MOST_FAILURES = 5
TELL_EVERY_S = 10
PR_SET_PDEATHSIG = 1
PHASES = ("start", "rebuild", "restore", "capture", "protection", "flush", "drain", "between")
VICTIMS = ("program", "agent", "both", "node", "drain")


def arguments_of_test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() + 1)
    parser.add_argument("--agents", choices=("always", "never", "drawn"), default="drawn")
    parser.add_argument(
        "--one-job", action="store_true", help="what this program starts for each job"
    )
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


# ---- one job, in a process of its own


def play(arguments):
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        job = chaos_job.Job(
            workspace,
            arguments.program,
            arguments.tool,
            random.Random(arguments.seed),
            arguments.agents,
        )
        kills = 0
        while kills < arguments.kills:
            fact = job.play()
            kills += len(fact["kills"])
            print(json.dumps(fact), flush=True)
        job.finish()


# ---- all jobs


class Tally:
    def __init__(self):
        self.kills = collections.Counter()  # (what, phase)
        self.victims = collections.Counter()
        self.restored = collections.Counter()
        self.protected = self.finished = self.beside = 0
        self.longest_s = 0.0

    def add(self, fact):
        for what, phases in fact["kills"]:
            self.victims[what] += 1
            self.kills.update((what, phase) for phase in phases)
        self.restored[fact["restored"]] += 1
        self.protected += fact["protected"]
        self.finished += fact["finished"]
        self.beside += fact["beside"]
        self.longest_s = max(self.longest_s, fact["longest_s"])

    def restores(self):
        return sum(self.restored[tier] for tier in ("local", "rebuilt", "both", "shared"))

    def line(self):
        return (
            f"{self.victims.total()} kills; {self.restores()} restores, "
            f"{self.restored['rebuilt']} of them rebuilt; "
            f"{self.finished} epochs committed by agents and drains"
        )

    def table(self):
        rows = [("killed", "times", *PHASES)]
        rows += [
            (what, self.victims[what], *(self.kills[what, phase] for phase in PHASES))
            for what in VICTIMS
        ]
        widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(
                str(cell).rjust(width) if at else str(cell).ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join([*lines, *self.sentences()])

    def sentences(self):
        tiers = self.restored
        return (
            "(a kill may fall into several phases: one epoch is captured while another is flushed)",
            f"restored from the nodes {tiers['local']}, after a rebuild {tiers['rebuilt']}",
            f"restored from the shared directory {tiers['shared']}, and nodes {tiers['both']}",
            f"began anew {tiers['fresh']}, killed before that {tiers[None]}",
            f"epochs that all nodes called protected {self.protected}",
            f"epochs committed after their program's death, by agents and drains, {self.finished}",
            f"starts beside an agent {self.beside}",
            f"longest time without any progress {self.longest_s:.1f} s",
        )

    def too_little(self, arguments):
        """What a run of that many kills should have seen, and has not."""
        kills = arguments.kills
        if kills < 60:
            return []
        wanted = {
            "restores": (self.restores(), kills // 4),
            "rebuilds": (self.restored["rebuilt"], kills // 60),
            "epochs that were protected": (self.protected, kills // 12),
            "epochs committed by agents and drains": (self.finished, kills // 12),
        }
        for phase in PHASES[2:-1]:
            wanted[f"kills during {phase}"] = (
                sum(self.kills[what, phase] for what in VICTIMS),
                kills // 60,
            )
        if arguments.agents != "never":
            wanted["starts beside an agent"] = (self.beside, kills // 30)
        return [
            f"{found} {what}, not {least}"
            for what, (found, least) in wanted.items()
            if found < least
        ]


class Jobs:
    def __init__(self, arguments, seed):
        self.arguments, self.seed = arguments, seed
        self.tally, self.failed, self.lines = Tally(), [], queue.Queue()
        self.left = [
            min(KILLS_PER_JOB, arguments.kills - done)
            for done in range(0, arguments.kills, KILLS_PER_JOB)
        ]
        self.count, self.running = len(self.left), {}
        self.most = 2 * self.count
        self.begin = self.told = time.monotonic()

    def start(self):
        seed, kills = self.seed + self.count - len(self.left), self.left.pop(0)
        arguments = self.arguments
        command = [
            sys.executable,
            "-B",
            __file__,
            "--one-job",
            "--program",
            arguments.program,
            "--tool",
            arguments.tool,
            "--kills",
            str(kills),
            "--seed",
            str(seed),
            "--agents",
            arguments.agents,
            "--",
            *arguments.mpiexec,
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=end_with_parent,
        )
        self.running[seed] = process, []
        threading.Thread(target=self.read, args=(seed, process), daemon=True).start()

    def read(self, seed, process):
        for line in process.stdout:
            self.lines.put((seed, line))
        process.wait()
        self.lines.put((seed, None))

    def take(self, seed, line):
        process, text = self.running[seed]
        if line is None:
            del self.running[seed]
            if process.returncode != 0:
                self.failed.append(seed)
                print(f"---- the job of seed {seed} has failed:\n{''.join(text)}", flush=True)
            return
        try:
            fact = json.loads(line)
        except ValueError:
            fact = None
        if isinstance(fact, dict) and "kills" in fact:
            self.tally.add(fact)
        else:  # what a job says when it fails may hold pieces of JSON
            text.append(line)

    def needs_more(self):
        """Chance may leave too little of something. Then there are more jobs, up to twice as many."""
        if self.failed or self.count == self.most or not self.tally.too_little(self.arguments):
            return False
        self.left.append(KILLS_PER_JOB)
        self.count += 1
        return True

    def tell(self):
        seconds = time.monotonic() - self.begin
        print(f"chaos: {self.tally.line()}; {seconds:.0f} s", flush=True)
        self.told = time.monotonic()

    def run(self):
        try:
            while self.left or self.running or self.needs_more():
                while (
                    self.left
                    and len(self.running) < self.arguments.at_once
                    and len(self.failed) < MOST_FAILURES
                ):
                    self.start()
                if not self.running:
                    break  # too many have failed
                with contextlib.suppress(queue.Empty):
                    self.take(*self.lines.get(timeout=1))
                if time.monotonic() - self.told > TELL_EVERY_S:
                    self.tell()
        finally:
            for process, _ in self.running.values():
                process.terminate()
            for process, _ in self.running.values():
                process.wait()


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def test():
    arguments = arguments_of_test()
    if arguments.one_job:
        play(arguments)
        return
    seed = arguments.seed
    if seed is None:
        seed = int(os.environ.get("TAILRACE_SEED") or random.SystemRandom().randrange(1 << 31))
    mpi = family(arguments.mpiexec)
    jobs = Jobs(arguments, seed)
    print(
        f"chaos: at least {arguments.kills} kills in {jobs.count} jobs, "
        f"{arguments.at_once} at once, {mpi}; TAILRACE_SEED={seed}",
        flush=True,
    )
    jobs.run()
    jobs.tell()
    print(jobs.tally.table(), flush=True)
    for failed in jobs.failed:
        agents = "" if arguments.agents == "drawn" else f" AGENTS={arguments.agents}"
        print(
            f"replay: make chaos MPI={mpi} KILLS={KILLS_PER_JOB}{agents} SEED={failed}", flush=True
        )
    if jobs.failed:
        raise mpi_driver.Failure(
            f"{len(jobs.failed)} of {jobs.count} jobs; the lines above replay them"
        )
    if missing := jobs.tally.too_little(arguments):
        raise mpi_driver.Failure(
            f"that is too little to have tested anything: {'; '.join(missing)}"
        )


def family(mpiexec):
    version = subprocess.run([mpiexec[0], "--version"], capture_output=True, text=True, check=False)
    return "openmpi" if re.search("Open MPI|OpenRTE", version.stdout) else "mpich"


if __name__ == "__main__":
    mpi_driver.main(test)
