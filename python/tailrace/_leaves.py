"""Arrays and tensors as the core sees them: an address, a number of bytes, and what the bytes mean.

A Leaf holds on to what owns its memory, so an address is good as long as the Leaf lives. Tensors are known
without importing torch: an object can only be one of a library that is loaded already.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

# Element types of the file format, by numpy's name and by torch's.
TYPES = {
    "int8": 1,
    "uint8": 2,
    "int16": 3,
    "uint16": 4,
    "int32": 5,
    "uint32": 6,
    "int64": 7,
    "uint64": 8,
    "float16": 9,
    "bfloat16": 10,
    "float32": 11,
    "float64": 12,
    "complex64": 13,
    "complex128": 14,
    "bool": 15,
}
NAMES = {number: name for name, number in TYPES.items()}
MOST_DIMENSIONS = 16

# An array's piece as the extension takes it: type, global shape, offset, local shape.
Piece = tuple[int, Sequence[int], Sequence[int], Sequence[int]]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """Memory of an array or a tensor, contiguous and row-major."""

    kind: str  # "numpy" or "torch"
    dtype: Any  # as it is written into the tree: a string, or a numpy record's description
    shape: tuple[int, ...]
    address: int
    nbytes: int
    type: int | None  # of the file format; None for element types that it does not have
    owner: object

    def piece(self, global_shape: Sequence[int] | None = None, offset: Sequence[int] | None = None) -> Piece | None:
        """This memory as a piece of a global array; None where the format has no word for it."""
        if self.type is None or not 1 <= len(self.shape) <= MOST_DIMENSIONS:
            return None
        return (self.type, global_shape or self.shape, offset or [0] * len(self.shape), self.shape)


def torch_module() -> Any:
    """torch when the program has imported it, else None."""
    return sys.modules.get("torch")


def is_tensor(value: object) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) or is_tensor(value)


def describe(value: Any) -> tuple[str, Any, tuple[int, ...]]:
    """Kind, element type and shape, without touching the memory."""
    if isinstance(value, np.ndarray):
        return "numpy", _numpy_name(value.dtype), value.shape
    return "torch", str(value.dtype).removeprefix("torch."), tuple(value.shape)


def to_save(value: Any) -> Leaf:
    """The memory to copy from: the array's own where it is contiguous and the host can read it, else a copy."""
    kind, dtype, shape = describe(value)
    if kind == "numpy":
        if value.dtype.hasobject:
            raise TypeError("an array of Python objects has no bytes to save")
        return _numpy_leaf(np.ascontiguousarray(value).reshape(shape), dtype)
    if value.layout != torch_module().strided or value.is_quantized:
        raise TypeError(f"a tensor of layout {value.layout} has no plain memory to save")
    return _torch_leaf(value.detach().resolve_conj().resolve_neg().to("cpu").contiguous(), dtype)


class Target:
    """Memory to fill for an array or a tensor that is there already, in place.

    `leaf` is the array's own memory where it is contiguous and on the host; else a buffer, which finish() copies
    into the array.
    """

    def __init__(self, value: Any) -> None:
        kind, dtype, shape = describe(value)
        self._value = value
        self._buffer: Any = None
        if kind == "numpy":
            if not value.flags.writeable:
                raise TypeError("a read-only array cannot be restored into")
            if value.flags.c_contiguous:
                self.leaf = _numpy_leaf(value, dtype)
            else:
                self._buffer = np.empty(shape, value.dtype)
                self.leaf = _numpy_leaf(self._buffer, dtype)
        else:
            value = value.detach()
            if value.device.type == "cpu" and value.is_contiguous() and not value.is_conj() and not value.is_neg():
                self.leaf = _torch_leaf(value, dtype)
            else:
                self._buffer = torch_module().empty(shape, dtype=value.dtype)
                self.leaf = _torch_leaf(self._buffer, dtype)

    def finish(self) -> None:
        if self._buffer is None:
            return
        if isinstance(self._value, np.ndarray):
            self._value[...] = self._buffer
        else:
            self._value.detach().copy_(self._buffer)


def empty(kind: str, dtype: Any, shape: tuple[int, ...]) -> Any:
    """A new array or tensor, not initialised."""
    if kind == "numpy":
        return np.empty(shape, _numpy_dtype(dtype))
    if kind != "torch":
        raise ValueError(f"no library is known for arrays of kind {kind!r}")
    import torch

    found = getattr(torch, str(dtype), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch has no element type {dtype!r}")
    return torch.empty(shape, dtype=found)


def element_bytes(kind: str, dtype: Any) -> int:
    return int(empty(kind, dtype, ()).nbytes)


def _numpy_name(dtype: np.dtype[Any]) -> Any:
    if dtype.isnative and dtype.name in TYPES:
        return dtype.name
    return np.lib.format.dtype_to_descr(dtype)


def _numpy_dtype(description: Any) -> np.dtype[Any]:
    # Lists and strings only: numpy makes a dtype of those without running anything.
    def listed(value: Any) -> Any:
        if isinstance(value, list):
            return [tuple(listed(part) if i == 1 else _tuple(part) for i, part in enumerate(f)) for f in value]
        return value

    dtype = np.lib.format.descr_to_dtype(listed(description))
    if dtype.hasobject:
        raise ValueError(f"elements of type {description!r} are Python objects")
    return dtype


def _tuple(value: Any) -> Any:
    return tuple(_tuple(part) for part in value) if isinstance(value, list) else value


def _numpy_leaf(array: Any, dtype: Any) -> Leaf:
    number = TYPES.get(dtype) if isinstance(dtype, str) else None
    return Leaf("numpy", dtype, array.shape, array.ctypes.data, array.nbytes, number, array)


def _torch_leaf(tensor: Any, dtype: str) -> Leaf:
    return Leaf("torch", dtype, tuple(tensor.shape), tensor.data_ptr(), tensor.nbytes, TYPES.get(dtype), tensor)
