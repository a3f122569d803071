"""Makes the C++ reference from the comments in include/*.hpp: a page for each header."""

from __future__ import annotations

import pathlib

import cpp_interface
import words
from cpp_interface import Declaration, Header

FOLDER = "reference/cpp"
SCOPE = "tailrace"


def pages(include: pathlib.Path) -> dict[str, str]:
    """Paths in the site and texts."""
    headers = [cpp_interface.read(n, (include / n).read_text(encoding="utf-8")) for n in cpp_interface.HEADERS]
    link = linker(headers)
    made = {f"{FOLDER}/{header.name}.md": text_of(header, link) for header in headers}
    lines = [f"- [`{header.name}`]({header.name}.md): {summary(header)}" for header in headers]
    tree = "\n".join(["```{toctree}", ":hidden:", "", *(header.name for header in headers), "```"])
    intro = "It is header-only, and calls the [C interface](../c/index.md). Names are in namespace `tailrace`."
    made[f"{FOLDER}/index.md"] = "\n\n".join(["# C++ reference", intro, "\n".join(lines), tree]) + "\n"
    return made


def linker(headers: list[Header]) -> words.Linker:
    classes = {name_of(d) for header in headers for d in header.declarations if d.members}

    def link(name: str) -> str | None:
        return f"{{cpp:any}}`{SCOPE}::{name}`" if name in classes else None

    return link


def name_of(declaration: Declaration) -> str:
    return declaration.text.split(" ")[0]


def summary(header: Header) -> str:
    opening = " ".join(header.opening).split(" - ", 1)[1]
    return words.inline(words.first_sentence([opening]), words.no_links)


def text_of(header: Header, link: words.Linker) -> str:
    first, *rest = header.opening
    opening = [first.split(" - ", 1)[1], *rest]
    opening[0] = opening[0][0].upper() + opening[0][1:]
    out = [f"# {words.escaped(header.name)}", words.markdown(opening, "cpp"), f"```{{cpp:namespace}} {SCOPE}\n```"]
    for declaration in header.declarations:
        if declaration.members:
            out.append(f"## {name_of(declaration)}")
        out.append(entry(declaration, link, None))
    return "\n\n".join(out) + "\n"


def entry(declaration: Declaration, link: words.Linker, owner: str | None) -> str:
    # A class does not link to itself.
    own = name_of(declaration)
    said = words.markdown(declaration.words, "cpp", lambda name: None if name in (own, owner) else link(name))
    parts = [said]
    depth = levels(declaration)
    for member in declaration.members:
        if member.heading:
            parts.append(f"**{words.escaped(member.heading[0].upper() + member.heading[1:])}**")
        parts.append(entry(member, link, own))
    body = "\n\n".join(part for part in parts if part)
    return words.directive(f"cpp:{declaration.kind}", declaration.text, body, depth)


def levels(declaration: Declaration) -> int:
    return 1 + max(map(levels, declaration.members)) if declaration.members else 0
