"""Makes pages of the site of the manual pages in docs/man, which mandoc turns into Markdown."""

from __future__ import annotations

import pathlib
import re
import subprocess

FOLDER = "manual"


def pages(directory: pathlib.Path) -> dict[str, str]:
    """Paths in the site and texts."""
    sources = sorted(directory.glob("*.[13]"), key=lambda path: (path.suffix, path.name))
    known = {source.name for source in sources}
    made = {f"{FOLDER}/{source.name}.md": text_of(source, known) for source in sources}
    lines = [f"- [{name.rpartition('.')[0]}({name[-1]})]({name}.md)" for name in (source.name for source in sources)]
    tree = "\n".join(["```{toctree}", ":hidden:", "", *(source.name for source in sources), "```"])
    intro = "An installation has these pages for `man`. Section 1 is about commands, section 3 about C functions."
    made[f"{FOLDER}/index.md"] = "\n\n".join(["# Manual pages", intro, "\n".join(lines), tree]) + "\n"
    return made


def text_of(source: pathlib.Path, known: set[str]) -> str:
    command = ["mandoc", "-T", "markdown", str(source)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    name, section = source.name.rsplit(".", 1)
    lines = text.split("\n")[1:]  # the first says the page's name and the volume
    while lines and not lines[-1].strip():
        lines.pop()
    lines = lines[:-1]  # the last says the system and the date
    body = re.sub(r"^(#+) ", r"#\1 ", "\n".join(lines), flags=re.M)
    return f"# {name}({section})\n\n{re.sub(REFERENCE, lambda m: reference(m, known), body)}\n"


REFERENCE = re.compile(r"(?<![\w\\])((?:[\w-]|\\_|&#45;)+)\(([13])\)")


def reference(match: re.Match[str], known: set[str]) -> str:
    file = f"{match[1].replace(chr(92) + '_', '_').replace('&#45;', '-')}.{match[2]}"
    return f"[{match[0]}]({file}.md)" if file in known else match[0]
