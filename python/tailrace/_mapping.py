"""Arrays over mapped files: nothing is copied, and no byte is read before it is used.

A mapping is private: what the program writes into it stays in memory, and never gets into the file.
It keeps the file that it was made of, also when another file takes its name. What is mapped is the
epoch whose index was read: the index is read again after the files have been opened, because a save
may replace them in the meantime. Tensors that were saved with other strides than those of their
shape lie in row-major order in the file, and cannot be mapped as they were.

Whoever cuts a mapped file short takes pages away from the program, which dies of SIGBUS if it
touches one. Saves never do that. A file that is too short already is refused.

keep() ends this for arrays that somebody still uses: they get memory of their own where they are.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable, Collection, Container, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace import _core, _leaves, _tree
from tailrace._errors import Code, Error

_ALIGNMENT = 16  # of the largest element
_KEPT_BYTES = 16 << 20  # copied at a time
_PROT_NONE, _MREMAP_MAYMOVE, _MREMAP_FIXED = 0, 1, 2

_system = ctypes.CDLL(None, use_errno=True)
_system.mmap.restype = _system.mremap.restype = ctypes.c_void_p
_system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_system.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
_system.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


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


def is_mapped(ref: _tree.ArrayRef, mapped: Container[str]) -> bool:
    """Whether array() gives this array, and not a read."""
    return ref.global_shape is None and not ref.is_list and ref.stride is None and ref.region in mapped


def verify(reader: _core.Reader, rank: int, names: Iterable[str]) -> None:
    """Compares the bytes of these regions with their checksums. They are read once, in the order of the
    file and through the page cache, where the mappings find them. Memory: 16 MiB. Raises Error
    (corrupt) if they differ."""
    wanted = frozenset(names)
    reader.verify(rank, [name for name, _, _ in reader.regions(rank) if name in wanted])


def keep(regions: Iterable[weakref.ref[npt.NDArray[np.uint8]]]) -> None:
    """Gives those of regions() that somebody still uses memory of their own, at the same addresses. Then
    nothing of them depends on the files, and no file is mapped any more. `regions` must have all that
    were given to anybody. Other threads may use them meanwhile, but not change them. Memory: theirs
    alone. Raises Error (out of memory) if there is none; the rest stays mapped."""
    used: dict[tuple[int, int], list[tuple[int, int]]] = {}  # pages, by those of their mapping
    alive = [memory for memory in (ref() for ref in regions) if memory is not None]
    for memory in alive:
        used.setdefault(_pages(np.frombuffer(memory.base, np.uint8)), []).append(_pages(memory))  # type: ignore[arg-type]
    for (at, after), pages in used.items():
        for begin, end in [*sorted(pages), (after, after)]:
            if at < begin:
                _put(at, begin - at, _PROT_NONE)  # in use by nobody, but not free before the mapping is
                at = begin
            while at < end:  # neighbours may share a page
                nbytes = min(_KEPT_BYTES, end - at)
                _put(at, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
                at += nbytes


def _pages(memory: npt.NDArray[np.uint8]) -> tuple[int, int]:
    begin, page = memory.ctypes.data, mmap.PAGESIZE
    return begin // page * page, -(-(begin + memory.nbytes) // page) * page


def _put(address: int, nbytes: int, access: int) -> None:
    """Puts memory in the place of mapped pages, in one step: with the same bytes, if it can be accessed."""
    made = _system.mmap(None, nbytes, access, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if made != _FAILED:
        if access != _PROT_NONE:
            _core.copy_memory(made, address, nbytes)
        if _system.mremap(made, nbytes, nbytes, _MREMAP_MAYMOVE | _MREMAP_FIXED, address) != _FAILED:
            return
        _system.munmap(made, nbytes)
    raise Error(
        Code.OUT_OF_MEMORY, f"no memory for {nbytes} bytes of a mapped checkpoint that are in use; they stay mapped"
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
