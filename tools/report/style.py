"""How figures look. Colours have one set of names. PNG uses their values, and the page uses CSS
variables, so that one drawing serves light and dark."""

from __future__ import annotations

import re

# Eight series that differ in both themes and for colour-blind readers (after Okabe and Ito).
LIGHT = {
    "ink": "#1f2933", "muted": "#66727f", "grid": "#dfe4ea", "paper": "#ffffff",
    "s0": "#0072b2", "s1": "#d55e00", "s2": "#009e73", "s3": "#cc79a7",
    "s4": "#b38600", "s5": "#3aa5dd", "s6": "#7a5195", "s7": "#5f6b76",
}  # fmt: skip
DARK = {
    "ink": "#e6edf3", "muted": "#9aa7b4", "grid": "#313b46", "paper": "#12171c",
    "s0": "#4aa8e0", "s1": "#f28b4b", "s2": "#35c79a", "s3": "#e39bc4",
    "s4": "#e3b93c", "s5": "#86ccf0", "s6": "#b18fd0", "s7": "#a5b1bc",
}  # fmt: skip

# In a drawing for the page each colour is a stand-in that is not used otherwise.
STAND_IN = {name: f"#0102{number:02x}" for number, name in enumerate(LIGHT)}


def colour(theme: dict[str, str], series: int) -> str:
    """The colour of a series. After eight they repeat."""
    return theme[f"s{series % 8}"]


def matplotlib_settings(theme: dict[str, str]) -> dict[str, object]:
    """The settings of matplotlib for a theme."""
    return {
        "figure.facecolor": theme["paper"], "axes.facecolor": theme["paper"], "savefig.facecolor": theme["paper"],
        "text.color": theme["ink"], "axes.labelcolor": theme["ink"], "axes.titlecolor": theme["ink"],
        "xtick.color": theme["muted"], "ytick.color": theme["muted"],
        "xtick.labelcolor": theme["ink"], "ytick.labelcolor": theme["ink"],
        "axes.edgecolor": theme["muted"], "grid.color": theme["grid"], "legend.edgecolor": theme["grid"],
        "legend.facecolor": theme["paper"], "legend.labelcolor": theme["ink"], "legend.framealpha": 0.9,
        "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True, "axes.spines.top": False,
        "axes.spines.right": False, "axes.titlesize": "medium", "axes.titleweight": "bold",
        "font.family": "sans-serif", "font.size": 10, "legend.fontsize": 9, "legend.title_fontsize": 9,
        "text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "tailrace",
        "figure.dpi": 96, "savefig.dpi": 144,
    }  # fmt: skip


def svg_for_page(svg: str, name: str) -> str:
    """The drawing as an element of the page, with colours as CSS variables, its own identifiers, and
    no fixed size."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    for variable, stand_in in STAND_IN.items():
        svg = svg.replace(stand_in, f"var(--{variable})")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 role="img"', svg, count=1)


def css_variables(theme: dict[str, str]) -> str:
    """The theme's colours as CSS."""
    return " ".join(f"--{name}: {value};" for name, value in theme.items())
