"""DCP's Metadata in the package's safe encoding: nothing in it is pickled, and nothing runs when it is
read.

It is two regions of rank 0. LAYOUT says which tensors and entries there are, and where. It is the same
for every save whose layout is the same, so a writer keeps it. SAVE says which save it was. Earlier
versions wrote one region, with all of it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
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
from torch.distributed.checkpoint.planner import SavePlan

from tailrace import _own_regions, _tree
from tailrace._errors import Code, Error

LAYOUT = _own_regions.DCP
SAVE = _own_regions.DCP_SAVE


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an item lies: a region of a rank's stream, of `nbytes` if it is a tensor's. `in_boxes`: parts
    of it can be read by themselves."""

    rank: int
    region: str
    nbytes: int | None
    in_boxes: bool


def bytes_about(plans: Iterable[SavePlan]) -> int:
    """About as many bytes as encode_layout() makes of these plans, rather more."""
    names: set[str] = set()
    total = 4096
    for plan in plans:
        for item in plan.items:
            dimensions = 0 if item.tensor_data is None else len(item.tensor_data.size)
            total += 32 + 2 * 12 * dimensions
            if item.index.fqn not in names:
                names.add(item.index.fqn)
                # The planner's own data can have the name, too.
                total += 128 + 3 * len(json.dumps(item.index.fqn)) + 12 * dimensions
    return total


def encode_layout(metadata: Metadata) -> bytes:
    """Everything of the metadata but its storage_meta."""
    places = dict(metadata.storage_data)
    tensors: list[list[Any]] = []
    entries: list[list[Any]] = []
    for fqn, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, BytesStorageMetadata):
            entries.append([fqn, *_short(places.pop(MetadataIndex(fqn), None), fqn)])
            continue
        p = entry.properties
        chunks = [
            [list(c.offsets), list(c.sizes), *_short(places.pop(MetadataIndex(fqn, c.offsets), None), fqn)]
            for c in entry.chunks
        ]
        tensors.append([fqn, str(p.dtype).removeprefix("torch."), p.requires_grad, list(entry.size), chunks])
    others = [
        [index.fqn, None if index.offset is None else list(index.offset), index.index, *dataclasses.astuple(place)]
        for index, place in places.items()
    ]
    planner_data, arrays = _tree.node_of(metadata.planner_data)
    if arrays:
        raise Error(Code.UNSUPPORTED, "the planner's own data holds tensors; nothing was committed")
    # The lists are nodes already, and there are many of them.
    return _tree.text_of(
        {
            "tensors": tensors,
            "bytes": entries,
            "places": others,
            "planner_data": planner_data,
            "version": getattr(metadata, "version", None),
        }
    )


def encode_save(meta: StorageMeta, replaces: str | None) -> bytes:
    """replaces: the mark of the checkpoint of DCP's own writer that is removed when this one is
    complete."""
    return json.dumps(
        {
            "checkpoint_id": None if meta.checkpoint_id is None else os.fspath(meta.checkpoint_id),
            "save_id": meta.save_id,
            "modules": list(getattr(meta, "modules", [])),  # since torch 2.6
            **({} if replaces is None else {"replaces": replaces}),
        }
    ).encode()


def decode(layout: bytes, save: bytes | None) -> tuple[Metadata, str | None]:
    """The metadata, and the mark of the checkpoint that they replace. `save`: None if an earlier version
    has written it."""
    tree = _tree.parse(layout)
    entries: dict[str, Any] = {}
    places: dict[MetadataIndex, Place] = {}
    try:
        about = tree if save is None else json.loads(save)
        for fqn, *rest in tree.get("entries", []):
            entries[fqn] = _tensor(*rest) if rest else BytesStorageMetadata()
        for fqn, dtype, requires_grad, size, chunks in tree.get("tensors", []):
            entries[fqn] = _tensor(dtype, requires_grad, size, [chunk[:2] for chunk in chunks])
            for offsets, _, *place in chunks:
                if place:
                    places[MetadataIndex(fqn, torch.Size(offsets))] = _long(place, fqn)
        for fqn, *place in tree.get("bytes", []):
            entries[fqn] = BytesStorageMetadata()
            if place:
                places[MetadataIndex(fqn)] = _long(place, fqn)
        places.update((MetadataIndex(fqn, offset, i), Place(*place)) for fqn, offset, i, *place in tree["places"])
        meta = StorageMeta(checkpoint_id=about["checkpoint_id"], save_id=about["save_id"])
        if hasattr(meta, "modules"):
            meta.modules = about["modules"]
        metadata = Metadata(entries, _tree.decode(tree["planner_data"], None), places, meta)
        metadata.version = _tree.decode(tree["version"], None)
        replaces = about.get("replaces")
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise Error(Code.CORRUPT, f"the region {LAYOUT!r} cannot be understood: {error}") from None
    return metadata, replaces


def _short(place: Place | None, fqn: str) -> list[Any]:
    """A place. The region's name is left out if it is the item's."""
    if place is None:
        return []
    return [place.rank, place.nbytes, int(place.in_boxes), *([] if place.region == fqn else [place.region])]


def _long(short: list[Any], fqn: str) -> Place:
    rank, nbytes, in_boxes, *region = short
    return Place(rank, region[0] if region else fqn, nbytes, bool(in_boxes))


def _tensor(dtype: str, requires_grad: bool, size: list[int], chunks: list[Any]) -> TensorStorageMetadata:
    found = getattr(torch, dtype)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch has no element type {dtype!r}")
    pieces = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes in chunks]
    return TensorStorageMetadata(TensorProperties(found, requires_grad=requires_grad), torch.Size(size), pieces)
