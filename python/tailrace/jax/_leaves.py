"""The leaves of a pytree: what each of them is, and the index of a checkpoint, which is a list of them.

The index is a JSON text among the regions of rank 0. Its "custom" is what the user gave beside the tree (Orbax's
custom_metadata). It has one entry per leaf:

  path    the keys from the root, each with its kind: "d" a dict's key, "s" a sequence's number, "a" an attribute
  kind    "array" (jax.Array), "numpy", "prng" (random keys), "plain", or "empty" (a container without leaves)
  ...     what the kind needs: region, type and shape of an array, the value of a plain object

Nothing in it runs code. A class is never named: a restore takes the containers from the target, or makes dicts and
lists.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tailrace import _leaves as _memory
from tailrace import _own_regions, _tree
from tailrace._errors import Code, Error

REGION = _own_regions.JAX
_VERSION = 1

Key = tuple[str, str | int]
_KEYS = {"d": (str, int), "s": (int,), "a": (str,)}  # by the kind


@dataclasses.dataclass(frozen=True)
class Entry:
    """A leaf in the index."""

    path: tuple[Key, ...]
    kind: str
    region: str = ""
    dtype: Any = None  # a JAX type's name, or as numpy describes a type that JAX lacks
    shape: tuple[int, ...] = ()  # of a random key's data, too
    value: Any = None  # a plain object's node, the kind of random numbers, or the kind of an empty container

    @property
    def names(self) -> tuple[str, ...]:
        """The path as it is compared with a target's: an attribute may have become a dict's key."""
        return tuple(str(key) for _, key in self.path)

    @property
    def text(self) -> str:
        return text_of(self.names)


def text_of(names: tuple[str, ...]) -> str:
    return "the tree" + "".join(f"[{name!r}]" for name in names)


def keys_of(path: tuple[Any, ...], intact: str = "nothing was saved") -> tuple[Key, ...]:
    """JAX's key path as the index has it. Raises Error (invalid argument) for keys that are neither str nor int.
    `intact` ends the sentence."""
    keys: list[Key] = []
    for key in path:
        if isinstance(key, jax.tree_util.SequenceKey):
            keys.append(("s", key.idx))
        elif isinstance(key, jax.tree_util.GetAttrKey):
            keys.append(("a", key.name))
        else:
            found: Any = getattr(key, "key", None)
            if type(found) not in (str, int):
                raise Error(
                    Code.INVALID_ARGUMENT,
                    f"{text_of(tuple(str(k) for _, k in keys))} has the key {found!r}, which is neither a string nor "
                    f"an int; {intact}",
                )
            keys.append(("d", found))
    return tuple(keys)


def names_of(path: tuple[Any, ...]) -> tuple[str, ...]:
    """JAX's key path as Entry.names has it, for a restore."""
    return tuple(str(key) for _, key in keys_of(path, "nothing was restored"))


def is_empty(value: Any) -> bool:
    """Whether JAX sees a container without leaves: None, or a dict, list or tuple of no parts."""
    return value is None or (isinstance(value, (dict, list, tuple)) and not value)


def is_random_key(value: Any) -> bool:
    described = isinstance(value, (jax.Array, jax.ShapeDtypeStruct))
    return described and bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))


def is_memory(value: Any) -> bool:
    """Whether it is a jax.Array with elements that can be copied."""
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return False
    return not value.is_deleted() and not is_random_key(value)


def taken_apart(tree: Any, intact: str, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """As JAX's tree_flatten_with_path. Raises Error (invalid argument) if JAX cannot sort the keys of a dict, or the
    tree is nested too deep. `intact` ends the sentence."""
    if _is_deep(tree):
        raise Error(
            Code.INVALID_ARGUMENT,
            f"the tree contains itself, or is nested more than {_tree._MOST_DEPTH} deep; {intact}",
        )
    try:
        found: tuple[list[Any], Any] = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)
        return found
    except (ValueError, TypeError) as error:  # JAX sorts the keys of a dict
        names = _unsorted(tree, ())
        if names is None:
            raise
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{text_of(names)} has keys of several kinds, which JAX cannot sort: make them all strings or all "
            f"ints; {intact}",
        ) from error


def _is_deep(tree: Any) -> bool:
    """JAX follows a tree by recursion. Where that ends in its calls of `is_leaf`, Python can hardly call anything any
    more, so it must not come to that."""
    within = [iter((tree,))]
    while within:
        for part in within[-1]:
            if isinstance(part, (dict, list, tuple)):
                if len(within) > _tree._MOST_DEPTH:
                    return True
                within.append(iter(part.values() if isinstance(part, dict) else part))
                break
        else:
            within.pop()
    return False


def flatten(tree: Any) -> list[tuple[tuple[Key, ...], Any]]:
    """The leaves and the empty containers, each with its path."""
    leaves, _ = taken_apart(tree, "nothing was saved", is_empty)
    found = [(keys_of(path), leaf) for path, leaf in leaves]
    seen: set[tuple[str, ...]] = set()
    for path, _ in found:
        names = tuple(str(key) for _, key in path)
        if names in seen:
            raise Error(
                Code.INVALID_ARGUMENT, f"{text_of(names)} occurs twice: keys must differ as text; nothing was saved"
            )
        seen.add(names)
    return found


