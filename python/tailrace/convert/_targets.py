"""Targets of a conversion: writes trees whose tensors lie in mapped files as files under their final
names.

    1. Everything is written beside the target, under NAME.partial, and synced.
    2. It takes the target's name, and the directory is synced. If an earlier target is a directory, or is replaced by
       one, it is called NAME.replaced meanwhile.

A failure, or Ctrl-C, removes what was written. An earlier target stays until step 2. If the process
is killed during step 2, the next conversion gives the earlier target its name back.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

import tailrace.torch
from tailrace import _core, _leaves, _marks, _tree
from tailrace._errors import Code, Error, code_of_writing
from tailrace.convert._sources import alone, refused
from tailrace.torch._durable import refusal_in, remove, sync, sync_name_of

# Element types of safetensors.
_SAFETENSORS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.uint16: "U16",
    torch.uint32: "U32", torch.uint64: "U64", torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}  # fmt: skip
_WRITE_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class Epoch:
    """For a `tailrace` directory as a program wrote it that adds regions by their names, and saves no
    trees: what it calls the epoch."""

    job: str
    number: int


def write(trees: list[Any], target: str, name: str, files: int, tensors_only: bool, epoch: Epoch | None = None) -> int:
    """Writes the ranks' trees as `target` and returns the bytes of their tensors.

    epoch: the trees are a program's regions by their names. Only for the format tailrace.
    """
    one_state = name not in ("ranks", "tailrace")
    if one_state and len(trees) > 1:
        raise Error(
            Code.INVALID_ARGUMENT,
            f"the source holds the states of {len(trees)} ranks, and a checkpoint of format {name} is one state: "
            "choose one (--rank), or the format ranks or tailrace; nothing was written",
        )
    if name not in ("tailrace", "tailrace-dcp"):
        trees = [_with_tensors(tree, ()) for tree in trees]
    partial = target + ".partial"
    remove(partial)
    try:
        if name == "torch":
            _write_torch(trees[0], partial)
        elif name == "safetensors":
            _write_safetensors(trees[0], partial, tensors_only)
        elif name == "tailrace" and epoch is not None:
            _write_tailrace([(regions, None) for regions in trees], partial, files, epoch)
        elif name == "tailrace" and len(trees) == 1:
            tailrace.torch.save(trees[0], partial)
        elif name == "tailrace":
            _write_tailrace([_encoded(tree) for tree in trees], partial, files, Epoch("tailrace", 0))
        else:
            os.mkdir(partial)
            if name == "ranks":
                for rank, tree in enumerate(trees):
                    _write_torch(tree, os.path.join(partial, f"rank{rank}.pt"))
            elif name == "dcp":
                # One thread reads the tensors one by one. The writer syncs its files and its
                # metadata.
                _save_dcp(trees[0], FileSystemWriter(partial, thread_count=1), partial)
            else:
                _save_dcp(trees[0], tailrace.torch.StorageWriter(files=files), partial)
        _give_name(partial, target)
    except Error:
        raise
    except (OSError, RuntimeError) as error:
        refusal = refusal_in(error)
        code, why = (Code.IO_ERROR, error) if refusal is None else (code_of_writing(refusal), refusal.strerror)
        raise Error(code, f"writing '{target}': {why}; the source is intact, nothing else is left") from error
    finally:
        remove(partial)
    return sum(_bytes(tree) for tree in trees)


def _give_name(partial: str, target: str) -> None:
    if os.path.isdir(partial):
        sync(partial)
    # A directory cannot take the place of another directory or of a file.
    makes_room = os.path.isdir(target) or (os.path.isdir(partial) and os.path.lexists(target))
    if makes_room:
        remove(_replaced(target))
        os.rename(target, _replaced(target))
    try:
        os.rename(partial, target)
    except BaseException:  # an interrupt is one
        put_back(target)
        raise
    sync_name_of(target)
    if makes_room:
        remove(_replaced(target))


def check_apart(source: str, target: str, files: list[str]) -> None:
    """Raises Error (invalid argument) if the source, or a part of it under whatever name, is about to
    be replaced or removed, or if the target is a part of the source.

    files: what the source consists of, itself if it is one file or directory.
    """
    own = list(files)
    if os.path.isdir(source):
        own += [entry.path for entry in os.scandir(source) if entry.is_symlink()]
    parts = [os.path.realpath(part) for part in own]
    for taken in (target, target + ".partial", target + ".partial.unfinished", _replaced(target)):
        place = os.path.realpath(taken)
        for part in parts:
            if _is_in(part, place) or _is_same_file(part, place):
                raise Error(
                    Code.INVALID_ARGUMENT,
                    f"'{target}' would take the place of the source '{source}', or of a part of it; nothing was done",
                )
    if os.path.lexists(target) and any(_is_in(os.path.realpath(target), part) for part in parts):
        raise Error(
            Code.INVALID_ARGUMENT,
            f"'{target}' is there already and may be a part of the source '{source}'; nothing was done",
        )


def _is_same_file(one: str, other: str) -> bool:
    """Whether both are the same file, also by a hard link."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _is_in(path: str, place: str) -> bool:
    """Whether one of two real paths is the other, or below it."""
    return path == place or path.startswith(os.path.join(place, ""))


def _replaced(target: str) -> str:
    """The name of an earlier target while the new one takes its name."""
    return target + ".replaced"


def put_back(target: str) -> None:
    """Gives an earlier target its name back if the new one never took it, for example after a kill."""
    replaced = _replaced(target)
    if os.path.lexists(replaced) and not os.path.lexists(target):
        try:
            os.rename(replaced, target)
        except OSError as error:
            raise Error(
                Code.IO_ERROR,
                f"giving '{target}' its name again: {error.strerror}; it lies in '{replaced}', and is intact",
            ) from error


