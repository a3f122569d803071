"""The figures of sessions' records, after Figs. 3 to 10 of the FGCS paper."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import data
import figures
import groups
import style
from figures import MIB, Figure, Theme
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

LINE = 24  # characters that fit below a bar
OTHERS = 5  # leaders beside the slowest and the fastest, as in Fig. 7


def epochs_of(material: data.Material) -> list[tuple[data.Session, data.Json]]:
    """Committed epochs whose capture and flush were recorded."""
    return [(session, epoch) for session in material.sessions for epoch in session.committed
            if "capture" in epoch and epoch["nodes"]]  # fmt: skip


@dataclass
class Load:
    """Sessions, or their epochs, that may be pooled."""

    nodes: int
    files: int
    apart: str  # everything else in which they differ
    label: list[str]  # lines
    items: list[Any]


def facts_of(session: data.Session) -> groups.Facts:
    """Facts that must be equal in sessions that are pooled. Settings have no effect in a session that
    saved nothing."""
    facts = session.facts
    return facts if session.epochs else {key: facts[key] for key in ("nodes", "ranks", "job", "shared_dir")}


def loads_of(material: data.Material, found: list[tuple[data.Session, Any]]) -> list[Load]:
    """Items with equal facts, by nodes and K. Labels name both and everything else that differs in the
    material. If that is long, the label is a letter, the same in all figures."""
    known = [facts for facts, _ in groups.pooled((facts_of(session), None) for session in material.sessions)]
    known.sort(key=lambda facts: (facts["nodes"], facts.get("files", 0)))
    apart = [", ".join(parts) for parts in groups.labels(known, leave=("nodes", "files"))]
    kinds = list(dict.fromkeys(apart))
    letters = max(map(len, kinds), default=0) > LINE
    loads = []
    for facts, items in groups.pooled((facts_of(session), item) for session, item in found):
        nodes, files, more = facts["nodes"], facts.get("files", 0), apart[known.index(facts)]
        label = [f"K = {files}" if files else "no checkpoints", f"{nodes} node{'s' if nodes > 1 else ''}"]
        if more and letters:
            name = groups.letter(kinds.index(more))
            loads.append(Load(nodes, files, f"{name}: {more}", [*label, name], items))
        else:
            loads.append(Load(nodes, files, more, [*label, more] if more else label, items))
    return sorted(loads, key=lambda load: (load.nodes, load.files, load.apart))


def letters_of(loads: list[Load]) -> str:
    """The meaning of the letters in labels."""
    return "".join(f" {apart}." for apart in sorted({load.apart for load in loads}) if ": " in apart)


def label_bars(axes: Axes, loads: list[Load]) -> None:
    """Labels each bar."""
    axes.set_xticks(range(len(loads)), ["\n".join(load.label) for load in loads])


def bars_for(loads: list[Load]) -> tuple[Drawing, Axes]:
    """A drawing with room for a bar and a label for each load."""
    width = max(1.1, 0.09 * max(len(line) for load in loads for line in load.label))
    drawing = Drawing(figsize=(max(6.4, width * len(loads) + 2), 4.4), layout="constrained")
    return drawing, drawing.subplots()


def bar(axes: Axes, place: float, found: data.Spread, below: float, shift: float, theme: Theme, **more: Any) -> None:
    """Draws a median on top of `below`, and a line from the least to the most, `shift` beside the
    middle of the bar."""
    axes.bar(place, found.median, bottom=below, **more)
    axes.errorbar(place + shift, below + found.median, yerr=figures.error_bars([found]), linestyle="", capsize=3,
                  color=theme["ink"], linewidth=1.2)  # fmt: skip


def over_files(material: data.Material, theme: Theme) -> Figure | None:
    """FGCS Fig. 3: local and flush time over K."""
    loads = loads_of(material, epochs_of(material))
    if not loads:
        return None
    drawing, axes = bars_for(loads)
    rows = []
    for place, load in enumerate(loads):
        local = data.Spread.of([local_seconds(epoch) for epoch in load.items])
        flush = data.Spread.of([flush_seconds(epoch) for epoch in load.items])
        sizes = data.Spread.of([epoch["capture"]["bytes"] / MIB for epoch in load.items])
        rates = data.Spread.of([epoch["capture"]["bytes"] / MIB / max(1e-9, epoch["flush_seconds"])
                                for epoch in load.items])  # fmt: skip
        bar(axes, place, local, 0, -0.2, theme, color=style.colour(theme, 1), label="local phase")
        bar(axes, place, flush, local.median, 0, theme, color=style.colour(theme, 0), label="flush")
        axes.text(place, local.median + flush.most, f"{rates.median:.0f} MiB/s", ha="center", va="bottom", fontsize=9)
        rows.append([load.nodes, load.files, load.apart, len(load.items), round(sizes.least, 1),
                     round(sizes.most, 1), *(round(value, 4) for one in (local, flush)
                                             for value in (one.median, one.least, one.most)),
                     round(rates.median)])  # fmt: skip
    label_bars(axes, loads)
    axes.set_ylabel("seconds")
    axes.margins(y=0.1)
    figures.legend_below(drawing, 2)
    about = (
        "The slowest rank's capture and the slowest group's flush of an epoch: medians over epochs, with the least and "
        "most, and the flush's rate. Only the local phase blocks the program. A bar has the epochs of one job and "
        "directory with the same settings, whatever their size. The table has the sizes. After FGCS Fig. 3."
        + letters_of(loads)
    )
    columns = ["nodes", "K", "apart by", "epochs", "least MiB", "most MiB", "local s", "least", "most", "flush s",
               "least", "most", "MiB/s"]  # fmt: skip
    return Figure("over-files", "Local phase and flush over the number of files", about, drawing, columns, rows)


def local_seconds(epoch: data.Json) -> float:
    return float(epoch["capture"]["most_seconds"])


def flush_seconds(epoch: data.Json) -> float:
    return float(epoch["flush_seconds"])


def per_gib(epochs: list[data.Json], seconds: Callable[[data.Json], float]) -> data.Spread:
    """Seconds / bytes of all ranks."""
    return data.Spread.of([seconds(epoch) * 2**30 / epoch["capture"]["bytes"] for epoch in epochs])


def over_imbalance(material: data.Material, theme: Theme) -> Figure | None:
    """FGCS Figs. 4-6: time per byte of both phases, over the imbalance of the nodes' bytes."""
    loads = loads_of(material, [pair for pair in epochs_of(material)
                                if len(pair[1]["nodes"]) > 1 and pair[1]["capture"]["bytes"] > 0])  # fmt: skip
    if not loads:
        return None
    drawing = Drawing(figsize=(6.4, 5.2 + 0.1 * len(loads)), layout="constrained")
    panels = drawing.subplots(2, 1, sharex=True)
    rows = []
    for number, load in enumerate(loads):
        by_percent: dict[int, list[data.Json]] = {}
        for epoch in load.items:
            by_percent.setdefault(round(100 * data.imbalance(epoch)), []).append(epoch)
        percents = sorted(by_percent)
        spreads = [[per_gib(by_percent[percent], seconds) for percent in percents]
                   for seconds in (local_seconds, flush_seconds)]  # fmt: skip
        for axes, found in zip(panels, spreads, strict=True):
            axes.errorbar(percents, [one.median for one in found], yerr=figures.error_bars(found), linestyle="-",
                          linewidth=1, marker="o", markersize=5, capsize=3, color=style.colour(theme, number),
                          label=", ".join(load.label))  # fmt: skip
        for percent, local, flush in zip(percents, *spreads, strict=True):
            rows.append([load.nodes, load.files, load.apart, percent, local.count,
                         *(round(value, 4) for one in (local, flush)
                           for value in (one.median, one.least, one.most))])  # fmt: skip
    for axes, phase in zip(panels, ("local phase", "flush"), strict=True):
        axes.set_ylabel(f"{phase}, s per GiB")
        axes.set_ylim(bottom=0)
    panels[1].set_xlabel("nodes' bytes differ by +- percent")
    panels[1].set_xlim(0, max(25, 1.1 * max(row[3] for row in rows)))
    drawing.align_ylabels(panels)
    figures.legend_below(drawing, 2)
    about = (
        "The slowest rank's capture and the slowest group's flush / bytes of all ranks, for epochs with the same "
        "imbalance in whole percent: medians, bars from the least to the most. Level points mean that imbalance costs "
        "nothing. After FGCS Figs. 4 to 6." + letters_of(loads)
    )
    columns = ["nodes", "K", "apart by", "imbalance %", "epochs", "local s per GiB", "least", "most",
               "flush s per GiB", "least", "most"]  # fmt: skip
    return Figure("over-imbalance", "Local phase and flush over imbalance", about, drawing, columns, rows)


