"""The figures of a report. Each function takes material and a theme and returns a Figure, or None when the material
has nothing for it. Figures of the papers are named by their numbers there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import data
import style
from matplotlib.figure import Figure as Drawing

Theme = dict[str, str]
MIB = 2**20
PLACEMENTS = {"contiguous": "-", "interleaved": "--", "append": ":"}


@dataclass
class Figure:
    """A drawing, with what a reader needs beside it, and the numbers it is made of."""

    name: str
    title: str
    about: str
    drawing: Drawing
    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)


def values_of(material: data.Material, setting: str) -> list[Any]:
    return sorted({run.settings[setting] for run in material.runs})


def spread(runs: list[data.BenchRun], measure: Callable[[data.BenchRun], float], **wanted: Any) -> data.Spread | None:
    """Of the runs with these settings, in MiB/s."""
    rates = [measure(run) / MIB for run in runs if all(run.settings[key] == wanted[key] for key in wanted)]
    return data.Spread.of(rates) if rates else None


def error_bars(spreads: list[data.Spread]) -> list[list[float]]:
    return [[s.median - s.least for s in spreads], [s.most - s.median for s in spreads]]


SWEPT = ("followers", "writers", "files", "placement", "buffers")


def one_load(material: data.Material) -> tuple[data.Material, str]:
    """The runs that differ in nothing but what is swept, of those the most; and a note when that are not all."""
    groups: dict[str, list[data.BenchRun]] = {}
    for run in material.runs:
        rest = {key: value for key, value in run.settings.items() if key not in SWEPT and key != "refused"}
        groups.setdefault(str(sorted(rest.items())), []).append(run)
    if not groups:
        return data.Material(), ""
    runs = max(groups.values(), key=len)
    settings = runs[0].settings
    left_out = len(material.runs) - len(runs)
    note = (
        f" Engine {settings['io_engine']}, direct I/O {settings['direct_io']}, buffers of "
        f"{short('_bytes', settings['buffer_bytes'])}, {settings['processes']} processes of "
        f"{short('_bytes', settings['process_bytes'])} per node"
    )
    note += f"; {left_out} runs with other settings are left out." if left_out else "."
    return data.Material(runs=runs), note


def throughput_over_followers(material: data.Material, theme: Theme) -> Figure | None:
    """ISPDC Figs. 1-3."""
    material, note = one_load(material)
    followers = values_of(material, "followers")
    files = values_of(material, "files")
    writers = values_of(material, "writers")
    if not material.runs or (len(followers) < 2 and len(writers) < 2):
        return None
    over = "followers" if len(followers) > 1 else "writers"
    lines = writers if over == "followers" else followers
    other = "writers" if over == "followers" else "followers"
    drawing = Drawing(figsize=(max(6.4, 3.6 * len(files)), 4.2), layout="constrained")
    grid = drawing.subplots(1, len(files), sharey=True, squeeze=False)[0]
    rows = []
    for axes, file_count in zip(grid, files, strict=True):
        for number, line in enumerate(lines):
            for placement, dash in PLACEMENTS.items():
                points = []
                for x in values_of(material, over):
                    wanted = {over: x, other: line, "files": file_count, "placement": placement}
                    if found := spread(material.runs, data.received_rate, **wanted):
                        points.append((x, found))
                        rows.append([file_count, placement, *sorted_pair(over, x, line), round(found.median),
                                     round(found.least), round(found.most), found.count])  # fmt: skip
                if points:
                    spreads = [found for _, found in points]
                    axes.errorbar([x for x, _ in points], [s.median for s in spreads], yerr=error_bars(spreads),
                                  linestyle=dash, marker="o", markersize=4, capsize=2, linewidth=1.5,
                                  color=style.colour(theme, number),
                                  label=f"{line} {other[:-1] if line == 1 else other}, {placement}")  # fmt: skip
        axes.set_title(f"{file_count} file{'s' if file_count > 1 else ''}")
        axes.set_xscale("log", base=2)
        axes.set_xticks(values_of(material, over), [str(x) for x in values_of(material, over)])
        axes.minorticks_off()
        axes.set_xlabel(over)
        axes.set_ylim(bottom=0)
    grid[0].set_ylabel("received data, MiB/s")
    handles, labels = grid[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=3)
    about = (
        f"Received bytes by the time until all writers have finished, over the number of {over}. Points are medians, "
        "bars reach from the least to the most. After Figs. 1 to 3 of the ISPDC paper." + note
    )
    columns = ["files", "placement", "followers", "writers", "median MiB/s", "least", "most", "runs"]
    return Figure("throughput", f"Throughput over {over}", about, drawing, columns, rows)


def sorted_pair(over: str, x: int, line: int) -> tuple[int, int]:
    """Followers, then writers."""
    return (x, line) if over == "followers" else (line, x)


def contiguous_against_interleaved(material: data.Material, theme: Theme) -> Figure | None:
    """The comparison of ISPDC section IV, as a ratio."""
    material, note = one_load(material)
    rows: list[list[Any]] = []
    for files in values_of(material, "files"):
        for followers in values_of(material, "followers"):
            for writers in values_of(material, "writers"):
                wanted = {"files": files, "followers": followers, "writers": writers}
                one = spread(material.runs, data.received_rate, placement="contiguous", **wanted)
                two = spread(material.runs, data.received_rate, placement="interleaved", **wanted)
                if one and two and two.median > 0:
                    rows.append([files, followers, writers, round(one.median), round(two.median),
                                 round(one.median / two.median, 3)])  # fmt: skip
    if not rows:
        return None
    drawing = Drawing(figsize=(max(6.4, 0.42 * len(rows) + 2), 3.8), layout="constrained")
    axes = drawing.subplots()
    files = sorted({row[0] for row in rows})
    for number, file_count in enumerate(files):
        places = [i for i, row in enumerate(rows) if row[0] == file_count]
        axes.bar(places, [rows[i][5] - 1 for i in places], bottom=1, color=style.colour(theme, number),
                 label=f"{file_count} file{'s' if file_count > 1 else ''}")  # fmt: skip
    axes.axhline(1, color=theme["muted"], linewidth=1)
    axes.set_xticks(range(len(rows)), [f"{row[1]}x{row[2]}" for row in rows], rotation=60 if len(rows) > 12 else 0)
    axes.set_xlabel("followers x writers")
    axes.set_ylabel("contiguous by interleaved")
    axes.legend()
    about = (
        "The throughput of contiguous placement (eq. 1) divided by that of interleaved placement (eq. 2), medians: "
        "above 1, contiguous is faster." + note
    )
    columns = ["files", "followers", "writers", "contiguous MiB/s", "interleaved MiB/s", "ratio"]
    return Figure("contiguous-interleaved", "Contiguous against interleaved", about, drawing, columns, rows)


# How a setting stands in a configuration's label.
LABELS = {
    "followers": "{} followers", "processes": "{} processes", "process_bytes": "of {}", "placement": "{}",
    "files": "{} files", "writers": "{} writers", "buffers": "{} x", "buffer_bytes": "{}", "block_bytes": "block {}",
    "io_engine": "{}", "queue_depth": "depth {}", "direct_io": "direct {}", "durable": "durable {}",
}  # fmt: skip


def all_configurations(material: data.Material, theme: Theme) -> Figure | None:
    """Every configuration's rate until durable, fastest first; the fastest thirty."""
    if not material.runs:
        return None
    keys = [key for key in LABELS if len(values_of(material, key)) > 1]
    found: dict[tuple[Any, ...], list[data.BenchRun]] = {}
    for run in material.runs:
        found.setdefault(tuple(run.settings[key] for key in keys), []).append(run)
    order = sorted(((spread(runs, data.rate), settings) for settings, runs in found.items()),
                   key=lambda pair: -pair[0].median if pair[0] else 0)  # fmt: skip
    labels, spreads, rows = [], [], []
    for one, settings in order:
        assert one is not None
        parts = [LABELS[key].format(short(key, value)) for key, value in zip(keys, settings, strict=True)]
        labels.append(" ".join(parts) or "as given")
        spreads.append(one)
        rows.append([labels[-1], round(one.median), round(one.least), round(one.most), one.count])
    shown = min(30, len(rows))
    drawing = Drawing(figsize=(4.5 + 0.065 * max(map(len, labels)), 1.2 + 0.26 * shown), layout="constrained")
    axes = drawing.subplots()
    axes.barh(range(shown), [s.median for s in spreads[:shown]], xerr=error_bars(spreads[:shown]), height=0.7,
              color=style.colour(theme, 0), ecolor=theme["ink"], capsize=2)  # fmt: skip
    axes.set_yticks(range(shown), labels[:shown])
    axes.set_ylim(shown - 0.4, -0.6)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("MiB/s until durable" if all(run.settings["durable"] for run in material.runs) else "MiB/s")
    about = (
        "All bytes by the time from making the files until they are durable; medians, bars from the least to the "
        f"most. The fastest {shown} of {len(rows)} configurations; the table has all."
    )
    return Figure("configurations", "Configurations", about, drawing,
                  ["configuration", "median MiB/s", "least", "most", "runs"], rows)  # fmt: skip


def short(key: str, value: Any) -> str:
    """A size in MiB, anything else as it is."""
    return f"{value / MIB:g}MiB" if key.endswith("_bytes") and value else str(value)


BENCH_FIGURES = [throughput_over_followers, contiguous_against_interleaved, all_configurations]
