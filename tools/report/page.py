"""The report as one self-contained HTML page. It has no scripts and loads nothing from elsewhere. It
is light or dark as the reader's system wishes."""

from __future__ import annotations

import html
import io
import time

import data
import style
from figures import Figure

CSS = """
:root { color-scheme: light dark; LIGHT }
@media (prefers-color-scheme: dark) { :root { DARK } }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; }
p { margin: .25rem 0 1rem; max-width: 46rem; } .muted { color: var(--muted); }
figure { margin: 0; overflow-x: auto; } figure svg { display: block; width: 100%; max-width: 60rem; height: auto; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--muted); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; }
"""


def svg_of(figure: Figure) -> str:
    """The drawing for the page."""
    out = io.StringIO()
    figure.drawing.savefig(out, format="svg", metadata={"Date": None})
    return style.svg_for_page(out.getvalue(), figure.name)


def table_of(figure: Figure) -> str:
    """The numbers of a figure."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in figure.columns)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
                   for row in figure.rows)  # fmt: skip
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def facts_of(material: data.Material) -> list[str]:
    """Where the numbers come from."""
    facts = []
    machines = {run.machine["began_unix_ms"]: run.machine for run in material.runs}
    for began, machine in sorted(machines.items()):
        count = sum(1 for run in material.runs if run.machine["began_unix_ms"] == began)
        syncs = {run.settings["durable"] for run in material.runs if run.machine["began_unix_ms"] == began}
        how = "until durable" if syncs == {True} else "without syncs" if syncs == {False} else "partly without syncs"
        facts.append(
            f"{count} runs of tailrace {machine['tailrace']} on {machine['host']} ({machine['processor']}, "
            f"{machine['processors']} processors, {machine['memory_bytes'] / 2**30:.0f} GiB, {machine['kernel']}), in "
            f"{machine['directory']} ({machine['file_system']}), {how}, {day(began)}"
        )
    for session in material.sessions:
        head = session.head
        facts.append(
            f"run {head['run']} of {head['job']} on {head['shared_dir']} ({head['file_system']}, {head['io_engine']}): "
            f"{head['ranks']} ranks on {head['nodes']} nodes, K = {session.files}, {len(session.epochs)} epochs, "
            f"{day(head['began_unix_ms'])}"
        )
    for label, profile in material.profiles:
        facts.append(
            f"{label}: calls of {' '.join(profile['command'])} on {profile['host']}, {profile['processes']} processes, "
            f"{profile['seconds']:.0f} s under strace {profile['strace']}, {day(profile['began_unix_ms'])}"
        )
    facts += [f"a record could not be read: {one}" for one in material.unread]
    if material.passed_over:
        facts.append(
            f"{material.passed_over} lines were passed over: unfinished ones, or of a session without its beginning"
        )
    return facts


def day(unix_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(unix_ms / 1000))


def page_of(figures: list[Figure], material: data.Material, title: str) -> str:
    """The whole page."""
    css = CSS.replace("LIGHT", style.css_variables(style.LIGHT)).replace("DARK", style.css_variables(style.DARK))
    parts = [
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{css}</style>\n</head>\n<body>\n<h1>{html.escape(title)}</h1>\n"
    ]
    for figure in figures:
        parts.append(
            f'<section id="{figure.name}">\n<h2>{html.escape(figure.title)}</h2>\n<p>{html.escape(figure.about)}</p>\n'
            f'<figure aria-label="{html.escape(figure.title)}">{svg_of(figure)}</figure>\n'
            f'<details><summary>Numbers</summary><div class="scroll">{table_of(figure)}</div></details>\n</section>\n'
        )
    facts = "".join(f"<li>{html.escape(fact)}</li>" for fact in facts_of(material))
    parts.append(f'<h2>Where the numbers come from</h2>\n<ul class="muted">{facts}</ul>\n</body>\n</html>\n')
    return "".join(parts)
