"""Nested containers as one JSON text and a list of arrays: the safe encoding of plain Python objects.

A tree is a dict, list or tuple of trees, arrays, tensors and plain objects. encode() gives its skeleton and its arrays.
The skeleton is the tree with each array replaced by the name of the region that holds its bytes. decode() builds the
tree again and runs nothing that the text brings: each kind of object has a line in the tables below, and other kinds
are refused. Pickle is written only if the caller asks for it, and read only if the caller says that the file is to be
trusted.

The skeleton is JSON. JSON's own types are written as they are; everything else is {"$": KIND, ...}. The root is
{"tailrace": 1, "tree": ...}. An array that occurs twice is saved once, and is one array after loading.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import datetime
import io
import json
import math
import pathlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tailrace import _leaves
from tailrace._errors import Code, Error
from tailrace._marks import List, Shard

SKELETON = "tailrace.tree"
_MOST_DEPTH = 200


@dataclasses.dataclass(frozen=True)
class ArrayRef:
    """An array's place in a skeleton: its region, element type and shape, and for a shard its global
    array. Of a list it is this rank's items."""

    region: str
    kind: str
    dtype: Any
    shape: tuple[int, ...]
    global_shape: tuple[int, ...] | None = None
    offset: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None  # of the tensor in memory; the region is row-major in any case
    is_list: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(self.element_type.itemsize)

    @property
    def element_type(self) -> Any:
        """A numpy.dtype or a torch.dtype. Raises Error: unsupported for elements of a library that is
        not loaded, corrupt for elements that no library has."""
        try:
            return _leaves.empty(self.kind, self.dtype, ()).dtype
        except Exception as error:  # numpy and torch raise many kinds for what a file says
            known = self.kind in ("numpy", "torch") and isinstance(self.dtype, (str, list))
            raise Error(
                Code.UNSUPPORTED if known else Code.CORRUPT,
                f"the array in region {self.region!r} is of {self.dtype!r} ({self.kind}), which is not known here: "
                f"{error}; nothing was read",
            ) from None

    def empty(self, shape: tuple[int, ...] | None = None, device: Any = "cpu") -> Any:
        """Memory for the array, or for a box of it; a tensor's is on `device`. Raises the Errors of
        element_type, and unsupported if there is no such device or no array of such a shape."""
        _ = self.element_type
        stride = self.stride if shape is None else None
        shape = self.shape if shape is None else shape
        try:
            return _leaves.empty(self.kind, self.dtype, shape, device, stride)
        except MemoryError:
            raise
        except Exception as error:  # numpy and torch raise many kinds, and CUDA adds advice in lines of its own
            first_line = str(error).partition("\n")[0]
            raise Error(
                Code.UNSUPPORTED,
                f"there is no memory for the array in region {self.region!r}, of shape {shape}, on {device}: "
                f"{first_line}; nothing was read",
            ) from error


# ---- writing ---------------------------------------------------------------------------------------------


