"""StorageWriter: torch.distributed.checkpoint into K files.

The steps of a save:

  1. prepare_global_plan (coordinator)  makes the K files under unfinished names
  2. write_data (every rank)            the ranks tell each other how much they have; each writes its tensors at the
                                        resulting place, straight from their memory, its byte entries and its table,
                                        and syncs
  3. finish (coordinator)               writes DCP's metadata and rank 0's table; syncs; commits

Nothing is sent in the plans' storage_data, because cached plans arrive as a delta, or not at all. What a rank
has written travels with the write results, which DCP gathers anyway. If no rank's layout has changed since the
writer's last save, that is less than 1 KiB for a rank other than the first, which gives its own table as well. The
coordinator then writes the metadata of that save again. So what the other ranks send does not grow with the number of
tensors, nor with their pieces.
"""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import gc
import math
import os
import sys
import threading
import types
import uuid
import weakref
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint import filesystem, state_dict_saver
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import AsyncStager as _Stager
from torch.distributed.checkpoint.storage import StorageWriter as _Writer
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from tailrace import _arguments, _core, _leaves
from tailrace._errors import Code, Error, older_is_intact
from tailrace.torch import _byte_entries, _groups, _metadata, _native, _runs
from tailrace.torch._staging import AsyncStager


@dataclasses.dataclass(frozen=True)
class _Item:
    """Where an item of a plan lies in the rank's stream. `nbytes`: None for a byte entry, whose size can
    change from save to save."""

    index: MetadataIndex
    region: str
    nbytes: int | None
    in_boxes: bool


@dataclasses.dataclass(frozen=True)
class _OfRank:
    """What the coordinator must know of a rank that has written. `items`: None if it knows the layouts of
    all ranks."""

    written: _runs.Written
    items: list[_Item] | None


@dataclasses.dataclass(frozen=True)
class _Known:
    """What a coordinator remembers of its last save."""

    layouts: bytes  # the digest
    checked: _core.CheckedArrays
    places: dict[MetadataIndex, _metadata.Place]
    metadata: Metadata
    text: bytes  # the encoded layout of the metadata

    def text_for(self, metadata: Metadata) -> bytes:
        """The encoded layout of the metadata."""
        same = (
            metadata.planner_data == self.metadata.planner_data
            and getattr(metadata, "version", None) == getattr(self.metadata, "version", None)
            and (
                metadata.state_dict_metadata is self.metadata.state_dict_metadata
                or metadata.state_dict_metadata == self.metadata.state_dict_metadata
            )
        )
        return self.text if same else _metadata.encode_layout(metadata)


# Of the metadata's layout. DCP's own writer says it there; PyTorch 2.5, for example, has none.
_DCP_VERSION = getattr(filesystem, "CURRENT_DCP_VERSION", None)

# Whether dcp.async_save itself waits for a copy that is made in the background.
DCP_TAKES_FUTURES = hasattr(state_dict_saver, "AsyncSaveResponse")

# How long a staged copy waits for its save to begin. DCP begins it at once.
_PATIENCE_SECONDS = 60

# By directory: the writer of this process that last began a save there.
_unfinished: weakref.WeakValueDictionary[str, StorageWriter] = weakref.WeakValueDictionary()


@dataclasses.dataclass
class _Save:
    """One save of a writer, from DCP's first call on. All of its calls come from one thread."""

    thread: threading.Thread
    place: str  # absolute, or empty if no path was given
    of_staged: bool = False  # DCP has made the thread to save what was staged
    refusal: Error | None = None  # raised by set_up_storage_writer, so that all ranks hear of it
    save_id: str = dataclasses.field(default_factory=lambda: str(uuid.uuid4()))
    is_set_up: bool = False
    is_coordinator: bool = False
    ranks: int = 1
    epoch: _core.DirectEpoch | None = None
    replaces: str | None = None  # the mark of a checkpoint of DCP's own writer
    is_writing: bool = False  # within write_data or finish

    def give_up(self) -> None:
        """Releases the directory, and removes files that were not committed."""
        epoch, self.epoch = self.epoch, None
        if epoch is not None:
            epoch.close()


_looking = threading.Lock()


def _frame_of(thread: threading.Thread) -> types.FrameType | None:
    """What the thread runs. CPython before 3.12.1 can wait for itself for ever where a garbage
    collection falls into sys._current_frames() (python/cpython#106883), so there is none then."""
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().get(thread.ident or 0)
        finally:
            if collects:
                gc.enable()


