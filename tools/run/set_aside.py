"""Sets an epoch aside, so that no restore and no drain finds it any more, and nothing is lost.

The shared files go to DIR/set-aside by rename, or to set-aside-2 and so on, if files of these names
lie there. What nodes have captured of the epoch would bring it back, so it goes as well. If the epoch
is complete in the shared directory, the captured parts are copies in the node's memory and are
removed. Otherwise they go to set-aside in the node's directory. A session, an agent or a drain at work
has the lock of its directories, so nothing is touched without that lock.
This file is also the program that does the latter on a node:

    set_aside.py LOCAL_DIR... -- DIR JOB EPOCH RUN move|remove
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import stat
import sys
import time
from collections.abc import Iterable, Sequence

NAME = "set-aside"
PATIENCE_S = 30.0  # agents that were asked to end may be at work for a moment
NOTE = "HOW-TO-BRING-THEM-BACK"
TEXT = """The epochs in this directory were set aside by `tailrace run`, because the program died from each of them
again and again without reaching a newer one. No restore finds them here. To bring one back, while no program uses
the directory, move its files to the directory above. For epoch 1200 of run 3:

    mv -n {name}/*.e000001200.r0003.* .

If nobody needs them, remove this directory.
"""


def stem(job: str, epoch: int, run: int) -> str:
    """How the names of all files of an epoch begin (docs/format.md)."""
    return f"{job}.e{epoch:09d}.r{run:04d}."


def node_prefix(shared_dir: str, job: str) -> str:
    """How the names of the nodes' directories begin (src/capture/local_tier.h)."""
    value = 14695981039346656037
    for byte in os.fsencode(os.path.realpath(shared_dir)):
        value = (value ^ byte) * 1099511628211 % 2**64
    return f"{job}-{value:016x}.node"


def _room(source: int, names: Sequence[str]) -> tuple[str, int]:
    """The first of set-aside, set-aside-2, ... that has no files of these names, made if it is missing: its name, and
    the directory. A later run may have the number, and so the names, of one whose epochs were all set aside."""
    for number in itertools.count(1):
        name = NAME if number == 1 else f"{NAME}-{number}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o777 if stat.S_IMODE(os.fstat(source).st_mode) & 0o070 else 0o700, dir_fd=source)
        target = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=source)
        if not set(names) & set(os.listdir(target)):
            return name, target
        os.close(target)
    raise AssertionError("unreachable")


def _move(source: int, beginning: str) -> tuple[int, str]:
    """Moves the files of the open directory whose names begin so. Never replaces anything. Returns how many, and to
    which directory."""
    names = [name for name in os.listdir(source) if name.startswith(beginning)]
    if not names:
        return 0, NAME
    room, target = _room(source, names)
    try:
        for name in names:
            os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
        try:
            note = os.open(NOTE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=target)
            os.write(note, TEXT.format(name=room).encode())
            os.close(note)
        except FileExistsError:
            pass
        os.fsync(target)
        os.fsync(source)
    finally:
        os.close(target)
    return len(names), room


def _lock(directory: int, path: str, patience_s: float) -> None:
    """Locks the open directory. Raises OSError; BlockingIOError if others still use it after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BlockingIOError(errno.EAGAIN, "a session, an agent or a drain uses it", path) from None
            time.sleep(0.2)


def shared_files(shared_dir: str, job: str, epoch: int, run: int, patience_s: float = PATIENCE_S) -> tuple[int, str]:
    """Moves the shared files. Returns how many, and the name of their new directory. Raises as _lock."""
    directory = os.open(shared_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(directory, shared_dir, patience_s)
        return _move(directory, stem(job, epoch, run))
    finally:
        os.close(directory)


def captured_parts(
    local_dirs: Iterable[str], shared_dir: str, job: str, epoch: int, run: int, remove: bool,
    patience_s: float = PATIENCE_S,
) -> int:  # fmt: skip
    """Does it in all of this user's directories of the job here, and returns for how many files. Raises as _lock; then
    nothing has been moved or removed here."""
    beginning, prefix = stem(job, epoch, run), node_prefix(shared_dir, job)
    with contextlib.ExitStack() as opened:
        nodes = []
        for path in _entries(local_dirs, prefix):
            try:
                node = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                continue
            opened.callback(os.close, node)
            if os.fstat(node).st_uid == os.geteuid():
                _lock(node, path, patience_s)
                nodes.append(node)
        return sum(_remove(node, beginning) if remove else _move(node, beginning)[0] for node in nodes)


def _entries(directories: Iterable[str], beginning: str) -> list[str]:
    """The paths in them whose names begin so. Each once, because two locks on one directory exclude each other."""
    found = []
    for directory in {os.path.realpath(directory) for directory in directories}:
        with contextlib.suppress(FileNotFoundError):
            found += [os.path.join(directory, name) for name in os.listdir(directory) if name.startswith(beginning)]
    return sorted(found)


def _remove(node: int, beginning: str) -> int:
    # The plan record goes first: without it no drain brings the epoch back.
    names = sorted(os.listdir(node), key=lambda name: (not name.endswith("plan"), name))
    names = [name for name in names if name.startswith(beginning)]
    for name in names:
        os.unlink(name, dir_fd=node)
    return len(names)


def main(arguments: list[str]) -> int:
    cut = arguments.index("--")
    shared_dir, job, epoch, run, how = arguments[cut + 1 :]
    try:
        captured_parts(arguments[:cut], shared_dir, job, int(epoch), int(run), how == "remove")
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