class _Encoder:
    def __init__(self, allow_pickle: bool, shared: frozenset[Any]) -> None:
        self.allow_pickle = allow_pickle
        self.shared = shared  # storages with several different tensors as views
        self.arrays: dict[str, Any] = {}
        self.known: dict[Any, Any] = {}  # the nodes of arrays, by identity and place
        self.within: set[int] = set()  # the containers around the current node

    def node(self, value: Any, path: tuple[Any, ...]) -> Any:
        if value is None or isinstance(value, bool) or type(value) in (int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
        if isinstance(value, Shard):
            return self.array(value.own, path, value)
        if isinstance(value, List):
            return self.list(value, path)
        if _leaves.is_array(value):
            return self.array(value, path, None)
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            array = np.asarray(value)
            return {"$": "scalar", "dtype": _leaves.describe(array)[1], "v": array.tobytes().hex()}
        for plain, kind, to_json in _PLAIN:
            if type(value) is plain:
                return {"$": kind, "v": to_json(value)}
        if type(value) in _CONTAINERS:
            return self.container(value, path)
        other = _torch_plain(value) or _time_plain(value)
        if other is not None:
            return other
        if self.allow_pickle:
            return {"$": "pickle", "v": base64.b64encode(pickle.dumps(value)).decode()}
        if _leaves.is_jax_array(value):
            raise Error(
                Code.INVALID_ARGUMENT,
                f"{path_text(path)} is a jax.Array: tailrace.jax.save saves it, and a session saves what numpy.asarray "
                "makes of it; nothing was saved",
            )
        parts = "state_dict()" if hasattr(type(value), "state_dict") else "parts"
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{path_text(path)} is a {type(value).__module__}.{type(value).__qualname__}, which has no safe "
            f"encoding; save its {parts}, or allow pickle for it (pickle=True); nothing was saved",
        )

    def container(self, value: Any, path: tuple[Any, ...]) -> Any:
        if id(value) in self.within or len(path) > _MOST_DEPTH:
            raise Error(
                Code.INVALID_ARGUMENT,
                f"{path_text(path[:4])}... contains itself, or is nested more than {_MOST_DEPTH} deep; "
                "nothing was saved",
            )
        self.within.add(id(value))
        try:
            if type(value) is list:
                return [self.node(part, (*path, i)) for i, part in enumerate(value)]
            if type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value):
                return {key: self.node(part, (*path, key)) for key, part in value.items()}
            if type(value) in (dict, collections.OrderedDict, collections.Counter):
                pairs = [[self.node(key, path), self.node(part, (*path, key))] for key, part in value.items()]
                node: dict[str, Any] = {"$": _CONTAINERS[type(value)], "v": pairs}
                # The state dict of a torch module has the versions of the module's parts as an
                # attribute.
                if getattr(value, "_metadata", None) is not None:
                    node["metadata"] = self.node(value._metadata, (*path, "_metadata"))
                return node
            parts = sorted(value, key=repr) if type(value) in (set, frozenset) else value
            node = {"$": _CONTAINERS[type(value)], "v": [self.node(p, (*path, i)) for i, p in enumerate(parts)]}
            if type(value) is collections.deque:
                node["most"] = value.maxlen
            return node
        finally:
            self.within.discard(id(value))

    def array(self, value: Any, path: tuple[Any, ...], shard: Shard | None) -> Any:
        place = None if shard is None else (tuple(shard.global_shape), tuple(shard.offset))
        if not _leaves.is_array(value):
            raise Error(Code.INVALID_ARGUMENT, f"{path_text(path)} is a Shard without an array; nothing was saved")
        if place is not None:
            _check_place(place, _leaves.describe(value)[2], path)
        if getattr(value, "is_nested", False):
            raise Error(
                Code.INVALID_ARGUMENT, f"{path_text(path)} is a nested tensor: save its parts; nothing was saved"
            )
        identity = (_leaves.identity(value), place)
        notes = _leaves.notes(value)
        known = self.known.get(identity)
        if known is not None:
            return {**known, **notes}
        if self.shared and place is None:
            storage = _leaves.storage(value)
            if storage is not None and storage[0] in self.shared:
                return self.view(value, storage, path)
        kind, dtype, shape = _leaves.describe(value)
        name = self.free_name(path)
        node = {"$": "array", "region": name, "kind": kind, "dtype": dtype, "shape": list(shape)}
        if place is not None:
            node["global_shape"], node["offset"] = list(place[0]), list(place[1])
        stride = _leaves.stride_of(value) if place is None else None
        if stride is not None:
            node["stride"] = stride
        self.arrays[name] = shard if shard is not None else value
        self.known[identity] = node
        return {**node, **notes}

    def list(self, value: List, path: tuple[Any, ...]) -> Any:
        items = value.items
        if not _leaves.is_array(items) or not tuple(items.shape):
            raise Error(
                Code.INVALID_ARGUMENT,
                f"{path_text(path)} is a List without an array of items, one in each row; nothing was saved",
            )
        kind, dtype, shape = _leaves.describe(items)
        name = self.free_name(path)
        self.arrays[name] = value
        return {"$": "array", "region": name, "kind": kind, "dtype": dtype, "shape": list(shape), "list": True}

    def free_name(self, path: tuple[Any, ...]) -> str:
        """A region name that no array has yet. Keys that differ may read the same, as 1 and '1' do."""
        name = region_name(path)
        while name in self.arrays:
            name += "~"
        return name

    def view(self, value: Any, storage: Any, path: tuple[Any, ...]) -> Any:
        key, base = storage
        node = self.known.get(key)
        if node is None:
            node = self.array(base, (*path, "storage"), Shard(base, base.shape, [0]))
            node = {k: v for k, v in node.items() if k not in ("global_shape", "offset")}
            self.arrays[node["region"]] = base
            self.known[key] = node
        where = {"offset": value.storage_offset(), "shape": list(value.shape), "stride": list(value.stride())}
        return {"$": "view", "v": node, "dtype": _leaves.describe(value)[1], **where, **_leaves.notes(value)}


