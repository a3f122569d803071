"""The figures of `tailrace profile`'s results, after Figs. 8 to 10 of the doctoral showcase poster."""

from __future__ import annotations

import os
from collections.abc import Callable

import data
import style
from figures import Figure, Theme
from matplotlib.figure import Figure as Drawing

KINDS = ("opens", "writes", "reads", "seeks", "syncs")
MOST_FILES = 24
PHASES = ("save", "restore")


def calls_by_kind(material: data.Material, theme: Theme) -> Figure | None:
    """Poster Fig. 8: calls of the save and the restore phase by kind."""
    if not material.profiles:
        return None
    rows = []
    drawing = Drawing(figsize=(max(6.4, 2.4 * len(material.profiles) + 2), 4.2), layout="constrained")
    axes = drawing.subplots()
    places: list[float] = []
    names: list[str] = []
    for number, (label, profile) in enumerate(material.profiles):
        for offset, phase in enumerate(PHASES):
            counts = profile["phases"][phase]
            place = 2.5 * number + offset
            below = 0
            for series, kind in enumerate(KINDS):
                height = counts[kind]
                axes.bar(place, height, bottom=below, width=0.8, color=style.colour(theme, series),
                         label=kind if not places else None)  # fmt: skip
                below += height
            back = counts["backward_seeks"] + counts["backward_offsets"]
            if back:
                axes.text(place, below, f"{back} backward", ha="center", va="bottom", fontsize=8)
            places.append(place)
            names.append(f"{phase}\n{label}" if len(material.profiles) > 1 else phase)
            rows.append([label, phase, counts["files"], *(counts[kind] for kind in KINDS), counts["backward_seeks"],
                         counts["backward_offsets"], counts["written_bytes"], counts["read_bytes"]])  # fmt: skip
    axes.set_xticks(places, names)
    axes.set_ylabel("calls")
    axes.margins(y=0.1)
    axes.legend()
    about = (
        "The calls of a program's checkpoints to the file system, in the phase that saves and the one that restores. "
        "Backward are seeks and offsets before the place where the last access ended. "
        + " ".join(unseen(label, profile) for label, profile in material.profiles)
        + " After Fig. 8 of the poster."
    )
    columns = ["profile", "phase", "files", *KINDS, "backward seeks", "backward offsets", "bytes written", "bytes read"]
    return Figure("io-calls", "Calls while saving and restoring", about, drawing, columns, rows)


def unseen(label: str, profile: data.Json) -> str:
    """What strace could not see of this program, as a sentence. Empty if it could see everything."""
    found = []
    if profile["unseen"]["io_urings"]:
        found.append("io_uring")
    if profile["unseen"]["mapped_files"]:
        found.append("mappings of files")
    return f"{label} used {' and '.join(found)}, which the counts do not include." if found else ""


def by_size(phase: str, kind: str, sizes: str, number: int) -> Callable[[data.Material, Theme], Figure | None]:
    """Poster Figs. 9 and 10: calls by size, for the files with the most calls."""

    def draw(material: data.Material, theme: Theme) -> Figure | None:
        bars = []
        for label, profile in material.profiles:
            for file in profile["files"]:
                if file.get(phase, {}).get(kind):
                    bars.append((label, profile["size_bins"], file))
        if not bars:
            return None
        bars.sort(key=lambda bar: (-bar[2][phase][kind], bar[0], bar[2]["path"]))
        bins = bars[0][1]
        top = os.path.commonpath([os.path.dirname(file["path"]) for _, _, file in bars])
        shown = bars[:MOST_FILES]
        drawing = Drawing(figsize=(8.0, 1.4 + 0.28 * len(shown)), layout="constrained")
        axes = drawing.subplots()
        rows, labels = [], []
        for place, (label, _, file) in enumerate(bars):
            counts = binned(file[phase][sizes], bins)
            name = os.path.relpath(file["path"], top)
            rows.append([f"{label}: {name}" if len(material.profiles) > 1 else name, *counts,
                         file[phase]["backward_seeks"] + file[phase]["backward_offsets"]])  # fmt: skip
            if place >= MOST_FILES:
                continue
            labels.append(rows[-1][0] if len(rows[-1][0]) < 60 else "..." + rows[-1][0][-57:])
            left = 0
            for series, (count, (_, bin_name)) in enumerate(zip(counts, bins, strict=True)):
                axes.barh(place, count, left=left, height=0.75, color=style.colour(theme, series),
                          label=bin_name if place == 0 else None)  # fmt: skip
                left += count
        axes.set_yticks(range(len(shown)), labels)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(kind)
        axes.legend(title="bytes")
        about = (
            f"The {kind} of the {phase} phase by size, for each file below {top}"
            + (f"; the {len(shown)} files with the most of {len(bars)}" if len(bars) > len(shown) else "")
            + f". A parallel file system serves few and large ones best. After Fig. {number} of the poster."
        )
        columns = ["file", *(name for _, name in bins), "backward"]
        return Figure(f"io-{kind}", f"{kind.capitalize()} of the {phase} phase by size", about, drawing, columns, rows)

    return draw


def binned(sizes: dict[str, int], bins: list[tuple[int, str]]) -> list[int]:
    """A histogram by powers of two, in wider bins."""
    counts = [0] * len(bins)
    for size, count in sizes.items():
        counts[next(at for at, (below, _) in enumerate(bins) if int(size) < below)] += count
    return counts


PROFILE_FIGURES = [
    calls_by_kind,
    by_size("save", "writes", "write_sizes", 9),
    by_size("restore", "reads", "read_sizes", 10),
]
