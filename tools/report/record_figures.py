"""The figures that are made of sessions' records: after Figs. 3 to 10 of the FGCS paper."""

from __future__ import annotations

import random
from typing import Any

import data
import style
from figures import MIB, Figure, Theme
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

OTHERS = 5  # leaders beside the slowest and the fastest, as in Fig. 7


def epochs_of(material: data.Material) -> list[tuple[data.Session, data.Json]]:
    """Committed epochs whose capture and flush were recorded."""
    return [(session, epoch) for session in material.sessions for epoch in session.committed
            if "capture" in epoch and epoch["nodes"]]  # fmt: skip


def over_files(material: data.Material, theme: Theme) -> Figure | None:
    """FGCS Fig. 3: local and flush time over K."""
    groups: dict[tuple[int, int], list[data.Json]] = {}
    for session, epoch in epochs_of(material):
        groups.setdefault((session.head["nodes"], session.files), []).append(epoch)
    if not groups:
        return None
    keys = sorted(groups)
    drawing = Drawing(figsize=(max(6.4, 1.1 * len(keys) + 2), 3.8), layout="constrained")
    axes = drawing.subplots()
    rows = []
    for place, key in enumerate(keys):
        local = data.Spread.of([epoch["capture"]["most_seconds"] for epoch in groups[key]])
        flush = data.Spread.of([epoch["flush_seconds"] for epoch in groups[key]])
        rates = data.Spread.of([epoch["capture"]["bytes"] / MIB / max(1e-9, epoch["flush_seconds"])
                                for epoch in groups[key]])  # fmt: skip
        axes.bar(place, local.median, color=style.colour(theme, 1), label="local phase" if place == 0 else None)
        axes.bar(place, flush.median, bottom=local.median, color=style.colour(theme, 0),
                 yerr=[[flush.median - flush.least], [flush.most - flush.median]], ecolor=theme["ink"], capsize=3,
                 label="flush" if place == 0 else None)  # fmt: skip
        axes.text(place - 0.2, local.median + flush.median / 2, f"{rates.median:.0f}\nMiB/s", ha="center", va="center",
                  fontsize=8, color=theme["paper"])  # fmt: skip
        rows.append([*key, len(groups[key]), round(local.median, 4), round(flush.median, 4), round(flush.least, 4),
                     round(flush.most, 4), round(rates.median)])  # fmt: skip
    axes.set_xticks(range(len(keys)), [f"K = {files}\n{nodes} node{'s' if nodes > 1 else ''}" for nodes, files in keys])
    axes.set_ylabel("seconds")
    axes.legend()
    about = (
        "The slowest rank's capture and the slowest group's flush of an epoch: medians over epochs, with the flush's "
        "least and most, and its rate. Only the local phase holds the program up. After FGCS Fig. 3."
    )
    columns = ["nodes", "K", "epochs", "local s", "flush s", "least", "most", "MiB/s"]
    return Figure("over-files", "Local phase and flush over the number of files", about, drawing, columns, rows)


def over_imbalance(material: data.Material, theme: Theme) -> Figure | None:
    """FGCS Figs. 4-6: time per byte over how far the nodes' bytes lie apart."""
    rows = []
    for session, epoch in epochs_of(material):
        if len(epoch["nodes"]) > 1 and epoch["capture"]["bytes"] > 0:
            gib = epoch["capture"]["bytes"] / 2**30
            rows.append([session.head["nodes"], session.files, epoch["epoch"], round(100 * data.imbalance(epoch), 2),
                         round(epoch["flush_seconds"] / gib, 4)])  # fmt: skip
    if not rows:
        return None
    drawing = Drawing(figsize=(6.4, 3.8), layout="constrained")
    axes = drawing.subplots()
    for number, key in enumerate(sorted({(row[0], row[1]) for row in rows})):
        own = [row for row in rows if (row[0], row[1]) == key]
        axes.plot([row[3] for row in own], [row[4] for row in own], "o", markersize=5, alpha=0.8,
                  color=style.colour(theme, number), label=f"{key[0]} nodes, K = {key[1]}")  # fmt: skip
    axes.set_xlabel("nodes' bytes differ by +- percent")
    axes.set_ylabel("flush, seconds per GiB")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, max(25, 1.1 * max(row[3] for row in rows)))
    axes.legend()
    about = "Each point is an epoch: level points mean that imbalance costs nothing. After FGCS Figs. 4 to 6."
    columns = ["nodes", "K", "epoch", "imbalance %", "s per GiB"]
    return Figure("over-imbalance", "Flush over imbalance", about, drawing, columns, rows)


