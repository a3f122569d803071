"""Small files of other programs' formats, written so that they appear completely or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Any, BinaryIO

from tailrace._errors import Code, Error


def replace(path: str, write: Callable[[BinaryIO], Any]) -> None:
    """Gives `path` the content that `write` writes. The content is synced under another name and
    renamed; then the directory is synced. After a failure, Error (I/O error), the earlier file is
    intact."""
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
    """Removes a file, a link (but not its target), or a directory with everything in it. Does nothing
    if there is nothing."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def sync_directory_of(path: str) -> None:
    sync(os.path.dirname(os.path.abspath(path)))


def sync(path: str) -> None:
    """Syncs a file or a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
