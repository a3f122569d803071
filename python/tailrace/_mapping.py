"""Arrays over mapped files: nothing is copied, and no byte is read before it is used.

A mapping is private: what the program writes into it stays in memory, and never gets into the file.
It keeps the file that it was made of, also when another file takes its name. What is mapped is the
epoch whose index was read: the index is read again after the files have been opened, because a save
may replace them in the meantime. Tensors that were saved with other strides than those of their
shape lie in row-major order in the file, and cannot be mapped as they were.

Whoever cuts a mapped file short takes pages away from the program, which dies of SIGBUS if it
touches one. Saves never do that. A file that is too short already is refused.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace import _core, _leaves, _tree
from tailrace._errors import Code, Error

_ALIGNMENT = 16  # of the largest element


def regions(
    reader: _core.Reader, rank: int, names: Collection[str], again: Callable[[], _core.Reader], what: str
) -> dict[str, npt.NDArray[np.uint8]]:
    """The bytes of those of the rank's regions with these names that lie together in one file and are
    aligned.

    again: opens the same epoch once more, by its path. If it is another one by then, raises Error
        (busy): what else the caller reads with `reader` would not belong to the mapped bytes.
    """
    table, places = reader.table(rank), reader.places(rank)
    try:
        made = _map(reader, rank, names, places)
        other = again()
        try:
            if (other.table(rank), other.places(rank)) == (table, places):
                return made
        finally:
            if other is not reader:
                other.close()
    except FileNotFoundError:
        pass
    except OSError as error:
        if isinstance(error, Error):
            raise
        raise Error(
            Code.IO_ERROR, f"mapping '{error.filename or what}': {error.strerror}; nothing was loaded"
        ) from error
    raise Error(
        Code.BUSY, f"mapping '{what}': it was replaced meanwhile; nothing was loaded, and it can be loaded again"
    )


def array(ref: _tree.ArrayRef, memory: npt.NDArray[np.uint8]) -> Any:
    """The array or tensor over these bytes, which it keeps. Raises the Errors of ref.element_type, and
    corrupt if there are not as many bytes as it has."""
    element = ref.element_type
    if memory.nbytes != ref.nbytes:
        raise Error(
            Code.CORRUPT,
            f"the array in region {ref.region!r} has {ref.nbytes} bytes, and the region {memory.nbytes}; "
            "nothing was read",
        )
    return _leaves.over(ref.kind, element, ref.shape, memory)


def _map(
    reader: _core.Reader, rank: int, names: Collection[str], places: list[tuple[str, int] | None]
) -> dict[str, npt.NDArray[np.uint8]]:
    ends: dict[str, int] = {}
    chosen: list[tuple[str, int, tuple[str, int]]] = []
    for (name, nbytes, _), place in zip(reader.regions(rank), places, strict=True):
        if name in names and place is not None and place[1] % _ALIGNMENT == 0:
            chosen.append((name, nbytes, place))
            ends[place[0]] = max(ends.get(place[0], 0), place[1] + nbytes)
    files = {path: _map_file(path, end) for path, end in ends.items()}
    return {name: np.frombuffer(files[path], np.uint8, nbytes, offset) for name, nbytes, (path, offset) in chosen}


def _map_file(path: str, end: int) -> Any:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.fstat(file).st_size
        if there < end:
            raise Error(
                Code.CORRUPT,
                f"'{path}' is truncated: it ends at offset {there}, but bytes of the checkpoint lie up to offset "
                f"{end}; nothing was loaded",
            )
        private = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
        return mmap.mmap(file, end, flags=private, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as error:
        if not isinstance(error, Error):
            error.filename = path
        raise
    finally:
        os.close(file)
