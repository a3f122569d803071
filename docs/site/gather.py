"""Puts the pages of the site together, for Sphinx: gather.py TARGET

Input: README.md (the front page), CONTRIBUTING.md, CHANGELOG.md and docs/*.md, as they are; and the reference
pages that the other programs here make from headers, docstrings and manual pages. Output: a directory of Markdown
where each page lies as in the project, so that links between pages stay. A link to any other file of the project
leads to a page that shows the file. A link that leads nowhere is an error, with its line.

A new page of docs/ is on the site without a change here: CHAPTERS only orders those that it names.
"""

from __future__ import annotations

import os
import pathlib
import posixpath
import re
import shutil
import sys

PROJECT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT / "scripts"))

import c_reference  # noqa: E402
import cpp_reference  # noqa: E402
import man_pages  # noqa: E402
import python_reference  # noqa: E402

TOP_PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
CHAPTERS = (
    ("Use it", "start linking python pytorch jax fortran files when levels operating agent settings tools"),
    ("Look at it", "measuring performance records security stability"),
    ("Other interfaces", "collective veloc scr fti integrations"),
    ("How it works", "design format dependencies"),
)
LANGUAGES = {
    ".c": "c", ".h": "c", ".hpp": "cpp", ".cc": "cpp", ".py": "python", ".f90": "fortran", ".sh": "sh", ".toml": "toml",
    ".txt": "cmake",
}  # fmt: skip
REFERENCES = (c_reference, cpp_reference, python_reference)
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
FENCE = re.compile(r"^ *(```|~~~)")
FILES = "files"  # the directory of pages that show a file


class Wrong(Exception):
    """The pages cannot be put together."""


class Site:
    """What has been put together. Paths of pages are those in the site, and so are those of links."""

    def __init__(self, project: pathlib.Path, target: pathlib.Path) -> None:
        self.project = project
        self.target = target
        self.shown: set[str] = set()

    def write(self, path: str, text: str) -> None:
        place = self.target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def page(self, path: str) -> None:
        """Takes over a page of the project."""
        self.write(place_of(path), self.with_links(path, (self.project / path).read_text(encoding="utf-8")))

    def with_links(self, path: str, text: str) -> str:
        lines = text.split("\n")
        in_code = False
        for number, line in enumerate(lines):
            if FENCE.match(line):
                in_code = not in_code
            if not in_code:
                where = f"{path}:{number + 1}"
                lines[number] = LINK.sub(lambda m: self.link(path, m[1], where), line)  # noqa: B023
        return "\n".join(lines)

    def link(self, page: str, link: str, where: str) -> str:
        """The link in the site that stands for this one of a page of the project."""
        if re.match(r"[a-z]+:|#", link):
            return link
        file, hash_mark, anchor = link.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
        there = self.project / path
        if path.startswith("..") or not there.exists():
            raise Wrong(f"{where}: the link leads nowhere: {link}")
        if path.endswith(".svg"):
            self.copy(path)
            return link
        if not is_page(path):
            self.show(path)
            path = shown_at(path)
        target = posixpath.relpath(place_of(path), posixpath.dirname(place_of(page)) or ".")
        return target + hash_mark + anchor

    def copy(self, path: str) -> None:
        (self.target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.project / path, self.target / path)

    def show(self, path: str) -> None:
        """A page that shows a file of the project, or lists a directory's."""
        if path in self.shown:
            return
        self.shown.add(path)
        there = self.project / path
        if there.is_dir():
            inside = [p for p in sorted(there.iterdir()) if p.name[0] not in "._"]
            lines = [f"# {path}/", ""]
            for each in inside:
                below = f"{path}/{each.name}"
                self.show(below)
                place = posixpath.relpath(shown_at(below), f"{FILES}/{path}")
                lines.append(f"- [`{each.name}{'/' if each.is_dir() else ''}`]({place})")
            self.write(shown_at(path), orphan("\n".join(lines)))
            return
        language = LANGUAGES.get(there.suffix, "none")
        text = there.read_text(encoding="utf-8").rstrip("\n")
        self.write(shown_at(path), orphan(f"# {path}\n\n``````{language}\n{text}\n``````\n"))


def orphan(text: str) -> str:
    return f"---\norphan: true\n---\n\n{text}\n"


def is_page(path: str) -> bool:
    return path in TOP_PAGES or re.fullmatch(r"docs/[\w-]+\.md", path) is not None


def place_of(path: str) -> str:
    """Where a page of the project is in the site."""
    return "index.md" if path == "README.md" else path


def shown_at(path: str) -> str:
    return f"{FILES}/{path}/index.md" if (PROJECT / path).is_dir() else f"{FILES}/{path}.md"


def tree(caption: str, pages: list[str]) -> str:
    """A part of the list of pages at the left, which stands on the front page and is not shown there."""
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def chapters(names: list[str]) -> list[tuple[str, list[str]]]:
    """Captions and pages; pages that no chapter names come last."""
    found = [(caption, [n for n in listed.split() if n in names]) for caption, listed in CHAPTERS]
    named = {name for _, listed in found for name in listed}
    more = [name for name in names if name not in named]
    return found + ([("More", more)] if more else [])


def reference_pages() -> dict[str, str]:
    """Paths in the site and texts."""
    made = man_pages.pages(PROJECT / "docs" / "man")
    for module in REFERENCES:
        made |= module.pages(PROJECT / ("python" if module is python_reference else "include"))
    return made


def gather(target: pathlib.Path) -> Site:
    shutil.rmtree(target, ignore_errors=True)
    site = Site(PROJECT, target)
    names = sorted(path.stem for path in (PROJECT / "docs").glob("*.md"))
    for path in [*TOP_PAGES, *(f"docs/{name}.md" for name in names)]:
        site.page(path)
    for path, text in reference_pages().items():
        site.write(path, text)
    front = (target / "index.md").read_text(encoding="utf-8")
    for caption, listed in chapters(names):
        front += tree(caption, [f"docs/{name}" for name in listed])
    front += tree("Reference", [f"{f}/index" for f in (*(m.FOLDER for m in REFERENCES), man_pages.FOLDER)])
    front += tree("The project", ["CONTRIBUTING", "CHANGELOG"])
    site.write("index.md", front)
    return site


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        site = gather(pathlib.Path(arguments[0]))
    except Wrong as wrong:
        print(f"gather: {wrong}", file=sys.stderr)
        return 1
    pages = sum(name.endswith(".md") for _, _, files in os.walk(site.target) for name in files)
    print(f"{pages} pages gathered")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