def _check_place(place: tuple[tuple[int, ...], ...], shape: Sequence[int], path: tuple[Any, ...]) -> None:
    """Checks a Shard's numbers. The core, which takes no others, says whether the piece lies in the
    array."""
    numbers = [*place[0], *place[1]]
    if {len(place[0]), len(place[1])} == {len(shape)} and all(0 <= number < 1 << 63 for number in numbers):
        return
    raise Error(
        Code.INVALID_ARGUMENT,
        f"{path_text(path)} is a Shard of shape {tuple(shape)} at {place[1]} of an array of shape {place[0]}: they "
        "need the same number of dimensions, and no negative number; nothing was saved",
    )


_PLAIN: list[tuple[type, str, Callable[[Any], Any]]] = [
    (complex, "complex", lambda v: [repr(v.real), repr(v.imag)]),
    (bytes, "bytes", lambda v: base64.b64encode(v).decode()),
    (bytearray, "bytearray", lambda v: base64.b64encode(v).decode()),
    (io.BytesIO, "BytesIO", lambda v: [base64.b64encode(v.getbuffer()).decode(), v.tell()]),
    (range, "range", lambda v: [v.start, v.stop, v.step]),
    (slice, "slice", lambda v: [v.start, v.stop, v.step]),
    (datetime.date, "date", lambda v: v.isoformat()),
    (datetime.timedelta, "timedelta", lambda v: [v.days, v.seconds, v.microseconds]),
    (pathlib.PosixPath, "Path", str),
    (pathlib.WindowsPath, "Path", str),
    (pathlib.PurePosixPath, "PurePosixPath", str),
    (pathlib.PureWindowsPath, "PureWindowsPath", str),
]
_CONTAINERS: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    dict: "dict",
    collections.OrderedDict: "ordered",
    set: "set",
    frozenset: "frozenset",
    collections.Counter: "counter",
    collections.deque: "deque",
}


def _torch_plain(value: Any) -> Any:
    torch = _leaves.torch_module()
    if torch is None:
        return None
    if type(value) is torch.Size:
        return {"$": "torch.Size", "v": list(value)}
    if type(value) is torch.dtype or type(value) is torch.device:
        return {"$": f"torch.{type(value).__name__}", "v": str(value).removeprefix("torch.")}
    return None


def _time_plain(value: Any) -> Any:
    """A time with a time zone is plain only if the zone is an offset, because we cannot keep the rules
    of other zones."""
    if type(value) is datetime.timezone:
        arguments = value.__getinitargs__()  # type: ignore[attr-defined]
        return (
            {"$": "timezone", "v": [arguments[0].days, arguments[0].seconds, arguments[0].microseconds]}
            if len(arguments) == 1
            else None
        )  # otherwise it has a name of its own
    if type(value) not in (datetime.datetime, datetime.time):
        return None
    if value.tzinfo is not None and _time_plain(value.tzinfo) is None:
        return None
    return {"$": type(value).__name__, "v": value.isoformat(), "fold": value.fold}


def encode(tree: Any, allow_pickle: bool = False, with_views: bool = False) -> tuple[bytes, dict[str, Any]]:
    """The skeleton's text, and the arrays, tensors, Shards and Lists by the names of their regions.

    with_views: a storage with several different tensors as views is saved whole, once. After
        loading they are views of one storage again. Otherwise each tensor is saved by itself.
    """
    node, arrays = node_of(tree, allow_pickle, with_views)
    return text_of(node), arrays


def node_of(tree: Any, allow_pickle: bool = False, with_views: bool = False) -> tuple[Any, dict[str, Any]]:
    """As encode(), before it is text."""
    encoder = _Encoder(allow_pickle, _shared_storages(tree) if with_views else frozenset())
    with _refusing():
        return encoder.node(tree, ()), encoder.arrays


def text_of(node: Any) -> bytes:
    """The skeleton of a node. Lists and dicts (without keys that begin with $) of None, bool, int, str and
    finite floats are nodes, too."""
    with _refusing():
        return json.dumps({"tailrace": 1, "tree": node}, separators=(",", ":"), allow_nan=False).encode("ascii")


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except Error:
        raise
    except (TypeError, ValueError, RecursionError) as error:  # a slice of objects; 5000 digits
        raise Error(
            Code.INVALID_ARGUMENT, f"the tree holds what has no safe encoding: {error}; nothing was saved"
        ) from error


