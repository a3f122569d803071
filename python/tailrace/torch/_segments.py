"""Trees that ranks save under names of their own: segments of the K files of one epoch, written in the
background.

DeepSpeed's and Hugging Face's checkpoints use them. Each file of theirs becomes a segment, which is
a tree among the regions of the rank that saves it. The region INDEX of rank 0 names that rank.

The steps of a save:

  1. open    waits for the last save
  2. add     once per segment: encodes it, and copies its tensors into memory that is kept for the next save
  3. start   the ranks tell each other what they have; if one of them could not copy or encode, the save fails on all
  4. in a thread of each rank: the ranks write their copies into the K files, under unfinished names, and sync;
     rank 0 commits, and calls `then`

If the process is killed before the commit, nothing is left that can be loaded.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.distributed as dist

from tailrace import _arguments, _checkpoint, _core, _leaves, _mapping, _own_regions, _restore, _tree
from tailrace._checkpoint import Checkpoint
from tailrace._errors import Code, Error, older_is_intact
from tailrace.torch import _among, _groups, _runs
from tailrace.torch._staging import AsyncStager
from tailrace.torch.stopping import Stopping

INDEX = _own_regions.SEGMENTS


@dataclasses.dataclass(frozen=True)
class _Part:
    """A segment that waits to be written: its skeleton, and its arrays by region."""

    skeleton: bytes
    arrays: dict[str, Any]


@dataclasses.dataclass
class _Save:
    place: str
    then: Callable[[], Any]
    parts: dict[str, _Part] = dataclasses.field(default_factory=dict)  # by segment
    began: float = dataclasses.field(default_factory=time.monotonic)
    failure: Error | None = None  # of an add()


class Writer:
    """Saves segments of all ranks. Making one is collective over all ranks, and so are start, wait, first
    and together.

    All calls come from one thread. Memory: one copy of what this rank saves, and two buffers of
    `buffer_bytes` while it is written.

    user: the library it works for, which names its thread.
    stopping: hears how long each save took until it was durable.
    """

    def __init__(
        self,
        user: str,
        *,
        files: int,
        name: str,
        threads: int,
        buffer_bytes: int,
        pickle: bool,
        stopping: Stopping | None = None,
    ) -> None:
        self._files = files
        self._job = name
        self._pickle = pickle
        self._stopping = stopping
        self._threads = _arguments.threads(threads, "nothing was saved")
        self._buffer_bytes = buffer_bytes
        self._own = _groups.own_group(self)
        self._rank = 0 if self._group is None else dist.get_rank(self._group)
        self._executor = ThreadPoolExecutor(1, f"tailrace-{user}")
        self._stagers: dict[str, AsyncStager] = {}
        self._open: _Save | None = None
        self._writing: Future[None] | None = None

    @property
    def _group(self) -> Any:
        return None if self._own is None else self._own.get()

    def first(self, action: Callable[[], Any]) -> None:
        """Rank 0 does this before any rank returns. Its failure is raised on all ranks. Collective,
        and not during a save."""
        failure: Error | None = None
        if self._rank == 0:
            try:
                action()
            except Exception as error:
                failure = _as_error(error)
        failure = _among.broadcast(self._group, failure)
        if failure is not None:
            raise failure

    def together(self, action: Callable[[int, int], Any]) -> None:
        """Each rank does this, with its number and the number of ranks. If it fails on some, the lowest
        one's failure is raised on all. Not during a save."""
        failure: Error | None = None
        try:
            action(self._rank, 1 if self._group is None else dist.get_world_size(self._group))
        except Exception as error:
            failure = _as_error(error)
        told = next((one for one in _among.all_gather(self._group, failure) if one is not None), None)
        if told is not None:
            raise told

    def open(self, place: str, then: Callable[[], Any]) -> None:
        """Begins a save into the directory `place`. Rank 0 calls `then` in the thread when the epoch
        is committed. wait() raises what it raises, and adds that the checkpoint is complete."""
        self.wait()
        self._open = _Save(os.path.abspath(place), then)  # the thread may find another working directory

    def add(self, segment: str, make: Callable[[], Any]) -> None:
        """Copies the tensors of the tree that `make` gives, and encodes its plain objects at once. A
        failure here is raised by start(), on all ranks. Raised now, it would leave the other ranks
        waiting for this one."""
        begun = self._open
        if begun is None:
            raise Error(Code.FAILED_STATE, f"saving {segment!r} before a save was begun; nothing was saved")
        try:
            skeleton, arrays = _tree.encode({segment: make()}, self._pickle)
            stager = self._stagers.setdefault(segment, AsyncStager())
            begun.parts[segment] = _Part(skeleton, stager.stage_again(arrays))
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Makes start() raise this error, on all ranks."""
        if self._open is not None and self._open.failure is None:
            self._open.failure = _told(error, self._open.place)

    def start(self) -> None:
        """Begins to write what was added since open(). Raises Error, on all ranks, if one of them
        could not add something. For an object without a safe encoding it is (invalid argument),
        with the object's path in the state."""
        begun, self._open = self._open, None
        if begun is None:
            return
        everybody = _among.all_gather(self._group, (sorted(begun.parts), begun.failure))
        failed = next((failure for _, failure in everybody if failure is not None), None)
        if failed is not None:
            raise failed
        owners = _owners([names for names, _ in everybody], begun.place)
        for segment in set(self._stagers) - set(begun.parts):
            self._stagers.pop(segment).close()  # gives the memory back
        if owners:
            self._writing = self._executor.submit(self._write, begun, owners)

    def wait(self) -> None:
        """Returns when the last save is durable. If it failed, raises Error, on all ranks and once.
        Then the checkpoint it would have replaced is intact, or the error says that the new one is
        complete and what came after the commit has failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def stop_in_time(self, save: Callable[[], Any]) -> str | None:
        """Stopping.stop_in_time with a save through this writer. Returns when that one is durable."""
        if self._stopping is None:
            raise Error(Code.INVALID_ARGUMENT, "install() was given no `stopping` to ask; nothing was saved")

        def save_and_wait() -> None:
            save()
            self.wait()

        return self._stopping.stop_in_time(save_and_wait)

    # ---- in the thread -----------------------------------------------------------------------------------

    def _write(self, job: _Save, owners: dict[str, int]) -> None:
        rank, ranks = self._rank, 1 if self._group is None else dist.get_world_size(self._group)
        epoch: _core.DirectEpoch | None = None
        failure: Exception | None = None
        leaves: dict[str, _leaves.Leaf] = {}
        shapes: list[_runs.Shape] = []
        tail: list[tuple[str, bytes]] = []
        mine: Any = None
        try:
            try:
                if rank == 0:
                    number = _arguments.step_of(job.place)
                    with older_is_intact():
                        epoch = _core.DirectEpoch(job.place, self._job, number, self._files, ranks)
                    tail.append((INDEX, json.dumps({"segments": owners}).encode()))
                leaves = {
                    name: _leaves.to_save(a, name) for part in job.parts.values() for name, a in part.arrays.items()
                }
                shapes = [(name, leaf.nbytes, leaf.piece()) for name, leaf in leaves.items()]
                tail.append((_tree.SKELETON, _tree.merge([part.skeleton for part in job.parts.values()])))
            except Exception as error:
                failure = error
            try:
                mine = _runs.write(
                    self._group,
                    epoch,
                    self._files,
                    shapes,
                    list(leaves.values()),
                    failure,
                    tail=tail,
                    threads=self._threads,
                    buffer_bytes=self._buffer_bytes,
                )
            except Exception as error:
                mine = _told(failure or error, job.place)
            outcome = _among.gather(self._group, mine)
            told = self._commit(epoch, outcome, job) if rank == 0 else None
            told = _among.broadcast(self._group, told)
            if told is not None:
                raise told
        finally:
            if epoch is not None:
                epoch.close()

    def _commit(self, epoch: Any, ranks: list[Any], job: _Save) -> Error | None:
        """Commits, on rank 0, with what each rank has written or the reason why it has not. Returns
        the failure of the commit, or of what comes after it."""
        failed = [of for of in ranks if isinstance(of, Error)]
        if failed:
            return min(failed, key=lambda error: error.code == Code.ABORTED)  # others failed first
        try:
            _runs.commit(epoch, ranks, None)
        except Exception as error:
            return _told(error, job.place)
        if self._stopping is not None:
            self._stopping.saved(time.monotonic() - job.began)
        try:
            epoch.close()
            job.then()
        except Error as error:
            return Error(error.code, f"{error}; the checkpoint in '{job.place}' is complete")
        except Exception as error:
            return Error(Code.FAILED_STATE, f"after saving '{job.place}': {error!r}; the checkpoint is complete")
        return None


# ---- reading ---------------------------------------------------------------------------------------------


class Reader:
    """The segments of the checkpoint in a directory; a context manager. Raises Error: not found if
    there is no complete checkpoint, corrupt if it is damaged.

    name: the job whose checkpoint counts if those of several lie there.
    """

    def __init__(self, place: str, name: str | None = None) -> None:
        self._place = place
        self._reader, self._name = _open(place, name)
        self._ranks: dict[int, Checkpoint] = {}
        self._mapped: dict[int, dict[str, npt.NDArray[np.uint8]]] = {}  # by rank and region: for load() to give out
        self._given: list[weakref.ref[npt.NDArray[np.uint8]]] = []
        self._verified: set[str] = set()  # segments
        self._loaded: set[str] = set()
        with _checkpoint.closed_by_failure(self._reader):
            self.owners = self._read_index()  # by segment: the rank that saved it

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files. Mapped tensors that are still in use get memory of their own."""
        self._reader.close()
        self._mapped.clear()
        _mapping.keep(self._given)
        self._given.clear()

    def load(self, segment: str, *, into: Any = None, mapped: bool = False, trust_pickle: bool = False) -> Any:
        """The tree, with its tensors on the host. Every byte is compared with its checksum before this
        returns.

        into: as in tailrace.torch.load.
        mapped: the tensors are private mappings of the files until close(), so they take no memory. The
            kernel may read again what it has dropped from its cache. Tensors whose bytes do not lie
            together in one file are read into memory.
        """
        checkpoint, node = self._find(segment)
        if into is not None:
            plan = _restore.compare(node, into, f"{segment!r} in '{self._place}'", trust_pickle)
            _restore.read_in_place(self._reader, checkpoint.rank, plan)
            for put in plan.set_plain:
                put()
            return into
        return checkpoint._load(node, trust_pickle, mapped=self._map(checkpoint, segment, node) if mapped else None)

    def verify(self, segment: str) -> None:
        """Compares every byte of the tree with its checksum. load(mapped=True) does not do that again."""
        checkpoint, node = self._find(segment)
        _mapping.verify(self._reader, checkpoint.rank, [ref.region for ref in _checkpoint.arrays_in(node)])
        self._verified.add(segment)

    @property
    def rank_count(self) -> int:
        """The number of ranks that saved the checkpoint."""
        return self._reader.rank_count

    def _find(self, segment: str) -> tuple[Checkpoint, Any]:
        """The view of the rank that saved the segment, and the segment's node in its tree."""
        rank = self.owners.get(segment)
        if rank is None:
            raise Error(
                Code.NOT_FOUND,
                f"the checkpoint in '{self._place}' has no {segment!r}, but {sorted(self.owners)}; nothing was read",
            )
        checkpoint = self._ranks.get(rank)
        if checkpoint is None:
            checkpoint = self._ranks[rank] = Checkpoint(self._reader, rank)
        node = checkpoint.skeleton.get(segment) if isinstance(checkpoint.skeleton, dict) else None
        if node is None:
            raise Error(Code.CORRUPT, f"rank {rank} in '{self._place}' does not have its {segment!r}")
        return checkpoint, node

    def _map(self, checkpoint: Checkpoint, segment: str, node: Any) -> dict[str, npt.NDArray[np.uint8]] | None:
        """The mapped and verified bytes of the segment's regions. None if the files can only be read: they
        have been replaced under their names, or lie where nothing is mapped."""
        rank = checkpoint.rank
        # A segment that is loaded again gets other mappings, since the program may have written into these.
        if rank not in self._mapped or segment in self._loaded:
            try:
                self._mapped[rank] = _mapping.regions(
                    self._reader,
                    rank,
                    [name for name, _, _ in self._reader.regions(rank)],
                    lambda: _core.Reader.open_directory(self._place, self._name, self._reader.epoch),
                    self._place,
                )
            except Error as error:
                if error.code not in (Code.BUSY, Code.IO_ERROR):
                    raise
                return None
        left = self._mapped[rank]
        names = {ref.region for ref in _checkpoint.arrays_in(node) if _mapping.is_mapped(ref, left)}
        if segment not in self._verified:
            _mapping.verify(self._reader, rank, names)
            self._verified.add(segment)
        given = {name: left.pop(name) for name in names}
        self._given.extend(weakref.ref(memory) for memory in given.values())
        self._loaded.add(segment)
        return given

    def _read_index(self) -> dict[str, int]:
        # The tree of rank 0 lies after the index, and is read with it.
        found = {
            name: np.empty(nbytes, np.uint8)
            for name, nbytes, _ in self._reader.regions(0)
            if name in (INDEX, _tree.SKELETON)
        }
        if len(found) < 2:
            raise Error(
                Code.NOT_FOUND, f"'{self._place}' holds another kind of checkpoint of tailrace's; nothing was read"
            )
        self._reader.read(0, [(name, text.ctypes.data, text.nbytes) for name, text in found.items()])
        self._ranks[0] = Checkpoint(self._reader, 0, found[_tree.SKELETON].tobytes())
        try:
            segments = json.loads(found[INDEX].tobytes())["segments"]
            return {_checked(segment): int(rank) for segment, rank in segments.items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise Error(
                Code.CORRUPT, f"the region {INDEX!r} in '{self._place}' cannot be understood: {error}"
            ) from None


def _open(place: str, name: str | None) -> tuple[_core.Reader, str | None]:
    """The reader, and the name that it needs: none if there is one job only."""
    try:
        return _checkpoint.open_directory(place, None, None), None
    except Error as error:
        if error.code != Code.INVALID_ARGUMENT or name is None:
            raise
        several = error  # jobs
    try:
        return _checkpoint.open_directory(place, name, None), name
    except Error as missing:
        if missing.code != Code.NOT_FOUND:
            raise
        raise Error(several.code, f"{several}; here the name is {name!r}; nothing was read") from None


def owners_in(place: str) -> dict[str, int] | None:
    """The segments in a directory, each with its rank. None if there is no checkpoint of segments."""
    try:
        with Reader(place) as reader:
            return reader.owners
    except Error as error:
        if error.code == Code.NOT_FOUND:
            return None
        raise


def is_of(place: str, name: str) -> bool:
    """Whether a directory holds a checkpoint of segments of this job, and of no other."""
    try:
        Reader(place).close()  # refuses several jobs
        _core.Reader.open_directory(place, name, None).close()
        return True
    except Error:
        return False


def _checked(segment: str) -> str:
    """A name in an index, which may become a file's name. Raises ValueError if the file would lie
    outside its directory."""
    normal = os.path.normpath(segment)
    if os.path.isabs(normal) or normal.split(os.sep)[0] in (os.curdir, os.pardir):
        raise ValueError(f"{segment!r} cannot be the name of a segment")
    return segment


# ---- among the ranks -------------------------------------------------------------------------------------


def _owners(names_of: list[list[str]], place: str) -> dict[str, int]:
    """The segments of all ranks, each with its rank."""
    owners: dict[str, int] = {}
    for rank, names in enumerate(names_of):
        for name in names:
            if name in owners:
                raise Error(
                    Code.INVALID_ARGUMENT,
                    f"ranks {owners[name]} and {rank} both save {name!r} of '{place}'; nothing was saved",
                )
            owners[name] = rank
    return owners


def _told(failure: Exception, path: str) -> Error:
    """A failure as all ranks raise it."""
    return _as_error(failure, f"saving '{path}': ", "; what was there is intact")


def _as_error(failure: Exception, before: str = "", after: str = "") -> Error:
    """The failure itself, or an Error whose sentence has it between what comes before and after."""
    return failure if isinstance(failure, Error) else Error(Code.FAILED_STATE, f"{before}{failure!r}{after}")
