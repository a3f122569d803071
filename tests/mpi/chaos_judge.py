"""What must be true after each death of chaos_job.py's program, whatever has died and when."""

import json
import re
import time

KEEP_SHARED = 3  # as kill_loop_mpi.c sets it

# The log of a program.
PROTECTED = re.compile(r"node (\d+): its share of epoch (\d+) of run (\d+) is protected")
REBUILT = re.compile(r"lost captured parts were rebuilt")
READ_FROM = re.compile(
    r"is read from (the shared directory, and|the shared directory|the node-local tier)"
)
TIER = {"the node-local tier": "local", "the shared directory": "shared"}


def newest(keys):
    return max((epoch for _, epoch in keys), default=0)


def waiting_in(said):
    """(key, numbers of nodes) of the epochs that wait, by the JSON of an agent or a drain."""
    try:
        epochs = json.JSONDecoder().raw_decode(said)[0]["epochs"]
    except (ValueError, KeyError):
        return []
    return [
        (
            (epoch["run"], epoch["epoch"]),
            {int(number) for text in epoch["waiting_for"] for number in re.findall(r"\bnode (\d+)", text)},
        )
        for epoch in epochs
        if epoch["state"] == "waiting"
    ]


class Judge:
    """Keys are (run, epoch). Methods that find something wrong call job.fail()."""

    def __init__(self, job):
        self.job = job
        self.layouts = {}  # by run
        self.committed = set()  # what a rank or `tailrace ls` has called so
        self.bound = 0  # no start may restore an older epoch
        self.rebuilds = False  # the next start has to rebuild parts for that

    def note_layout(self, said):
        """Of the run that has saved. It may have died after the last node had called the epoch
        protected, and before a rank had returned from its save."""
        protected = {int(run) for _, _, run in PROTECTED.findall(self.job.output())}
        for run in protected | {run for run, _ in said.keys("saved")}:
            self.layouts[run] = self.job.round.layout

    def complete(self):
        if not self.job.shared.is_dir():
            return set()
        status, text = self.job.command("ls", "--json", self.job.shared)
        try:
            epochs = json.JSONDecoder().raw_decode(text)[0]["epochs"]
        except (ValueError, KeyError):
            self.job.fail(f"ls ended with status {status} and printed {text}")
        return {(epoch["run"], epoch["epoch"]) for epoch in epochs if epoch["state"] == "complete"}

    def check_committed(self):
        """Committed epochs are there, or three newer ones are. Returns what is complete."""
        self.committed |= self.job.said().keys("committed")
        # While an agent works, a listing may miss an epoch that is just being given its names, and
        # not an older one that has gone for it.
        for last in (False, False, True):
            complete = self.complete()
            lost = {
                key
                for key in self.committed - complete
                if sum(newer > key for newer in complete) < KEEP_SHARED
            }
            if not lost:
                break
            if last:
                self.job.fail(f"{sorted(lost)} were committed; there are {sorted(complete)}")
            time.sleep(0.2)
        self.committed |= complete
        return complete

    def check_restored(self):
        """Returns from where the program has restored: local, rebuilt, shared or both; fresh if
        there was nothing; None if it has not come that far."""
        said = self.job.said()
        if said.sentences("wrong"):
            self.job.fail("; ".join(said.sentences("wrong")))
        restored = said.numbers("restored")
        if min(restored, default=0) < self.bound and (restored or said.numbers("fresh")):
            self.job.fail(f"epoch {min(restored, default=0)} was restored, not {self.bound}")
        if said.numbers("fresh"):
            return "fresh"
        output = self.job.output()
        found = READ_FROM.findall(output)
        if not restored or not found:
            return None
        return "rebuilt" if REBUILT.search(output) else TIER.get(found[-1], "both")

    def check_kept(self):
        """While no tier is lost: what all ranks have saved is captured still, and what all nodes
        have called protected is protected still; or it is committed, or a newer epoch is. Returns
        how many epochs were called protected."""
        seen, nodes = self.job.look(), {}
        for node, epoch, run in PROTECTED.findall(self.job.output()):
            nodes.setdefault((int(run), int(epoch)), set()).add(int(node))
        layout = self.job.round.layout
        called = {key for key, found in nodes.items() if len(found) == layout.nodes()}
        for what, epoch, good in (
            ("saved", self.job.said().saved_by_all(), seen.whole(layout.ranks)),
            ("protected", newest(called), seen.protected(self.layouts)),
        ):
            if newest(good | self.committed) < epoch:
                self.job.fail(f"epoch {epoch} was {what} by all, and is gone; there is {seen}")
        return len(called)

    def planned_everywhere(self):
        return self.job.look().planned_everywhere(self.layouts)

    def check_finished(self, said):
        """What every node has a plan record of is committed, or something newer is. The exception is
        an epoch of fewer nodes: the others may wait with a newer one for a lost node that never had
        the older one, and so cannot bring them back to it."""
        complete = self.check_committed()
        plans, waiting = self.job.look().plans, waiting_in(said)
        left = {
            key
            for key in self.planned_everywhere()
            if key > max(complete, default=(0, 0))
            and not any(newer > key and not nodes & plans[key] for newer, nodes in waiting)
        }
        if left:
            self.job.fail(f"{left} have a plan record on every node and were not committed: {said}")
        return complete

    def find_bound(self):
        """What the next start has to restore at least."""
        seen = self.job.look()
        keys = self.committed | seen.whole(self.job.round.layout.ranks)
        self.bound = newest(keys | seen.survivors(self.layouts))
        self.rebuilds = self.bound > newest(keys)
