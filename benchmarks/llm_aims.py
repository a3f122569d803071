"""The aims of `make bench-llm`: what is measured of tailrace's ways, and what it should be.

Pure: takes rows (bench_llm.summarize) and returns the lines of a table. An aim that was not
measured says so.
"""

import re
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
MIB = 2**20
# Each blocks the program until it has written. Some also sync.
SYNCHRONOUS = ("torch.save", "safetensors", "DCP", "DCP safetensors", "torchsnapshot", "DeepSpeed")
BEST_ASYNCHRONOUS = "DCP async"
# For programs that need some of the tensors. The aims are those of loads of everything.
TENSOR_BY_TENSOR = ("tailrace.torch.save, mmap", "tailrace.torch.open")


@dataclass
class Verdict:
    """`reached` is None if nothing was measured."""

    what: str
    measured: str
    aim: str
    reached: bool | None
    which: str = ""  # tailrace's ways that fall short


def verdicts(rows: dict[str, Row], ranks: int) -> list[Verdict]:
    ours = {name: row for name, row in rows.items() if name.startswith("tailrace") and name not in TENSOR_BY_TENSOR}
    state_bytes = max((row["bytes"] for row in ours.values()), default=0) / ranks
    asynchronous = {name: row for name, row in ours.items() if "async" in name}
    theirs = {name: rows[name]["blocked"] for name in SYNCHRONOUS if name in rows}
    best = rows.get(BEST_ASYNCHRONOUS)
    return [
        _each("files beyond K", {name: row["files"] - _files_of(name, ranks) for name, row in ours.items()},
              "{:.0f}", "0", lambda value: value == 0),
        _each("blocked, of DCP async warm",
              {name: row["blocked"] / best["blocked"] for name, row in asynchronous.items()} if best else {},
              "{:.2f}", "at most 1.00", lambda value: value <= 1),
        *(_each(f"blocked, of {name}", {our: row["blocked"] / blocked for our, row in asynchronous.items()},
                "{:.2f}", "at most 0.20", lambda value: value <= 0.2) for name, blocked in theirs.items()),
        _each("durable, x raw direct write", _values(ours, "durable_ratio"), "{:.2f}", "at least 0.95",
              lambda value: value >= 0.95),
        _each("cold load, x raw read", _values(ours, "load_ratio"), "{:.2f}", "at least 1.00",
              lambda value: value >= 1),
        _each("reads per write", _values(ours, "reads_per_write"), "{:.2f}", "at most 1.00", lambda value: value <= 1),
        _each("backward seeks of a load", _values(ours, "backward"), "{:.0f}", "0", lambda value: value == 0),
        _each("extra memory of a warm save, MiB", _values(ours, "save_memory", MIB), "{:.0f}",
              f"at most {state_bytes / MIB + 64:.0f}", lambda value: value <= state_bytes / MIB + 64),
        _each("extra private memory of a load, MiB", _values(ours, "load_memory", MIB), "{:.0f}", "at most 64",
              lambda value: value <= 64),
        _each("syncs of a save", _values(ours, "syncs"), "{:.0f}", "1 or more", lambda value: value >= 1),
    ]  # fmt: skip


def table(found: list[Verdict]) -> list[str]:
    cells = [("what", "measured", "aim", "reached")]
    for verdict in found:
        said = {True: "yes", False: f"no: {verdict.which}", None: "not measured"}[verdict.reached]
        cells.append((verdict.what, verdict.measured, verdict.aim, said))
    widths = [*(max(len(row[column]) for row in cells) for column in range(3)), 0]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def _each(what: str, values: dict[str, float], form: str, aim: str, holds: Any) -> Verdict:
    """An aim for several ways. Each of them must reach it."""
    if not values:
        return Verdict(what, "-", aim, None)
    low, high = form.format(min(values.values())), form.format(max(values.values()))
    short = [name.removeprefix("tailrace").strip(" .") for name, value in values.items() if not holds(value)]
    return Verdict(what, low if low == high else f"{low} to {high}", aim, not short, "; ".join(short))


def _values(rows: dict[str, Row], key: str, unit: float = 1) -> dict[str, float]:
    return {name: row[key] / unit for name, row in rows.items() if row.get(key) is not None}


def _files_of(name: str, ranks: int) -> int:
    found = re.search(r"K = (\d+)", name)
    return int(found[1]) if found else ranks  # tailrace.torch.save: one for each process