def _with_tensors(node: Any, path: tuple[Any, ...]) -> Any:
    """The tree with a tensor in place of each numpy array, over the same memory."""
    if isinstance(node, np.ndarray):
        try:
            return torch.from_numpy(node)
        except TypeError:
            raise Error(
                Code.UNSUPPORTED,
                f"{_tree.path_text(path)} is an array of {node.dtype}, which torch does not have; nothing was written",
            ) from None
    if isinstance(node, _marks.Shard):
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{_tree.path_text(path)} is one array of all ranks, and a file of each rank would have no place for it: "
            "--rank 0 gives it whole, the format tailrace keeps its pieces; nothing was written",
        )
    if type(node) is dict:
        return {key: _with_tensors(part, (*path, key)) for key, part in node.items()}
    if type(node) in (list, tuple):
        return type(node)(_with_tensors(part, (*path, i)) for i, part in enumerate(node))
    return node


def _bytes(node: Any) -> int:
    if isinstance(node, _marks.Shard):
        return _bytes(node.array)
    if isinstance(node, (torch.Tensor, np.ndarray)):
        return int(node.nbytes)
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else ()
    return sum(_bytes(part) for part in parts)


def _write_torch(tree: Any, path: str) -> None:
    with open(path, "wb") as file:
        torch.save(tree, file)
        file.flush()
        os.fsync(file.fileno())
    try:  # the user should be able to load it
        torch.load(path, map_location="meta", mmap=True, weights_only=True)
    except pickle.UnpicklingError as error:
        raise Error(
            Code.UNSUPPORTED,
            "the source holds objects that torch.load refuses with weights_only=True: "
            f"{refused(error)}; nothing was written",
        ) from None


def _save_dcp(tree: Any, writer: Any, place: str) -> None:
    state = tree if isinstance(tree, dict) else {"value": tree}
    alone(dcp_save, state, checkpoint_id=place, storage_writer=writer)


def _write_safetensors(tree: Any, path: str, tensors_only: bool) -> None:
    """Writes 8 bytes with the header's length, the header as JSON padded to a multiple of 8, and the
    tensors' bytes."""
    found: dict[str, torch.Tensor] = {}
    _flatten(tree, (), found, tensors_only)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in found.items():
        if tensor.dtype not in _SAFETENSORS:
            raise Error(Code.UNSUPPORTED, f"{name!r} is of {tensor.dtype}, which safetensors does not have")
        data = [end, end + tensor.nbytes]
        header[name] = {"dtype": _SAFETENSORS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": data}
        end += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in found.values():
            flat = tensor.detach().contiguous().reshape(-1)
            content = flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")
            while content:
                content = content[file.write(content[:_WRITE_BYTES]) :]
        os.fsync(file.fileno())


def _flatten(node: Any, path: tuple[Any, ...], found: dict[str, torch.Tensor], tensors_only: bool) -> None:
    """Finds the tensors by the keys that lead to them, joined by dots. The largest elements come
    first, so that all are aligned."""
    if isinstance(node, torch.Tensor):
        name = ".".join(map(str, path))
        if name in found or name == "__metadata__":
            raise Error(Code.UNSUPPORTED, f"two tensors would be named {name!r}; nothing was written")
        found[name] = node
    elif isinstance(node, (dict, list, tuple)):
        for key, part in node.items() if isinstance(node, dict) else enumerate(node):
            _flatten(part, (*path, key), found, tensors_only)
    elif not tensors_only:
        raise Error(
            Code.UNSUPPORTED,
            f"{_tree.path_text(path)} is a {type(node).__name__}, and safetensors holds tensors only; leave the others "
            "out (--tensors-only), or choose another format; nothing was written",
        )
    if not path:
        ordered = sorted(found.items(), key=lambda item: -item[1].element_size())
        found.clear()
        found.update(ordered)


def _encoded(tree: Any) -> tuple[dict[str, Any], bytes]:
    skeleton, arrays = _tree.encode(tree, with_views=True)
    return arrays, skeleton


def _write_tailrace(ranks: list[tuple[dict[str, Any], bytes | None]], directory: str, files: int, name: Epoch) -> None:
    """Writes an epoch of several ranks, as a session would have written it.

    ranks: arrays by the names of their regions, and the skeleton of the tree that they were in.
    """
    if not 1 <= files <= len(ranks):
        raise Error(Code.INVALID_ARGUMENT, f"{len(ranks)} ranks go into 1 to {len(ranks)} files, not {files}")
    epoch = _core.DirectEpoch(directory, name.job, name.number, files, len(ranks))
    try:
        ends = [epoch.data_start] * files
        table: list[Any] = []
        for rank, (arrays, skeleton) in enumerate(ranks):
            leaves: dict[str, _leaves.Leaf] = {}
            regions: list[Any] = []
            for region, array in arrays.items():
                shard = array if isinstance(array, _marks.Shard) else None
                leaf = leaves[region] = _leaves.to_save(shard.own if shard else array, region)
                # Only Shards are pieces of one array of all ranks. Other pieces with equal names
                # are not.
                piece = leaf.piece(shard.global_shape, shard.offset, shard.declared) if shard else None
                regions.append((region, leaf.nbytes, piece))
            file = _core.first_file_of(rank, len(ranks), files)
            start = ends[file]
            addresses = [leaf.address for leaf in leaves.values()]
            crcs = _core.write_runs(regions, addresses, [(epoch.paths[file], start)], 2, 8 << 20, 0)
            ends[file] += _core.run_bytes(regions, 1)[0]
            table.append((regions, crcs, [start], [(_tree.SKELETON, skeleton)] if skeleton is not None else []))
        epoch.commit(table, _core.CheckedArrays.check([regions for regions, _, _, _ in table]))
    finally:
        epoch.close()
