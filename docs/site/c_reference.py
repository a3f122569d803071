"""Makes the C reference from the comments in include/*.h: a page for each group of functions, and a list of all.

The headers are read by scripts/c_interface.py, and the groups are those of the manual pages.
"""

from __future__ import annotations

import pathlib
import re

import c_interface
import manual_pages
import words
from c_interface import Function, Header, Item

FOLDER = "reference/c"


def pages(include: pathlib.Path) -> dict[str, str]:
    """Paths in the site and texts."""
    headers = c_interface.read_all(include)
    manual_pages.make_pages(headers)  # refuses headers with groups or functions that no page has
    link = linker(headers)
    made = {f"{FOLDER}/{page.name}.md": text_of(page, headers, link) for page in manual_pages.PAGES}
    made[f"{FOLDER}/index.md"] = overview(headers)
    return made


def linker(headers: list[Header]) -> words.Linker:
    functions = {function.name for header in headers for function in header.functions()}
    types = {type_.name for header in headers for type_ in header.types()}

    def link(name: str) -> str | None:
        if name in functions:
            return f"{{c:func}}`{name}`"
        return f"{{c:type}}`{name}`" if name in types else None

    return link


def items_of(page: manual_pages.Page, headers: list[Header]) -> list[tuple[str, str, list[Item]]]:
    by_name = {header.name: header for header in headers}
    return [(header, heading, by_name[header].items_of(heading)) for header, heading in page.groups]


def text_of(page: manual_pages.Page, headers: list[Header], link: words.Linker) -> str:
    out = [f"# {words.escaped(title(page))}"]
    for header in headers:
        if header.name == page.opening_of:
            out.append(words.markdown(manual_pages.without_file_name(header.opening), "c", link))
    groups = items_of(page, headers)
    for number, (header_name, heading, items) in enumerate(groups):
        if len({name for _, name, _ in groups}) > 1:
            out.append(f"## {words.escaped(heading.capitalize())}")
        if number == 0 or header_name != groups[number - 1][0]:
            library = "tailrace_mpi" if "mpi" in header_name else "tailrace"
            out.append(f"```c\n#include <{header_name}>  // link with -l{library}\n```")
        out += [entry(item, link) for item in items]
    out.append(f"This text is also in the manual page {{doc}}`/manual/{page.name}.3`.")
    return "\n\n".join(out) + "\n"


def title(page: manual_pages.Page) -> str:
    return page.summary[0].upper() + page.summary[1:]


def entry(item: Item, link: words.Linker) -> str:
    said = words.markdown(item.words, "c", link)
    if item.functions:
        # The words of functions that follow one another belong to all of them, and stand below the last.
        bodies = [""] * (len(item.functions) - 1) + [said]
        made = [words.directive("c:function", signature(f), b) for f, b in zip(item.functions, bodies, strict=True)]
        return "\n\n".join(made)
    source = "\n".join(item.source)
    shown = f"{said}\n\n```c\n{source}\n```" if source else said
    names = [type_.name for type_ in item.types]
    if len(names) == 1:
        return words.directive("c:type", names[0], shown)
    macros = re.findall(r"^#define (\w+)", source, re.M)
    if macros and not names:
        return words.directive("c:macro", macros[0], shown) if len(macros) == 1 else shown
    return "\n\n".join([*(words.directive("c:type", name, "") for name in names), shown])


def signature(function: Function) -> str:
    return f"{function.returns} {function.name}({', '.join(function.parameters)})"


def overview(headers: list[Header]) -> str:
    out = ["# C reference", "All functions, by what they are for. The headers say the same in their comments."]
    names = [page.name for page in manual_pages.PAGES]
    for page in manual_pages.PAGES:
        out.append(f"## [{words.escaped(title(page))}]({page.name}.md)")
        rows = [
            f"| {{c:func}}`{function.name}` | {words.inline(words.first_sentence(item.words), words.no_links)} |"
            for _, _, items in items_of(page, headers)
            for item in items
            for function in item.functions
        ]
        if rows:
            out.append("\n".join(["| | |", "|---|---|", *rows]))
    out.append("\n".join(["```{toctree}", ":hidden:", "", *names, "```"]))
    return "\n\n".join(out) + "\n"