def merge(skeletons: Sequence[bytes]) -> bytes:
    """One skeleton made of several. Each is that of a dict, and no key occurs twice."""
    tree: dict[str, Any] = {}
    for skeleton in skeletons:
        tree.update(parse(skeleton))
    return text_of(tree)


def _shared_storages(tree: Any) -> frozenset[Any]:
    views: dict[Any, Any] = {}  # by storage: the first tensor that is a view of it
    shared = set()

    def look(value: Any, depth: int) -> None:
        if isinstance(value, (dict, list, tuple, collections.deque)) and depth < _MOST_DEPTH:
            for part in value.values() if isinstance(value, dict) else value:
                look(part, depth + 1)
        elif (storage := _leaves.storage(value)) is not None:
            identity = _leaves.identity(value)
            if views.setdefault(storage[0], identity) != identity:
                shared.add(storage[0])

    look(tree, 0)
    return frozenset(shared)


def region_name(path: tuple[Any, ...]) -> str:
    """'model/layers.0.weight': the keys joined by '/', with '~' and '/' in a key written as JSON
    Pointer does.

    The name is always UTF-8, even if a key is not, as some of os.listdir() are.
    """
    keys = [str(key).replace("~", "~0").replace("/", "~1") for key in path]
    name = ("/".join(keys) or "value").encode("utf-8", "backslashreplace").decode()
    return name + "~" if name == SKELETON else name


def path_text(path: tuple[Any, ...]) -> str:
    return "the tree" + "".join(f"[{key!r}]" for key in path)


# ---- reading ---------------------------------------------------------------------------------------------


def parse(text: bytes) -> Any:
    """The skeleton of a text, unchecked below its root. Raises Error (corrupt) if it is not a
    skeleton."""
    try:
        root = json.loads(text)
        if not isinstance(root, dict) or root.get("tailrace") != 1:
            raise ValueError("it is not a tree of version 1")
        return root["tree"]
    except (ValueError, KeyError, RecursionError) as error:
        raise Error(Code.CORRUPT, f"the region {SKELETON!r} cannot be understood: {error}") from None


def holds_pickle(node: Any) -> bool:
    """Whether a skeleton has a pickled object, which decode() loads only if it is trusted."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and part.get("$") == "pickle":
            return True
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return False


def array_of(node: Any) -> ArrayRef | None:
    """The array that a node stands for. None for any other node."""
    if not isinstance(node, dict) or node.get("$") != "array":
        return None

    def sizes(key: str) -> tuple[int, ...] | None:
        values = node.get(key)
        if values is None:
            return None
        if not all(type(v) is int and v >= 0 for v in values):
            raise ValueError(f"{key} is {values!r}")
        return tuple(values)

    shape = sizes("shape")
    if not isinstance(node["region"], str) or shape is None:
        raise ValueError(f"an array without a region or shape: {node!r}")
    place = (sizes("global_shape"), sizes("offset"), sizes("stride"))
    return ArrayRef(node["region"], node["kind"], node["dtype"], shape, *place, node.get("list") is True)


def view_of(node: Any) -> ArrayRef | None:
    """The storage that a node's tensor is a view of. None for any other node."""
    return array_of(node["v"]) if isinstance(node, dict) and node.get("$") == "view" else None


