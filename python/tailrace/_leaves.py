"""Arrays and tensors as the core sees them: an address, a number of bytes, and what the bytes mean.

A Leaf keeps a reference to the owner of its memory, so its address is valid as long as the Leaf lives. Tensors are
recognised without importing torch: an object can only be a tensor if torch is loaded already.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tailrace._errors import Code, Error

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

# An array's piece as the extension takes it: type, global shape, offset, local shape, declarations
# about the whole.
Piece = tuple[int, Sequence[int], Sequence[int], Sequence[int], int]
GAPS, OVERLAP, LIST = 1, 2, 4  # as in tailrace.h


@dataclasses.dataclass(frozen=True)
class Leaf:
    """Memory of an array or a tensor, row-major. It is contiguous unless there are strides."""

    kind: str  # "numpy" or "torch"
    dtype: Any  # as it is written into the tree: a string, or a numpy record's description
    shape: tuple[int, ...]
    address: int
    nbytes: int
    type: int | None  # of the file format; None if the format lacks the element type
    owner: object
    strides: tuple[int, ...] = ()  # in bytes

    def piece(
        self, global_shape: Sequence[int] | None = None, offset: Sequence[int] | None = None, declared: int = 0
    ) -> Piece | None:
        """This memory as a piece of a global array. None if the format cannot express it."""
        if self.type is None or not 1 <= len(self.shape) <= MOST_DIMENSIONS:
            return None
        return (self.type, global_shape or self.shape, offset or [0] * len(self.shape), self.shape, declared)


def _type_of(dtype: Any) -> int | None:
    """The number of the file format's element type. None if it lacks this one."""
    return TYPES.get(dtype) if isinstance(dtype, str) else None


def list_shape(dtype: Any, itemsize: int, shape: Sequence[int]) -> tuple[int, ...]:
    """How the core sees rows as items of a list: their number, and the elements of an item if these
    are not one. Elements that the format lacks count as bytes."""
    width = math.prod(shape[1:]) * (1 if _type_of(dtype) is not None else itemsize)
    return (shape[0],) if width == 1 else (shape[0], width)


def list_piece(leaf: Leaf, itemsize: int) -> Piece:
    """The rows of this memory as items of a list."""
    shape = list_shape(leaf.dtype, itemsize, leaf.shape)
    return (leaf.type if leaf.type is not None else TYPES["uint8"], shape, [0] * len(shape), shape, LIST)


def torch_module() -> Any:
    """torch if the program has imported it, else None."""
    return sys.modules.get("torch")


def is_tensor(value: object) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


def is_jax_array(value: object) -> bool:
    """Whether it is an array of JAX, which a Session neither saves nor fills."""
    array = getattr(sys.modules.get("jax"), "Array", None)
    return isinstance(array, type) and isinstance(value, array)


def is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) or is_tensor(value)


def identity(value: Any) -> Any:
    """A key that is equal for arrays with the same memory and shape, which are saved only once."""
    if isinstance(value, np.ndarray) or _is_wrapper(value):
        return id(value)
    if value.layout != torch_module().strided or value.numel() == 0:
        return id(value)
    return (*_storage_key(value), value.dtype, value.storage_offset(), value.shape, value.stride(), _conjugate(value))


def storage(value: Any) -> Any:
    """The storage of a tensor as a tensor of bytes, and a key that is equal for views of the same
    storage. None if the tensor has no storage of its own."""
    if not is_tensor(value) or value.layout != torch_module().strided or value.numel() == 0 or any(_conjugate(value)):
        return None
    torch = torch_module()
    if not _has_plain_elements(value.dtype) or value.is_nested or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    return _storage_key(value), torch.empty(0, dtype=torch.uint8, device=value.device).set_(value.untyped_storage())


def view_of(base: Any, node: Any) -> Any:
    """The tensor that lies in `base` (bytes) where a view's node says. Raises ValueError if it would
    lie outside."""
    element = check_view(node, base.untyped_storage().nbytes())
    empty = torch_module().empty(0, dtype=element, device=base.device)
    return empty.set_(base.untyped_storage(), node["offset"], node["shape"], node["stride"])


def check_view(node: Any, nbytes: int) -> Any:
    """The element type of a view's node. Raises ValueError if the view does not lie in a storage of
    that many bytes."""
    import torch

    element, shape, stride = getattr(torch, node["dtype"]), node["shape"], node["stride"]
    numbers = [node["offset"], *shape, *stride]
    if not _has_plain_elements(element) or len(shape) != len(stride) or not all(type(n) is int for n in numbers):
        raise ValueError("a view without a tensor")
    last = node["offset"] + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if min(numbers) < 0 or 0 in shape or (last + 1) * element.itemsize > nbytes:
        raise ValueError("a view that is larger than its storage")
    return element


