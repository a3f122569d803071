"""Parses lines of strace into calls. Pure: text in, calls out.

The lines are those of `strace -f -y -o FILE`. Each begins with the thread's number. A call that
another thread's line interrupts is written in two parts (`<unfinished ...>`, `<... NAME resumed>`).
They become one call, at the place of the second. Calls that failed or never returned are left out,
because they changed nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)(?:<((?:[^<>])*)>)?", re.DOTALL)
RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
GONE = re.compile(r"(\d+) +\+\+\+ ")
UNFINISHED = " <unfinished ...>"
ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|[0-7]{1,3}|.)", re.DOTALL)
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", "a": "\a", "b": "\b"}
EXIT = "exit"  # the name of the call that stands for the end of a thread


@dataclass(frozen=True)
class Call:
    """A call that succeeded. `arguments` is strace's text between the parentheses. `path` belongs to
    the descriptor that the call returned, if it returned one."""

    thread: int
    name: str
    arguments: str
    result: int
    path: str = ""


def calls_of(lines: Iterable[str]) -> Iterator[Call]:
    """The calls in `lines`, in the order in which they returned. Lines that are not strace's are
    passed over."""
    begun: dict[int, str] = {}
    for text in lines:
        line = text.rstrip("\n")
        if line.endswith(UNFINISHED):
            thread, _, rest = line.partition(" ")
            if thread.isdigit():
                begun[int(thread)] = rest.lstrip()[: -len(UNFINISHED)]
            continue
        if (found := RESUMED.match(line)) is not None:
            thread_number = int(found[1])
            start = begun.pop(thread_number, "")
            if not start.startswith(found[2] + "("):
                continue
            line = f"{thread_number} {start}{found[3]}"
        elif (gone := GONE.match(line)) is not None:
            begun.pop(int(gone[1]), None)
            yield Call(int(gone[1]), EXIT, "", 0)
            continue
        if (found := LINE.match(line)) is not None:
            result = int(found[4], 0)
            if result >= 0:
                yield Call(int(found[1]), found[2], found[3], result, plain(found[5] or ""))


def plain(text: str) -> str:
    """A name without strace's escapes."""
    if "\\" not in text:
        return text

    def byte(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] == "x" and len(code) == 3:
            return chr(int(code[1:], 16))
        return chr(int(code, 8) & 255) if code[0].isdigit() else LETTERS.get(code, code)

    # The escapes are bytes of UTF-8, one by one.
    return ESCAPE.sub(byte, text).encode("latin-1", "replace").decode("utf-8", "replace")


def arguments_of(text: str) -> list[str]:
    """The arguments of a call. Commas within quotes, brackets and names of files do not separate them."""
    parts, start, depth, quoted, skip = [], 0, 0, False, False
    for at, letter in enumerate(text):
        if skip:
            skip = False
        elif letter == "\\":
            skip = True
        elif quoted or letter == '"':
            quoted = quoted != (letter == '"')
        elif letter in "([{<":
            depth += 1
        elif letter in ")]}" or (letter == ">" and text[at - 1] != "="):
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return parts


DESCRIPTOR = re.compile(r"(-?\d+|AT_FDCWD)(?:<([^<>]*)>(\(deleted\))?)?")


def descriptor_of(argument: str) -> tuple[int, str]:
    """Number and path of a descriptor. The number is -1 for the working directory, or if there is
    none."""
    found = DESCRIPTOR.match(argument)
    if found is None:
        return -1, ""
    return -1 if found[1] == "AT_FDCWD" else int(found[1]), plain(found[2] or "")


def name_of(argument: str) -> str:
    """A string argument: the name of a file."""
    return plain(argument[1:-1]) if argument.startswith('"') else ""
