"""StorageReader: torch.distributed.checkpoint out of K files.

Whole pieces are read rank by rank, in the order in which they lie in the files, straight into the
memory of their tensors. If only parts of pieces are wanted (another number of ranks), everything
that can be is read as boxes, in the same order. So neighbouring bytes come with one read, whichever
tensor they are for. Every byte is compared with its checksum. Tensors that are on a device, not
contiguous, or of another type get their bytes through bounded buffers.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import uuid
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader as _Reader
from torch.futures import Future

from tailrace import _arguments, _checkpoint, _core
from tailrace._errors import Code, Error
from tailrace.torch import _byte_entries, _metadata, _native

_BUFFER_BYTES = 24 << 20  # in addition to the reader's own


@dataclasses.dataclass
class _Request:
    item: ReadItem
    place: _metadata.Place
    shape: torch.Size  # of the saved piece
    dtype: torch.dtype  # as it was saved
    whole: bool


class StorageReader(_Reader):
    """Reads DCP checkpoints of tailrace.torch.StorageWriter, or of DCP's own writer.

    path: the checkpoint's directory. The checkpoint_id of dcp.load overrides it.
    name: that of StorageWriter, needed only if the directory holds checkpoints of several jobs.
    trust_pickle: also hand byte entries to the planner that torch does not load with
        weights_only=True. The planner unpickles them, so they may run any code. Without it they
        raise Error (unsupported).

    Making one is not collective.
    """

    _instead = "pass trust_pickle=True to StorageReader if you know who wrote it"  # of leaving a pickle alone

    def __init__(self, path: str | os.PathLike[str] = "", *, name: str | None = None, trust_pickle: bool = False):
        super().__init__()
        self._path = "" if path == "" else _arguments.path(path, "path", "nothing was read")
        self._name = None if name is None else _arguments.checked(name, "name", "nothing was read")
        self._trust_pickle = trust_pickle
        self._core: _core.Reader | None = None
        self._native: _native.Reader | None = None  # if DCP's own writer made the checkpoint
        self._metadata: Metadata | None = None
        self.load_id = str(uuid.uuid4())  # of the current load, as FileSystemReader has it

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._path = _arguments.path(checkpoint_id, "checkpoint_id", "nothing was read")
        self._core = self._native = None
        self._metadata = None
        self.load_id = str(uuid.uuid4())

    # No **kwargs: with them, DCP would ask a rank that has failed once more, for a checkpoint of
    # its own, and leave the other ranks waiting for it.
    def read_metadata(self) -> Metadata:
        metadata = self._newest_metadata()
        meta = metadata.storage_meta or StorageMeta()  # an old checkpoint of DCP's own writer has none
        meta.load_id = self.load_id
        metadata.storage_meta = meta
        return metadata

    def _newest_metadata(self) -> Metadata:
        self._core = self._native = None  # as it is now, not at the last load
        native = _native.mark_of(self._path)
        try:
            metadata, replaces = self._read_own_metadata()
        except Error as error:
            if native is None or error.code is not Code.NOT_FOUND:
                raise
            replaces = None
        if native == replaces or native is None:
            return metadata
        self._native = _native.Reader(self._path)
        return self._native.read_metadata()

    def _read_own_metadata(self) -> tuple[Metadata, str | None]:
        reader = self._open()
        found = {
            name: np.empty(nbytes, np.uint8)
            for name, nbytes, _ in reader.regions(0)
            if name in (_metadata.LAYOUT, _metadata.SAVE)
        }
        if _metadata.LAYOUT in found:
            reader.read(0, [(name, text.ctypes.data, text.nbytes) for name, text in found.items()])
            save = found.get(_metadata.SAVE)
            return _metadata.decode(found[_metadata.LAYOUT].tobytes(), None if save is None else save.tobytes())
        raise Error(
            Code.NOT_FOUND,
            f"'{self._path}' holds a checkpoint of tailrace, but none that was saved through "
            "torch.distributed.checkpoint; nothing was read",
        )

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._metadata = metadata
        if self._native is not None:
            self._native.set_up_storage_reader(metadata, is_coordinator)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan, with the save that this rank has found. Each rank looks for the newest by itself."""
        assert self._metadata is not None
        meta = self._metadata.storage_meta
        return dataclasses.replace(plan, storage_data=None if meta is None else meta.save_id)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        if len({plan.storage_data for plan in plans}) > 1:
            raise Error(
                Code.BUSY,
                f"loading '{self._path}': it was replaced meanwhile, and some ranks found the old checkpoint, "
                "some the new one; nothing was changed, and it can be loaded again",
            )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        self._check_shapes(planner)
        if self._native is not None:
            guarded = planner if self._trust_pickle else cast(LoadPlanner, _Guarded(planner, self._check_bytes))
            return self._native.read_data(plan, guarded)
        reader = self._open()
        requests = [self._request(item) for item in plan.items]
        # The tables of regions and the byte entries lie before the data, in the ranks' order.
        boxes = any(not request.whole and request.place.in_boxes for request in requests)
        if boxes:
            reader.arrays()  # reads every rank's table
        order: dict[tuple[int, str], int] = {}
        sizes: dict[tuple[int, str], int] = {}
        for rank in sorted({request.place.rank for request in requests}):
            for number, (name, nbytes, _) in enumerate(reader.regions(rank)):
                order[rank, name] = number
                sizes[rank, name] = nbytes

        def position(request: _Request) -> tuple[Any, ...]:
            place = request.place
            return place.rank, order.get((place.rank, place.region), -1), tuple(request.item.storage_offsets)

        requests.sort(key=position)
        byte_entries = [request for request in requests if request.item.type == LoadItemType.BYTE_IO]
        for rank, some in itertools.groupby(byte_entries, lambda request: request.place.rank):
            self._read_bytes(reader, rank, list(some), sizes, planner)
        batch = _Batch(reader, planner, boxes)
        tensors = [request for request in requests if request.item.type != LoadItemType.BYTE_IO]
        # What cannot be a box (a scalar) gets a pass of its own, so that it does not split the pass
        # of the boxes.
        for request in sorted(tensors, key=lambda request: boxes and request.place.in_boxes):
            batch.add(request)
        batch.flush()
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _check_shapes(self, planner: LoadPlanner) -> None:
        """PyTorch 2.5 plans to read the common part if a tensor's shape differs from that of the saved
        one."""
        assert self._metadata is not None
        live = planner.state_dict if type(planner) is DefaultLoadPlanner else {}
        wrong = [
            f"{name!r} has shape {tuple(entry.size)} in the checkpoint, and {tuple(live[name].shape)} here"
            for name, entry in self._metadata.state_dict_metadata.items()
            if isinstance(entry, TensorStorageMetadata)
            and isinstance(live.get(name), torch.Tensor)
            and live[name].shape != entry.size
        ]
        if wrong:
            raise Error(Code.INVALID_ARGUMENT, f"loading '{self._path}': {'; '.join(wrong)}; nothing was changed")

    @property
    def is_native(self) -> bool:
        """Whether the checkpoint that read_metadata has found is of DCP's own writer."""
        return self._native is not None

    @property
    def checkpoint_id(self) -> str:
        return self._path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        try:
            return os.path.isdir(_arguments.path(checkpoint_id, "checkpoint_id", "nothing was read"))
        except Error:
            return False

    def _open(self) -> _core.Reader:
        if self._core is None:
            if not self._path:
                raise Error(Code.INVALID_ARGUMENT, "neither the reader nor dcp.load was given a path; nothing was read")
            self._core = _checkpoint.open_directory(self._path, self._name, None)
        return self._core

    def _request(self, item: ReadItem) -> _Request:
        assert self._metadata is not None
        index = item.storage_index
        place = self._metadata.storage_data.get(index)
        if place is None:
            raise Error(Code.CORRUPT, f"'{self._path}' names {index}, but not its place")
        if item.type == LoadItemType.BYTE_IO:
            return _Request(item, place, torch.Size(), torch.uint8, True)
        entry: Any = self._metadata.state_dict_metadata[index.fqn]
        shape = _chunk_shape(entry, index)
        whole = item.lengths == shape and not any(item.storage_offsets)
        return _Request(item, place, shape, entry.properties.dtype, whole)

    def _read_bytes(
        self,
        reader: _core.Reader,
        rank: int,
        requests: list[_Request],
        sizes: dict[tuple[int, str], int],
        planner: LoadPlanner,
    ) -> None:
        """Reads the byte entries of one rank with one call. `sizes`: of the regions."""
        # A region that is missing is told by the read.
        contents = [np.empty(sizes.get((rank, request.place.region), 0), np.uint8) for request in requests]
        pairs = list(zip(requests, contents, strict=True))
        reader.read(rank, [(request.place.region, content.ctypes.data, content.nbytes) for request, content in pairs])
        for request, content in pairs:
            self._load_bytes(request, content.tobytes(), planner)

    def _load_bytes(self, request: _Request, content: bytes, planner: LoadPlanner) -> None:
        if content.startswith(_byte_entries.MARK):
            planner.load_bytes(request.item, _byte_entries.for_planner(content))
            return
        if not self._trust_pickle:
            self._check_bytes(request.item, content)
        planner.load_bytes(request.item, io.BytesIO(content))

    def _check_bytes(self, item: ReadItem, content: bytes) -> None:
        why = _byte_entries.refusal_of(content)
        if why is not None:
            raise Error(
                Code.UNSUPPORTED,
                f"the entry {item.storage_index.fqn!r} of '{self._path}' is a pickle that could run any "
                f"code when it is loaded ({why}); {self._instead}",
            )