def _storage_key(value: Any) -> tuple[Any, int, int]:
    # torch may see memory that it did not allocate as several storages of different lengths.
    storage = value.untyped_storage()
    return value.device, storage.data_ptr(), storage.nbytes()


def _conjugate(value: Any) -> tuple[bool, bool]:
    return value.is_conj(), value.is_neg()


def notes(value: Any) -> dict[str, Any]:
    """What a tensor's node must hold besides its elements, so that noted() can restore it. Empty for
    most tensors."""
    if not is_tensor(value) or not (value.requires_grad or type(value) is torch_module().nn.Parameter):
        return {}
    return {"parameter": type(value) is torch_module().nn.Parameter, "requires_grad": value.requires_grad}


def noted(value: Any, node: Any) -> Any:
    """The tensor with the properties that its node names, over the same memory."""
    if not is_tensor(value) or "requires_grad" not in node:
        return value
    if node.get("parameter"):
        return torch_module().nn.Parameter(value, requires_grad=bool(node["requires_grad"]))
    return value.detach().requires_grad_(bool(node["requires_grad"]))


def stride_of(value: Any) -> list[int] | None:
    """The stride of a tensor whose elements fill its memory in another order than row-major; else
    None."""
    if not is_tensor(value) or value.layout != torch_module().strided or value.is_contiguous():
        return None
    stride = list(value.stride())
    return stride if _is_dense(value.shape, stride) else None


def _is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    next_stride = 1
    for step, length in sorted(zip(stride, shape, strict=True)):
        if length > 1:
            if step != next_stride:
                return False
            next_stride *= length
    return True


def describe(value: Any) -> tuple[str, Any, tuple[int, ...]]:
    """Kind, element type and shape, found without touching the memory."""
    if isinstance(value, np.ndarray):
        return "numpy", _numpy_name(value.dtype), value.shape
    return "torch", str(value.dtype).removeprefix("torch."), tuple(value.shape)


def to_save(value: Any, name: str = "", apart: bool = False) -> Leaf:
    """The memory to copy from. It is the array's own if that is contiguous and the host can read it,
    else a copy. Raises Error (invalid argument), with the name, if the array has no memory.

    apart: also use the array's own memory if its elements are not contiguous (as in an array
        without its ghost cells) and the core can take the strides.
    """
    if not is_array(value):  # a tailrace.Shard, which belongs to several ranks
        raise Error(
            Code.INVALID_ARGUMENT, f"{name!r} is a {type(value).__name__}: a Session saves it; nothing was saved"
        )
    kind, dtype, shape = describe(value)
    why = why_not(value)
    if why is not None:
        what = f"the {'array' if kind == 'numpy' else 'tensor'} {name!r}" if name else "an array"
        instead = ": save it with tailrace.torch.StorageWriter" if _is_wrapper(value) else ""
        raise Error(Code.INVALID_ARGUMENT, f"{what}: {why}{instead}; nothing was saved")
    if kind == "numpy":
        strides = _strides(dtype, shape, value.strides) if apart and not value.flags.c_contiguous else ()
        if strides:
            return dataclasses.replace(_numpy_leaf(value, dtype), strides=strides)
        return _numpy_leaf(np.ascontiguousarray(value).reshape(shape), dtype)
    value = _on_the_host(value.detach().resolve_conj().resolve_neg())
    if apart and not value.is_contiguous():
        strides = _strides(dtype, shape, [stride * value.itemsize for stride in value.stride()])
        if strides:
            return dataclasses.replace(_torch_leaf(value, dtype), strides=strides)
    return _torch_leaf(value.contiguous(), dtype)


def _on_the_host(tensor: Any) -> Any:
    """The tensor itself if the host can read it, else a copy with the same strides. A GPU copies into
    pinned memory at the speed of its link, and into other memory many times slower. PyTorch keeps
    pinned memory, so the next save gets the same pages."""
    if not tensor.is_cuda:
        return tensor.to("cpu")
    return torch_module().empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor)


