#!/usr/bin/env python3
"""Makes docs/man/*.3, the manual pages of the C interface, from include/*.h: scripts/manual_pages.py [--check]

A page is made of groups of declarations, the headings of the headers. What it says are the comments there, and
nothing else but what all pages have in common; so a page is changed by changing a header and running this.
--check changes nothing, and fails with the names of the pages that would change.

The pages are kept, as those of section 1 are: an installation needs no Python. It adds a link for each name in
a page's first section (cmake/TailraceInstall.cmake).
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable

import c_interface
from c_interface import Function, Header, Item

PROJECT = pathlib.Path(__file__).resolve().parent.parent
MARK = '.\\" Made by scripts/manual_pages.py from the comments in include/*.h: change those.'
DATE = "November 23, 2026"  # when the kind of page changed last, not its text
WIDTH = 100


@dataclasses.dataclass(frozen=True)
class Page:
    name: str
    summary: str
    groups: tuple[tuple[str, str], ...]  # (header, heading)
    opening_of: str = ""  # the header whose first comment opens the description


PAGES = (
    Page("tailrace", "the C interface of tailrace", (("tailrace.h", "version"),), "tailrace.h"),
    Page(
        "tailrace_errors",
        "what has failed, and why",
        (("tailrace_status.h", "codes"), ("tailrace.h", "failures")),
        "tailrace_status.h",
    ),
    Page("tailrace_logging", "where the library's messages go", (("tailrace.h", "logging"),)),
    Page("tailrace_options", "settings of a session", (("tailrace.h", "options"),)),
    Page(
        "tailrace_sessions",
        "open and close sessions",
        (("tailrace.h", "session"), ("tailrace_mpi.h", "session")),
    ),
    Page("tailrace_registering", "say what is to be saved", (("tailrace.h", "what to save"),)),
    Page(
        "tailrace_saving",
        "save what is registered, and wait until it is durable",
        (("tailrace.h", "saving"),),
    ),
    Page(
        "tailrace_asking",
        "when to save, and when to stop",
        (("tailrace.h", "when to save, when to stop"),),
    ),
    Page(
        "tailrace_restoring",
        "bring back what was saved",
        (("tailrace.h", "restoring"),),
    ),
    Page(
        "tailrace_files",
        "save and restore files that the program writes by itself",
        (("tailrace.h", "files of the program"),),
    ),
    Page("tailrace_readers", "look into what was saved", (("tailrace.h", "readers"),)),
    Page(
        "tailrace_collective_files",
        "collective reads and writes of one file by many ranks",
        (
            ("tailrace_mpi_collective.h", "files"),
            ("tailrace_mpi_collective.h", "lists of pieces"),
            ("tailrace_mpi_collective.h", "file views"),
            ("tailrace_mpi_collective.h", "in the background"),
            ("tailrace_mpi_collective.h", "statistics"),
        ),
        "tailrace_mpi_collective.h",
    ),
)


class Wrong(Exception):
    """The headers and the list of pages do not fit together."""


def make_pages(headers: list[Header]) -> dict[str, str]:
    """File names and texts of all pages. Every group is in exactly one page, every function has words."""
    wanted = [group for page in PAGES for group in page.groups]
    there = [(header.name, heading) for header in headers for heading in header.groups()]
    for header, heading in there:
        if wanted.count((header, heading)) != 1:
            raise Wrong(f'{header}: "{heading}" is in {wanted.count((header, heading))} pages')
    for header, heading in wanted:
        if (header, heading) not in there:
            raise Wrong(f'{header}: no heading "{heading}"')
    for item in (item for header in headers for item in header.items):
        if item.functions and not item.words:
            raise Wrong(f"{item.functions[0].name}: no comment says what it does")
    return {f"{page.name}.3": made(page, headers) for page in PAGES}


def made(page: Page, headers: list[Header]) -> str:
    items = {(h.name, heading): h.items_of(heading) for h in headers for heading in h.groups()}
    of_page = [item for group in page.groups for item in items[group]]
    functions = [function for item in of_page for function in item.functions]
    names = [f.name for f in functions] + [t.name for item in of_page for t in item.types]
    out = Writer({function.name for header in headers for function in header.functions()})
    out.macro(MARK, f".Dd {DATE}", f".Dt {page.name.upper()} 3", ".Os", ".Sh NAME")
    first = [page.name, *(name for name in names if name != page.name)]
    out.macro(*(f".Nm {name} ," for name in first[:-1]), f".Nm {first[-1]}", f".Nd {page.summary}")

    libraries = {h: "libtailrace_mpi" if "mpi" in h else "libtailrace" for h, _ in page.groups}
    out.section("LIBRARY")
    for library in dict.fromkeys(libraries.values()):
        out.words([f"{library} (-l{library.removeprefix('lib')})"])
    out.section("SYNOPSIS")
    for name in libraries:
        out.macro(f".In {name}")
        for item in (item for group in page.groups if group[0] == name for item in items[group]):
            for function in item.functions:
                out.macro(*prototype(function))

    out.section("DESCRIPTION")
    for header in headers:
        if header.name == page.opening_of:
            out.words(without_file_name(header.opening))
    for group in page.groups:
        if len({heading for _, heading in page.groups}) > 1:
            out.subsection(group[1].capitalize())
        for item in items[group]:
            out.item(item)
    if page.name == "tailrace":
        out.subsection("Pages")
        for other in PAGES[1:]:
            out.tagged(f"Xr {other.name} 3", [other.summary])
    if any(f.returns == "tailrace_code" for f in functions):
        out.section("RETURN VALUES")
        out.words(
            [
                "Functions that return tailrace_code return TAILRACE_OK or the kind of failure;",
                "tailrace_last_error then has a sentence with what was tried, where, and what is left intact.",
            ]
        )
    out.section("SEE ALSO")
    others = sorted(p.name for p in PAGES if p != page)
    out.macro(".Xr tailrace 1 ,", *(f".Xr {n} 3 ," for n in others[:-1]), f".Xr {others[-1]} 3")
    return out.text()


def prototype(function: Function) -> list[str]:
    parameters = [f'.Fa "{parameter}"' for parameter in function.parameters]
    return [f".Ft {function.returns}", f".Fo {function.name}", *parameters, ".Fc"]


def without_file_name(opening: tuple[str, ...]) -> list[str]:
    """`tailrace.h - save ...` as a sentence of its own."""
    first = opening[0].split(" - ", 1)[1]
    return [first[0].upper() + first[1:], *opening[1:]]


class Writer:
    """The text of a page in mdoc(7), line by line. Paragraphs are separated only where mdoc asks for it."""

    def __init__(self, functions: set[str]) -> None:
        self.functions = functions
        self.lines: list[str] = []
        self.in_list = False

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def macro(self, *lines: str) -> None:
        self.lines += lines

    def section(self, name: str) -> None:
        self.end_list()
        self.macro(f".Sh {name}")

    def subsection(self, name: str) -> None:
        self.end_list()
        self.macro(f".Ss \\&{name}")  # a first word like In would be taken for a macro

    def end_list(self) -> None:
        if self.in_list:
            self.macro(".El")
        self.in_list = False

    def tagged(self, head: str, body: Iterable[str]) -> None:
        if not self.in_list:
            self.macro(".Bl -tag -width Ds")
        self.in_list = True
        self.macro(f".It {head}")
        self.words(body)

    def item(self, item: Item) -> None:
        """Functions are entries of a list; what is declared besides stands as in the header."""
        if item.functions:
            self.tagged(" , ".join(f"Fn {f.name}" for f in item.functions), item.words)
            return
        self.end_list()
        self.words(item.words)
        self.literal(item.source)

    def words(self, lines: Iterable[str]) -> None:
        """Paragraphs of a comment; what is indented by four or more is left as it is."""
        paragraph: list[str] = []
        block: list[str] = []
        for line in [*lines, ""]:
            if line.startswith("    ") or (block and not line):
                self.filled(paragraph)
                paragraph = []
                block.append(line.removeprefix("    "))
            elif line:
                self.literal(block)
                block = []
                paragraph.append(line)
            else:
                self.filled(paragraph)
                paragraph = []
        self.literal(block)

    def filled(self, paragraph: list[str]) -> None:
        if not paragraph:
            return
        if not self.lines[-1].startswith((".Sh", ".Ss", ".It")):
            self.macro(".Pp")
        text = " ".join(" ".join(paragraph).split())
        text = re.sub(r"`[^`]*`", lambda m: m[0].replace(" ", "\0"), text)  # stays on one line
        for sentence in re.split(r"(?<=[.!?])(?<!\.\.\.) (?=[A-Z`*\"])", text):
            for line in textwrap.wrap(sentence, WIDTH, break_long_words=False, break_on_hyphens=False):
                self.macro(self.inline(line.replace("\0", " ")))

    def inline(self, line: str) -> str:
        line = escaped(line)
        line = re.sub(r"(?<![\w\\])-(?=\w)", r"\\-", line)
        line = re.sub(r"`([^`]*)`", r"\\fI\1\\fR", line)
        return re.sub(r"\btailrace_\w+", lambda m: f"\\fB{m[0]}\\fR" if m[0] in self.functions else m[0], line)

    def literal(self, lines: Iterable[str]) -> None:
        block = textwrap.dedent("\n".join(lines)).strip("\n")
        if block:
            self.macro(".Bd -literal -offset 2n")
            self.macro(*(escaped(line).replace("-", "\\-") for line in block.split("\n")))
            self.macro(".Ed")


def escaped(line: str) -> str:
    if not line.isascii():
        raise Wrong(f"not ASCII: {line}")
    line = line.replace("\\", "\\e")
    return "\\&" + line if line.startswith((".", "'")) else line


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    directory = PROJECT / "docs" / "man"
    pages = make_pages(c_interface.read_all(PROJECT / "include"))
    stale = [name for name, text in pages.items() if not is_text(directory / name, text)]
    gone = [path.name for path in sorted(directory.glob("*.3")) if path.name not in pages]
    if arguments:
        for name in stale + gone:
            print(f"docs/man/{name} does not say what include/ says: run scripts/manual_pages.py")
        return 1 if stale or gone else 0
    for name in stale:
        (directory / name).write_text(pages[name], encoding="utf-8")
    for name in gone:
        (directory / name).unlink()
    print(f"{len(pages)} pages, of which {len(stale)} have changed and {len(gone)} are gone")
    return 0


def is_text(path: pathlib.Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