class _Guarded:
    """A planner that gets only the byte entries that `check` accepts."""

    def __init__(self, planner: LoadPlanner, check: Callable[[ReadItem, bytes], None]) -> None:
        self._planner = planner
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._planner, name)

    def load_bytes(self, item: ReadItem, value: io.BytesIO) -> None:
        self._check(item, value.getvalue())
        self._planner.load_bytes(item, value)


class _Batch:
    """Pieces that are read together. The buffers among their targets are bounded.

    boxes: parts of pieces are wanted, so everything that can be is read as boxes.
    """

    def __init__(self, reader: _core.Reader, planner: LoadPlanner, boxes: bool) -> None:
        self._reader = reader
        self._planner = planner
        self._by_boxes = boxes
        self._rank = -1
        self._targets: list[tuple[str, int, int]] = []
        self._boxes: list[tuple[str, list[int], list[int], int, int]] = []
        self._done: list[tuple[ReadItem, torch.Tensor, torch.Tensor]] = []  # item, target, where the bytes go
        self._buffered = 0

    def add(self, request: _Request) -> None:
        item, place = request.item, request.place
        target = self._planner.resolve_tensor(item).detach()
        if target.shape != item.lengths:
            raise Error(
                Code.INVALID_ARGUMENT,
                f"{item.storage_index.fqn!r}: {tuple(item.lengths)} are to be read into a tensor of "
                f"{tuple(target.shape)}",
            )
        in_boxes = self._by_boxes and place.in_boxes
        if not (request.whole or in_boxes):
            self.flush()
            self._read_part(request, target)
            return
        needs = 0 if _takes_bytes(target, request.dtype) else target.numel() * request.dtype.itemsize
        if self._done and self._buffered + needs > _BUFFER_BYTES:
            self.flush()
        if not in_boxes and place.rank != self._rank:
            self.flush()
            self._rank = place.rank
        memory = torch.empty(target.shape, dtype=request.dtype) if needs else target
        if in_boxes:
            base = item.storage_index.offset or [0] * len(item.lengths)
            offset = [b + o for b, o in zip(base, item.storage_offsets, strict=True)]
            self._boxes.append((place.region, offset, list(item.lengths), memory.data_ptr(), memory.nbytes))
        else:
            self._targets.append((place.region, memory.data_ptr(), memory.nbytes))
        self._done.append((item, target, memory))
        self._buffered += needs

    def flush(self) -> None:
        if self._targets:
            self._reader.read(self._rank, self._targets)
        if self._boxes:
            self._reader.read_boxes(self._boxes)
        for item, target, memory in self._done:
            self._put(item, target, memory)
        self._targets, self._boxes, self._done, self._buffered = [], [], [], 0

    def _put(self, item: ReadItem, target: torch.Tensor, memory: torch.Tensor) -> None:
        if memory is not target:
            target.copy_(memory)
        self._planner.commit_tensor(item, target)

    def _read_part(self, request: _Request, target: torch.Tensor) -> None:
        """Reads a part of a piece that cannot be a box, by reading the whole piece."""
        item, place = request.item, request.place
        piece = torch.empty(request.shape, dtype=request.dtype)
        self._reader.read(place.rank, [(place.region, piece.data_ptr(), piece.nbytes)])
        for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            piece = piece.narrow(dimension, start, length)
        self._put(item, target, piece)


def _takes_bytes(target: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether the bytes of the file are the tensor's own."""
    return (
        target.device.type == "cpu"
        and target.dtype == dtype
        and target.is_contiguous()
        and not target.is_conj()
        and not target.is_neg()
    )


def _chunk_shape(entry: Any, index: MetadataIndex) -> torch.Size:
    offset = index.offset
    if index.index is not None and index.index < len(entry.chunks) and entry.chunks[index.index].offsets == offset:
        return torch.Size(entry.chunks[index.index].sizes)
    for chunk in entry.chunks:
        if offset is None or chunk.offsets == offset:
            return torch.Size(chunk.sizes)
    raise Error(Code.CORRUPT, f"no piece of {index.fqn!r} is at {offset}")
