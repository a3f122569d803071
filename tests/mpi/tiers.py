"""What lies in the tiers of a job, by the names of its files (docs/format.md), and what must be
restorable from it.

`look()` takes a snapshot while processes may be at work. A key is (run, epoch), so that the
greatest is what the newest run has reached. Nothing is opened.
"""

import dataclasses
import os
import pathlib
import re

PART = re.compile(r"\.e(\d+)\.r(\d+)\.p(\d+)\.capture(\.unfinished)?$")
PLAN = re.compile(r"\.e(\d+)\.r(\d+)\.n(\d+)\.(?:local-)?plan$")
OBJECT = re.compile(r"\.e(\d+)\.r(\d+)\.n(\d+)\.protect(\.unfinished)?$")
SHARED = re.compile(r"\.e(\d+)\.r(\d+)\.(\d+)of(\d+)\.tailrace(\.unfinished|\.takeover)?$")


@dataclasses.dataclass
class Layout:
    """How a run places its ranks, and what of them may be lost."""

    ranks: int
    ranks_per_node: int
    redundancy: str

    def nodes(self):
        return -(-self.ranks // self.ranks_per_node)

    def ranks_of(self, node):
        return range(node * self.ranks_per_node, min(self.ranks, (node + 1) * self.ranks_per_node))

    def losses(self):
        """How many nodes may be lost, whichever they are."""
        asked = {"none": 0, "partner": 1, "xor": 1}.get(self.redundancy)
        if asked is None:
            asked = int(self.redundancy.removeprefix("rs:"))
        return min(asked, self.nodes() - 1)


@dataclasses.dataclass
class Tiers:
    parts: dict = dataclasses.field(default_factory=dict)  # key -> ranks with a captured part
    plans: dict = dataclasses.field(default_factory=dict)  # key -> nodes with a plan record
    objects: dict = dataclasses.field(default_factory=dict)  # key -> nodes with a protect object
    capturing: set = dataclasses.field(
        default_factory=set
    )  # keys with something unfinished, as are the next
    protecting: set = dataclasses.field(default_factory=set)
    flushing: set = dataclasses.field(default_factory=set)
    taken_over: set = dataclasses.field(default_factory=set)
    names: int = 0  # changes when something has happened

    def newest_run(self):
        return max(
            (key[0] for found in (self.parts, self.plans, self.objects) for key in found), default=0
        )

    def whole(self, ranks):
        """Keys of which every rank has a captured part."""
        return {key for key, found in self.parts.items() if len(found) == ranks}

    def protected(self, layouts):
        """Keys of which every node has all captured parts and its object. `layouts`: by run."""
        return {
            key
            for key, nodes in self.objects.items()
            if (layout := layouts.get(key[0])) is not None
            and layout.losses() > 0
            and len(self.parts.get(key, ())) == layout.ranks
            and len(nodes) == layout.nodes()
        }

    def survivors(self, layouts):
        """Keys that can be rebuilt: no more nodes are lost than may be. A node counts as lost if
        any of its captured parts is missing, or its object."""
        return {
            key
            for key in self.objects
            if key[0] in layouts
            and len(self.lost(key, layouts[key[0]])) <= layouts[key[0]].losses()
        }

    def lost(self, key, layout):
        parts, objects = self.parts.get(key, set()), self.objects.get(key, set())
        return [
            node
            for node in range(layout.nodes())
            if node not in objects or not parts.issuperset(layout.ranks_of(node))
        ]

    def planned_everywhere(self, layouts):
        return {
            key
            for key, nodes in self.plans.items()
            if key[0] in layouts and len(nodes) == layouts[key[0]].nodes()
        }

    def phases(self, ranks, nodes, since):
        """What is under way: of runs later than `since`, because earlier ones may have left half of
        something; or of a drain."""
        found = set()
        captured = max((key for key in self.parts if key[0] > since), default=None)
        half_captured = captured is not None and len(self.parts[captured]) < ranks
        if half_captured or any(key[0] > since for key in self.capturing):
            found.add("capture")
        kept = max((key for key in self.objects if key[0] > since), default=None)
        half_kept = kept is not None and len(self.objects[kept]) < nodes
        if half_kept or any(key[0] > since for key in self.protecting):
            found.add("protection")
        if self.flushing:
            found.add("flush")
        if self.taken_over:
            found.add("drain")
        return found


def names_in(directory):
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def nodes_in(local):
    """The nodes' directories in a node-local tier."""
    return sorted(path for path in pathlib.Path(local).glob("*.node*") if path.is_dir())


def look(directories, shared):
    """`directories` are nodes_in() of one or more tiers."""
    tiers = Tiers()
    for directory in directories:
        for name in names_in(directory):
            tiers.names += hash(name)
            if match := PART.search(name):
                key = (int(match[2]), int(match[1]))
                if match[4]:
                    tiers.capturing.add(key)
                else:
                    tiers.parts.setdefault(key, set()).add(int(match[3]))
            elif match := PLAN.search(name):
                tiers.plans.setdefault((int(match[2]), int(match[1])), set()).add(int(match[3]))
            elif match := OBJECT.search(name):
                key = (int(match[2]), int(match[1]))
                if match[4]:
                    tiers.protecting.add(key)
                else:
                    tiers.objects.setdefault(key, set()).add(int(match[3]))
    for name in names_in(shared):
        tiers.names += hash(name)
        if match := SHARED.search(name):
            key = (int(match[2]), int(match[1]))
            if match[5] == ".unfinished":
                tiers.flushing.add(key)
            elif match[5] == ".takeover":
                tiers.taken_over.add(key)
    return tiers