def _strides(dtype: Any, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The strides (in bytes), if the core can take them: they must be positive, and no two elements
    may share memory. Otherwise nothing."""
    if _type_of(dtype) is None or len(shape) > MOST_DIMENSIONS or 0 in shape:
        return ()
    itemsize = np.dtype(np.uint16 if dtype == "bfloat16" else dtype).itemsize
    within = itemsize
    for stride, count in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < within:
            return ()
        within += (count - 1) * stride
    return tuple(s if n > 1 else itemsize for s, n in zip(strides, shape, strict=True))


def why_not(value: Any) -> str | None:
    """The reason why an array has no memory that holds all of its bytes. None if it has."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return "an array of Python objects has no bytes of its own"
        if isinstance(value, np.ma.MaskedArray):
            return "a masked array is two, its data and its mask"
        return None
    if _is_wrapper(value):
        return f"a {type(value).__name__} is made of other tensors"
    return lacking_memory(value)


def lacking_memory(tensor: Any) -> str | None:
    """What a tensor is that has no memory, or more than one. None for other tensors."""
    if tensor.layout != torch_module().strided or not _has_plain_elements(tensor.dtype):
        strided = tensor.layout == torch_module().strided
        # Bytes that are viewed as quantized elements are not a quantized tensor, and no new tensor
        # of their kind can be made.
        what = "quantized tensor" if strided else f"tensor of layout {tensor.layout}"
        return f"a {what} has no plain memory"
    if tensor.is_meta or (tensor.numel() and _is_without_memory(tensor)):
        return f"a {type(tensor).__name__} on device {tensor.device} has no memory"
    return None


def _is_without_memory(tensor: Any) -> bool:
    """Whether a strided tensor has no memory, or less than its shape needs. (FSDP takes the memory of
    parameters away.)"""
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return not tensor.data_ptr() or (last + 1) * tensor.itemsize > tensor.untyped_storage().nbytes()


def _is_wrapper(value: Any) -> bool:
    """Whether other tensors hold the data of a tensor, as with DTensor."""
    return hasattr(type(value), "__tensor_flatten__")


class _Buffered(abc.ABC):
    """Something that is filled in place. `leaf` is its own memory if possible, else a buffer that
    finish() copies from."""

    leaf: Leaf
    _buffer: Any = None

    @property
    def buffer_bytes(self) -> int:
        return 0 if self._buffer is None else self.leaf.nbytes

    def finish(self) -> None:
        if self._buffer is not None:
            self.copy_from(self._buffer)

    @abc.abstractmethod
    def copy_from(self, source: Any) -> None: ...


class Target(_Buffered):
    """An array or a tensor of the program that is filled in place.

    `leaf` is the array's own memory if that is contiguous and on the host. Otherwise it is a
    buffer, which finish() copies into the array.

    saved: kind and element type of what was saved, if finish() shall convert it.
    """

    def __init__(self, value: Any, saved: tuple[str, Any] | None = None) -> None:
        kind, dtype, shape = describe(value)
        self._value = value
        converts = saved is not None and saved[1] != dtype
        if kind == "numpy":
            if not value.flags.writeable:
                raise TypeError("a read-only array cannot be restored into")
            if converts:
                pass
            elif value.flags.c_contiguous:
                self.leaf = _numpy_leaf(value, dtype)
            else:
                self._buffer = np.empty(shape, value.dtype)
                self.leaf = _numpy_leaf(self._buffer, dtype)
        else:
            if _is_wrapper(value):
                raise TypeError(f"a {type(value).__name__} cannot be filled: load it with tailrace.torch.StorageReader")
            lacking = lacking_memory(value)
            if lacking is not None:
                raise TypeError(f"{lacking} to fill")
            if any(s == 0 and n > 1 for n, s in zip(shape, value.stride(), strict=True)):
                raise TypeError("a tensor whose elements are the same memory cannot be filled")
            value = value.detach()
            if converts:
                pass
            elif value.device.type == "cpu" and value.is_contiguous() and not value.is_conj() and not value.is_neg():
                self.leaf = _torch_leaf(value, dtype)
            else:
                self._buffer = torch_module().empty(shape, dtype=value.dtype, device="cpu")
                self.leaf = _torch_leaf(self._buffer, dtype)
        if saved is not None and converts:
            self._buffer = empty(saved[0], saved[1], shape)
            self.leaf = (_numpy_leaf if saved[0] == "numpy" else _torch_leaf)(self._buffer, saved[1])

    def copy_from(self, array: Any) -> None:
        _copy(array, self._value)


class StorageTarget(_Buffered):
    """Like Target, for tensors that were saved as views of one storage. `leaf` is their own storage if
    they are still such views and cover all of it; else a buffer.

    members: for each tensor, the node in the tree that says which part of the storage it was, and
        the tensor.
    """

    def __init__(self, nbytes: int, members: list[tuple[Any, Any]]) -> None:
        self._members = members
        bases = [storage(tensor) for _, tensor in members]
        own = bases[0]
        if (
            own is not None
            and own[1].device.type == "cpu"
            and own[1].nbytes == nbytes
            and _are_all_of(nbytes, [tensor for _, tensor in members])
            and all(base is not None and base[0] == own[0] for base in bases)
            and all(
                (describe(tensor)[1], tensor.storage_offset(), list(tensor.stride()))
                == (node["dtype"], node["offset"], node["stride"])
                for node, tensor in members
            )
        ):
            self._buffer, base = None, own[1]
        else:
            self._buffer = base = torch_module().empty(nbytes, dtype=torch_module().uint8, device="cpu")
        self.leaf = _torch_leaf(base, "uint8")

    def copy_from(self, base: Any) -> None:
        for node, tensor in self._members:
            _copy(view_of(base, node), tensor)


def may_convert(saved: Any, live: Any) -> bool:
    """Whether elements of one type may become elements of the other: floating-point numbers become
    any others, complex ones too, and anything else only what holds all of its values."""
    if not (isinstance(saved, str) and isinstance(live, str)):
        return False
    for kind in (("float", "bfloat"), ("complex",)):
        if saved.startswith(kind) and live.startswith(kind):
            return True
    return saved in TYPES and live in TYPES and "bfloat16" not in (saved, live) and np.can_cast(saved, live, "safe")


def _copy(source: Any, target: Any) -> None:
    saved, live = describe(source)[1], describe(target)[1]
    if isinstance(source, np.ndarray) != isinstance(target, np.ndarray) and saved != live:
        source = _converted(source, live)
    if isinstance(source, np.ndarray) != isinstance(target, np.ndarray):  # the other library has the same elements
        plain: Any = to_save(source).owner
        if isinstance(target, np.ndarray):
            plain = plain.reshape(-1).view(torch_module().uint8).numpy().view(target.dtype)
        else:
            plain = torch_module().from_numpy(plain.reshape(-1).view(np.uint8)).view(target.dtype)
        source = plain.reshape(target.shape)
    if isinstance(target, np.ndarray):
        target[...] = source
    else:
        target.detach().copy_(source)


def _converted(source: Any, live: str) -> Any:
    """Elements of another type, in the library that `source` is of, or else in torch."""
    if isinstance(source, np.ndarray) and live in TYPES and live != "bfloat16":
        return source.astype(live)
    torch = torch_module()
    if isinstance(source, np.ndarray):
        source = torch.from_numpy(np.ascontiguousarray(source).reshape(source.shape))
    return source.to(getattr(torch, live))


def _are_all_of(nbytes: int, views: list[Any]) -> bool:
    """Whether the tensors cover every byte of their storage. Other bytes in it do not belong to us."""
    end = 0
    for view in sorted(views, key=lambda view: int(view.storage_offset()) * view.itemsize):
        last = sum((n - 1) * s for n, s in zip(view.shape, view.stride(), strict=True))
        begin = view.storage_offset() * view.itemsize
        if begin > end or last + 1 != view.numel():
            return False
        end = max(end, begin + (last + 1) * view.itemsize)
    return end == nbytes


def empty(
    kind: str, dtype: Any, shape: tuple[int, ...], device: Any = "cpu", stride: tuple[int, ...] | None = None
) -> Any:
    """A new array, or a tensor on `device`, not initialised. `stride` is as stride_of returns it, for
    tensors."""
    if kind == "numpy":
        return np.empty(shape, _numpy_dtype(dtype))
    if kind != "torch":
        raise ValueError(f"arrays of kind {kind!r} belong to no known library")
    import torch

    found = getattr(torch, str(dtype), None)
    if not _has_plain_elements(found):
        raise ValueError(f"torch has no element type {dtype!r} whose bytes are all of it")
    if stride is not None:
        if not _is_dense(shape, stride):
            raise ValueError(f"{stride} is no stride of a dense tensor of shape {shape}")
        return torch.empty_strided(shape, stride, dtype=found, device=device)
    return torch.empty(shape, dtype=found, device=device)


def over(kind: str, dtype: Any, shape: tuple[int, ...], memory: Any) -> Any:
    """An array or a tensor over `memory`, an array of bytes, which it keeps."""
    if kind == "numpy":
        return memory.view(dtype).reshape(shape)
    import torch

    return torch.from_numpy(memory).view(dtype).view(shape)


def _has_plain_elements(dtype: Any) -> bool:
    """False if it is not a dtype, or a quantized one."""
    torch = torch_module()
    return isinstance(dtype, torch.dtype) and not torch.empty(0, dtype=dtype).is_quantized


def _numpy_name(dtype: np.dtype[Any]) -> Any:
    if dtype.isnative and dtype.name in TYPES:
        return dtype.name
    return _as_in_json(np.lib.format.dtype_to_descr(dtype))


def _as_in_json(description: Any) -> Any:
    """Equal to what comes back from a file."""
    return [_as_in_json(part) for part in description] if isinstance(description, (list, tuple)) else description


def _numpy_dtype(description: Any) -> np.dtype[Any]:
    # Only lists and strings: numpy makes a dtype of those without running anything.
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
    return Leaf("numpy", dtype, array.shape, array.ctypes.data, array.nbytes, _type_of(dtype), array)


def _torch_leaf(tensor: Any, dtype: str) -> Leaf:
    return Leaf("torch", dtype, tuple(tensor.shape), tensor.data_ptr(), tensor.nbytes, _type_of(dtype), tensor)
