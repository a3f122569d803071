"""Where the ranks of a save write in its K files. tailrace.torch and tailrace.jax share this. Pure.

In every file the heads come first, in the ranks' order, and then the runs. A head is a rank's table of its regions, and
lies in the first file that the rank writes to. A run is what the rank writes to one file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tailrace import _core

_BLOCK_BYTES = 4096  # in the files, heads and runs begin at multiples of it


@dataclasses.dataclass(frozen=True)
class Place:
    """Offsets of a rank's head in the first of its files, and of its run in each of them."""

    files: range
    head: int
    runs: list[int]


def files_of(rank: int, ranks: int, files: int) -> range:
    """The files that a rank writes to, of `files`."""
    return range(_core.first_file_of(rank, ranks, files), _core.last_file_of(rank, ranks, files))


def arrange(needs: Sequence[tuple[int, Sequence[int]]], files: int, start: int, room: int = 0) -> list[Place]:
    """The place of each rank.

    needs: of each rank, the bytes of its head, and of its run in each of its files.
    start: where heads may begin in every file.
    room: bytes that rank 0's head grows by later.
    """
    of_rank = [files_of(rank, len(needs), files) for rank in range(len(needs))]
    ends = [start] * files
    ends[0] += -(-room // _BLOCK_BYTES) * _BLOCK_BYTES
    heads = []
    for mine, (head_bytes, _) in zip(of_rank, needs, strict=True):
        heads.append(ends[mine[0]])
        ends[mine[0]] += head_bytes
    places = []
    for mine, head, (_, runs) in zip(of_rank, heads, needs, strict=True):
        places.append(Place(mine, head, [ends[file] for file in mine]))
        for file, nbytes in zip(mine, runs, strict=True):
            ends[file] += nbytes
    return places