class StorageWriter(_Writer, _Stager):
    """Writes DCP checkpoints into `files` files, whatever the number of ranks and tensors.

    path: the checkpoint's directory. The checkpoint_id of dcp.save overrides it for each save. If
        its name ends with a number ("step-100"), the number becomes the epoch.
    files: K, at most 64 per rank.
    process_group: that of dcp.save, if it does not have all ranks.
    stager: staging memory for dcp.async_save. The default copies before async_save returns.
    overwrite: replace an existing checkpoint, also one of DCP's own writer. Otherwise a save into
        its directory fails with Error (already exists).
    name: the job's name, a part of the files' names.
    threads, buffer_bytes: per rank, for writing.

    Making one is collective over the process group, whichever ranks will save. A rank waits for the
    others for as long as it takes. If some never make one, it waits for ever, and warns of it after
    a minute. A rank that saves by itself (no_dist=True) makes its writer with
    StorageWriter.alone(path).

    A checkpoint that is saved again replaces the old one when it is complete, not before. An
    interrupted save leaves nothing that can be loaded. A writer makes one save at a time. A second
    save waits for an asynchronous one. Beside a save of another thread it fails with Error (busy),
    on all ranks.
    """

    _synchronize_after_execute = False
    _own: _groups.Group | None  # of the writer alone; None for one rank
    _path: str

    def __init__(
        self,
        path: str | os.PathLike[str] = "",
        *,
        files: int = 1,
        process_group: dist.ProcessGroup | None = None,
        stager: AsyncStager | None = None,
        overwrite: bool = True,
        name: str = "tailrace",
        threads: int = 2,
        buffer_bytes: int = 8 << 20,
    ) -> None:
        settings = {
            "path": "" if path == "" else _arguments.path(path, "path", "nothing was saved"),
            "files": _arguments.number(files, "files", "nothing was saved", _arguments.MOST_32),
            "name": _arguments.checked(name, "name", "nothing was saved"),
            "threads": _arguments.threads(threads, "nothing was saved"),
            "buffer_bytes": _arguments.number(buffer_bytes, "buffer_bytes", "nothing was saved"),
            "overwrite": overwrite,
        }
        self._take(settings, stager or AsyncStager())
        self._own = _groups.own_group(self, process_group)

    def _take(self, settings: dict[str, Any], stager: AsyncStager) -> None:
        super().__init__()
        self._settings = settings
        self._path = settings["path"]
        self._files = settings["files"]
        self._name = settings["name"]
        self._threads = settings["threads"]
        self._buffer_bytes = settings["buffer_bytes"]
        self._overwrite = settings["overwrite"]
        # A writer that was sent here makes its group when it first needs one, with the ranks of this
        # process's default group.
        self._was_sent_from: str | None = None  # the sender's working directory
        self._own = None
        self._stager = stager
        self._first_id = str(uuid.uuid4())  # before any save
        self._known: _Known | None = None  # on the coordinator
        self._room = 0  # about the bytes of the encoded metadata
        self._lock = threading.Lock()
        self._turn: _Save | None = None  # the save that may write; only its thread changes it
        self._of_thread = threading.local()  # .save: this thread's, with or without the turn
        # The copy that is staged and not yet saved: the threads and the working directory when it was
        # staged, and whether it is complete.
        self._stages = threading.Lock()
        self._staged_beside: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._staged_in = ""
        self._staging: concurrent.futures.Future[Any] | None = None
        self._begun = threading.Event()  # the save of what was staged last
        self._begun.set()

    @classmethod
    def alone(cls, path: str | os.PathLike[str], *, files: int = 1) -> StorageWriter:
        """A writer for dcp.save(..., no_dist=True) on one rank, which no other rank need make."""
        made = cls.__new__(cls)
        place = _arguments.path(path, "path", "nothing was saved")
        files = _arguments.number(files, "files", "nothing was saved", _arguments.MOST_32)
        usual = {"name": "tailrace", "threads": 2, "buffer_bytes": 8 << 20, "overwrite": True}
        made._take({"path": place, "files": files, **usual}, AsyncStager())
        return made

    @property
    def _group(self) -> Any:
        if self._own is None and self._was_sent_from is not None:
            self._own = _groups.own_group(self)
        return None if self._own is None else self._own.get()

    # ---- planning ----------------------------------------------------------------------------------------

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        path = None
        if checkpoint_id is not None:
            path = _arguments.path(checkpoint_id, "checkpoint_id", "nothing was saved")
        self._begin(path)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        save: _Save | None = getattr(self._of_thread, "save", None)
        if save is None or save.is_set_up:
            save = self._begin(None)
        elif save.refusal is None and self._turn is not save:  # the program itself reset the writer a while ago
            save = self._begin(save.place)
        save.is_set_up = True
        if save.refusal is not None:
            raise save.refusal
        save.is_coordinator = is_coordinator
        if not save.place:
            raise Error(Code.INVALID_ARGUMENT, "neither the writer nor dcp.save was given a path; nothing was saved")
        if not kwargs.get("use_collectives", True):
            raise Error(
                Code.UNSUPPORTED,
                "use_collectives=False makes every rank write a checkpoint of its own, not K files of all ranks; "
                "nothing was saved",
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        save = self._mine()
        save.ranks = len(plans)
        made_for = self._rank_count() if save.ranks > 1 else 1
        if made_for != save.ranks:
            raise Error(
                Code.INVALID_ARGUMENT,
                f"dcp.save runs on {save.ranks} ranks, and this writer was made for {made_for}: make it "
                "after init_process_group, with the process_group that dcp.save gets; nothing was saved",
            )
        save.replaces = _native.mark_of(save.place)
        if not self._overwrite:
            _check_free(save.place, save.replaces)
        real = os.path.realpath(save.place)
        # DCP tells no writer that a save has failed on another rank, and its exception may keep the
        # writer alive.
        earlier = _unfinished.get(real)
        if earlier is not None:
            earlier._give_up_what_has_failed()
        number = _arguments.step_of(save.place)
        with older_is_intact():
            save.epoch = _core.DirectEpoch(save.place, self._name, number, self._files, save.ranks)
        _unfinished[real] = self
        if any(plan.items for plan in plans):  # cached plans are empty
            self._room = _metadata.bytes_about(plans)
        return plans

    def _rank_count(self) -> int:
        if self._own is not None:
            return dist.get_world_size(self._group)
        return dist.get_world_size() if self._was_sent_from is not None and dist.is_initialized() else 1

    # ---- writing -----------------------------------------------------------------------------------------

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        save = self._mine()
        save.is_writing = True
        try:
            results = self._write(plan, planner)
        except BaseException:
            save.give_up()
            raise
        finally:
            save.is_writing = False
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        save = self._mine()
        names = _region_names(plan.items)
        leaves: list[_leaves.Leaf] = []
        shapes: list[_runs.Shape] = []
        tail: list[tuple[str, bytes]] = []
        items: list[_Item] = []
        failure: BaseException | None = None
        try:
            for item in plan.items:
                name = names[item.index]
                if item.type == WriteItemType.BYTE_IO:
                    tail.append((name, _byte_entries.of(planner, item)))
                    items.append(_Item(item.index, name, None, False))
                    continue
                # The planner's tensor itself, or a view of it, if it is contiguous and on the host.
                leaf = _leaves.to_save(planner.resolve_data(item), item.index.fqn)
                leaves.append(leaf)
                shapes.append((name, leaf.nbytes, _piece(item, leaf) if name == item.index.fqn else None))
                items.append(_Item(item.index, name, leaf.nbytes, shapes[-1][2] is not None))
        except Exception as error:
            failure = error  # the others must hear of it, or they would wait for this rank
        # A coordinator that plans only for itself needs no other rank, even if there are others
        # (no_dist=True).
        alone = save.is_coordinator and save.ranks == 1
        group = None if alone else self._group
        if not alone:
            save.ranks = dist.get_world_size(group)
        known = self._known if save.epoch is not None else None
        written = _runs.write(
            group,
            save.epoch,
            self._files,
            shapes,
            leaves,
            failure,
            tail=tail,
            is_open=group is None or dist.get_rank(group) == 0,
            room=self._room,
            layout=repr(items).encode(),
            known=b"" if known is None else known.layouts,
            threads=self._threads,
            buffer_bytes=self._buffer_bytes,
        )
        of_rank = _OfRank(written, None if written.shapes is None else items)
        nbytes = sum(shape[1] for shape in shapes) + sum(len(content) for _, content in tail)
        return [WriteResult(MetadataIndex(_metadata.LAYOUT), nbytes, of_rank)]

    # ---- commit ------------------------------------------------------------------------------------------

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        save = self._mine()
        epoch = save.epoch
        if epoch is None:
            raise Error(Code.FAILED_STATE, "finish without a save under way; nothing was committed")
        save.is_writing = True
        try:
            ranks: list[_OfRank] = [result.storage_data for of_rank in results for result in of_rank]
            known = self._known
            if known is None or any(rank.items is not None for rank in ranks):
                known = None
                metadata.storage_data = {
                    item.index: _metadata.Place(rank, item.region, item.nbytes, item.in_boxes)
                    for rank, of_rank in enumerate(ranks)
                    for item in of_rank.items or []
                }
            else:
                metadata.storage_data = known.places
            metadata.storage_meta = self.storage_meta()
            metadata.version = _DCP_VERSION
            text = _metadata.encode_layout(metadata) if known is None else known.text_for(metadata)
            tail = ranks[0].written.entry[3]
            tail.append((_metadata.LAYOUT, text))
            tail.append((_metadata.SAVE, _metadata.encode_save(metadata.storage_meta, save.replaces)))
            written = [rank.written for rank in ranks]
            checked = _runs.commit(epoch, written, None if known is None else known.checked)
            self._known = _Known(written[0].layouts, checked, metadata.storage_data, copy.copy(metadata), text)
            self._room = len(text) + 4096
            if save.replaces is not None:
                _native.remove(save.place)
        finally:
            save.give_up()
            save.is_writing = False

    # ---- one save at a time --------------------------------------------------------------------------------
    # A save has the writer's turn from its first call until its thread has left dcp.save. If a save
    # fails while it is planned, or on another rank, DCP does not tell the writer.

    def _begin(self, path: str | None) -> _Save:
        """Begins a save of this thread to `path`, or to the last path that was given. It gets the
        turn, or a refusal."""
        self._end_earlier()
        if not self._is_of_staged():
            self._wait_for_staged()
        with self._lock:
            of_staged = self._is_of_staged()
            base = self._staged_in if of_staged else self._was_sent_from or _working_directory()
            given = self._path if path is None else path
            save = _Save(threading.current_thread(), os.path.join(base, given) if given else "", of_staged)
            self._of_thread.save = save
            if of_staged:
                self._staging = None
                self._begun.set()
            if self._is_under_way(self._turn):
                save.refusal = Error(
                    Code.BUSY,
                    f"saving to '{given}': another thread is saving with this writer. That save goes on, and nothing "
                    "else was written",
                )
                return save
            if self._turn is not None:
                self._turn.give_up()
            self._turn = save
            self._path = given
            return save

    def _mine(self) -> _Save:
        """This thread's save, which has the turn."""
        save: _Save | None = getattr(self._of_thread, "save", None)
        if save is None or save.refusal is not None or self._turn is not save:
            raise Error(
                Code.FAILED_STATE if save is None else Code.BUSY,
                "this thread has no save under way with this writer, or another thread has begun one since; nothing "
                "was saved",
            )
        return save

    def _is_under_way(self, save: _Save | None) -> bool:
        """Whether another thread is in this save: in a call of the writer, or of dcp.save with it."""
        if save is None or save.thread is threading.current_thread() or not save.thread.is_alive():
            return False
        if save.is_writing:
            return True
        frame = _frame_of(save.thread)
        while frame is not None:
            # async_save calls the writer only to stage. What it has staged belongs to another save.
            of_dcp = frame.f_globals.get("__name__", "").startswith("torch.distributed.checkpoint.")
            if of_dcp and frame.f_code.co_name != "async_save" and frame.f_locals.get("storage_writer") is self:
                return True
            frame = frame.f_back
        return False

    def _end_earlier(self) -> None:
        """Ends this thread's earlier save, because the thread is about to begin another save or a
        copy."""
        with self._lock:
            if self._turn is not None and self._turn.thread is threading.current_thread():
                self._turn.give_up()
                self._turn = None

    def _give_up_what_has_failed(self) -> None:
        with self._lock:
            if self._turn is not None and not self._is_under_way(self._turn):
                self._turn.give_up()

    def stage(self, state_dict: dict[str, Any]) -> Any:
        self._end_earlier()
        with self._stages:
            self._wait_for_staged()
            staged = self._stager.stage_again(state_dict)
            if isinstance(staged, concurrent.futures.Future) and not DCP_TAKES_FUTURES:
                staged = staged.result()
            self._staging = staged if isinstance(staged, concurrent.futures.Future) else None
            self._staged_beside = weakref.WeakSet(threading.enumerate())
            self._staged_in = _working_directory()
            self._begun.clear()
        return staged

    def _wait_for_staged(self) -> None:
        """Returns when nobody needs the staged copy: DCP's thread that saves it has ended. Until then
        DCP's process group is in use, too."""
        staging = self._staging
        if staging is not None and staging.exception() is not None:
            self._begun.set()  # nothing was staged
        if not self._begun.wait(_PATIENCE_SECONDS):
            # The save failed to begin, or is yet to come. It keeps its copy, and the next copy gets
            # other memory.
            self._stager.renew()
            self._begun.set()
        save = self._turn
        if save is not None and save.of_staged and save.thread is not threading.current_thread():
            save.thread.join()

    def _is_of_staged(self) -> bool:
        """Whether this thread is DCP's for the staged copy, and has not begun to save it. DCP makes it
        after staging."""
        return not self._begun.is_set() and threading.current_thread() not in self._staged_beside

    def synchronize_staging(self) -> None:
        self._stager.synchronize_staging()

    def close(self) -> None:
        """Gives the staging memory back."""
        self._stager.close()

    # ---- what DCP asks for -------------------------------------------------------------------------------

    @property
    def checkpoint_id(self) -> str:
        return self._path

    @property
    def save_id(self) -> str:
        """The id of this thread's last save, or else of the save that has the turn."""
        save: _Save | None = getattr(self._of_thread, "save", self._turn)
        return self._first_id if save is None else save.save_id

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        try:
            return "://" not in _arguments.path(checkpoint_id, "checkpoint_id", "nothing was saved")
        except Error:
            return False

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(checkpoint_id=self._path, save_id=self.save_id)

    # ---- in another process -----------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """For AsyncCheckpointerType.PROCESS, where DCP sends the writer and the staged copy to a process
        of its own. Nobody says when the save there has ended, so that process keeps the memory of
        the copy, and the next copy gets other memory."""
        sent_from = _working_directory()
        if not self._begun.is_set():
            sent_from = self._staged_in
            self._stager.renew()
            self._staging = None
            self._begun.set()
        return {**self._settings, "path": self._path, "sent from": sent_from}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._take({key: value for key, value in state.items() if key != "sent from"}, AsyncStager())
        self._was_sent_from = state["sent from"]


def _check_free(place: str, native: str | None) -> None:
    """Raises Error (already exists) if a directory holds a checkpoint, also one of DCP's own writer."""
    if native is None:
        try:
            _core.Reader.open_directory(place, None, None).close()
        except Error as error:
            if error.code is Code.NOT_FOUND:
                return
            raise
    raise Error(
        Code.ALREADY_EXISTS,
        # It begins as the message of DCP's own writer does, which programs may look for.
        f"Checkpoint already exists in '{place}', and overwrite is False; nothing was saved",
    )


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the working directory was removed; an absolute path needs none
        return ""


def _region_names(items: list[WriteItem]) -> dict[MetadataIndex, str]:
    """The items' names. A second piece of one tensor on this rank gets a name of its own."""
    names: dict[MetadataIndex, str] = {}
    taken: set[str] = {_metadata.LAYOUT, _metadata.SAVE}
    for item in items:
        name = item.index.fqn
        number = 0
        while name in taken:
            number += 1
            name = f"{item.index.fqn}#{number}"
        taken.add(name)
        names[item.index] = name
    return names


def _piece(item: WriteItem, leaf: _leaves.Leaf) -> _leaves.Piece | None:
    data = item.tensor_data
    if data is None or math.prod(leaf.shape) == 0:
        return None
    # Further pieces of a tensor on a rank do not belong to its global array (_region_names), so the
    # array has gaps. DCP checks whether the plan covers each tensor once, if its planner wants
    # that.
    return leaf.piece(list(data.size), list(data.chunk.offsets), _leaves.GAPS | _leaves.OVERLAP)
