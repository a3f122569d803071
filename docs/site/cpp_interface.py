"""Reads the C++ interface out of include/*.hpp: what is declared for programs, with which words.

Input: the text of a header in the style of this project. Output: its opening words, and declarations in the order of
the file, those of a class within it. Left out are bodies, private members, and namespace `detail`. A comment belongs
to the declaration that follows it, or stands behind it at its line. What is not understood is an Unknown error.
"""

from __future__ import annotations

import dataclasses
import re

HEADERS = ("tailrace.hpp", "tailrace_types.hpp", "tailrace_mpi.hpp", "tailrace_mpi_collective.hpp")


class Unknown(Exception):
    """A header has text that is not understood."""


@dataclasses.dataclass
class Declaration:
    kind: str  # "class", "struct", "enum-class", "function", "member", "type", "enumerator"
    text: str  # without body and ";"
    words: list[str]
    heading: str = ""  # of the group that begins with it
    members: list[Declaration] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Header:
    name: str
    opening: list[str]
    declarations: list[Declaration]


def read(name: str, text: str) -> Header:
    opening: list[str] = []
    for line in text.split("\n"):
        if not line.startswith("//"):
            break
        opening.append(line[2:].removeprefix(" "))
    begin = "inline namespace v0 {\n"
    if begin not in text:
        raise Unknown(f"{name}: no inline namespace v0")
    body = text[text.index(begin) + len(begin) : text.rindex("}  // namespace v0")]
    return Header(name, opening, Reader(name, body).declarations())


COMMENT = re.compile(r"[ \t]*//[ ]?([^\n]*)")
HEADING = re.compile(r"---- (.*?) -{2,}$")
BRACES = re.compile(r"//[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])+'|[{}]", re.S)  # and where none count
CLASS = re.compile(r"(class|struct|enum class) \w")


class Reader:
    """Goes through the text of a namespace or a class, from top to bottom."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.at = 0

    def declarations(self) -> list[Declaration]:
        found: list[Declaration] = []
        words: list[str] = []
        heading = ""
        hidden = False
        while self.at < len(self.text):
            blank = re.compile(r"\s+").match(self.text, self.at)
            comment = COMMENT.match(self.text, self.at)
            if blank is not None:
                self.at = blank.end()
                if blank[0].count("\n") > 1:
                    words = []
            elif comment is not None:
                self.at = comment.end()
                group = HEADING.match(comment[1])
                if group is not None:
                    heading, words = group[1], []
                else:
                    words.append(comment[1].rstrip())
            elif self.skip("private:"):
                hidden = True
            elif self.skip("public:"):
                hidden = False
            elif self.skip("namespace detail {"):
                self.at = self.end_of_block(self.at - 1)
                words = []
            elif self.skip(";"):
                pass
            else:
                for declaration in self.declaration(words):
                    declaration.heading, heading = heading, ""
                    if not hidden:
                        found.append(declaration)
                words = []
        return found

    def skip(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def declaration(self, words: list[str]) -> list[Declaration]:
        end, body = self.end_of_head()
        text = " ".join(self.text[self.at : end].split())
        inner = self.text[body + 1 : self.end_of_block(body) - 1] if body is not None else ""
        self.at = end if body is None else self.end_of_block(body)
        if not text:
            raise Unknown(f"{self.name}: nothing is declared at: {self.text[self.at : self.at + 60]!r}")
        kind = CLASS.match(text)
        if kind is not None and kind[1] == "enum class":
            return [Declaration("enum-class", text.removeprefix("enum class "), words, members=enumerators(inner))]
        if kind is not None:
            members = Reader(self.name, inner).declarations()
            return [Declaration(kind[1], text.removeprefix(kind[1]).strip(), words, members=members)]
        said = words or self.words_behind()
        if text.startswith("using "):
            return [Declaration("type", text.removeprefix("using "), said)]
        if is_function(text):
            return [Declaration("function", without_initialisers(text), said)]
        return [Declaration("member", each, said) for each in members_of(text)]

    def words_behind(self) -> list[str]:
        """The comment at the same line, behind a declaration, and its further lines below it."""
        match = re.compile(r";?[ ]+//[ ]?([^\n]*)").match(self.text, self.at)
        if match is None:
            return []
        self.at = match.end()
        return [match[1].strip()]

    def end_of_head(self) -> tuple[int, int | None]:
        """Where the declaration ends before its body or its ";", and where its body begins."""
        depth = 0
        at = self.at
        while at < len(self.text):
            sign = self.text[at]
            if sign in "([":
                depth += 1
            elif sign in ")]":
                depth -= 1
            elif sign == "{" and (depth or self.text[self.at : at].rstrip().endswith("=")):
                at = self.end_of_block(at) - 1
            elif sign == "{":
                return at, at
            elif sign == ";" and not depth:
                return at, None
            at += 1
        raise Unknown(f"{self.name}: no end of: {self.text[self.at : self.at + 60]!r}")

    def end_of_block(self, begin: int) -> int:
        """Behind the bracket that closes the one at `begin`."""
        depth = 0
        for match in BRACES.finditer(self.text, begin):
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if not depth:
                return match.end()
        raise Unknown(f"{self.name}: a block is not closed: {self.text[begin : begin + 60]!r}")


def is_function(text: str) -> bool:
    without_template = re.sub(r"^template <[^()]*?> (?=requires|\w)", "", text)
    return "(" in re.sub(r"requires ?\(.*?\) (?=\w)", "", without_template).split(" = ")[0]


def without_initialisers(text: str) -> str:
    """A constructor without `: member(value)`."""
    depth = 0
    for at, sign in enumerate(text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if not depth and text.startswith(" : ", at) and at > text.find(")"):
            return text[:at]
    return text


def members_of(text: str) -> list[str]:
    """`Extents a = {}, b = {}` as `Extents a = {}` and `Extents b = {}`."""
    pieces = re.split(r", (?=\w+(?: =|,|$))", text)
    type_ = re.match(r"(.*?) \w+(?: = .*)?$", pieces[0])
    if type_ is None:
        raise Unknown(f"not a member: {text}")
    return [pieces[0], *(f"{type_[1]} {piece}" for piece in pieces[1:])]


def enumerators(body: str) -> list[Declaration]:
    return [
        Declaration("enumerator", match[1], [match[2]] if match[2] else [])
        for match in re.finditer(r"^\s*(\w+ = \w+),(?:\s*// ([^\n]*))?$", body, re.M)
    ]
