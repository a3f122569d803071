"""Saves pytrees into K files.

The steps of a save, on every process:

  1. stage   names the leaves and takes this process's pieces of them. An asynchronous save copies them, since the
             program may give the memory of its arrays to JAX again (donation)
  2. place   the processes tell process 0 how long their tables and runs are; it begins the files under unfinished
             names and answers where each of them begins (_layout.arrange)
  3. write   each process writes its pieces straight from memory, and its tables of them, and syncs. The index is in a
             table of process 0
  4. commit  process 0 gets the shapes and checksums, and commits
  5. told    all processes learn how it ended

A failure on one process ends the save on all of them at the next step. Until the commit nothing exists that a restore
would take. Steps 2 to 5 run in the background if the save is asynchronous.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import itertools
import os
import threading
import time
import warnings
import zlib
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import jax
import numpy as np

from tailrace import _arguments, _core, _layout
from tailrace._errors import Code, Error, older_is_intact
from tailrace.jax import _leaves, _pieces
from tailrace.jax._processes import Operation, raise_told

_INTACT = "nothing was saved"
_NOBODY_ASKED = "an asynchronous save has failed, and nobody asked for its result"
_DIRECTORY_SECONDS = 600
_LOOK_SECONDS = 0.005

# One for all, so that saves of a process never write at the same time.
_thread = ThreadPoolExecutor(1, "tailrace-jax")


@dataclasses.dataclass
class _Staged:
    """What a process saves."""

    entries: list[_leaves.Entry] = dataclasses.field(default_factory=list)
    index: bytes = b""  # on process 0
    slots: list[list[_pieces.Piece]] = dataclasses.field(default_factory=lambda: [[]])
    # Checksums of arrays that each process has for itself, which must be alike.
    alike: dict[str, int] = dataclasses.field(default_factory=dict)

    def summary(self) -> list[Any]:
        """What must be the same on all processes: names, types and shapes; and what is saved once."""
        leaves = [[e.text, e.kind, e.region, str(e.dtype), list(e.shape)] for e in self.entries]
        return [zlib.crc32(repr(leaves).encode()), sorted(self.alike.items())]


class Save:
    """An asynchronous save. Every process has one, and it ends on all of them alike."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future
        self._told = False  # how it ended
        self._number = next(_numbers)
        _untold[self._number] = []
        future.add_done_callback(functools.partial(_note, self._number))

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> None:
        """Returns when the checkpoint is complete and durable. Raises Error if the save has failed. Then what was there
        before is intact. Raises TimeoutError after `timeout` seconds."""
        wait((self._future,), timeout)
        if not self._future.done():
            raise TimeoutError(f"the save has not ended after {timeout} s, and goes on")
        self._told = True
        _untold.pop(self._number, None)
        self._future.result()

    def _end(self) -> None:
        failure = self._future.exception()
        _untold.pop(self._number, None)
        if failure is not None and not self._told:
            warnings.warn(f"{_NOBODY_ASKED}: {failure}", stacklevel=4)


# Saves that run, and those that have failed and were not told. Of the latter the sentence, since the exception would
# keep the copy of the tree.
_untold: dict[int, list[str]] = {}
_numbers = itertools.count()


def _note(number: int, future: Future[None]) -> None:
    failure = future.exception()
    if failure is None:
        _untold.pop(number, None)
    else:
        _untold.get(number, []).append(str(failure))


@atexit.register  # comes after the thread of the saves has ended
def _tell_at_exit() -> None:
    for why in itertools.chain.from_iterable(_untold.values()):
        warnings.warn(f"{_NOBODY_ASKED}: {why}", stacklevel=2)


