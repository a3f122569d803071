"""How the ranks of a group come into K files: what StorageWriter and the DeepSpeed engine have in common.

Each rank's regions are one run per file that it writes to. The ranks tell each other how long their runs are; so
each knows where its own begin, and writes them straight from their memory, without anybody waiting for another
one's bytes. Checksums and offsets then go to the coordinator, which commits (core.DirectEpoch).
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
from typing import Any

import torch.distributed as dist

from tailrace import _core, _leaves
from tailrace._errors import Code, Error

Shape = tuple[str, int, _leaves.Piece | None]


@dataclasses.dataclass(frozen=True)
class Written:
    """`offsets`: of the rank's runs in its files. `crcs`: of each region, in the regions' order."""

    offsets: list[int]
    crcs: list[list[int]]


def write(
    group: Any,
    epoch: _core.DirectEpoch | None,
    files: int,
    shapes: list[Shape],
    leaves: list[_leaves.Leaf],
    failure: BaseException | None,
    *,
    threads: int,
    buffer_bytes: int,
) -> Written:
    """Writes and syncs this rank's regions. Collective over the group (None: one rank).

    epoch: on one rank of the group the files, None on the others.
    failure: why this rank has nothing to write, or None. It is raised here, and makes the others raise Error
        (aborted) instead of waiting; nothing is written then.
    """
    rank, ranks = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    paths, offsets = _place(group, rank, ranks, epoch, files, shapes, failure)
    first = _core.first_file_of(rank, ranks, files)
    places = [(paths[first + i], offset) for i, offset in enumerate(offsets)]
    addresses = [leaf.address for leaf in leaves]
    background = threading.current_thread() is not threading.main_thread()
    crcs = _core.write_runs(shapes, addresses, places, threads, buffer_bytes, 10 if background else 0)
    return Written(offsets, crcs)


def empty_offsets(epoch: _core.DirectEpoch, rank: int, ranks: int, files: int) -> list[int]:
    """The offsets of a rank that has written nothing."""
    return [epoch.data_start] * _files_of(rank, ranks, files)


def epoch_of(path: str) -> int:
    """The number at the end of a checkpoint's name ("step-100"), or 0."""
    digits = re.search(r"(\d{1,18})\D*$", os.path.basename(os.path.abspath(path)))
    return int(digits[1]) if digits else 0


def _files_of(rank: int, ranks: int, files: int) -> int:
    return _core.last_file_of(rank, ranks, files) - _core.first_file_of(rank, ranks, files)


def _place(
    group: Any,
    rank: int,
    ranks: int,
    epoch: _core.DirectEpoch | None,
    files: int,
    shapes: list[Shape],
    failure: BaseException | None,
) -> tuple[list[str], list[int]]:
    """The files, and where this rank's runs begin: behind those of the ranks before it."""
    mine = _core.run_bytes(shapes, _files_of(rank, ranks, files)) if failure is None else []
    if group is None:
        if failure is not None:
            raise failure
        assert epoch is not None
        return epoch.paths, [epoch.data_start for _ in mine]
    everybody: list[Any] = [None] * ranks
    where = None if epoch is None else (epoch.paths, epoch.data_start)
    dist.all_gather_object(everybody, (mine, where, failure and str(failure)), group=group)
    if failure is not None:
        raise failure
    failed = [other for other, (_, _, why) in enumerate(everybody) if why is not None]
    if failed:
        raise Error(Code.ABORTED, f"rank {failed[0]} gave up the save: {everybody[failed[0]][2]}")
    paths, start = next(where for _, where, _ in everybody if where is not None)
    ends = [start] * files
    offsets: list[int] = []
    for other, (run_bytes, _, _) in enumerate(everybody):
        first = _core.first_file_of(other, ranks, files)
        if other == rank:
            offsets = [ends[first + i] for i in range(len(run_bytes))]
        for i, nbytes in enumerate(run_bytes):
            ends[first + i] += nbytes
    return paths, offsets
