"""Which part of which array this process saves.

Each element is saved once. Shards that several processes hold alike are divided among them by rows if they are large,
so that replicated state is written by all processes and not by one. A process whose devices hold several shards of an
array appears in the checkpoint as several ranks (`slots`), because a rank has one piece of an array. So every array of
a checkpoint is one global array of the file format, which any reader reads whole or in boxes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tailrace import _leaves
from tailrace._errors import Code, Error

# A box of an array: offset and extent in each dimension.
Box = tuple[tuple[int, ...], tuple[int, ...]]

_DIVIDED_BYTES = 1 << 20  # smaller shards are saved by one process


@dataclasses.dataclass(frozen=True)
class Piece:
    """Memory on the host, row-major, and where it lies in the global array of its name."""

    name: str
    memory: Any  # np.ndarray of a type that the file format has
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]

    @property
    def shape(self) -> tuple[str, int, _leaves.Piece]:
        """As the core takes a region."""
        number = _leaves.TYPES[self.memory.dtype.name]
        return self.name, self.memory.nbytes, (number, self.global_shape, self.offset, self.memory.shape, 0)


def box_of(index: tuple[slice, ...], shape: Sequence[int]) -> Box:
    """The box that a shard's index means."""
    bounds = [part.indices(length)[:2] for part, length in zip(index, shape, strict=True)]
    return tuple(start for start, _ in bounds), tuple(max(0, stop - start) for start, stop in bounds)


def type_name(dtype: np.dtype[Any]) -> Any:
    """An element type as the index has it."""
    return dtype.name if _is_small(dtype) else _leaves._numpy_name(dtype)


def _is_small(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of JAX's types that NumPy lacks and that take one byte there: float8, and float6 to int1."""
    return dtype.itemsize == 1 and dtype.type.__module__ == "ml_dtypes"


def has_boxes(dtype: np.dtype[Any]) -> bool:
    """Whether a part of an array of such elements can be read alone. Elements of one byte that the file format lacks
    (float8, int4) count as bytes. An array of other elements (dates, text, another byte order) is the list of its
    bytes, and is read whole."""
    return (dtype.name in _leaves.TYPES and dtype.isnative) or _is_small(dtype)


def stored(array: Any) -> Any:
    """The same memory as elements that the file format has, in 1 or more dimensions."""
    if not has_boxes(array.dtype):
        return array.reshape(-1).view(np.uint8)
    listed = array.reshape(1) if array.ndim == 0 else array
    return listed if array.dtype.name in _leaves.TYPES else listed.view(np.uint8)


def in_files(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Type and shape of the global array that an array has in the files. See stored()."""
    if not has_boxes(dtype):
        return _leaves.TYPES["uint8"], (math.prod(shape) * dtype.itemsize,)
    return _leaves.TYPES.get(dtype.name, _leaves.TYPES["uint8"]), shape or (1,)


def of_array(name: str, array: Any, rank: int) -> list[Piece]:
    """What the process `rank` saves of a jax.Array that belongs to all processes."""
    shape = tuple(array.shape)
    if 0 in shape:
        return []
    holders: dict[Box, list[Any]] = {}
    for device, index in array.sharding.devices_indices_map(shape).items():
        holders.setdefault(box_of(index, shape), []).append(device)
    data = {shard.device: shard.data for shard in array.addressable_shards}
    pieces = []
    for (offset, extent), devices in holders.items():
        processes = sorted({device.process_index for device in devices})
        if rank not in processes:
            continue
        host = np.asarray(data[next(device for device in devices if device.process_index == rank)])
        if len(processes) == 1 or host.nbytes < _DIVIDED_BYTES or extent[0] < len(processes):
            if rank == processes[0]:
                pieces.append(_piece(name, host, shape, offset))
            continue
        at, count = processes.index(rank), len(processes)
        first, last = extent[0] * at // count, extent[0] * (at + 1) // count
        pieces.append(_piece(name, host[first:last], shape, (offset[0] + first, *offset[1:])))
    return pieces


def of_host(name: str, array: Any) -> list[Piece]:
    """An array that one process saves whole."""
    return [_piece(name, array, array.shape, (0,) * array.ndim)] if array.size else []


def _piece(name: str, host: Any, shape: tuple[int, ...], offset: tuple[int, ...]) -> Piece:
    memory = stored(np.ascontiguousarray(host).reshape(host.shape))
    if memory.shape != host.shape:  # a scalar, or the bytes of an array
        return Piece(name, memory, memory.shape, (0,))
    return Piece(name, memory, tuple(shape), tuple(offset))


def check_dimensions(name: str, shape: Sequence[int]) -> None:
    if len(shape) > _leaves.MOST_DIMENSIONS:
        raise Error(
            Code.UNSUPPORTED,
            f"{name!r} has {len(shape)} dimensions, and the file format has at most {_leaves.MOST_DIMENSIONS}: reshape "
            "it; nothing was saved",
        )


def in_slots(pieces: list[Piece]) -> list[list[Piece]]:
    """The pieces by the rank that they appear as. No slot has two pieces of an array, and the slots have about as many
    bytes."""
    by_name: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_name.setdefault(piece.name, []).append(piece)
    slots: list[list[Piece]] = [[] for _ in range(max([1, *map(len, by_name.values())]))]
    loads = [0] * len(slots)
    for of_name in by_name.values():
        free = sorted(range(len(slots)), key=lambda slot: loads[slot])
        for piece, slot in zip(sorted(of_name, key=lambda piece: -piece.memory.nbytes), free, strict=False):
            slots[slot].append(piece)
            loads[slot] += piece.memory.nbytes
    return slots