class Saver:
    """Saves pytrees, and keeps the memory of its asynchronous copies for the next one.

    files: K, the number of files of a checkpoint. At most 64 per process.
    name: the job's name, with which the files' names begin.
    threads: of each process, that write.
    buffer_bytes: of each thread.
    keep: the memory of asynchronous copies stays for the next one.

    All calls come from the program's own thread, and all processes make the same ones. A save begins when an earlier
    one has ended.
    """

    def __init__(
        self,
        *,
        files: int = 1,
        name: str = "tailrace",
        threads: int = 2,
        buffer_bytes: int = 8 << 20,
        keep: bool = True,
    ) -> None:
        self._files = _arguments.number(files, "files", _INTACT, _arguments.MOST_32)
        self._name = _arguments.checked(name, "name", _INTACT)
        self._threads = _arguments.threads(threads, _INTACT)
        self._buffer_bytes = _arguments.number(buffer_bytes, "buffer_bytes", _INTACT)
        self._keep = keep
        self.waits_for_directory = False  # set by a caller that makes the directory after the save has begun
        self._kept: dict[tuple[str, int], Any] = {}
        self._last: Save | None = None

    def save(
        self, directory: str | os.PathLike[str], tree: Any, *, step: int | None = None, custom: Any = None
    ) -> None:
        """Returns when the checkpoint is complete and durable. `custom` is Orbax's custom_metadata, of JSON's types."""
        self.wait()
        operation, failure, staged, place = self._begin(directory, tree, custom, copy=False)
        self._run(operation, place, step, staged, failure)

    def async_save(
        self, directory: str | os.PathLike[str], tree: Any, *, step: int | None = None, custom: Any = None
    ) -> Save:
        """Returns when the tree is copied. If this process cannot save the tree, the Save raises that."""
        self.wait()
        operation, failure, staged, place = self._begin(directory, tree, custom, copy=True)
        self._last = Save(_thread.submit(self._run, operation, place, step, staged, failure))
        return self._last

    def wait(self) -> None:
        """Returns when this Saver's last save has ended, well or not. Warns of a failure if nobody has asked for the
        result of that save."""
        last, self._last = self._last, None
        if last is not None:
            last._end()

    def close(self) -> None:
        """Waits, and gives the memory back."""
        self.wait()
        self._kept.clear()

    def _begin(
        self, directory: Any, tree: Any, custom: Any, copy: bool
    ) -> tuple[Operation, BaseException | None, _Staged, str]:
        operation = Operation("the save")
        try:
            place = os.path.abspath(_arguments.path(directory, "directory", _INTACT))
            staged = _stage(tree, operation)
            staged.index = _leaves.encode(staged.entries, custom) if operation.rank == 0 else b""
            if copy:
                self._copy(staged)
            return operation, None, staged, place
        except Exception as error:
            return operation, error, _Staged(), ""  # the others must hear of it, or they would wait

    def _copy(self, staged: _Staged) -> None:
        used: dict[tuple[str, int], Any] = {}
        for number, slot in enumerate(staged.slots):
            for i, piece in enumerate(slot):
                key = (piece.name, number)
                kept = self._kept.get(key)
                if kept is None or kept.shape != piece.memory.shape or kept.dtype != piece.memory.dtype:
                    kept = np.empty_like(piece.memory)
                _core.copy_memory(kept.ctypes.data, piece.memory.ctypes.data, kept.nbytes)
                used[key] = kept
                slot[i] = dataclasses.replace(piece, memory=kept)
        self._kept = used if self._keep else {}

    # ---- steps 2 to 5, in the background if the save is asynchronous ---------------------------------------

    def _run(
        self, operation: Operation, place: str, step: int | None, staged: _Staged, failure: BaseException | None
    ) -> None:
        epoch: _core.DirectEpoch | None = None
        try:
            shapes = [[piece.shape for piece in slot] for slot in staged.slots]
            tail = [(_leaves.REGION, staged.index)] if operation.rank == 0 else []
            first, ranks = _ranks(operation, staged, failure)

            needs: list[tuple[int, list[int]]] = []
            try:
                for i, slot in enumerate(shapes):
                    names = [(name, len(text)) for name, text in tail] if i == 0 else []
                    with older_is_intact():
                        runs = _core.run_bytes(slot, len(_layout.files_of(first + i, ranks, self._files)))
                        needs.append((_core.head_bytes(slot, names), runs))
            except Exception as error:
                failure = error  # a name that is too long, for example
            told, why = operation.gather_or_why(needs, failure)
            answers: list[Any] = [why] * operation.size
            if operation.rank == 0 and why is None:
                try:
                    if self.waits_for_directory:
                        _wait_for(place)
                    with older_is_intact():
                        epoch = _core.DirectEpoch(place, self._name, _number(place, step), self._files, ranks)
                    answers = self._places(told, epoch)
                except Exception as error:
                    failure, answers = error, [operation.sentence_of(error)] * operation.size
            answer = operation.scatter(answers)
            raise_told(failure, answer if isinstance(answer, str) else None)

            written: list[Any] = []
            try:
                for i, (pieces, place_of_slot) in enumerate(zip(staged.slots, answer, strict=True)):
                    with older_is_intact():
                        entry = self._write(first + i, ranks, pieces, tail if i == 0 else [], *place_of_slot)
                    written.append([shapes[i], entry])
            except Exception as error:
                failure = error
            told, why = operation.gather_or_why(written, failure)
            if epoch is not None and why is None:
                try:
                    slots = [slot for of_process in told for slot in of_process]
                    epoch.commit([entry for _, entry in slots], _core.CheckedArrays.check([one for one, _ in slots]))
                except Exception as error:
                    failure, why = error, operation.sentence_of(error)
            raise_told(failure, operation.broadcast(why))
        finally:
            if epoch is not None:
                epoch.close()

    def _places(self, told: list[Any], epoch: _core.DirectEpoch) -> list[Any]:
        """For each process, of each of its slots: where its head begins, and of each run the file and the offset."""
        arranged = iter(_layout.arrange([need for needs in told for need in needs], self._files, epoch.data_start))
        paths = epoch.paths
        return [
            [
                [place.head, [(paths[file], offset) for file, offset in zip(place.files, place.runs, strict=True)]]
                for place in itertools.islice(arranged, len(needs))
            ]
            for needs in told
        ]

    def _write(
        self, rank: int, ranks: int, pieces: list[_pieces.Piece], tail: list[Any], head: int, places: list[Any]
    ) -> Any:
        shapes = [piece.shape for piece in pieces]
        addresses = [piece.memory.ctypes.data for piece in pieces]
        nice = 10 if threading.current_thread() is not threading.main_thread() else 0
        runs = [(path, offset) for path, offset in places]
        how = (self._threads, self._buffer_bytes, nice)
        return _core.write_stream(rank, ranks, shapes, tail, addresses, head, runs, *how)


