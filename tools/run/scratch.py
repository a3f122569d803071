"""A directory for host files. It goes when the process ends. If that is killed, it goes with the next directory that
this user makes on this machine.

The kernel's lock on the directory says whether somebody still needs it. The program may inherit the lock: it lives on
when we are killed. The name of the machine is in the directory's name, because a file system that several machines see
may keep locks on each of them alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile


def _prefix() -> str:
    return f"tailrace-run-{os.uname().nodename}-"


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _is_at(path: str, directory: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(directory))
    except FileNotFoundError:
        return False


def _remove(path: str, directory: int) -> None:
    """Only files, and only by way of the open directory."""
    for name in os.listdir(directory):
        os.unlink(name, dir_fd=directory)
    os.rmdir(path)


def _remove_if_nobody_needs_it(path: str) -> None:
    directory = _open(path)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            return
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, directory):
            _remove(path, directory)
    finally:
        os.close(directory)


def remove_leftovers(above: str) -> None:
    """What cannot be removed, or is somebody else's, stays."""
    try:
        names = os.listdir(above)
    except OSError:
        return
    for name in names:
        if name.startswith(_prefix()):
            with contextlib.suppress(OSError):
                _remove_if_nobody_needs_it(os.path.join(above, name))


class Scratch:
    """`path` is the directory, and `lock` a descriptor that holds its lock; -1: this file system has none."""

    def __init__(self) -> None:
        above = tempfile.gettempdir()
        remove_leftovers(above)
        while True:
            self.path = tempfile.mkdtemp(prefix=_prefix(), dir=above)
            try:
                self._directory = _open(self.path)
            except FileNotFoundError:
                continue  # another process has taken it for a leftover
            self.lock = self._directory
            try:
                fcntl.flock(self._directory, fcntl.LOCK_EX)
            except OSError:
                self.lock = -1
            # Another process may have taken it for a leftover before it was locked.
            if _is_at(self.path, self._directory):
                return
            os.close(self._directory)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_why: object) -> None:
        with contextlib.suppress(OSError):
            _remove(self.path, self._directory)
        os.close(self._directory)
