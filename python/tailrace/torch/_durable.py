"""Small files of other programs' formats, written so that they appear completely or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Any, BinaryIO

from tailrace._errors import Error, code_of_writing


def replace(path: str, write: Callable[[BinaryIO], Any]) -> None:
    """Gives `path` the content that `write` writes. The content is synced under another name and
    renamed; then the directory is synced. After a failure the earlier file is intact, unless the
    Error says that the new one has its name. If the system has refused something, that is an Error
    with the code of its errno; otherwise it is what `write` raised."""
    unfinished = f"{path}.unfinished"
    try:
        with open(unfinished, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        refusal = refusal_in(error)
        if refusal is None:
            raise
        raise Error(
            code_of_writing(refusal), f"writing '{path}': {refusal.strerror}; what was there is intact"
        ) from error
    sync_name_of(path)


def refusal_in(error: BaseException | None) -> OSError | None:
    """What the system has refused. When that ends a torch.save, it raises a RuntimeError of its own."""
    while isinstance(error, Exception) and not isinstance(error, Error):
        if isinstance(error, OSError):
            return error
        error = error.__cause__ or error.__context__
    return None


def remove(path: str) -> None:
    """Removes a file, a link (but not its target), or a directory with everything in it. Does nothing
    if there is nothing."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def sync_name_of(path: str) -> None:
    """Makes the name durable that something new has got. If that fails, what had the name before has
    lost it already, and the Error says what has it now."""
    try:
        sync(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise Error(
            code_of_writing(error),
            f"syncing the directory of '{path}': {error.strerror}; the new content has its name, but may not be "
            "durable",
        ) from error


def sync(path: str) -> None:
    """Syncs a file or a directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
