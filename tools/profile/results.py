"""The report on a watched program: which files count, as a JSON document and as a table. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from tally import Tally
from watcher import Watcher

Json = dict[str, Any]
GIB = 2**30
MOST_ROWS = 20  # files in a table

# Files that belong to a program, rather than to its work. They are left out if they are only read.
PROGRAM_SUFFIX = re.compile(r"\.(py|pyc|pyi|pth|so|so\.[0-9.]+|a|o|mod|h|jar|class)$")
PROGRAM_PLACES = ("/usr/", "/lib/", "/lib32/", "/lib64/", "/bin/", "/sbin/", "/etc/", "/var/lib/", "/nix/", "/snap/")
PROGRAM_PARTS = ("/site-packages/", "/dist-packages/", "/lib/python3", "/__pycache__/", "/pyvenv.cfg")

# The bins of the histograms for people: an upper bound in bytes, and a name.
BINS = [(4096, "< 4 KiB"), (65536, "< 64 KiB"), (1 << 20, "< 1 MiB"), (1 << 24, "< 16 MiB"), (1 << 62, "larger")]


def is_program(path: str) -> bool:
    """Whether the name is that of a part of a program or of the system."""
    return (
        path.startswith(PROGRAM_PLACES)
        or PROGRAM_SUFFIX.search(path) is not None
        or any(part in path for part in PROGRAM_PARTS)
    )


def chooser(directories: list[str], everything: bool) -> Callable[[str, Tally], bool]:
    """A function that tells whether a file counts, by its name and what was written to it. With
    `directories`, files below one of them count. Otherwise all files count if `everything` is set,
    and else all except those that a program only reads to run."""
    below = [os.path.join(os.path.realpath(directory), "") for directory in directories]

    def counts(path: str, save: Tally) -> bool:
        if below:
            return any(path.startswith(directory) for directory in below) or path + "/" in below
        return everything or save.calls > 0 or not is_program(path)

    return counts


def document(watcher: Watcher, counts: Callable[[str, Tally], bool], about: Json) -> Json:
    """The JSON document: phases, files, and what strace could not see. `about` comes first."""
    phases = {"save": Tally(), "restore": Tally()}
    files: list[Json] = []
    numbers = {"save": 0, "restore": 0}
    left_out = {"files": 0, "calls": 0}
    mapped = []
    for path, file in sorted(watcher.files.items()):
        save, restore = file.totals()
        # Opening a directory to list it is no input or output. Opening it to sync it is.
        told = [(name, tally) for name, tally in (("save", save), ("restore", restore))
                if tally.calls > (tally.opens if file.directory else 0)]  # fmt: skip
        calls = sum(tally.calls for _, tally in told)
        if not told:
            continue
        if not counts(path, save):
            left_out["files"] += 1
            left_out["calls"] += calls
            continue
        entry: Json = {"path": path}
        for name, tally in told:
            entry[name] = tally.to_json()
            phases[name].add(tally)
            numbers[name] += 1
        if save.maps or restore.maps:
            mapped.append(path)
        files.append(entry)
    return {
        "tailrace_profile": 1,
        **about,
        "processes": watcher.processes,
        "threads": watcher.threads,
        "phases": {
            name: {"files": numbers[name], **tally.to_json(), "calls": tally.calls} for name, tally in phases.items()
        },
        "size_bins": BINS,
        "whole_syncs": watcher.whole_syncs,
        "unseen": {"io_urings": watcher.io_urings, "mapped_files": mapped},
        "left_out": left_out,
        "files": files,
    }


def binned(sizes: dict[str, int]) -> list[int]:
    """A histogram by powers of two, in the bins for people."""
    counts = [0] * len(BINS)
    for size, count in sizes.items():
        counts[next(number for number, (below, _) in enumerate(BINS) if int(size) < below)] += count
    return counts


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def columns(rows: list[list[str]]) -> list[str]:
    """Lines with columns as wide as their widest cell. The first is aligned left, the others right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) if at == 0 else cell.rjust(width)
                  for at, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]  # fmt: skip


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def table(results: Json) -> str:
    """The document as text for people."""
    phases = results["phases"]
    lines = [
        f"{counted(results['processes'], 'process')}, {counted(results['threads'], 'thread')}; "
        f"exit status {results['exit_status']}",
        "",
    ]
    head = ["", "files", "opens", "writes", "written", "reads", "read", "seeks", "backward", "syncs", "calls/GiB"]
    rows = [head]
    for name, phase in phases.items():
        moved = phase["read_bytes"] + phase["written_bytes"]
        rows.append([
            name, *(str(phase[key]) for key in ("files", "opens", "writes")), size_text(phase["written_bytes"]),
            str(phase["reads"]), size_text(phase["read_bytes"]), str(phase["seeks"]),
            str(phase["backward_seeks"] + phase["backward_offsets"]), str(phase["syncs"]),
            f"{phase['calls'] * GIB / moved:.0f}" if moved else "-",
        ])  # fmt: skip
    lines += columns(rows)
    for phase, what, noun in (("save", "write", "writes"), ("restore", "read", "reads")):
        lines += histogram(results["files"], phase, what, noun)
    save, restore = phases["save"], phases["restore"]
    if save["writes"] and restore["reads"]:
        lines += ["", f"reads at restore for each write of a save: {restore['reads'] / save['writes']:.2f}"]
    lines += notes(results)
    return "\n".join(lines) + "\n"