def chosen_epoch(material: data.Material) -> tuple[data.Session, data.Json] | None:
    """The epoch that is examined closely. It is one of those with the most leaders, and if possible
    one in which some leader received data. Among these it has the median flush time."""
    found = [pair for pair in epochs_of(material) if data.leaders(pair[1])]
    if not found:
        return None

    def kind(pair: tuple[data.Session, data.Json]) -> tuple[bool, int]:
        leaders = data.leaders(pair[1])
        return len(leaders) > 1 and any(leader["received_bytes"] for leader in leaders), len(leaders)

    best = max(kind(pair) for pair in found)
    found = sorted((pair for pair in found if kind(pair) == best), key=lambda pair: pair[1]["flush_seconds"])
    return found[len(found) // 2]


def sampled_leaders(leaders: list[data.Json]) -> list[data.Json]:
    """The slowest, some others, the fastest. The choice is always the same for the same leaders."""
    if len(leaders) <= OTHERS + 2:
        return leaders
    between = sorted(random.Random(len(leaders)).sample(range(1, len(leaders) - 1), OTHERS))
    return [leaders[0], *(leaders[i] for i in between), leaders[-1]]


def name_of(chosen: tuple[data.Session, data.Json]) -> str:
    session, epoch = chosen
    return f"epoch {epoch['epoch']} of run {epoch['run']} of {session.head['job']} in {session.head['shared_dir']}"


def per_leader(material: data.Material, theme: Theme) -> Figure | None:
    """FGCS Fig. 7: received and local bytes of leaders, slowest and fastest."""
    if (chosen := chosen_epoch(material)) is None:
        return None
    leaders = data.leaders(chosen[1])
    shown = sampled_leaders(leaders)
    mean = sum(data.leader_seconds(leader) for leader in leaders) / len(leaders)
    drawing = Drawing(figsize=(max(6.4, 1.1 * len(shown) + 2), 3.8), layout="constrained")
    axes = drawing.subplots()
    for place, leader in enumerate(shown):
        below = 0.0
        for number, (part, seconds) in enumerate(data.leader_parts(leader).items()):
            axes.bar(place, seconds, bottom=below, color=style.colour(theme, [1, 0, 7][number]),
                     label={"received": "received", "local": "local", "other": "files, waiting, commit"}[part]
                     if place == 0 else None)  # fmt: skip
            if part != "other" and leader[f"{part}_bytes"] and seconds > 0.12 * mean:
                axes.text(place, below + seconds / 2, f"{leader[f'{part}_bytes'] / MIB / seconds:.0f}\nMiB/s",
                          ha="center", va="center", fontsize=8, color=theme["paper"])  # fmt: skip
            below += seconds
    axes.axhline(mean, linestyle=":", color=theme["ink"], label="mean of all leaders")
    axes.set_xticks(range(len(shown)), [f"node {leader['node']}" for leader in shown])
    axes.set_ylabel("seconds")
    figures.legend_below(drawing, 4)
    rows = [[leader["node"], leader["group"], leader["received_bytes"], leader["local_bytes"],
             round(data.leader_seconds(leader), 4), round(data.leader_seconds(leader) / max(1e-9, mean), 3),
             round((leader["received_bytes"] + leader["local_bytes"]) / MIB / max(1e-9, data.leader_seconds(leader)))]
            for leader in leaders]  # fmt: skip
    about = (
        f"Leaders of {name_of(chosen)}, slowest first, fastest last: the time of their writers for received and for "
        f"local data (reading included), with rates. The slowest took {rows[0][5]:.2f} x the mean. After FGCS Fig. 7."
    )
    columns = ["node", "group", "received bytes", "local bytes", "seconds", "by mean", "MiB/s"]
    return Figure("per-leader", "Leaders: received and local data", about, drawing, columns, rows)


def draw_threads(axes: Axes, leader: data.Json, theme: Theme, title: str) -> None:
    parts = [("received_write_seconds", "write received", 1), ("local_write_seconds", "write local", 0),
             ("read_seconds", "read local", 2), ("idle_seconds", "idle", 7)]  # fmt: skip
    for number, thread in enumerate(leader["threads"]):
        below = 0.0
        for key, label, series in parts:
            axes.bar(number, thread[key], bottom=below, color=style.colour(theme, series),
                     label=label if number == 0 else None)  # fmt: skip
            below += thread[key]
    axes.axhline(leader["move_seconds"], linestyle=":", color=theme["ink"], label="all data moved")
    axes.set_title(f"{title}: node {leader['node']}")
    axes.set_xticks(range(len(leader["threads"])))
    axes.set_xlabel("writer")


def per_thread(material: data.Material, theme: Theme) -> Figure | None:
    """FGCS Figs. 8 and 9: the threads of the fastest and the slowest leader."""
    if (chosen := chosen_epoch(material)) is None:
        return None
    leaders = data.leaders(chosen[1])
    shown = [("fastest", leaders[-1]), ("slowest", leaders[0])] if len(leaders) > 1 else [("the leader", leaders[0])]
    drawing = Drawing(figsize=(max(6.4, 4.2 * len(shown)), 3.8), layout="constrained")
    grid = drawing.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    rows: list[list[Any]] = []
    for axes, (title, leader) in zip(grid, shown, strict=True):
        draw_threads(axes, leader, theme, title)
        for number, thread in enumerate(leader["threads"]):
            rows.append([leader["node"], number, thread["received_bytes"], thread["local_bytes"],
                         *(round(thread[key], 4) for key in ("received_write_seconds", "local_write_seconds",
                                                             "read_seconds", "idle_seconds"))])  # fmt: skip
    grid[0].set_ylabel("seconds")
    figures.legend_below(drawing, 5)
    about = f"What each writer thread did in {name_of(chosen)}. After FGCS Figs. 8 and 9."
    columns = [
        "node",
        "writer",
        "received bytes",
        "local bytes",
        "write received s",
        "write local s",
        "read s",
        "idle s",
    ]
    return Figure("per-thread", "Writers of the fastest and the slowest leader", about, drawing, columns, rows)


def application_time(material: data.Material, theme: Theme) -> Figure | None:
    """FGCS Fig. 10: sessions with and without checkpoints."""
    loads = loads_of(material, [(session, session.end) for session in material.sessions if session.end])
    if not loads:
        return None
    drawing, axes = bars_for(loads)
    rows = []
    for place, load in enumerate(loads):
        totals = data.Spread.of([end["seconds"] for end in load.items])
        blocked = data.Spread.of([end["blocked_seconds"] for end in load.items])
        axes.bar(place, totals.median - blocked.median, color=style.colour(theme, 2), label="the program")
        axes.bar(place, blocked.median, bottom=totals.median - blocked.median, color=style.colour(theme, 1),
                 yerr=figures.error_bars([totals]), ecolor=theme["ink"], capsize=3,
                 label="blocked by save")  # fmt: skip
        axes.text(place, totals.most, f"{totals.median:.1f} s", ha="center", va="bottom", fontsize=9)
        rows.append([", ".join(load.label[:2]), load.apart, len(load.items), round(totals.median, 3),
                     round(totals.least, 3), round(totals.most, 3), round(blocked.median, 4)])  # fmt: skip
    label_bars(axes, loads)
    axes.set_ylabel("seconds from open to close")
    axes.margins(y=0.1)
    figures.legend_below(drawing, 2)
    about = (
        "Sessions that were closed: the time from open to close, and the part of it that save took on the rank that it "
        "blocked the longest, epoch by epoch. Sessions of one job and directory with the same settings make a bar. Run "
        "the program once without saving to see a bar without checkpoints. After FGCS Fig. 10." + letters_of(loads)
    )
    columns = ["session", "apart by", "runs", "seconds", "least", "most", "blocked s"]
    return Figure("application", "The program's time", about, drawing, columns, rows)


RECORD_FIGURES = [over_files, over_imbalance, per_leader, per_thread, application_time]
