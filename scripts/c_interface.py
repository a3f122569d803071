"""Reads the C interface out of include/*.h: what is declared, in which group, with which words.

Input: the text of a header in the style of this project. Output: a Header, whose items come in the order of
the file. Nothing is passed over in silence: text that is none of the known things is an Unknown error with
its line, so that a page or a test made from the items has all of them.

Groups are the headings `/* ---- name ---- */`. A comment belongs to the declarations that follow it without
a blank line; functions that follow one another share the comment before the first.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

HEADERS = ("tailrace_status.h", "tailrace.h", "tailrace_mpi.h", "tailrace_mpi_collective.h")


class Unknown(Exception):
    """A header has text that is not understood."""


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    returns: str  # "const char *"
    parameters: tuple[str, ...]  # "tailrace_session **session"; ("void",) for none


@dataclasses.dataclass(frozen=True)
class Field:
    name: str
    words: str  # of the comment at its line


@dataclasses.dataclass(frozen=True)
class Type:
    name: str
    kind: str  # "struct", "enum", "opaque", "function"
    fields: tuple[Field, ...]  # of a struct, or the names of an enum


@dataclasses.dataclass(frozen=True)
class Item:
    """What stands together without a blank line or a further comment: words, then functions or other things."""

    group: str
    words: tuple[str, ...]  # lines of the comment before it, as they are indented there
    source: tuple[str, ...]  # the declarations, as they stand
    functions: tuple[Function, ...] = ()
    types: tuple[Type, ...] = ()


@dataclasses.dataclass(frozen=True)
class Header:
    name: str
    opening: tuple[str, ...]  # lines of the comment that opens the file
    items: tuple[Item, ...]

    def groups(self) -> list[str]:
        return list(dict.fromkeys(item.group for item in self.items))

    def items_of(self, group: str) -> list[Item]:
        return [item for item in self.items if item.group == group]

    def functions(self) -> list[Function]:
        return [function for item in self.items for function in item.functions]

    def types(self) -> list[Type]:
        return [type_ for item in self.items for type_ in item.types]


def read_all(include: pathlib.Path) -> list[Header]:
    return [read(name, (include / name).read_text(encoding="utf-8")) for name in HEADERS]


def read(name: str, text: str) -> Header:
    opening = COMMENT.match(text)
    if opening is None:
        raise Unknown(f"{name}: it does not open with a comment")
    return Header(name, comment_lines(opening[0]), tuple(Reader(name, text).items()))


COMMENT = re.compile(r"/\*.*?\*/", re.S)
HEADING = re.compile(r"/\* ---- (.+?) -{4,} \*/")
FUNCTION = re.compile(r"TAILRACE_API ([^;()]*?)(tailrace_\w+)\(([^()]*)\);", re.S)
OPAQUE = re.compile(r"typedef struct (\w+) \1;")
BODY = re.compile(r"typedef (struct|enum) (\w+) \{(.*?)\n\} \2;", re.S)
CALLBACK = re.compile(r"typedef [^;{}]*\(\*(\w+)\)\([^;{}]*\);")
DEFINE = re.compile(r"#define [A-Z]\w* [^\n/]*[^\n/ ]")


def comment_lines(comment: str) -> tuple[str, ...]:
    """The lines between /* and */, without the column of stars."""
    lines = comment[2:-2].rstrip().split("\n")
    lines[1:] = [re.sub(r"^ \* ?", "", line) for line in lines[1:]]
    return tuple(line.rstrip() for line in [lines[0].removeprefix(" "), *lines[1:]])


def pointers(declaration: str) -> str:
    """`char* name` as manual pages write it: `char *name`."""
    return re.sub(r"\s*(\*+)\s*", r" \1", " ".join(declaration.split()))


class Reader:
    """Goes through the declarations of one header, from top to bottom."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        # Declarations are between the lines that make them C for C++; without functions, behind the guard.
        opens = 'extern "C" {\n#endif\n'
        begin = text.find(opens) + len(opens)
        if opens not in text:
            begin = text.index("\n", text.index("#define TAILRACE_")) + 1
        ends = [text.find("#ifdef __cplusplus\n}"), text.rfind("#endif")]
        self.at = begin
        self.end = min(end for end in ends if end >= 0)
        self.group = ""
        self.words: tuple[str, ...] = ()
        self.source: list[str] = []
        self.functions: list[Function] = []
        self.types: list[Type] = []

    def items(self) -> list[Item]:
        found: list[Item] = []
        while self.at < self.end:
            blank = re.compile(r"\s+").match(self.text, self.at)
            if blank is not None:
                self.at = blank.end()
                if blank[0].count("\n") > 1:
                    found += self.complete()
                continue
            heading = HEADING.match(self.text, self.at)
            comment = COMMENT.match(self.text, self.at)
            if heading is not None:
                found += self.complete()
                self.group = heading[1]
                self.at = heading.end()
            elif comment is not None:
                self.at = comment.end()
                if self.begins_a_line(comment.start()):
                    found += self.complete()
                    self.words = comment_lines(comment[0])
                elif self.functions:
                    raise self.unknown("the words of a function stand before it", comment.start())
                else:
                    self.source[-1] += self.text[self.end_of_last : comment.end()]
            else:
                if self.source and bool(self.functions) != self.text.startswith("TAILRACE_API", self.at):
                    found += self.complete()
                self.declaration()
        return found + self.complete()

    def complete(self) -> list[Item]:
        """The item that ends here, if there is one."""
        if not self.words and not self.source:
            return []
        item = Item(
            self.group,
            self.words,
            tuple("\n".join(self.source).split("\n")) if self.source else (),
            tuple(self.functions),
            tuple(self.types),
        )
        if not self.group:
            raise Unknown(f"{self.name}: before the first heading: {(item.words + item.source)[0]}")
        self.words, self.source, self.functions, self.types = (), [], [], []
        return [item]

    def begins_a_line(self, position: int) -> bool:
        return not self.text[self.text.rfind("\n", 0, position) + 1 : position].strip()

    def declaration(self) -> None:
        for pattern in (FUNCTION, OPAQUE, BODY, CALLBACK, DEFINE):
            match = pattern.match(self.text, self.at)
            if match is None:
                continue
            if pattern is FUNCTION:
                parameters = tuple(pointers(p) for p in match[3].split(","))
                self.functions.append(Function(match[2], pointers(match[1]).strip(), parameters))
            elif pattern is OPAQUE:
                self.types.append(Type(match[1], "opaque", ()))
            elif pattern is CALLBACK:
                self.types.append(Type(match[1], "function", ()))
            elif pattern is BODY:
                self.types.append(Type(match[2], match[1], fields(match[1], match[3])))
            self.source.append(match[0])
            self.at = self.end_of_last = match.end()
            return
        raise self.unknown("not a declaration that is known", self.at)

    def unknown(self, why: str, position: int) -> Unknown:
        line = self.text.count("\n", 0, position) + 1
        rest = self.text[position : self.text.find("\n", position)]
        return Unknown(f"{self.name}, line {line}: {why}: {rest}")


def fields(kind: str, body: str) -> tuple[Field, ...]:
    """Of `double a, b[2]; /* words */` a and b, each with the words."""
    found: list[Field] = []
    ends = ";" if kind == "struct" else ",|$"
    pattern = re.compile(rf"\s*(?:/\*.*?\*/\s*)*([^;/]+?)\s*(?:{ends})[ ]*(?:/\*(.*?)\*/)?", re.S)
    if kind == "enum":
        pattern = re.compile(r"\s*(\w+) = \w+,?[ ]*(?:/\*(.*?)\*/)?", re.S)
    for match in pattern.finditer(body):
        words = " ".join((match[2] or "").split())
        for declared in match[1].split(","):
            name = re.search(r"(\w+)(?:\[\w+\])?$", declared.strip())
            if name is None:
                raise Unknown(f"not a field that is known: {match[0].strip()}")
            found.append(Field(name[1], words))
    return tuple(found)
