"""StorageWriter: torch.distributed.checkpoint into K files.

How a save goes, and what each step leaves:

  1. prepare_global_plan (coordinator)  makes the K files under unfinished names
  2. write_data (every rank)            the ranks tell each other how much they have; each writes its tensors at
                                        the place that follows, straight from their memory, and syncs
  3. finish (coordinator)               writes tables, checksums, byte entries and DCP's metadata; syncs; commits

Nothing is told through the plans' storage_data: with cached plans they arrive as a delta, or not at all. What is
small (checksums, byte entries) travels with the write results, which DCP gathers anyway.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import os
import threading
import uuid
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import AsyncStager as _Stager
from torch.distributed.checkpoint.storage import StorageWriter as _Writer
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from tailrace import _arguments, _core, _leaves
from tailrace._errors import Code, Error
from tailrace.torch import _groups, _metadata, _runs
from tailrace.torch._staging import AsyncStager


@dataclasses.dataclass(frozen=True)
class _Item:
    """What the coordinator has to know of an item that a rank has written, or leaves to it (`content`)."""

    number: int
    shape: _runs.Shape
    crcs: list[int]
    offsets: list[int]  # of the rank's runs; the same for all its items
    content: bytes | None


# Whether dcp.async_save waits itself for a copy that is made in the background.
DCP_TAKES_FUTURES = hasattr(state_dict_saver, "AsyncSaveResponse")

# How long a staged copy waits for its save to begin, which DCP does at once.
_PATIENCE_SECONDS = 60

# By directory: the writer of this process that last began a save there.
_unfinished: weakref.WeakValueDictionary[str, StorageWriter] = weakref.WeakValueDictionary()


class StorageWriter(_Writer, _Stager):
    """Writes DCP checkpoints into `files` files, whatever the number of ranks and tensors.

    path: the checkpoint's directory; checkpoint_id of dcp.save overrides it for each save. The number at the end
        of its name, if there is one ("step-100"), becomes the epoch.
    files: K, at most 64 per rank.
    process_group: that of dcp.save, when it is not all ranks.
    stager: staging memory for dcp.async_save; by default one that copies before async_save returns.

    Making one is collective over the process group. A checkpoint that is saved again replaces the old one when it
    is complete, not before; one that is interrupted leaves nothing that can be loaded. One save at a time: a
    second one waits for an asynchronous one, and raises Error (busy) beside one that another thread is writing.
    """

    _synchronize_after_execute = False

    def __init__(
        self,
        path: str | os.PathLike[str] = "",
        *,
        files: int = 1,
        process_group: dist.ProcessGroup | None = None,
        stager: AsyncStager | None = None,
        name: str = "tailrace",
        threads: int = 2,
        buffer_bytes: int = 8 << 20,
    ) -> None:
        super().__init__()
        self._path = "" if path == "" else _arguments.path(path, "path", "nothing was saved")
        self._files = _arguments.number(files, "files", "nothing was saved", _arguments.MOST_32)
        self._name = _arguments.checked(name, "name", "nothing was saved")
        self._threads = _arguments.number(threads, "threads", "nothing was saved", _arguments.MOST_32)
        self._buffer_bytes = _arguments.number(buffer_bytes, "buffer_bytes", "nothing was saved")
        self._group = _groups.own_group(self, process_group)
        self._stager = stager or AsyncStager()
        self._save_id = ""
        self._is_coordinator = False
        self._ranks = 1
        self._epoch: _core.DirectEpoch | None = None
        # What is staged and not yet saved: by which thread, and whether its copy is complete.
        self._staged_by: threading.Thread | None = None
        self._staging: concurrent.futures.Future[Any] | None = None
        self._begun = threading.Event()  # the save of what was staged last
        self._begun.set()
        # The last save: its thread, whether DCP has made that for it, and whether it is within write_data or finish.
        self._saving: threading.Thread | None = None
        self._of_staged = False
        self._writing = False

    # ---- planning ----------------------------------------------------------------------------------------

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        self._take_turn(checkpoint_id)
        if checkpoint_id is not None:
            self._path = _arguments.path(checkpoint_id, "checkpoint_id", "nothing was saved")

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._take_turn(self._path)
        self._of_staged = self._is_of_staged()
        self._saving, self._staging, self._writing = threading.current_thread(), None, False
        self._begun.set()
        self._give_up()  # what a save left that failed elsewhere
        self._save_id = str(uuid.uuid4())
        self._is_coordinator = is_coordinator
        if not self._path:
            raise Error(Code.INVALID_ARGUMENT, "neither the writer nor dcp.save was given a path; nothing was saved")
        if not kwargs.get("use_collectives", True):
            raise Error(
                Code.UNSUPPORTED,
                "use_collectives=False makes every rank write a checkpoint of its own, and so no K files of all; "
                "nothing was saved",
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        self._ranks = len(plans)
        if self._ranks > 1 and (self._group is None or dist.get_world_size(self._group) != self._ranks):
            raise Error(
                Code.INVALID_ARGUMENT,
                f"dcp.save runs on {self._ranks} ranks, and this writer was made for "
                f"{1 if self._group is None else dist.get_world_size(self._group)}: make it after init_process_group, "
                "with the process_group that dcp.save gets; nothing was saved",
            )
        place = os.path.realpath(self._path)
        # DCP tells no writer that a save has failed on another rank, and its exception may keep the writer alive.
        earlier = _unfinished.get(place)
        if earlier is not None and not earlier._is_saving():
            earlier._give_up()
        self._epoch = _core.DirectEpoch(self._path, self._name, _runs.epoch_of(self._path), self._files, self._ranks)
        _unfinished[place] = self
        return plans

    # ---- writing -----------------------------------------------------------------------------------------

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self._writing = True
        try:
            results = self._write(plan, planner)
        except BaseException:
            self._give_up()
            self._writing = False
            raise
        self._writing = self._is_coordinator  # which has been told that all have written, and so finishes
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        tensors = [item for item in plan.items if item.type != WriteItemType.BYTE_IO]
        names = _region_names(plan.items)
        leaves: list[_leaves.Leaf] = []
        shapes: list[_runs.Shape] = []
        contents: dict[MetadataIndex, bytes] = {}
        shared_bytes = 0
        failure: BaseException | None = None
        try:
            shared_bytes = sum(_metadata.bytes_about(item) for item in plan.items)
            for item in tensors:
                # A view of the planner's tensor where that is contiguous and on the host.
                leaf = _leaves.to_save(planner.resolve_data(item), item.index.fqn)
                name = names[item.index]
                leaves.append(leaf)
                shapes.append((name, leaf.nbytes, _piece(item, leaf) if name == item.index.fqn else None))
            for item in plan.items:
                if item.type == WriteItemType.BYTE_IO:
                    contents[item.index] = _bytes_of(planner, item)
        except Exception as error:
            failure = error  # the others must hear of it, or they would wait for this rank
        # A coordinator that plans for itself alone needs nobody, also where there are other ranks (no_dist=True).
        alone = self._is_coordinator and self._ranks == 1
        group = None if alone else self._group
        if not alone:
            self._ranks = dist.get_world_size(group)
        written = _runs.write(
            group,
            self._epoch,
            self._files,
            shapes,
            leaves,
            failure,
            tail=[(names[index], len(content)) for index, content in contents.items()],
            shared_bytes=shared_bytes,
            threads=self._threads,
            buffer_bytes=self._buffer_bytes,
        )
        results = [
            WriteResult(item.index, leaf.nbytes, _Item(i, shapes[i], written.crcs[i], written.offsets, None))
            for i, (item, leaf) in enumerate(zip(tensors, leaves, strict=True))
        ]
        for index, content in contents.items():
            item_of = _Item(len(results), (names[index], len(content), None), [], written.offsets, content)
            results.append(WriteResult(index, len(content), item_of))
        return results

    # ---- commit ------------------------------------------------------------------------------------------

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        epoch = self._epoch
        if epoch is None:
            raise Error(Code.FAILED_STATE, "finish without a save under way; nothing was committed")
        try:
            places: dict[MetadataIndex, _metadata.Place] = {}
            ranks: list[Any] = []
            for rank, of_rank in enumerate(results):
                in_order = sorted(((r, r.storage_data) for r in of_rank), key=lambda pair: pair[1].number)
                for result, written in in_order:
                    name, nbytes, piece = written.shape
                    places[result.index] = _metadata.Place(rank, name, nbytes, piece is not None)
                stored = [w for _, w in in_order if w.content is None]
                tail = [(w.shape[0], w.content) for _, w in in_order if w.content is not None]
                offsets = (
                    in_order[0][1].offsets if in_order else _runs.empty_offsets(epoch, rank, self._ranks, self._files)
                )
                ranks.append([[w.shape for w in stored], [w.crcs for w in stored], offsets, tail])
            metadata.storage_data = places
            metadata.storage_meta = self.storage_meta()
            ranks[0][3].append((_metadata.REGION, _metadata.encode(metadata)))
            epoch.commit([tuple(rank) for rank in ranks])
        finally:
            self._give_up()
            self._writing = False

    def _give_up(self) -> None:
        """Lets go of the directory; files that were not committed are removed."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.close()

    # ---- one save at a time --------------------------------------------------------------------------------

    def stage(self, state_dict: dict[str, Any]) -> Any:
        self._wait_for_staged()
        staged = self._stager.stage_again(state_dict)
        if isinstance(staged, concurrent.futures.Future) and not DCP_TAKES_FUTURES:
            staged = staged.result()
        self._staging = staged if isinstance(staged, concurrent.futures.Future) else None
        self._staged_by = threading.current_thread()
        self._begun.clear()
        return staged

    def _wait_for_staged(self) -> None:
        """Returns when nobody needs the staged copy: the thread is gone that DCP has made to save it. Until then
        DCP's process group is in use too."""
        staging = self._staging
        if staging is not None and staging.exception() is not None:
            self._begun.set()  # nothing was staged
        if not self._begun.wait(_PATIENCE_SECONDS):
            # Its save failed to begin, or is yet to come: it keeps its copy, and the next gets other memory.
            self._stager.renew()
            self._begun.set()
        saving = self._saving
        if self._of_staged and saving is not None and saving is not threading.current_thread():
            saving.join()

    def _is_of_staged(self) -> bool:
        """Whether this thread is DCP's for what is staged, and has not begun to save it."""
        return not self._begun.is_set() and self._staged_by is not threading.current_thread()

    def _take_turn(self, path: str | os.PathLike[str] | None) -> None:
        if not self._is_of_staged():
            self._wait_for_staged()
        if self._is_saving():
            raise Error(
                Code.BUSY,
                f"saving to '{path or self._path}': another thread is saving with this writer. That save goes on, and "
                "nothing else was written",
            )

    def _is_saving(self) -> bool:
        """Whether a save goes on in another thread, as far as a writer can know it: DCP's thread ends with its save;
        in a thread of the program's a save that failed elsewhere, while it was planned, ends unheard."""
        thread = self._saving
        if thread is None or thread is threading.current_thread() or not thread.is_alive():
            return False
        return self._of_staged or self._writing

    def synchronize_staging(self) -> None:
        self._stager.synchronize_staging()

    def close(self) -> None:
        """Gives the staging memory back."""
        self._stager.close()

    # ---- what DCP asks for -------------------------------------------------------------------------------

    @property
    def checkpoint_id(self) -> str:
        return self._path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        try:
            return "://" not in _arguments.path(checkpoint_id, "checkpoint_id", "nothing was saved")
        except Error:
            return False

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(checkpoint_id=self._path, save_id=self._save_id)

    def __getstate__(self) -> dict[str, Any]:
        self._begun.set()  # nobody will save what was staged
        raise Error(
            Code.UNSUPPORTED,
            "a StorageWriter does not go into another process (AsyncCheckpointerType.PROCESS); use THREAD. Nothing "
            "was saved",
        )


def _region_names(items: list[WriteItem]) -> dict[MetadataIndex, str]:
    """The items' names; a second piece of one tensor on this rank gets a name of its own."""
    names: dict[MetadataIndex, str] = {}
    taken: set[str] = {_metadata.REGION}
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
    return leaf.piece(list(data.size), list(data.chunk.offsets))


def _bytes_of(planner: SavePlanner, item: WriteItem) -> bytes:
    name = item.index.fqn
    try:
        resolved = planner.resolve_data(item)
    except Exception as error:
        raise Error(
            Code.INVALID_ARGUMENT, f"{name!r} cannot be pickled, as DCP does it ({error}); nothing was saved"
        ) from error
    if isinstance(resolved, torch.Tensor):
        raise Error(Code.INVALID_ARGUMENT, f"{name!r}: the planner gave a tensor for a byte entry; nothing was saved")
    return bytes(resolved.getbuffer())
