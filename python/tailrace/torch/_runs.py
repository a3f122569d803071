"""How the ranks of a group write into K files. StorageWriter and the DeepSpeed engine share this.

Each rank's regions are one run per file that it writes to. The steps:

  1. Every rank tells the first one how much it has, and a digest of what it is. The first one decides
     where each rank's head and runs go (`arrange`), and tells each rank its own places.
  2. Every rank writes its runs straight from its memory, and its head, without waiting for another rank's
     bytes. The ranks hear whether all have written.
  3. The coordinator gets what each rank has written (`Written`), and commits (`commit`).

If no rank's layout has changed since the coordinator last checked it, a rank sends less than 1 KiB, however
many regions it has. Otherwise it sends its regions' shapes, too, and the coordinator checks them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from typing import Any

import torch.distributed as dist

from tailrace import _core, _layout, _leaves
from tailrace._errors import Code, Error, older_is_intact
from tailrace.torch import _among

Shape = tuple[str, int, _leaves.Piece | None]


@dataclasses.dataclass(frozen=True)
class Written:
    """What the coordinator must know of a rank that has written.

    entry: as _core.DirectEpoch.commit takes it.
    shapes: the rank's regions. None if the coordinator knows the layouts of all ranks.
    layouts: a digest of all ranks' layouts.
    """

    entry: Any
    shapes: list[Shape] | None
    layouts: bytes


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of an epoch, as one rank of the group knows them.

    room: bytes that rank 0's head needs for what is added to it at the end.
    known: the `layouts` that the coordinator has checked before.
    """

    paths: list[str]
    data_start: int
    room: int
    known: bytes


@dataclasses.dataclass(frozen=True)
class Need:
    """What a rank needs room for: the bytes of its runs and of its head. Or why it gives up."""

    runs: list[int]
    head: int
    layout: bytes
    files: Files | None
    why: str | None = None


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a rank's head and runs go: the paths of its files, and offsets in them."""

    paths: list[str]
    head: int
    runs: list[int]
    layouts: bytes
    is_known: bool


def write(
    group: Any,
    epoch: _core.DirectEpoch | None,
    files: int,
    shapes: list[Shape],
    leaves: list[_leaves.Leaf],
    failure: BaseException | None,
    *,
    tail: list[tuple[str, bytes]],
    threads: int,
    buffer_bytes: int,
    is_open: bool = False,
    room: int = 0,
    layout: bytes = b"",
    known: bytes = b"",
) -> Written:
    """Writes and syncs this rank's regions, and its table of them. Collective over the group (None: one
    rank).

    epoch: the files on one rank of the group, the coordinator. None on the others.
    failure: the reason why this rank has nothing to write, or None. It is raised here, and the
        other ranks raise Error (aborted) instead of waiting. Nothing is written then. A failure in
        this call is treated alike, so a rank that returns knows that all have written.
    tail: names and contents of further regions.
    is_open: the coordinator will add regions to the tail, and write the table. Rank 0 may ask for it.
    room, known: the coordinator's, as in Files.
    layout: a digest of what the rank tells the coordinator besides its shapes.
    """
    rank, ranks = (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))
    need = Need([], 0, b"", None)
    if failure is None:
        try:
            with older_is_intact():
                need = Need(
                    _core.run_bytes(shapes, len(_layout.files_of(rank, ranks, files))),
                    _core.head_bytes(shapes, [(name, len(content)) for name, content in tail]),
                    _digest([layout, _core.shapes_digest(shapes).to_bytes(8, "little")]),
                    None if epoch is None else Files(epoch.paths, epoch.data_start, room, known),
                )
        except Exception as error:
            failure = error  # for example a name that is too long
    if failure is not None:
        need = Need([], 0, b"", None, str(failure))
    everybody = _among.gather(group, need)
    told = _among.scatter(group, arrange(everybody, files) if everybody else [])
    if not isinstance(told, Place):
        raise failure or _aborted(told)

    places = list(zip(told.paths, told.runs, strict=True))
    addresses = [leaf.address for leaf in leaves]
    how = (threads, buffer_bytes, 0 if threading.current_thread() is threading.main_thread() else 10)
    entry: Any = None
    try:
        with older_is_intact():
            if is_open:
                crcs = _core.write_runs(shapes, addresses, places, *how)
                entry = (shapes, crcs, told.runs, tail)
            else:
                entry = _core.write_stream(rank, ranks, shapes, tail, addresses, told.head, places, *how)
    except BaseException as error:
        failure = error
    whys = _among.gather(group, None if failure is None else str(failure))
    first = _among.broadcast(group, _first_failure(whys))
    if first is not None:
        raise failure or _aborted(first)
    return Written(entry, None if told.is_known else shapes, told.layouts)


def commit(epoch: _core.DirectEpoch, ranks: list[Written], known: _core.CheckedArrays | None) -> _core.CheckedArrays:
    """Commits what all ranks have written. Returns the check of their layouts, which is good for the next
    save if they do not change. `known`: that of the layouts that were known."""
    checked = known
    if checked is None or any(rank.shapes is not None for rank in ranks):
        checked = _core.CheckedArrays.check([rank.shapes or [] for rank in ranks])
    epoch.commit([rank.entry for rank in ranks], checked)
    return checked


def arrange(ranks: list[Need], files: int) -> list[Place] | list[tuple[int, str]]:
    """Where each rank writes. If ranks have given up: the first of them and why, for every rank. Pure."""
    failed = _first_failure([need.why for need in ranks])
    if failed is not None:
        return [failed] * len(ranks)
    known = next(need.files for need in ranks if need.files is not None)
    layouts = _digest([need.layout for need in ranks])
    needs = [(need.head, need.runs) for need in ranks]
    places = _layout.arrange(needs, files, known.data_start, known.room)
    return [
        Place([known.paths[file] for file in place.files], place.head, place.runs, layouts, layouts == known.known)
        for place in places
    ]


def _digest(parts: list[bytes]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.digest()


def _first_failure(whys: list[str | None]) -> tuple[int, str] | None:
    """The lowest rank that has failed, and why."""
    return next(((rank, why) for rank, why in enumerate(whys) if why is not None), None)


def _aborted(failed: tuple[int, str]) -> Error:
    rank, why = failed
    return Error(Code.ABORTED, f"rank {rank} gave up the save: {why}")
