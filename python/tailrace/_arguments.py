"""Checks of arguments, so that the core can take them. Text must be UTF-8 without NUL bytes, because
text in C ends at a NUL."""

from __future__ import annotations

import operator
import os
import re
from typing import Any

from tailrace._errors import Code, Error

# pathlib turns two slashes into one.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
MOST_32 = (1 << 32) - 1  # the largest uint32_t of the core


def path(value: Any, name: str, intact: str) -> str:
    """The path in the argument `name`. Raises Error: invalid argument if it is not a path, not found if it
    leads nowhere because the working directory is gone. `intact` ends the sentence."""
    try:
        text = os.fsdecode(value)
    except TypeError:
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{name}: a {type(value).__name__} is given, where a path is needed; {intact}",
        ) from None
    if not text:
        raise Error(Code.INVALID_ARGUMENT, f"{name}: the path is empty; {intact}")
    if _URL.match(text):
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{name}: {text!r} is the address of an object store or a server, and tailrace's files lie in directories "
            f"of a file system: give the path where that is mounted (or './{text}', if it is meant so); {intact}",
        )
    if not os.path.isabs(text):
        try:
            os.getcwd()
        except FileNotFoundError:
            raise Error(
                Code.NOT_FOUND,
                f"{name}: '{text}' is relative, and the working directory has been removed; {intact}",
            ) from None
    return checked(text, name, intact)


def checked(text: Any, name: str, intact: str) -> str:
    """`text`, if it is a string that the core can take. Raises Error (invalid argument) if not."""
    if not isinstance(text, str):
        raise Error(
            Code.INVALID_ARGUMENT, f"{name}: a {type(text).__name__} is given, where a string is needed; {intact}"
        )
    if "\0" in text:
        raise Error(Code.INVALID_ARGUMENT, f"{name}: {text!r} has a NUL byte; {intact}")
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of another encoding, as os.fsdecode keeps them
        raise Error(Code.INVALID_ARGUMENT, f"{name}: {text!r} is not UTF-8; {intact}") from None
    return text


def number(value: Any, name: str, intact: str, most: int = (1 << 64) - 1, *, least: int = 0) -> int:
    """An integer from `least` to `most`; numpy's integers count. Raises Error (invalid argument) for
    anything else."""
    found: int | None = None
    try:
        found = operator.index(value)
        given = str(found)
    except TypeError:
        given = _short(value)
    if found is None or not least <= found <= most:
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{name}: {given} is given, where a number from {least} to {most} is needed; {intact}",
        )
    return found


def threads(value: Any, intact: str) -> int:
    """The number in the argument `threads`: there must be one that does the work."""
    return number(value, "threads", intact, MOST_32, least=1)


def _short(value: Any) -> str:
    """The value, or its type alone. A state, if arguments are in the wrong order, would fill pages."""
    if value is None or isinstance(value, (float, str)):
        return repr(value)
    kind = type(value)
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"


def step_of(path: str) -> int:
    """The number at the end of a checkpoint's name ("step-100"), or 0."""
    digits = re.search(r"(\d{1,18})\D*$", os.path.basename(os.path.abspath(path)))
    return int(digits[1]) if digits else 0
