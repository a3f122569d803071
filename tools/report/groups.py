"""Which runs and sessions may be pooled, and what distinguishes the others. Each has facts, by name.
Only those with equal facts make one median. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any, TypeVar

Facts = dict[str, Any]
Item = TypeVar("Item")

# How a label shows a fact whose name and value alone read badly.
LABELS = {
    "followers": "{} followers", "processes": "{} processes", "process_bytes": "processes of {}",
    "imbalance_percent": "+-{} %", "local": "local data {}", "placement": "{}", "files": "{} files",
    "writers": "{} writers", "buffers": "{} buffers", "buffer_bytes": "buffers of {}", "block_bytes": "blocks of {}",
    "io_engine": "{}", "queue_depth": "depth {}", "direct_io": "direct {}", "host": "on {}", "directory": "in {}",
    "shared_dir": "in {}", "local_directory": "local in {}", "local_dir": "local in {}", "file_system": "{}",
    "local_file_system": "local on {}", "ranks": "{} ranks",
}  # fmt: skip


def pooled(items: Iterable[tuple[Facts, Item]]) -> list[tuple[Facts, list[Item]]]:
    """Items with equal facts together, in the order in which they first occur."""
    groups: dict[str, tuple[Facts, list[Item]]] = {}
    for facts, item in items:
        groups.setdefault(repr(sorted(facts.items())), (facts, []))[1].append(item)
    return list(groups.values())


def differing(many: list[Facts]) -> list[str]:
    """The names of facts that are not equal in all items that have them."""
    names = dict.fromkeys(name for facts in many for name in facts)
    return [name for name in names if len({repr(facts[name]) for facts in many if name in facts}) > 1]


def short_paths(paths: list[str]) -> dict[str, str]:
    """The paths without the components that all begin and end with, if all begin with more than the
    root."""
    parts = [path.split("/") for path in paths]
    most = min(map(len, parts)) - 1
    head = next((i for i in range(most) if len({part[i] for part in parts}) > 1), most)
    if head == 1:  # only the root is equal
        return {path: path for path in paths}
    tail = next((i for i in range(most - head) if len({part[-1 - i] for part in parts}) > 1), most - head)
    return {path: "/".join(part[head : len(part) - tail]) for path, part in zip(paths, parts, strict=True)}


def labels(many: list[Facts], leave: tuple[str, ...] = ()) -> list[list[str]]:
    """For each item, the facts that distinguish it from the others, except those in `leave`. A fact
    that an item lacks is not named."""
    found: list[list[str]] = [[] for _ in many]
    for name in differing(many):
        if name in leave:
            continue
        values = sorted({facts[name] for facts in many if isinstance(facts.get(name), str)})
        paths = short_paths(values) if values and all(value.startswith("/") for value in values) else {}
        for facts, parts in zip(many, found, strict=True):
            if name in facts:
                shown = paths.get(facts[name], short(name, facts[name]))
                parts.append(LABELS.get(name, name.replace("_", " ") + " {}").format(shown))
    return found


def short(name: str, value: Any) -> str:
    """A size in MiB, a switch as yes or no, anything else unchanged."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes") and isinstance(value, int) and value:
        return f"{value / 2**20:g}MiB"
    return str(value)


def letter(number: int) -> str:
    """A short name for a label that is too long."""
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def wrapped(text: str, width: int) -> str:
    """The text in lines that fit a drawing. Nothing is left out."""
    return textwrap.fill(text, width, break_on_hyphens=False)
