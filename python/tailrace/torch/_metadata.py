"""DCP's Metadata in the package's safe encoding: nothing in it is pickled, and nothing runs when it is
read."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import WriteItem

from tailrace import _tree
from tailrace._errors import Code, Error

REGION = "tailrace.dcp"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an item lies: a region of a rank's stream. `in_boxes`: parts of it can be read by
    themselves."""

    rank: int
    region: str
    nbytes: int
    in_boxes: bool


def bytes_about(item: WriteItem) -> int:
    """About as many bytes as encode() makes of an item, rather more. The item's name occurs five
    times, each with two numbers of its offset, chunk and shape."""
    dimensions = 0 if item.tensor_data is None else len(item.tensor_data.size)
    return 256 + 5 * len(json.dumps(item.index.fqn)) + 4 * 12 * dimensions


def encode(metadata: Metadata, replaces: str | None = None) -> bytes:
    """replaces: the mark of the checkpoint of DCP's own writer that is removed when this one is
    complete."""
    entries: list[list[Any]] = []
    for fqn, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, BytesStorageMetadata):
            entries.append([fqn])
        else:
            p = entry.properties
            chunks = [[list(c.offsets), list(c.sizes)] for c in entry.chunks]
            entries.append([fqn, str(p.dtype).removeprefix("torch."), p.requires_grad, list(entry.size), chunks])
    places = [
        [index.fqn, None if index.offset is None else list(index.offset), index.index, *dataclasses.astuple(place)]
        for index, place in metadata.storage_data.items()
    ]
    meta = metadata.storage_meta
    text, arrays = _tree.encode(
        {
            "entries": entries,
            "places": places,
            "planner_data": metadata.planner_data,
            "version": getattr(metadata, "version", None),
            "checkpoint_id": None if meta is None or meta.checkpoint_id is None else os.fspath(meta.checkpoint_id),
            "save_id": None if meta is None else meta.save_id,
            "modules": list(getattr(meta, "modules", [])),  # since torch 2.6
            **({} if replaces is None else {"replaces": replaces}),
        }
    )
    if arrays:
        raise Error(Code.UNSUPPORTED, "the planner's own data holds tensors; nothing was committed")
    return text


def decode(text: bytes) -> tuple[Metadata, str | None]:
    """The metadata, and the mark of the checkpoint that they replace."""
    tree = _tree.decode(_tree.parse(text), None)
    try:
        entries: dict[str, Any] = {}
        for fqn, *rest in tree["entries"]:
            entries[fqn] = _tensor(*rest) if rest else BytesStorageMetadata()
        places = {MetadataIndex(fqn, offset, index): Place(*place) for fqn, offset, index, *place in tree["places"]}
        meta = StorageMeta(checkpoint_id=tree["checkpoint_id"], save_id=tree["save_id"])
        if hasattr(meta, "modules"):
            meta.modules = tree["modules"]
        metadata = Metadata(entries, tree["planner_data"], places, meta)
        metadata.version = tree["version"]
        replaces = tree.get("replaces")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Error(Code.CORRUPT, f"the region {REGION!r} cannot be understood: {error}") from None
    return metadata, replaces


def _tensor(dtype: str, requires_grad: bool, size: list[int], chunks: list[Any]) -> TensorStorageMetadata:
    found = getattr(torch, dtype)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch has no element type {dtype!r}")
    pieces = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in chunks]
    return TensorStorageMetadata(TensorProperties(found, requires_grad=requires_grad), torch.Size(size), pieces)
