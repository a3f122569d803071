"""Sources of a conversion. Each is read as a list of trees, one per rank, and the bytes of the tensors
stay in files."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import BytesStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load

from tailrace import _leaves, _marks, _tree
from tailrace._checkpoint import Checkpoint, LazyArray
from tailrace._checkpoint import read as open_checkpoint
from tailrace._errors import Code, Error
from tailrace.convert import _veloc
from tailrace.convert._nested import nested
from tailrace.convert._scratch import Scratch
from tailrace.torch import StorageReader, _native
from tailrace.torch._metadata import LAYOUT

_TAILRACE = b"TRCSHARE"  # of docs/format.md
_RANK_FILE = re.compile(r".*?(\d+)\.(pt|pth|bin)$")


def format_of(path: str) -> str:
    """The format of a checkpoint, by its first bytes or its files."""
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, ".metadata")):
            return "dcp"
        if any(_RANK_FILE.match(name) for name in os.listdir(path)):
            return "ranks"
        try:
            with open_checkpoint(path) as checkpoint:
                return "tailrace-dcp" if LAYOUT in checkpoint._regions else "tailrace"
        except Error as error:
            if error.code is Code.NOT_FOUND and _veloc.example(path):
                return "veloc"  # which asks for a file
            raise
    try:
        with open(path, "rb") as file:
            head = file.read(9)
    except OSError as error:
        kind = Code.NOT_FOUND if isinstance(error, FileNotFoundError) else Code.IO_ERROR
        raise Error(kind, f"opening '{path}': {error.strerror}; nothing was read") from None
    if _veloc.may_be(path, head):
        return "veloc"
    if head.startswith(b"PK\x03\x04") or head[:1] == b"\x80":
        return "torch"
    if head[8:] == b"{" and int.from_bytes(head[:8], "little") < os.path.getsize(path):
        return "safetensors"
    if _veloc.parse(path) and not head.startswith(_TAILRACE):
        return "veloc"  # or the program's own file, which is refused as none of VELOC's
    with open_checkpoint(path):  # or raises what is wrong with it
        return "tailrace"


def files(path: str, name: str, rank: int | None) -> list[str]:
    """The files or directories that a conversion reads."""
    return _veloc.files(path, rank) if name == "veloc" else [path]


def read(path: str, name: str, rank: int | None, scratch: Scratch) -> list[Any]:
    """The trees of all ranks, or of one. Not of VELOC's versions, which are no trees."""
    if name in ("ranks", "tailrace"):
        trees = _read_ranks(path, rank) if name == "ranks" else _read_tailrace(path, rank, scratch)
    elif rank not in (None, 0):
        raise Error(Code.NOT_FOUND, f"'{path}' holds no rank {rank}: a checkpoint of this format is one state")
    elif name == "torch":
        trees = [_read_torch(path)]
    elif name == "safetensors":
        trees = [_read_safetensors(path)]
    else:
        trees = [_read_dcp(path, _Reader(path) if name == "tailrace-dcp" else _native.Reader(path), scratch)]
    return trees


def _read_torch(path: str) -> Any:
    """The tree of a torch.save file, mapped rather than read."""
    try:
        return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        raise Error(
            Code.UNSUPPORTED,
            f"'{path}' holds objects that torch does not load with weights_only=True, since loading them can run "
            f"any code: {refused(error)}; nothing was written",
        ) from None


def _read_ranks(path: str, rank: int | None) -> list[Any]:
    found = {}
    for name in os.listdir(path):
        if (match := _RANK_FILE.match(name)) is not None:
            if int(match[1]) in found:
                raise Error(Code.INVALID_ARGUMENT, f"'{path}' has several files of rank {int(match[1])}")
            found[int(match[1])] = os.path.join(path, name)
    if sorted(found) != list(range(len(found))) or not found:
        raise Error(Code.CORRUPT, f"'{path}' should have a file for each rank from 0 on; there are {sorted(found)}")
    return [_read_torch(found[one]) for one in _chosen(path, len(found), rank)]


def _chosen(path: str, ranks: int, rank: int | None) -> list[int]:
    if rank is None:
        return list(range(ranks))
    if not 0 <= rank < ranks:
        raise Error(Code.NOT_FOUND, f"'{path}' holds no rank {rank}: {ranks} saved it")
    return [rank]


def _read_safetensors(path: str) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except SafetensorError as error:
        raise Error(Code.CORRUPT, f"'{path}' cannot be understood: {error}; nothing was written") from None


def _read_tailrace(path: str, rank: int | None, scratch: Scratch) -> list[Any]:
    with open_checkpoint(path) as checkpoint:
        chosen = _chosen(path, checkpoint.rank_count, rank)
        views = [checkpoint.at_rank(one) for one in chosen]
        for view in views:
            if view.has_tree and _tree.holds_pickle(view.skeleton):
                raise Error(
                    Code.UNSUPPORTED,
                    f"'{path}' holds a pickled object, and a conversion unpickles nothing, since that could run any "
                    "code; if you know who wrote it, load it in a program with trust_pickle=True "
                    "(tailrace.torch.load: weights_only=False), and save what you need; nothing was written",
                )
        return [_tree_of(view, scratch, len(chosen) > 1) for view in views]