def _unsorted(tree: Any, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Where the first dict is whose keys cannot be sorted."""
    if isinstance(tree, dict):
        try:
            sorted(tree)
        except TypeError:
            return names
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    found = (_unsorted(part, (*names, str(key))) for key, part in parts)
    return next((one for one in found if one is not None), None)


class Namer:
    """Gives each array of a tree a region's name of its own; the same on all processes."""

    def __init__(self) -> None:
        self._taken = {REGION, _tree.SKELETON}

    def name(self, path: tuple[Key, ...]) -> str:
        name = _tree.region_name(tuple(key for _, key in path))
        while name in self._taken:
            name += "~"
        self._taken.add(name)
        return name


def encode(entries: list[Entry], custom: Any = None) -> bytes:
    """`custom` is the user's. Raises Error (invalid argument) if it is not of JSON's types."""
    made = [
        {key: value for key, value in dataclasses.asdict(e).items() if value not in ("", None, ())} for e in entries
    ]
    index = {"version": _VERSION, "leaves": made, **({} if custom is None else {"custom": custom})}
    try:
        return json.dumps(index, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise Error(
            Code.INVALID_ARGUMENT, f"custom_metadata is not of JSON's types: {error}; nothing was saved"
        ) from None


def decode(text: bytes) -> tuple[list[Entry], Any]:
    """The entries, and `custom`. Raises Error: corrupt if the text cannot be understood, unsupported if it is of a
    later version."""
    try:
        index = json.loads(text)
        if index["version"] != _VERSION:
            raise Error(
                Code.UNSUPPORTED,
                f"its index is of version {index['version']}, and this is {_VERSION}; nothing was read",
            )
        entries = [_entry(one) for one in index["leaves"]]
        if len({entry.names for entry in entries}) < len(entries):
            raise ValueError("two leaves have one name")
        return entries, index.get("custom")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, Error):
            raise
        raise Error(Code.CORRUPT, f"the region {REGION!r} cannot be understood: {error!r}; nothing was read") from None


def _entry(one: dict[str, Any]) -> Entry:
    """Raises what Python does for an entry that is not as encode() makes it."""
    path = tuple((kind, key) for kind, key in one.get("path", []))
    kind, shape, value = one["kind"], tuple(one.get("shape", [])), one.get("value")
    if not all(type(key) in _KEYS[kind] for kind, key in path):
        raise ValueError(f"a leaf at {path}")
    if kind not in ("array", "numpy", "prng", "plain", "empty") or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"a leaf of kind {kind!r} and shape {shape}")
    is_list = type(value) is list and len(value) == 1
    if (kind == "plain" and not is_list) or (kind == "prng" and type(value) is not str):
        raise ValueError(f"a leaf of kind {kind!r} and value {value!r}")
    region = str(one.get("region", ""))
    region.encode()  # raises UnicodeEncodeError, a ValueError, for what the core cannot look for
    return Entry(path, kind, region, one.get("dtype"), shape, value)


def plain(value: Any, path: tuple[Key, ...]) -> Any:
    """A plain object as the index has it. Raises Error (invalid argument) for other objects, with the path."""
    encoder = _tree._Encoder(False, frozenset())
    try:
        node = encoder.node(value, tuple(key for _, key in path))
    except Error:
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{text_of(tuple(str(key) for _, key in path))} is a {type(value).__module__}.{type(value).__qualname__}, "
            "which has no safe encoding; save its parts; nothing was saved",
        ) from None
    if encoder.arrays:
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{text_of(tuple(str(key) for _, key in path))} is a {type(value).__name__}, which is no array of JAX or "
            "NumPy; nothing was saved",
        )
    return node


def type_of(entry: Entry) -> np.dtype[Any]:
    """Raises Error (unsupported) for a type that this JAX does not have."""
    try:
        if isinstance(entry.dtype, str) and not entry.dtype.startswith(("<", ">", "|")):
            found: np.dtype[Any] = jax.numpy.dtype(entry.dtype)
            if found.hasobject:
                raise ValueError("its elements are Python objects")
            return found
        return _memory._numpy_dtype(entry.dtype)
    except (TypeError, ValueError) as error:
        raise Error(
            Code.UNSUPPORTED,
            f"{entry.text} is of type {entry.dtype!r}, which is not known here: {error}; nothing was read",
        ) from None


def nested(entries: list[Entry], values: list[Any]) -> Any:
    """The tree of these leaves as dicts and lists, for a restore without a target. A sequence becomes a list. Raises
    Error (corrupt) if the paths do not fit together."""
    if len(entries) == 1 and not entries[0].path:
        return values[0]
    root = _Container()
    inner: list[tuple[_Container, str | int, _Container]] = []  # the outer one, the key in it, and the inner one
    for entry, value in zip(entries, values, strict=True):
        at: Any = root
        for kind, key in entry.path[:-1]:
            at.is_sequence = at.is_sequence and kind == "s"
            if key not in at.parts:
                inner.append((at, key, _Container()))
                at.parts[key] = inner[-1][2]
            at = at.parts[key]
            if not isinstance(at, _Container):
                raise _no_tree(entry)
        kind, key = entry.path[-1] if entry.path else ("", "")
        if not entry.path or key in at.parts:
            raise _no_tree(entry)
        at.is_sequence = at.is_sequence and kind == "s"
        at.parts[key] = value
    for outer, key, container in reversed(inner):  # no recursion: trees may be deep
        outer.parts[key] = container.made()
    return root.made()


def _no_tree(entry: Entry) -> Error:
    return Error(Code.CORRUPT, f"{entry.text} lies within another leaf, or has another one in it; nothing was read")


@dataclasses.dataclass
class _Container:
    parts: dict[str | int, Any] = dataclasses.field(default_factory=dict)
    is_sequence: bool = True  # so far

    def made(self) -> Any:
        return [self.parts[key] for key in sorted(self.parts)] if self.parts and self.is_sequence else self.parts
