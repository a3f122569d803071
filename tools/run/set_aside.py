"""Sets an epoch aside, so that no restore and no drain finds it any more, and nothing is lost.

The shared files go to DIR/set-aside by rename, or to set-aside-2 and so on, if files of these names
lie there. What nodes have captured of the epoch would bring it back, so it goes as well. If the epoch
is complete in the shared directory, the captured parts are copies in the node's memory and are
removed. Otherwise they go to set-aside in the node's directory.
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
from collections.abc import Sequence

NAME = "set-aside"
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


def shared_files(shared_dir: str, job: str, epoch: int, run: int, patience_s: float = 30) -> tuple[int, str]:
    """Moves the shared files. Returns how many, and the name of their new directory. Raises OSError; BlockingIOError if
    a session still uses the directory after `patience_s`."""
    directory = os.open(shared_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BlockingIOError(errno.EAGAIN, "a session uses it", shared_dir) from None
                time.sleep(0.2)
        return _move(directory, stem(job, epoch, run))
    finally:
        os.close(directory)


def captured_parts(local_dir: str, shared_dir: str, job: str, epoch: int, run: int, remove: bool) -> int:
    """Does it in all of this user's directories of the job here, and returns for how many files."""
    count = 0
    beginning = stem(job, epoch, run)
    try:
        entries = sorted(os.listdir(local_dir))
    except FileNotFoundError:
        return 0
    for entry in entries:
        if not entry.startswith(node_prefix(shared_dir, job)):
            continue
        try:
            node = os.open(os.path.join(local_dir, entry), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(node).st_uid != os.geteuid():
                continue
            # The plan record goes first: without it no drain brings the epoch back.
            names = sorted(os.listdir(node), key=lambda name: (not name.endswith("plan"), name))
            if not remove:
                count += _move(node, beginning)[0]
                continue
            for name in names:
                if name.startswith(beginning):
                    os.unlink(name, dir_fd=node)
                    count += 1
        finally:
            os.close(node)
    return count


def main(arguments: list[str]) -> int:
    cut = arguments.index("--")
    shared_dir, job, epoch, run, how = arguments[cut + 1 :]
    try:
        for local_dir in arguments[:cut]:
            captured_parts(local_dir, shared_dir, job, int(epoch), int(run), how == "remove")
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