class _Reader(StorageReader):
    """For a conversion, which unpickles no more than torch does with weights_only=True."""

    _instead = (
        "a conversion loads none of these: if you know who wrote it, load it in a program with "
        "StorageReader(trust_pickle=True), or make a file of torch.save of it with "
        "tailrace.torch.format_utils.dcp_to_torch_save(..., trust_pickle=True); nothing was written"
    )


def _tree_of(checkpoint: Checkpoint, scratch: Scratch, in_pieces: bool) -> Any:
    """What a rank saved, with its arrays in the scratch file. Each is read by itself and compared with its checksum.

    in_pieces: an array of all ranks is given as the piece that this rank saved, a Shard; else whole.
    """

    def load(ref: _tree.ArrayRef) -> Any:
        lazy: LazyArray = checkpoint[ref.region]
        piece = (ref.global_shape, ref.offset) if in_pieces and ref.global_shape and ref.offset else None
        shape = ref.shape if piece else lazy.shape
        nbytes = ref.nbytes if piece else lazy.nbytes
        if ref.kind == "torch":
            array: Any = scratch.empty(shape, lazy.dtype)
        elif nbytes:
            array = scratch.bytes(nbytes).view(lazy.dtype).reshape(shape)
        else:
            array = ref.empty(shape)
        leaf = _leaves.Target(array).leaf
        if piece is None:
            lazy._read(leaf)
            return array
        checkpoint._reader.read(checkpoint.rank, [(ref.region, leaf.address, leaf.nbytes)])
        region = checkpoint._regions[ref.region][1]
        declared = region[4] if region else 0
        gaps, overlap = bool(declared & _leaves.GAPS), bool(declared & _leaves.OVERLAP)
        return _marks.Shard(array, *piece, gaps=gaps, overlap=overlap)

    if _tree.SKELETON in checkpoint._regions:
        return _tree.decode(checkpoint.skeleton, load)
    # A C program saved no trees. Regions that only other ranks have are in their trees.
    return {name: load(lazy._ref) for name, lazy in checkpoint.items() if name in checkpoint._regions}


def refused(error: pickle.UnpicklingError) -> str:
    """What torch refused to load. The rest of torch's own text tells how to load it all the same."""
    found = re.search(r"GLOBAL (\S+)", str(error))
    return found[1] if found else str(error).strip().splitlines()[0]


# ---- torch.distributed.checkpoint ------------------------------------------------------------------------


def alone(call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    """dcp.save or dcp.load in one process. Raises the failure itself; DCP wraps it, one for each rank."""
    if "no_dist" in inspect.signature(call).parameters:
        named["no_dist"] = True
    elif dist.is_available() and dist.is_initialized():
        raise Error(
            Code.UNSUPPORTED,
            f"this version of torch converts DCP's checkpoints only where torch.distributed is not initialized "
            f"(torch {torch.__version__}); nothing was converted",
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # expected: no_dist asks for it
        try:
            call(*arguments, **named)
        except CheckpointException as failure:
            error = failure.failures[0][0]
            if isinstance(error, Error):
                raise error from None
            raise RuntimeError(str(error)) from error


class _Planner(DefaultLoadPlanner):
    """Loads objects that are not tensors only if torch loads them safely, or if a StorageReader
    returns them, which checks them."""

    def __init__(self, looked_at: bool) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._looked_at = looked_at

    def load_bytes(self, read_item: Any, value: Any) -> None:
        fqn = read_item.dest_index.fqn
        try:
            self.state_dict[fqn] = torch.load(value, weights_only=not self._looked_at)
        except pickle.UnpicklingError as error:
            raise Error(
                Code.UNSUPPORTED,
                f"the entry {fqn!r} is no tensor, and torch does not load it with weights_only=True: "
                f"{refused(error)}; nothing was written",
            ) from None


def _read_dcp(path: str, reader: Any, scratch: Scratch) -> Any:
    """Whole tensors, assembled from all ranks' pieces, one piece after the other."""
    metadata = reader.read_metadata()
    flat: dict[str, Any] = {}
    try:
        for fqn, entry in metadata.state_dict_metadata.items():
            if isinstance(entry, BytesStorageMetadata):
                flat[fqn] = None
            elif not isinstance(entry.size, tuple):
                raise ValueError(f"the size of {fqn!r} is a {type(entry.size).__name__}")
            elif any(length < 0 for length in entry.size):
                raise ValueError(f"the size of {fqn!r} is negative")
            else:
                flat[fqn] = scratch.empty(tuple(entry.size), entry.properties.dtype)
        if not isinstance(metadata.storage_data, dict):
            raise ValueError(f"its storage_data is a {type(metadata.storage_data).__name__}")
        # This is read before the tensors are. The tree is then built from it.
        paths = metadata.planner_data
        nested(dict.fromkeys(flat), paths)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise Error(Code.CORRUPT, f"the metadata of '{path}' cannot be understood: {error}; nothing was read") from None
    planner = _Planner(isinstance(reader, StorageReader))
    alone(dcp_load, flat, checkpoint_id=path, storage_reader=reader, planner=planner)
    return nested(flat, paths)
