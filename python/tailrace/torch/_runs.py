"""How the ranks of a group write into K files. StorageWriter and the DeepSpeed engine share this.

Each rank's regions are one run per file that it writes to. The ranks tell each other the lengths of
their runs. So each rank knows where its own runs begin, and writes them straight from its memory,
without waiting for another rank's bytes. Checksums and offsets then go to the coordinator, which
commits (core.DirectEpoch).
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
from tailrace.torch import _groups

Shape = tuple[str, int, _leaves.Piece | None]

_BLOCK_BYTES = 4096  # in the files, data may begin at multiples of it


@dataclasses.dataclass(frozen=True)
class Written:
    """`offsets`: where the rank's runs begin in its files. `crcs`: for each region, in the regions'
    order."""

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
    tail: list[tuple[str, int]],
    shared_bytes: int = 0,
    threads: int,
    buffer_bytes: int,
) -> Written:
    """Writes and syncs this rank's regions. Collective over the group (None: one rank).

    epoch: the files on one rank of the group, None on the others.
    tail: names and bytes of the regions that the coordinator will write for this rank. They and the
        tables of regions get room before the data, where readers want them.
    shared_bytes: about as many bytes as this rank will add to the common regions of rank 0, so that
        they get room, too.
    failure: the reason why this rank has nothing to write, or None. It is raised here, and the
        other ranks raise Error (aborted) instead of waiting. Nothing is written then. A failure in
        this call is treated alike, so a rank that returns knows that all have written.
    """
    rank, ranks = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    head, mine = 0, []
    if failure is None:
        try:
            head = _core.head_bytes(shapes, tail)
            mine = _core.run_bytes(shapes, _files_of(rank, ranks, files))
        except Exception as error:
            failure = error  # for example a name that is too long
    paths, offsets = _place(group, rank, epoch, files, mine, (head, shared_bytes), failure)
    first = _core.first_file_of(rank, ranks, files)
    places = [(paths[first + i], offset) for i, offset in enumerate(offsets)]
    addresses = [leaf.address for leaf in leaves]
    background = threading.current_thread() is not threading.main_thread()
    crcs: list[list[int]] = []
    try:
        crcs = _core.write_runs(shapes, addresses, places, threads, buffer_bytes, 10 if background else 0)
    except BaseException as error:
        failure = error
    _raise_any(failure, all_gather(group, _why(failure)))
    return Written(offsets, crcs)


def empty_offsets(epoch: _core.DirectEpoch, rank: int, ranks: int, files: int) -> list[int]:
    """The offsets of a rank that has written nothing."""
    return [epoch.data_start] * _files_of(rank, ranks, files)


def epoch_of(path: str) -> int:
    """The number at the end of a checkpoint's name ("step-100"), or 0."""
    digits = re.search(r"(\d{1,18})\D*$", os.path.basename(os.path.abspath(path)))
    return int(digits[1]) if digits else 0


def all_gather(group: Any, value: Any) -> list[Any]:
    """The values of all ranks. Collective over the group (None: one rank). Raises Error (transport) if
    a rank is gone."""
    if group is None:
        return [value]
    values: list[Any] = [None] * dist.get_world_size(group)
    with _groups.failures_told():
        dist.all_gather_object(values, value, group=group)
    return values


def _files_of(rank: int, ranks: int, files: int) -> int:
    return _core.last_file_of(rank, ranks, files) - _core.first_file_of(rank, ranks, files)


def _place(
    group: Any,
    rank: int,
    epoch: _core.DirectEpoch | None,
    files: int,
    mine: list[int],
    heads: tuple[int, int],
    failure: BaseException | None,
) -> tuple[list[str], list[int]]:
    """The files, and where this rank's runs, of `mine` bytes, begin: after those of the lower ranks,
    and after all heads."""
    ranks = 1 if group is None else dist.get_world_size(group)
    where = None if epoch is None else (epoch.paths, epoch.data_start)
    everybody = all_gather(group, (mine, heads, where, _why(failure)))
    _raise_any(failure, [why for _, _, _, why in everybody])
    paths, start = next(where for _, _, where, _ in everybody if where is not None)
    ends = [start] * files
    ends[0] += -(-sum(shared for _, (_, shared), _, _ in everybody) // _BLOCK_BYTES) * _BLOCK_BYTES
    for other, (_, (head, _), _, _) in enumerate(everybody):
        ends[_core.first_file_of(other, ranks, files)] += head
    offsets: list[int] = []
    for other, (run_bytes, _, _, _) in enumerate(everybody):
        first = _core.first_file_of(other, ranks, files)
        if other == rank:
            offsets = [ends[first + i] for i in range(len(run_bytes))]
        for i, nbytes in enumerate(run_bytes):
            ends[first + i] += nbytes
    return paths, offsets


def _why(failure: BaseException | None) -> str | None:
    return None if failure is None else str(failure)


def _raise_any(failure: BaseException | None, whys: list[str | None]) -> None:
    """Raises this rank's failure, or an Error that says that another rank has failed."""
    if failure is not None:
        raise failure
    for rank, why in enumerate(whys):
        if why is not None:
            raise Error(Code.ABORTED, f"rank {rank} gave up the save: {why}")
