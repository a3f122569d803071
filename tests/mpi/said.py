"""What the ranks of kill_loop_mpi.c have said of one start; that file says what the facts mean."""

import os


class Said:
    def __init__(self, directory, start, ranks):
        self.ranks = ranks
        self.facts = []  # (rank, fact, number, more)
        for rank in range(ranks):
            try:
                with open(
                    os.path.join(directory, "said", f"{start}.{rank}"), encoding="utf-8"
                ) as file:
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

    def keys(self, fact):
        """(run, epoch) of facts that name both."""
        return {(int(run), epoch) for _, f, epoch, run in self.facts if f == fact}

    def pids(self):
        return {rank: number for rank, fact, number, _ in self.facts if fact == "pid"}

    def saved_by_all(self):
        return min(max(self.numbers("saved", rank), default=0) for rank in range(self.ranks))