def decode(node: Any, array: Callable[[ArrayRef], Any] | None, trust_pickle: bool = False) -> Any:
    """The tree of a skeleton. `array` gives what takes each array's place, and is called once per
    region; None if there may be no arrays. Raises Error: corrupt for what cannot be understood,
    unsupported for what needs trust or a missing library. It also raises what `array` raises."""
    made: dict[str, Any] = {}
    noted: dict[tuple[str, Any, Any], Any] = {}  # tensors that are parameters, or require a gradient
    raised: list[Exception] = []  # by `array`

    def one_array(ref: ArrayRef) -> Any:
        if array is None:
            raise ValueError("an array in the place of a plain object")
        if ref.region not in made:
            try:
                made[ref.region] = array(ref)
            except Exception as error:
                raised.append(error)
                raise
        return made[ref.region]

    def build(node: Any) -> Any:
        if isinstance(node, list):
            return [build(part) for part in node]
        if not isinstance(node, dict):
            return node
        kind = node.get("$")
        if kind is None:
            return {key: build(part) for key, part in node.items()}
        if kind == "array":
            ref = array_of(node)
            assert ref is not None
            how = (ref.region, node.get("parameter"), node.get("requires_grad"))
            return noted.setdefault(how, _leaves.noted(one_array(ref), node))
        value: Any = node.get("v")
        if kind == "view":
            return _leaves.noted(_leaves.view_of(build(value), node), node)
        if kind == "pickle":
            if trust_pickle:
                return pickle.loads(base64.b64decode(value))
            raise Error(
                Code.UNSUPPORTED,
                "the checkpoint holds a pickled object, which could run any code when it is loaded; "
                "pass trust_pickle=True if you know who wrote it; nothing was loaded",
            )
        maker = _MAKERS.get(kind)
        if maker is None:
            raise ValueError(f"objects of kind {kind!r} are not known")
        return maker(build, node, value)

    try:
        return build(node)
    except Exception as error:  # numpy and torch raise many kinds for what a file says
        if isinstance(error, (Error, MemoryError)) or any(error is one for one in raised):
            raise
        if isinstance(error, ImportError):
            raise Error(Code.UNSUPPORTED, f"the tree holds objects of a library that is missing: {error}") from None
        raise Error(Code.CORRUPT, f"the region {SKELETON!r} cannot be understood: {error!r}") from None
    finally:
        made, noted, array = {}, {}, None  # `build` refers to itself, and lives until the next garbage collection


def _torch_named(kind: str) -> Callable[[Any, Any, Any], Any]:
    def make(build: Any, node: Any, value: Any) -> Any:
        import torch

        if kind == "Size":
            return torch.Size(value)
        if kind == "device":
            return torch.device(str(value))
        found = getattr(torch, str(value))
        if not isinstance(found, torch.dtype):
            raise ValueError(f"torch has no element type {value!r}")
        return found

    return make


def _scalar(build: Any, node: Any, value: Any) -> Any:
    array = _leaves.empty("numpy", node["dtype"], ())
    return np.frombuffer(bytes.fromhex(value), array.dtype, count=1)[0]


def _bytes_io(content: str, position: int) -> io.BytesIO:
    made = io.BytesIO(base64.b64decode(content, validate=True))
    made.seek(position)
    return made


def _float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError(f"{text!r} is no float")
    return float(text)


def _make_ordered(build: Any, node: Any, value: Any) -> Any:
    made = collections.OrderedDict((build(key), build(part)) for key, part in value)
    if "metadata" in node:
        made._metadata = build(node["metadata"])  # type: ignore[attr-defined]
    return made


# Each function makes an object from its node. `build` makes the parts.
_MAKERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "float": lambda build, node, v: _float(v),
    "complex": lambda build, node, v: complex(float(v[0]), float(v[1])),
    "bytes": lambda build, node, v: base64.b64decode(v, validate=True),
    "bytearray": lambda build, node, v: bytearray(base64.b64decode(v, validate=True)),
    "BytesIO": lambda build, node, v: _bytes_io(*v),
    "range": lambda build, node, v: range(*v),
    "date": lambda build, node, v: datetime.date.fromisoformat(v),
    "time": lambda build, node, v: datetime.time.fromisoformat(v).replace(fold=node["fold"]),
    "datetime": lambda build, node, v: datetime.datetime.fromisoformat(v).replace(fold=node["fold"]),
    "timedelta": lambda build, node, v: datetime.timedelta(*v),
    "timezone": lambda build, node, v: datetime.timezone(datetime.timedelta(*v)),
    "Path": lambda build, node, v: pathlib.Path(v),
    "PurePosixPath": lambda build, node, v: pathlib.PurePosixPath(v),
    "PureWindowsPath": lambda build, node, v: pathlib.PureWindowsPath(v),
    "counter": lambda build, node, v: collections.Counter({build(key): build(part) for key, part in v}),
    "deque": lambda build, node, v: collections.deque([build(part) for part in v], node["most"]),
    "slice": lambda build, node, v: slice(*v),
    "scalar": _scalar,
    "tuple": lambda build, node, v: tuple(build(part) for part in v),
    "set": lambda build, node, v: {build(part) for part in v},
    "frozenset": lambda build, node, v: frozenset(build(part) for part in v),
    "dict": lambda build, node, v: {build(key): build(part) for key, part in v},
    "ordered": _make_ordered,
    "torch.Size": _torch_named("Size"),
    "torch.dtype": _torch_named("dtype"),
    "torch.device": _torch_named("device"),
}
