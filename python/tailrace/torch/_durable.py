"""Small files of other programs' formats, written so that they are there completely or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Any, BinaryIO

from tailrace._errors import Code, Error


def replace(path: str, write: Callable[[BinaryIO], Any]) -> None:
    """Gives `path` the content that `write` writes: synced under another name, then renamed, then the directory
    synced. After a failure, Error (I/O error), what was there is intact."""
    unfinished = f"{path}.unfinished"
    try:
        with open(unfinished, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync_directory_of(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        raise Error(Code.IO_ERROR, f"writing '{path}': {error.strerror}; what was there is intact") from error


def remove(path: str) -> None:
    """A file, a link (what it names stays), or a directory with all that is in it; nothing where nothing is."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def sync_directory_of(path: str) -> None:
    sync(os.path.dirname(os.path.abspath(path)))


def sync(path: str) -> None:
    """Of a file, or a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
