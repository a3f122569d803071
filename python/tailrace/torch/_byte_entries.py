"""DCP's byte entries: the objects in a state that are not tensors, as bytes that can be loaded without
running anything.

DCP pickles such objects. If torch would not load the pickle with weights_only=True (NumPy's arrays,
scalars and random state, io.BytesIO, frozenset, slice, range), the entry is the object in the
package's own encoding. That is MARK, the length of the tree in eight bytes, little-endian, the
tree, and the arrays' bytes in the order in which the tree names them.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlanner, WriteItem

from tailrace import _core, _leaves, _tree
from tailrace._errors import Code, Error

MARK = b"tailrace.object\0"
_PLAIN = (type(None), bool, float, str, bytes)  # torch loads these, whatever the value, and an int of _INT_BITS
_INT_BITS = 2000  # torch loads no int of more than 255 bytes


def of(planner: SavePlanner, item: WriteItem) -> bytes:
    """The bytes of an entry. Raises Error (invalid argument), with the entry's name, if it cannot be
    pickled."""
    name = item.index.fqn
    try:
        resolved = planner.resolve_data(item)
    except Exception as error:
        raise Error(
            Code.INVALID_ARGUMENT, f"{name!r} cannot be pickled, as DCP does it ({error}); nothing was saved"
        ) from error
    if isinstance(resolved, torch.Tensor):
        raise Error(Code.INVALID_ARGUMENT, f"{name!r}: the planner gave a tensor for a byte entry; nothing was saved")
    pickled = bytes(resolved.getbuffer())
    known, value = _object_of(planner, item)
    if known and (type(value) in _PLAIN or (type(value) is int and value.bit_length() <= _INT_BITS)):
        return pickled
    why = refusal_of(pickled)
    if why is None:
        return pickled
    if known:
        try:
            return _pack(value)
        except Error as error:
            why = str(error).removesuffix("; nothing was saved").removesuffix(", or allow pickle for it (pickle=True)")
    warnings.warn(
        f"the entry {name!r} is saved as a pickle that loads only with StorageReader(trust_pickle=True): {why}",
        stacklevel=2,
    )
    return pickled


def refusal_of(pickled: bytes) -> str | None:
    """The reason why torch does not load it with weights_only=True. None if it does."""
    try:
        torch.load(io.BytesIO(pickled), weights_only=True, map_location="cpu")
    except Exception as error:  # the pickle may hold anything
        # What torch could not load comes after its advice for torch.load.
        text = str(error) or type(error).__name__
        found = re.search(r"WeightsUnpickler error:\s*(.+?)(?: was not an allowed global by default.*)?$", text, re.M)
        return found[1] if found else text.splitlines()[0]
    return None


def for_planner(content: bytes) -> io.BytesIO:
    """An entry of the own encoding as a planner takes it: a pickle of the decoded object, made here."""
    made = io.BytesIO()
    torch.save(_unpack(content), made)
    made.seek(0)
    return made


def _object_of(planner: SavePlanner, item: WriteItem) -> tuple[bool, Any]:
    """Whether the planner's object is known, and the object. A planner of the program's own may pickle
    another object."""
    theirs = ("resolve_data", "lookup_object", "transform_object")
    if not isinstance(planner, DefaultSavePlanner) or any(
        getattr(type(planner), name) is not getattr(DefaultSavePlanner, name) for name in theirs
    ):
        return False, None
    return True, planner.lookup_object(item.index)


def _pack(value: Any) -> bytes:
    text, arrays = _tree.encode(value)
    parts = [MARK, len(text).to_bytes(8, "little"), text]
    for name, array in arrays.items():
        leaf = _leaves.to_save(array, name)
        content = np.empty(leaf.nbytes, np.uint8)
        _core.copy_memory(content.ctypes.data, leaf.address, leaf.nbytes)
        parts.append(content.tobytes())
    return b"".join(parts)


def _unpack(content: bytes) -> Any:
    begin = len(MARK) + 8
    end = begin + int.from_bytes(content[len(MARK) : begin], "little")
    return _tree.decode(_tree.parse(content[begin:end]), _taker(content, end))


def _taker(content: bytes, at: int) -> Callable[[_tree.ArrayRef], Any]:
    source = np.frombuffer(content, np.uint8)

    def take(ref: _tree.ArrayRef) -> Any:
        nonlocal at
        if ref.nbytes > source.nbytes - at:
            raise Error(Code.CORRUPT, f"an entry ends before the bytes of its array {ref.region!r}; nothing was read")
        made = ref.empty()
        _core.copy_memory(_leaves.Target(made).leaf.address, source.ctypes.data + at, ref.nbytes)
        at += ref.nbytes
        return made

    return take
