"""Finds the fenced blocks of code in the pages, and what becomes of each.

Input: README.md, CONTRIBUTING.md and docs/*.md. A comment in the line above a block says what becomes of it:

    <!-- test: NAME -->       tests/project/install_test.py builds or runs it
    <!-- test -->             python/tests/test_docs.py runs it
    <!-- from FILE -->        it stands in examples/FILE, and a test compares
    <!-- run: HOW -->         tests/project/pages_run_test.py compiles or compares it; HOW is one of its ways
    <!-- not run: WHY -->     no test can run it here; WHY is concrete
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

PROJECT = pathlib.Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^( *)(```+|~~~+)(\w*)")
COMMENT = re.compile(r"^ *<!-- (test|from|run|not run)(?::? (.*?))? -->$")


@dataclasses.dataclass(frozen=True)
class Block:
    page: str  # as in docs/levels.md
    line: int  # of the fence
    language: str  # "" if the fence says none
    text: str
    fate: str  # "test", "from", "run", "not run", or "" if nothing says it
    words: str  # what the comment says besides

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def pages(project: pathlib.Path = PROJECT) -> list[str]:
    return ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((project / "docs").glob("*.md")))]


def all_blocks(project: pathlib.Path = PROJECT) -> list[Block]:
    return [b for page in pages(project) for b in blocks_of(page, (project / page).read_text(encoding="utf-8"))]


def blocks_of(page: str, text: str) -> list[Block]:
    found: list[Block] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        begin = at
        at += 1
        while at < len(lines) and lines[at].strip() != fence[2]:
            at += 1
        fate, words = fate_of(lines, begin)
        body = [line.removeprefix(fence[1]) for line in lines[begin + 1 : at]]
        found.append(Block(page, begin + 1, fence[3], "\n".join(body) + "\n", fate, words))
        at += 1
    return found


def fate_of(lines: list[str], fence: int) -> tuple[str, str]:
    """What the comment above the fence says. It may have several lines."""
    begin = fence - 1
    if begin < 0 or not lines[begin].rstrip().endswith("-->"):
        return "", ""
    while begin > 0 and "<!--" not in lines[begin]:
        begin -= 1
    comment = COMMENT.match(" ".join(line.strip() for line in lines[begin:fence]))
    return (comment[1], comment[2] or "") if comment is not None else ("", "")