# ---- what a process has ----------------------------------------------------------------------------------


def _stage(tree: Any, operation: Operation) -> _Staged:
    staged, namer, pieces = _Staged(), _leaves.Namer(), []
    leaves = _leaves.flatten(tree)
    for _, leaf in leaves:
        if _leaves.is_memory(leaf):
            leaf.copy_to_host_async()  # all at once, before the first is waited for
    for path, leaf in leaves:
        text = _leaves.text_of(tuple(str(key) for _, key in path))
        if _leaves.is_empty(leaf):
            kind = "dict" if type(leaf) is dict else "list" if type(leaf) is list else "none"
            staged.entries.append(_leaves.Entry(path, "empty", value=kind))
        elif isinstance(leaf, jax.Array):
            entry, array = _of_jax(path, text, leaf, namer)
            staged.entries.append(entry)
            if operation.size > 1 and array.is_fully_addressable:
                own = np.asarray(array)
                staged.alike[entry.region] = zlib.crc32(np.ascontiguousarray(own).reshape(-1).view(np.uint8).data)
                pieces += _pieces.of_host(entry.region, own) if operation.rank == 0 else []
            else:
                pieces += _pieces.of_array(entry.region, array, operation.rank)
        elif isinstance(leaf, (np.ndarray, np.generic)):
            own = np.asarray(leaf)
            if own.dtype.hasobject:
                raise Error(Code.INVALID_ARGUMENT, f"{text}: an array of {own.dtype} has no plain bytes; {_INTACT}")
            if isinstance(leaf, np.ma.MaskedArray):
                raise Error(Code.INVALID_ARGUMENT, f"{text}: save a masked array's data and mask apart; {_INTACT}")
            _pieces.check_dimensions(text, own.shape)
            entry = _leaves.Entry(path, "numpy", namer.name(path), _pieces.type_name(own.dtype), own.shape)
            staged.entries.append(entry)
            pieces += _pieces.of_host(entry.region, own) if operation.rank == 0 else []
        else:
            staged.entries.append(_leaves.Entry(path, "plain", value=[_leaves.plain(leaf, path)]))
    staged.slots = _pieces.in_slots(pieces)
    return staged


def _of_jax(path: tuple[_leaves.Key, ...], text: str, leaf: Any, namer: _leaves.Namer) -> tuple[_leaves.Entry, Any]:
    if isinstance(leaf, jax.core.Tracer):
        raise Error(Code.INVALID_ARGUMENT, f"{text} is traced: save outside of jax.jit; {_INTACT}")
    if leaf.is_deleted():
        raise Error(Code.INVALID_ARGUMENT, f"{text} has been deleted or donated; {_INTACT}")
    _pieces.check_dimensions(text, leaf.shape)
    if not _leaves.is_random_key(leaf):
        return _leaves.Entry(path, "array", namer.name(path), leaf.dtype.name, leaf.shape), leaf
    data = jax.random.key_data(leaf)
    kind = str(jax.random.key_impl(leaf))
    return _leaves.Entry(path, "prng", namer.name(path), data.dtype.name, data.shape, kind), data


# ---- among the processes ---------------------------------------------------------------------------------


def _ranks(operation: Operation, staged: _Staged, failure: BaseException | None) -> tuple[int, int]:
    """The first rank of this process in the checkpoint, and the number of all. Raises Error on all processes if one has
    failed, or if they save different trees."""
    told, why = operation.gather_or_why([len(staged.slots), *staged.summary()], failure)
    if operation.rank == 0 and why is None:
        for process, (_, tree, alike) in enumerate(told):
            if tree != told[0][1]:
                why = f"process {process} saves a tree of other names, types or shapes than process 0; {_INTACT}"
                break
            differing = [name for (name, mine), (_, its) in zip(told[0][2], alike, strict=True) if mine != its]
            if differing:
                why = (
                    f"{differing[0]!r} lies on each process for itself, and its values differ on processes 0 and "
                    f"{process}: make it a global array; {_INTACT}"
                )
                break
    counts, why = operation.broadcast([[count for count, _, _ in told] if why is None else None, why])
    raise_told(failure, why)
    return sum(counts[: operation.rank]), sum(counts)


def _wait_for(directory: str) -> None:
    """Returns when the directory is there."""
    end = time.monotonic() + _DIRECTORY_SECONDS
    while not os.path.isdir(directory):
        if time.monotonic() > end:
            raise Error(
                Code.NOT_FOUND, f"the directory '{directory}' was not made within {_DIRECTORY_SECONDS} s; {_INTACT}"
            )
        time.sleep(_LOOK_SECONDS)


def _number(place: str, step: int | None) -> int:
    """The epoch's number: the step, or the number at the end of the directory's name."""
    if step is not None:
        return _arguments.number(step, "step", _INTACT)
    return _arguments.step_of(place)