def chosen_epoch(material: data.Material) -> tuple[data.Session, data.Json] | None:
    """The epoch that is looked at closely: among those with the most leaders, of which somebody received data if any
    have, the one with the median flush time."""
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
    """The slowest, some others, the fastest; always the same for the same leaders."""
    if len(leaders) <= OTHERS + 2:
        return leaders
    between = sorted(random.Random(len(leaders)).sample(range(1, len(leaders) - 1), OTHERS))
    return [leaders[0], *(leaders[i] for i in between), leaders[-1]]


def name_of(epoch: data.Json) -> str:
    return f"epoch {epoch['epoch']} of run {epoch['run']}"


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
    axes.legend()
    rows = [[leader["node"], leader["group"], leader["received_bytes"], leader["local_bytes"],
             round(data.leader_seconds(leader), 4), round(data.leader_seconds(leader) / mean, 3),
             round((leader["received_bytes"] + leader["local_bytes"]) / MIB / data.leader_seconds(leader))]
            for leader in leaders]  # fmt: skip
    about = (
        f"Leaders of {name_of(chosen[1])}, slowest first, fastest last: the time of their writers for received and for "
        f"local data (reading included), with rates. The slowest took {rows[0][5]:.2f} of the mean. After FGCS Fig. 7."
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
    drawing.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    about = f"What each writer thread did in {name_of(chosen[1])}. After FGCS Figs. 8 and 9."
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
    ended = [session for session in material.sessions if session.end]
    if not ended:
        return None
    groups: dict[str, list[data.Session]] = {}
    for session in ended:
        name = f"K = {session.files}" if session.epochs else "no checkpoints"
        groups.setdefault(f"{name}, {session.head['nodes']} nodes", []).append(session)
    names = sorted(groups)
    drawing = Drawing(figsize=(max(6.4, 1.4 * len(names) + 2), 3.8), layout="constrained")
    axes = drawing.subplots()
    rows = []
    for place, name in enumerate(names):
        totals = data.Spread.of([session.end["seconds"] for session in groups[name] if session.end])
        blocked = data.Spread.of([session.end["blocked_seconds"] for session in groups[name] if session.end])
        axes.bar(place, totals.median - blocked.median, color=style.colour(theme, 2),
                 label="the program" if place == 0 else None)  # fmt: skip
        axes.bar(place, blocked.median, bottom=totals.median - blocked.median, color=style.colour(theme, 1),
                 yerr=[[totals.median - totals.least], [totals.most - totals.median]], ecolor=theme["ink"], capsize=3,
                 label="blocked by save" if place == 0 else None)  # fmt: skip
        axes.text(place, totals.most, f"{totals.median:.1f} s", ha="center", va="bottom", fontsize=9)
        rows.append([name, len(groups[name]), round(totals.median, 3), round(totals.least, 3), round(totals.most, 3),
                     round(blocked.median, 4)])  # fmt: skip
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("seconds from open to close")
    axes.legend(loc="lower right")
    about = (
        "Sessions that were closed: time from open to close, and of it what the slowest rank of each epoch spent in "
        "save. Run the program once without saving to see a bar without checkpoints. After FGCS Fig. 10."
    )
    columns = ["session", "runs", "seconds", "least", "most", "blocked s"]
    return Figure("application", "The program's time", about, drawing, columns, rows)


RECORD_FIGURES = [over_files, over_imbalance, per_leader, per_thread, application_time]