def histogram(files: list[Json], phase: str, what: str, noun: str) -> list[str]:
    """Calls by size for each file, the busiest first."""
    busy = [file for file in files if file.get(phase, {}).get(noun)]
    if not busy:
        return []
    busy.sort(key=lambda file: (-file[phase][noun], file["path"]))
    top = os.path.commonpath([os.path.dirname(file["path"]) for file in busy])
    rows = [[f"{noun} of {phase}", *(name for _, name in BINS), "bytes", "backward"]]
    for file in busy[:MOST_ROWS]:
        tally = file[phase]
        size = tally["written_bytes" if what == "write" else "read_bytes"]
        backward = tally["backward_seeks"] + tally["backward_offsets"]
        rows.append([shown(os.path.relpath(file["path"], top)), *map(str, binned(tally[what + "_sizes"])),
                     size_text(size), str(backward)])  # fmt: skip
    lines = ["", f"in {shown(top)}:", *columns(rows)]
    if len(busy) > MOST_ROWS:
        rest = busy[MOST_ROWS:]
        lines.append(f"and {counted(sum(file[phase][noun] for file in rest), what)} in {counted(len(rest), 'file')}")
    return lines


def shown(name: str) -> str:
    """A name without characters that could move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)


def notes(results: Json) -> list[str]:
    """What the numbers do not contain."""
    found = []
    unseen = results["unseen"]
    if unseen["io_urings"]:
        found.append(
            f"io_uring was set up ({counted(unseen['io_urings'], 'time')}): I/O through it makes no system calls "
            "and is missing above. TAILRACE_IO_ENGINE=posix tells tailrace not to use it"
        )
    if mapped := unseen["mapped_files"]:
        found.append(
            f"{counted(len(mapped), 'file')} mapped into memory (mmap), {shown(mapped[0])} first: reads and writes "
            "through a mapping make no system calls and are missing above"
        )
    if results["whole_syncs"]:
        found.append(f"{counted(results['whole_syncs'], 'call')} of sync(2), which belongs to no file")
    if left_out := results["left_out"]["files"]:
        found.append(
            f"left out: {counted(results['left_out']['calls'], 'call')} on {counted(left_out, 'file')} "
            + ("outside of --dir" if results["directories"] else "that belong to programs (--all counts them)")
        )
    return ["", *(f"note: {note}" for note in found)] if found else []
