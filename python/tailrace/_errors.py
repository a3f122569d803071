"""tailrace.Error: every failure, with its kind and its sentence.

The core reports a failure as a code and a sentence. The sentence says what was tried, on which path, offset and
length, and what is left intact. `path`, `offset` and `intact` are those parts of the sentence, for programs that act on
them. A part that the sentence lacks is None.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import re
from collections.abc import Iterator


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
# Up to the reason behind it, if there is one.
_INTACT = re.compile(r"(?:^|[;.] )([^;.]*\b(?:intact|nothing was \w+|left as it is|was left)\b[^;.:]*)", re.I)


class Error(Exception):
    """A call failed. `code` is the kind of failure, and str() is the sentence. The call's
    documentation says what holds then.

    If Python has an exception of the kind, the Error is that, too. A missing file is a
    FileNotFoundError, and a wrong argument is a ValueError. What the system refuses is an OSError
    with its `filename`, and with `errno` if it is known.
    """

    code: Code
    path: str | None
    offset: int | None
    intact: str | None

    def __new__(cls, code: Code, sentence: str) -> Error:
        kind = _kind_of(Code(code), sentence) if cls is Error else cls
        return (OSError if issubclass(kind, OSError) else Exception).__new__(kind, sentence)

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


class InvalidArgumentError(Error, ValueError):
    pass


class OutOfMemoryError(Error, MemoryError):
    pass


class SystemCallError(Error, OSError):
    """An Error with `errno` and `filename`, whose str() is still the sentence."""

    _errno: int | None = None

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(code, sentence)
        self.errno, self.strerror, self.filename = self._errno, sentence, self.path

    def __str__(self) -> str:
        return str(self.args[0])


class NotFoundError(SystemCallError, FileNotFoundError):
    _errno = errno.ENOENT


class AlreadyExistsError(SystemCallError, FileExistsError):
    _errno = errno.EEXIST


class NoPermissionError(SystemCallError, PermissionError):
    _errno = errno.EACCES


class NoSpaceError(SystemCallError):
    _errno = errno.ENOSPC


class TimedOutError(SystemCallError, TimeoutError):
    _errno = errno.ETIMEDOUT


_KINDS: dict[Code, type[Error]] = {
    Code.INVALID_ARGUMENT: InvalidArgumentError,
    Code.NOT_FOUND: NotFoundError,
    Code.ALREADY_EXISTS: AlreadyExistsError,
    Code.NO_SPACE: NoSpaceError,
    Code.IO_ERROR: SystemCallError,
    Code.OUT_OF_MEMORY: OutOfMemoryError,
    Code.TIMEOUT: TimedOutError,
}
_NO_PERMISSION = tuple(os.strerror(number) for number in (errno.EACCES, errno.EPERM))  # as the core's sentences say it


def _kind_of(code: Code, sentence: str) -> type[Error]:
    if code is Code.IO_ERROR and any(words in sentence for words in _NO_PERMISSION):
        return NoPermissionError
    return _KINDS.get(code, Error)


@contextlib.contextmanager
def about(path: str) -> Iterator[None]:
    """Adds `path`, which the caller named, to a failure whose sentence names no path."""
    try:
        yield
    except Error as error:
        if error.path is None:
            error.path = path
            if isinstance(error, SystemCallError):
                error.filename = path
        raise


@contextlib.contextmanager
def older_is_intact() -> Iterator[None]:
    """For work in which what was there before is not touched: a failure whose sentence does not say what is left intact
    says so."""
    try:
        yield
    except Error as error:
        if error.intact is not None:
            raise
        raise Error(error.code, f"{error}; what was there is intact") from error


# As the core has them (src/base/status.cc). A test compares.
_CODES = {
    errno.ENOSPC: Code.NO_SPACE,
    errno.EDQUOT: Code.NO_SPACE,
    errno.EFBIG: Code.NO_SPACE,
    errno.ENOENT: Code.NOT_FOUND,
    errno.EEXIST: Code.ALREADY_EXISTS,
    errno.EINVAL: Code.INVALID_ARGUMENT,
    errno.ENAMETOOLONG: Code.INVALID_ARGUMENT,
    errno.ENOTDIR: Code.INVALID_ARGUMENT,
    errno.EISDIR: Code.INVALID_ARGUMENT,
    errno.EOPNOTSUPP: Code.UNSUPPORTED,
    errno.ENOSYS: Code.UNSUPPORTED,
    errno.ENOMEM: Code.OUT_OF_MEMORY,
    errno.EBUSY: Code.BUSY,
    errno.EAGAIN: Code.BUSY,
}


def code_of_writing(error: OSError) -> Code:
    """The code of a failure to write: the core's for that errno."""
    return Code.IO_ERROR if error.errno is None else _CODES.get(error.errno, Code.IO_ERROR)


def sentence_of(error: BaseException) -> str:
    """The sentence for the other ranks. It is always UTF-8 and never empty."""
    try:
        text = str(error)
    except Exception:
        text = "it cannot say more"
    if not isinstance(error, Error):
        text = f"{type(error).__name__}: {text}"
    return text.encode("utf-8", "backslashreplace").decode()


def from_core(code: int, sentence: str) -> Error:
    """The Error for a failure that the extension reports."""
    return Error(Code(code), sentence)
