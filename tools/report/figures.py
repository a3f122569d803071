"""The figures of a report. Each function takes material and a theme and returns a Figure, or None if
the material has nothing for it. Figures from the papers keep their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import data
import groups
import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

Theme = dict[str, str]
MIB = 2**20
PLACEMENTS = {"contiguous": "-", "interleaved": "--", "append": ":"}


@dataclass
class Figure:
    """A drawing, with the text a reader needs beside it, and the numbers it is made of."""

    name: str
    title: str
    about: str
    drawing: Drawing
    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)


def values_of(material: data.Material, setting: str) -> list[Any]:
    return sorted({run.settings[setting] for run in material.runs})


def spread(runs: list[data.BenchRun], measure: Callable[[data.BenchRun], float], **wanted: Any) -> data.Spread | None:
    """The spread of the runs with these settings, in MiB/s."""
    rates = [measure(run) / MIB for run in runs if all(run.settings[key] == wanted[key] for key in wanted)]
    return data.Spread.of(rates) if rates else None


def error_bars(spreads: list[data.Spread]) -> list[list[float]]:
    return [[s.median - s.least for s in spreads], [s.most - s.median for s in spreads]]


def legend_below(drawing: Drawing, columns: int) -> None:
    """One legend for all panels, where it covers nothing. Each label occurs once, whichever panel has
    it."""
    found: dict[str, Any] = {}
    for axes in drawing.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    drawing.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns)


SWEPT = ("followers", "writers", "files", "placement")


def one_load(material: data.Material) -> tuple[data.Material, str]:
    """The largest set of runs that differ only in what is swept, and a note if others are left out."""
    loads = groups.pooled(({key: value for key, value in run.settings.items() if key not in SWEPT}, run)
                          for run in material.runs)  # fmt: skip
    if not loads:
        return data.Material(), ""
    settings, runs = max(loads, key=lambda load: len(load[1]))
    left_out = len(material.runs) - len(runs)
    note = (
        f" Engine {settings['io_engine']}, direct I/O {settings['direct_io']}, {settings['buffers']} buffers of "
        f"{groups.short('_bytes', settings['buffer_bytes'])}, {settings['processes']} processes of "
        f"{groups.short('_bytes', settings['process_bytes'])} per node, on {settings['host']} in "
        f"{settings['directory']} ({settings['file_system']})"
    )
    if left_out:
        why = ", ".join(name.replace("_", " ") for name in groups.differing([facts for facts, _ in loads]))
        note += f"; runs left out because they differ ({why}): {left_out}"
    return data.Material(runs=runs), note + "."


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
                                  linestyle=dash, marker="o", markersize=4, capsize=2, linewidth=1.5, clip_on=False,
                                  color=style.colour(theme, number),
                                  label=f"{line} {other[:-1] if line == 1 else other}, {placement}")  # fmt: skip
        axes.set_title(f"{file_count} file{'s' if file_count > 1 else ''}")
        scale_of_counts(axes, values_of(material, over))
        axes.set_xlabel(over)
    grid[0].set_ylim(bottom=0)  # after all panels, because it fixes the top of the shared axis
    grid[0].set_ylabel("received data, MiB/s")
    legend_below(drawing, 2 if len(files) < 3 else 4)
    about = (
        f"Received bytes / time until all writers have finished, over the number of {over}. Points are medians, "
        "bars reach from the least to the most. After Figs. 1 to 3 of the ISPDC paper." + note
    )
    columns = ["files", "placement", "followers", "writers", "median MiB/s", "least", "most", "runs"]
    return Figure("throughput", f"Throughput over {over}", about, drawing, columns, rows)


def scale_of_counts(axes: Axes, counts: list[int]) -> None:
    """Equal steps for factors of two, and one more step down to none."""
    if min(counts) > 0:
        axes.set_xscale("log", base=2)
    else:
        axes.set_xscale("symlog", base=2, linthresh=1, linscale=0.5)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()


def sorted_pair(over: str, x: int, line: int) -> tuple[int, int]:
    """Followers, then writers."""
    return (x, line) if over == "followers" else (line, x)


def ratios(material: data.Material, **wanted: Any) -> list[float]:
    """Contiguous / interleaved, for runs in the same turn of the same benchmark."""
    turns: dict[tuple[Any, ...], dict[str, float]] = {}
    for run in material.runs:
        if all(run.settings[key] == wanted[key] for key in wanted):
            turn = (run.machine["began_unix_ms"], run.result["repetition"])
            turns.setdefault(turn, {})[run.settings["placement"]] = data.received_rate(run)
    return [rates["contiguous"] / rates["interleaved"] for rates in turns.values()
            if "contiguous" in rates and rates.get("interleaved")]  # fmt: skip


def contiguous_against_interleaved(material: data.Material, theme: Theme) -> Figure | None:
    """The comparison of ISPDC section IV, as a ratio."""
    material, note = one_load(material)
    rows: list[list[Any]] = []
    spreads: list[data.Spread] = []
    for files in values_of(material, "files"):
        for followers in values_of(material, "followers"):
            for writers in values_of(material, "writers"):
                wanted = {"files": files, "followers": followers, "writers": writers}
                one = spread(material.runs, data.received_rate, placement="contiguous", **wanted)
                two = spread(material.runs, data.received_rate, placement="interleaved", **wanted)
                if one and two and (by_turn := ratios(material, **wanted)):
                    ratio = data.Spread.of(by_turn)
                    spreads.append(ratio)
                    rows.append([files, followers, writers, round(one.median), round(two.median),
                                 *(round(value, 3) for value in (ratio.median, ratio.least, ratio.most)),
                                 ratio.count])  # fmt: skip
    if not rows:
        return None
    drawing = Drawing(figsize=(max(6.4, 0.42 * len(rows) + 2), 3.8), layout="constrained")
    axes = drawing.subplots()
    files = sorted({row[0] for row in rows})
    for number, file_count in enumerate(files):
        places = [i for i, row in enumerate(rows) if row[0] == file_count]
        axes.bar(places, [spreads[i].median - 1 for i in places], bottom=1, color=style.colour(theme, number),
                 yerr=error_bars([spreads[i] for i in places]), ecolor=theme["ink"], capsize=2,
                 label=f"{file_count} file{'s' if file_count > 1 else ''}")  # fmt: skip
    axes.axhline(1, color=theme["muted"], linewidth=1)
    axes.set_xticks(range(len(rows)), [f"{row[1]}x{row[2]}" for row in rows], rotation=60 if len(rows) > 12 else 0)
    axes.set_xlabel("followers x writers")
    axes.set_ylabel("contiguous by interleaved")
    legend_below(drawing, len(files))
    about = (
        "The throughput of contiguous placement (eq. 1) divided by that of interleaved placement (eq. 2) in the same "
        "turn: medians over turns, bars from the least to the most. Above 1, contiguous is faster." + note
    )
    columns = ["files", "followers", "writers", "contiguous MiB/s", "interleaved MiB/s", "ratio", "least", "most",
               "turns"]  # fmt: skip
    return Figure("contiguous-interleaved", "Contiguous against interleaved", about, drawing, columns, rows)


def until(material: data.Material) -> tuple[str, str]:
    """What the time of runs includes, for an axis and as part of a sentence."""
    durable = {run.settings["durable"] for run in material.runs}
    if durable == {True}:
        return "MiB/s until durable", "until they are durable"
    if durable == {False}:
        return "MiB/s, not synced", "until they are written; nothing was synced, so memory is measured too"
    return "MiB/s, synced or not", "until they are durable, or only written where a label says that durable is no"


def all_configurations(material: data.Material, theme: Theme) -> Figure | None:
    """The rates of the fastest thirty configurations, fastest first."""
    if not material.runs:
        return None
    found = groups.pooled((run.settings, run) for run in material.runs)
    names = [" ".join(parts) or "as given" for parts in groups.labels([settings for settings, _ in found])]
    spreads = [data.Spread.of([data.rate(run) / MIB for run in runs]) for _, runs in found]
    order = sorted(range(len(found)), key=lambda i: -spreads[i].median)
    rows = [[names[i], round(spreads[i].median), round(spreads[i].least), round(spreads[i].most), spreads[i].count]
            for i in order]  # fmt: skip
    shown = order[:30]
    ticks = [groups.wrapped(names[i], 64) for i in shown]
    lines = [line for tick in ticks for line in tick.split("\n")]
    height = max(0.26, 0.17 * max(tick.count("\n") + 1 for tick in ticks)) * len(shown)
    drawing = Drawing(figsize=(4.5 + 0.065 * max(map(len, lines)), 1.2 + height), layout="constrained")
    axes = drawing.subplots()
    axes.barh(range(len(shown)), [spreads[i].median for i in shown], xerr=error_bars([spreads[i] for i in shown]),
              height=0.7, color=style.colour(theme, 0), ecolor=theme["ink"], capsize=2)  # fmt: skip
    axes.set_yticks(range(len(shown)), ticks)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    unit, end = until(material)
    axes.set_xlabel(unit)
    about = (
        f"All bytes / time from making the files {end}. Medians; bars from the least to the most. The fastest "
        f"{len(shown)} of {len(rows)} configurations; the table has all."
    )
    return Figure("configurations", "Configurations", about, drawing,
                  ["configuration", "median MiB/s", "least", "most", "runs"], rows)  # fmt: skip


BENCH_FIGURES = [throughput_over_followers, contiguous_against_interleaved, all_configurations]
