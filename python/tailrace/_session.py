"""tailrace.open and Session: save a program's state while it runs, and restore it."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import enum
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tailrace import _arguments, _checkpoint, _core, _files, _leaves, _marks, _ranks, _restore, _tree
from tailrace._errors import Code, Error, sentence_of

# A rank that fails waits at most this long for the flush of what it has saved, because other ranks
# may never save that.
_LONGEST_AFTER_FAILURE_SECONDS = 10.0

_ALONE: Any = object()
_NOT_OPEN = "no session was opened"


class State(enum.Enum):
    """Where an epoch is on its way."""

    UNKNOWN = 0
    CAPTURED = 1  # in the node-local tier, waiting
    FLUSHING = 2  # on its way to the shared directory
    COMMITTED = 3  # durable in the shared directory: K files
    KEPT_LOCAL = 4  # stays in the node-local tier, as configured or because flushes queue
    FAILED = 5  # not in the shared directory; see `why`
    PROTECTED = 6  # as captured, and safe from the loss of nodes (setting redundancy)


_MOST_TIMED_SAVES = 1000


@dataclasses.dataclass(frozen=True)
class Epoch:
    """What is known of an epoch. `run` counts the sessions on the directory. Seconds and bytes are
    this rank's.

    blocked_seconds: how long `save` kept the program, from its call to its return.
    in_local, in_shared: where a restore could take it from. Only `list` sets them. `state` looks at
        no file, so there both are False.
    losses_survived: how many nodes of each set may be lost, with all that they have captured, and a
        restore still has the captured epoch, whatever its state. 0: none, or not known yet.
    """

    step: int
    run: int
    state: State
    why: Error | None
    captured_bytes: int
    blocked_seconds: float
    flush_seconds: float
    in_local: bool
    in_shared: bool
    losses_survived: int = 0


def open(
    *,
    comm: Any = _ALONE,
    shared_dir: str | os.PathLike[str] | None = None,
    local_dir: str | os.PathLike[str] | None = None,
    files: int | None = None,
    config_file: str | os.PathLike[str] | None = None,
    **settings: str | int | float | bool | os.PathLike[str],
) -> Session:
    """Opens a session on a directory of checkpoints.

    comm: the ranks that save together: an mpi4py communicator, or a process group of
        torch.distributed (torch.distributed.group.WORLD; the session makes a gloo group of these
        ranks). Then open, close and the calls that restore are collective. Without `comm` the
        session belongs to this process alone.
    shared_dir: the directory for the files of epochs. It is created if missing.
    local_dir: the node-local tier, in memory or on a local disk (default /dev/shm/tailrace-<uid>).
    files: the number of files of an epoch (K).
    config_file: a TOML file of settings. Other settings are given by name, as `tailrace config`
        lists them. Later sources win, in this order: defaults, the file, TAILRACE_* in the
        environment, arguments.

    Raises Error: invalid argument for an unknown setting or a bad value, busy if another session
    holds the directory.
    """
    given: dict[str, Any] = {"files": files, **settings}
    texts = [(key, _setting_text(key, value)) for key, value in given.items() if value is not None]
    paths = {"shared_dir": shared_dir, "local_dir": local_dir, "config_file": config_file}
    places = {key: _arguments.path(value, key, _NOT_OPEN) for key, value in paths.items() if value is not None}
    config = places.pop("config_file", None)
    primitives = None if comm is _ALONE else _ranks.primitives_of(comm)
    try:
        core = _core.Session([*places.items(), *texts], config, primitives)
    except Error as error:
        ranks = _ranks.launched() if comm is _ALONE and error.code is Code.BUSY else None
        if ranks is None:
            raise
        raise Error(
            Code.BUSY,
            f"{error}; {ranks}, and if that session is of another rank of this job, give comm on all ranks, so that "
            "they save together; nothing was opened",
        ) from None
    session = Session(core, primitives is None or primitives.concurrent)
    if primitives is not None:
        _over_ranks.add(session)
    return session


_over_ranks: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    """No thread of a session may enter Python once the interpreter has begun to end."""
    for session in list(_over_ranks):
        session._leave()


def _setting_text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = os.fsdecode(value) if isinstance(value, (bytes, os.PathLike)) else str(value)
    return _arguments.checked(text, key, _NOT_OPEN)


class Session:
    """A program's checkpoints in one directory. tailrace.open makes it; a with-statement closes it.

    Over several ranks each rank saves a tree of its own, and all ranks save the same number of
    times. An epoch is complete when all have saved it. A rank that leaves the with-statement by an
    exception, or ends without close, does not wait for the others. Their next call raises Error
    (transport). What was not flushed by then stays in the node-local tier, where the next session
    finds it.

    save, should_save, should_stop, wait, state and close may be called from any thread. All calls
    that copy or wait release the GIL.
    """

    def __init__(self, core: _core.Session, may_wait_alone: bool) -> None:
        self._core = core
        self._may_wait_alone = may_wait_alone  # otherwise wait is collective
        self._closed = False
        self._ending = threading.Lock()
        self._differences: _restore.Differences | None = None
        self._blocked_seconds: dict[int, float] = {}  # of the last saves, including the time in Python

    @property
    def rank(self) -> int:
        return self._core.rank

    @property
    def rank_count(self) -> int:
        return self._core.rank_count

    def setting(self, key: str) -> str:
        """The value of a setting as this session uses it."""
        value = self._core.setting(key)
        if value is None:
            raise Error(Code.NOT_FOUND, f"there is no setting {key!r}")
        return value

    # ---- saving ------------------------------------------------------------------------------------------

    def save(self, step: int, tree: Any, *, pickle: bool = False) -> None:
        """Saves `tree` as epoch `step`, a number that must grow from save to save.

        tree: arrays, tensors, tailrace.Shard, and plain objects, in dicts, lists and tuples of any
            depth.
        pickle: pickles plain objects that have no safe encoding. Loading them needs trust_pickle.

        Returns when the copy in the node-local tier is complete and checksummed. The program may
        then change its arrays; the files are written in the background. Raises Error: invalid
        argument for an object that cannot be encoded, with its path in the tree; no space if the
        node-local tier is full. After a failure this epoch exists on no rank, and earlier ones are
        intact. With several ranks its number is used up, because other ranks may have captured
        their part.
        """
        start = time.perf_counter()
        try:
            step = _arguments.number(step, "step", "nothing was saved")
            regions, leaves = self._regions_of(tree, pickle)
        except BaseException as error:  # an interrupt is one
            self._give_up(step, error)
            raise
        self._core.save(step, regions)
        del leaves  # keeps the memory behind the addresses alive until here
        self._blocked_seconds[step] = time.perf_counter() - start
        if len(self._blocked_seconds) > _MOST_TIMED_SAVES:
            del self._blocked_seconds[next(iter(self._blocked_seconds))]

    @contextlib.contextmanager
    def save_files(self, step: int, tree: Any = None, *, pickle: bool = False) -> Iterator[_files.FilesToSave]:
        """Saves files that the program writes, as epoch `step`, when the with-statement ends.

            with session.save_files(step) as files:
                with h5py.File(files.path("fields.h5"), "w") as file: ...

        tree, pickle: saved in the same epoch, as `save` does; the tree as it is at the end of the
            with-statement. None: files alone.

        Every rank comes here or to `save`, with the same step. A rank may write no file. If the body
        raises, nothing of the epoch is kept, on any rank, and the exception goes on. Raises Error as
        `save` does; invalid argument also if a path was asked for and no file written there. The
        files are gone from the node-local tier at the end, whatever came of the save.
        """
        try:
            step = _arguments.number(step, "step", "nothing was saved")
            self._core.files_begin()
        except BaseException as error:  # an interrupt is one
            self._give_up(step, error)
            raise
        files = _files.FilesToSave(self._core)
        try:
            yield files
            regions, leaves = ([], []) if tree is None else self._regions_of(tree, pickle)
        except BaseException:
            with contextlib.suppress(Error):  # the session may be closed
                self._core.files_give_up(step)
            raise
        finally:
            files._end()
        self._core.files_save(step, regions)
        del leaves  # keeps the memory behind the addresses alive until here

    def _give_up(self, step: int, error: BaseException) -> None:
        """Tells the other ranks that this rank does not save the epoch. Otherwise they would wait for
        its part, and take its next save for this one."""
        if self.rank_count < 2:
            return
        code = error.code if isinstance(error, Error) else Code.INVALID_ARGUMENT
        with contextlib.suppress(Exception):  # a step that is not a number, or a closed session
            self._core.give_up(step, code, sentence_of(error))

    def _regions_of(self, tree: Any, pickle: bool) -> tuple[list[tuple[str, int, int, Any, Any]], Any]:
        """What to save, as the extension takes it, and the objects that keep its memory alive."""
        skeleton, arrays = _tree.encode(tree, pickle)
        alone = self.rank_count == 1
        text = np.frombuffer(skeleton, np.uint8)
        regions: list[tuple[str, int, int, Any, Any]] = [(_tree.SKELETON, text.ctypes.data, text.nbytes, None, ())]
        leaves: list[Any] = [text]
        for name, value in arrays.items():
            if isinstance(value, _marks.List):
                leaf = _leaves.to_save(value.items, name)
                leaves.append(leaf)
                regions.append(
                    (name, leaf.address, leaf.nbytes, _leaves.list_piece(leaf, value.items.dtype.itemsize), ())
                )
                continue
            shard = value if isinstance(value, _marks.Shard) else None
            # What has no piece has no shape in the core, so its bytes must be contiguous.
            leaf = _leaves.to_save(shard.own if shard else value, name, apart=alone or shard is not None)
            leaves.append(leaf)
            if shard is not None:
                piece = leaf.piece(shard.global_shape, shard.offset, shard.declared)
                if piece is None:
                    raise Error(
                        Code.INVALID_ARGUMENT,
                        f"the Shard {name!r} of {leaf.dtype} with {len(leaf.shape)} dimensions: the format has no "
                        "global arrays of these; nothing was saved",
                    )
            else:
                # With one rank every array is a whole global array, so the command line can extract
                # it.
                piece = leaf.piece() if alone else None
            regions.append((name, leaf.address, leaf.nbytes, piece, leaf.strides))
        return regions, leaves

    def state(self, step: int) -> Epoch:
        """Where an epoch is. Never blocks."""
        epoch = _epoch(self._core.state(_arguments.number(step, "step", "nothing was done")))
        blocked = self._blocked_seconds.get(epoch.step)
        return epoch if blocked is None else dataclasses.replace(epoch, blocked_seconds=blocked)

    def wait(self, step: int | None = None, timeout: float | None = None) -> bool:
        """Waits until the epoch (None: every epoch) is committed or kept local. Raises its failure.

        timeout: in seconds. Returns False if the time ran out first; the work goes on.
        """
        if step is not None:
            step = _arguments.number(step, "step", "nothing was waited for")
        return self._core.wait(step, -1.0 if timeout is None else max(0.0, timeout))

    # ---- when to save, when to stop ----------------------------------------------------------------------

    def should_save(self) -> bool:
        """Whether it is time to save, as the settings save_interval, save_every and mtbf say.

        All ranks get the same answer at the same call, whenever each comes to it. So every rank
        asks, for example after each step. A rank waits only if it is ahead of rank 0.
        """
        return self._core.should_save()

    def should_stop(self) -> str | None:
        """The reason to save once more and stop, or None. All ranks get it at the same call; from then
        on it stays.

        Reasons are a signal of the setting stop_signals, at any rank; the end of the job (job_end,
        job_minutes, Slurm's SLURM_JOB_END_TIME), early enough for a last save; and `tailrace halt`.
        A handler that Python has for the signal when the session is opened is called as well. One
        that is installed later takes the signal away.
        """
        return self._core.should_stop()

    # ---- restoring (collective) --------------------------------------------------------------------------

    def list(self) -> list[Epoch]:
        """Epochs that can be restored, newest first."""
        return [_epoch(info) for info in self._core.list()]

    def read(self, step: int | None = None) -> _checkpoint.Checkpoint:
        """Opens an epoch, or the newest, for lazy reading from the nearest tier that has it."""
        reader = self._open(step, None)
        with _checkpoint.closed_by_failure(reader):
            return _checkpoint.Checkpoint(reader, self.rank if self.rank < reader.rank_count else 0)

    def restore_latest(
        self, into: Any, *, trust_pickle: bool = False, strict: bool = True, convert: bool = False
    ) -> int | None:
        """Fills `into` from the newest epoch that every rank can read and verify, and returns its
        step. Returns None if there is nothing to restore: a first run.

        Arrays, tensors and Shards are filled in place. Plain objects are put into the dicts and
        lists that hold them. If the epoch belongs to another state (names, shapes, types), it
        raises Error (invalid argument) with every difference, and nothing is changed. If an epoch
        is damaged, the next older one is taken, with a warning.

        strict: False: arrays that only one of epoch and `into` has are left alone, and
            `differences` then names them.
        convert: arrays of `into` may be of another floating-point type than the saved ones, or of a
            type that holds all values of theirs. Their values are converted.
        """
        try:
            return self._fill(None, into, trust_pickle, strict, convert)
        except Error as error:
            if error.code is Code.NOT_FOUND:
                return None
            raise

    def restore(
        self, step: int, into: Any, *, trust_pickle: bool = False, strict: bool = True, convert: bool = False
    ) -> None:
        """Like restore_latest, but takes only this epoch. If it is missing, it raises Error: invalid
        argument if there are others, not found if there are none. So a program does not take a
        missing epoch for a first run."""
        self._fill(step, into, trust_pickle, strict, convert)

    @property
    def differences(self) -> _restore.Differences | None:
        """What this rank's last restore with strict=False has left out. None after any other restore."""
        return self._differences

    @contextlib.contextmanager
    def restore_files(
        self, step: int | None = None, *, of_all_ranks: bool = False
    ) -> Iterator[_files.RestoredFiles | None]:
        """Brings the files of an epoch back, for as long as the with-statement lasts.

            with session.restore_files() as files:
                if files is not None:                     # otherwise there is nothing: a first run
                    read(files.path("fields.h5"))

        step: None: the newest epoch in which every rank's files are sound. If there is none, the
            with-statement gets None.
        of_all_ranks: every rank may ask for every rank's files. All ranks together first read and
            check every byte. Without it, other ranks' files can be out of reach, on other nodes.

        A tree of the same epoch is restored by `restore(files.step, into=...)`.
        """
        if step is not None:
            step = _arguments.number(step, "step", "nothing was read")
        try:
            found = self._core.files_restore(step, of_all_ranks)
        except Error as error:
            if step is not None or error.code is not Code.NOT_FOUND:
                raise
            yield None
            return
        try:
            yield _files.RestoredFiles(self._core, found)
        finally:
            with contextlib.suppress(Error):  # the session may be closed
                self._core.files_release()

    # ---- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Waits for all flushes and raises the first failure among them. The session is gone in any
        case."""
        with self._ending:
            if not self._closed:
                self._closed = True
                self._core.close()

    def __enter__(self) -> Session:
        return self

    def _leave(self) -> None:
        self._core.leave()
        # A close in another thread ends by this, and must not return into an interpreter that is
        # ending.
        if self._ending.acquire(timeout=_LONGEST_AFTER_FAILURE_SECONDS):
            self._closed = True
            self._ending.release()

    def __exit__(self, kind: type[BaseException] | None, exception: object, trace: object) -> None:
        if kind is not None and not self._closed and self.rank_count > 1:
            # The other ranks may never come to close, or save what this rank has saved.
            if self._may_wait_alone:
                with contextlib.suppress(Error):
                    self.wait(timeout=_LONGEST_AFTER_FAILURE_SECONDS)
                self._core.settle()  # the others may not know yet what this rank has raised
            return self._leave()
        try:
            self.close()
        except Error:
            if kind is None:  # otherwise the program's own exception matters more
                raise

    # ---- parts -------------------------------------------------------------------------------------------

    def _open(self, step: int | None, use: Callable[[_core.Reader], tuple[int, str]] | None) -> _core.Reader:
        if step is not None:
            step = _arguments.number(step, "step", "nothing was read")
        reader = _core.Reader.open_session(self._core.handle, step, use)
        with _checkpoint.closed_by_failure(reader):
            _checkpoint.warn_of_passed_over(reader)
        return reader

    def _fill(self, step: int | None, into: Any, trust_pickle: bool, strict: bool, convert: bool) -> int:
        self._differences = None
        plan = _restore.Plan()
        failure: BaseException | None = None

        # The search for an epoch calls this, on all ranks together. If any rank finds damage, it goes on to
        # another source or an older epoch, and tells retention.
        def use(reader: _core.Reader) -> tuple[int, str]:
            nonlocal plan, failure
            failure = None
            try:
                plan = self._read_into(reader, into, trust_pickle, strict, convert)
            except BaseException as error:  # an interrupt is one
                failure = error
                code = error.code if isinstance(error, Error) else Code.FAILED_STATE
                return code, sentence_of(error)
            return 0, ""

        try:
            reader = self._open(step, use)
        except Error as agreed:
            # One rank's failure is raised on all ranks. An interrupt stays an interrupt.
            own = failure is not None and not isinstance(failure, Error)
            if failure is not None and own and (self.rank_count == 1 or not isinstance(failure, Exception)):
                raise failure from agreed
            raise agreed from failure
        for fill in plan.fills:
            fill.target.finish()
        for put in plan.set_plain:
            put()
        self._differences = plan.left_out
        return reader.epoch

    def _read_into(
        self, reader: _core.Reader, into: Any, trust_pickle: bool, strict: bool, convert: bool
    ) -> _restore.Plan:
        # With another number of ranks, plain objects come from rank 0, and arrays must be parts of
        # global arrays.
        same = reader.rank_count == self.rank_count
        rank = self.rank if same else 0
        checkpoint = _checkpoint.Checkpoint(reader, rank)
        plan = _restore.compare(
            checkpoint.skeleton, into, f"epoch {reader.epoch}", trust_pickle, strict=strict, convert=convert
        )
        local = [fill.ref.region for fill in plan.fills if fill.box is None]
        if local and not same and reader.rank_count > 1:
            raise Error(
                Code.INVALID_ARGUMENT,
                f"epoch {reader.epoch} was saved by {reader.rank_count} ranks and is restored by {self.rank_count}, "
                f"and {local[0]!r} is an array of each rank's own; save parts of global arrays as tailrace.Shard; "
                "nothing was changed",
            )
        _restore.place_lists(plan, reader, self.rank, self.rank_count)
        whole = [
            (fill.ref.region, fill.target.leaf.address, fill.target.leaf.nbytes)
            for fill in plan.fills
            if fill.box is None
        ]
        reader.read(rank, whole)
        for fill in plan.fills:
            if fill.box is not None:
                leaf = fill.target.leaf
                reader.read_box(fill.ref.region, list(fill.box[0]), list(fill.box[1]), leaf.address, leaf.nbytes)
        return plan


def _epoch(info: Any) -> Epoch:
    step, run, state, code, why, captured, blocked, flush, in_local, in_shared, losses = info
    error = Error(Code(code), why) if code else None
    return Epoch(step, run, State(state), error, captured, blocked, flush, in_local, in_shared, losses)
