"""tailrace.Error: every failure, with its kind and its sentence.

The core reports a failure as a code and a sentence: what was tried, on which path, offset and length, and what
is left intact. `path`, `offset` and `intact` are those parts of the sentence, for programs that want to act on
them; None where the sentence has no such part.
"""

from __future__ import annotations

import enum
import re


class Code(enum.IntEnum):
    """The kind of a failure; the numbers are those of tailrace_status.h."""

    INVALID_ARGUMENT = 1
    NOT_FOUND = 2
    ALREADY_EXISTS = 3
    NO_SPACE = 4
    IO_ERROR = 5
    CORRUPT = 6
    UNSUPPORTED = 7
    BUSY = 8
    FAILED_STATE = 9
    OUT_OF_MEMORY = 10
    TIMEOUT = 11
    TRANSPORT = 12
    ABORTED = 13


# A path in quotes, or one that stands alone and starts at the root.
_PATH = re.compile(r"'([^']*/[^']*)'|(?<![\w'\"(.])(/[^\s:;,']+)")
_REGION = re.compile(r"region '[^']*'")  # a region's name may have slashes, too
_OFFSET = re.compile(r"\bat (?:offset|byte) (\d+)")
_INTACT = re.compile(r"(?:^|[;.] )([^;.]*\b(?:intact|nothing was \w+|left as it is|was left)\b[^;.]*)", re.I)


class Error(Exception):
    """A call failed. `code` is the kind, str() the sentence; the call's documentation says what then holds."""

    code: Code
    path: str | None
    offset: int | None
    intact: str | None

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.code = Code(code)
        path = _PATH.search(_REGION.sub("region", sentence))
        offset = _OFFSET.search(sentence)
        intact = _INTACT.search(sentence)
        self.path = (path[1] or path[2]) if path else None
        self.offset = int(offset[1]) if offset else None
        self.intact = intact[1].strip() if intact else None

    def __reduce__(self) -> tuple[type[Error], tuple[Code, str]]:
        return type(self), (self.code, str(self))


def sentence_of(error: BaseException) -> str:
    """For the other ranks: always text in UTF-8, and never nothing."""
    try:
        text = str(error)
    except Exception:
        text = "it cannot say more"
    if not isinstance(error, Error):
        text = f"{type(error).__name__}: {text}"
    return text.encode("utf-8", "backslashreplace").decode()


def from_core(code: int, sentence: str) -> Error:
    """What the extension raises."""
    return Error(Code(code), sentence)
