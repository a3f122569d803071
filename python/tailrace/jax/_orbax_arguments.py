"""What Orbax's arguments mean for tailrace: the tree of a save, and the target of a restore.

StandardSave, PyTreeSave, StandardRestore and PyTreeRestore are read beside TailraceSave and TailraceRestore. What has
another meaning here is refused by its name. Only hints about Orbax's own files are passed over (_HINTS).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from tailrace._errors import Code, Error
from tailrace.jax import _leaves
from tailrace.jax._restore import key_type, plain_value

_HINTS = ("aggregate", "chunk_byte_size", "shard_axes", "ocdbt_target_data_file_size")
_SAVE = ("item", "save_args", "custom_metadata")
_RESTORE = ("item", "restore_args", "shardings", "fallback_sharding", "partial", "partial_restore", "cast")
_ARRAY = ("restore_type", "dtype", "mesh", "mesh_axes", "sharding", "global_shape", "shape", "single_replica_sharding")


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class TreeMetadata:
    """tree: dicts and lists with a jax.ShapeDtypeStruct for each array. It is the target of a restore as it is.
    metadata["key"] is metadata.tree["key"].

    custom_metadata: what the save was given as such.
    """

    tree: Any
    custom_metadata: Any = None

    def __getitem__(self, key: Any) -> Any:
        return self.tree[key]

    def __contains__(self, key: Any) -> bool:
        return key in self.tree

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tree)

    def __len__(self) -> int:
        return len(self.tree)

    def tree_flatten(self) -> tuple[tuple[Any], Any]:
        return (self.tree,), self.custom_metadata

    @classmethod
    def tree_unflatten(cls, custom_metadata: Any, children: tuple[Any]) -> TreeMetadata:
        return cls(children[0], custom_metadata)


def to_save(args: Any) -> Any:
    """The tree, with the element types that `save_args` asks for."""
    _refuse_others(args, _SAVE, "saved")
    save_args = getattr(args, "save_args", None)
    if save_args is None:
        return args.item
    return jax.tree.map(_converted, args.item, save_args)


def _converted(leaf: Any, asked: Any) -> Any:
    dtype = getattr(asked, "dtype", None)
    if dtype is None or _leaves.is_random_key(leaf):
        return leaf
    return leaf.astype(dtype) if hasattr(leaf, "astype") else np.dtype(dtype).type(leaf).item()


def to_restore(args: Any, entries: list[_leaves.Entry]) -> Any:
    """The target that the arguments describe, for a checkpoint of these entries."""
    _refuse_others(args, _RESTORE, "restored")
    item = args.item.tree if isinstance(args.item, TreeMetadata) else args.item
    asked, fallback = getattr(args, "restore_args", None), getattr(args, "fallback_sharding", None)
    if asked is None:
        return item if item is None or fallback is None else jax.tree.map(lambda leaf: _placed(leaf, fallback), item)
    asked_leaves = jax.tree_util.tree_flatten_with_path(asked, is_leaf=lambda one: hasattr(one, "restore_type"))[0]
    asked_at = {_leaves.names_of(path): one for path, one in asked_leaves}
    if item is None:
        return _leaves.nested(entries, [_target(entry, asked_at.get(entry.names), None) for entry in entries])
    known = {entry.names: entry for entry in entries}

    def target(path: Any, leaf: Any) -> Any:
        entry = known.get(_leaves.names_of(path))
        if entry is None or entry.kind == "empty" or leaf is ...:
            return leaf  # the restore will say that it is not in the checkpoint
        return _target(entry, asked_at.get(entry.names), leaf)

    return jax.tree_util.tree_map_with_path(target, item)


def shardings_of(args: Any) -> Any:
    """The shardings for a restore that has no target, or that count more than the target's."""
    fallback = getattr(args, "fallback_sharding", None)
    return fallback if args.item is None and fallback is not None else getattr(args, "shardings", None)


def _placed(leaf: Any, sharding: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is None:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    return leaf


def _target(entry: _leaves.Entry, asked: Any, leaf: Any) -> Any:
    """A leaf of the target. `asked` is a RestoreArgs or None. The item's `leaf` counts if nothing is asked."""
    if entry.kind == "empty":
        return plain_value(entry)
    kind = getattr(asked, "restore_type", None)
    if asked is None or (kind is None and hasattr(leaf, "shape")):
        return leaf if hasattr(leaf, "shape") else _as_saved(entry, None)
    _refuse_others(asked, _ARRAY, "restored")
    if kind is type(...):
        return ...
    if entry.kind == "plain" or kind in (bool, int, float, complex):
        return kind() if kind in (bool, int, float, complex, str, bytes) else plain_value(entry)
    if kind is None or kind is np.ndarray:
        return _as_saved(entry, asked.dtype)
    if kind is not jax.Array:
        raise Error(Code.UNSUPPORTED, f"{entry.text} is asked for as {kind!r}; nothing was restored")
    if entry.kind == "prng":
        return jax.ShapeDtypeStruct(*key_type(entry), sharding=_sharding(asked))
    shape = entry.shape if asked.global_shape is None else tuple(asked.global_shape)
    return jax.ShapeDtypeStruct(shape, asked.dtype or _leaves.type_of(entry), sharding=_sharding(asked))


def _as_saved(entry: _leaves.Entry, dtype: Any) -> Any:
    """What a restore without a target makes of it: a NumPy array, random keys, or a plain object."""
    if entry.kind == "plain":
        return plain_value(entry)
    if entry.kind == "prng":
        return jax.ShapeDtypeStruct(*key_type(entry))
    return np.broadcast_to(np.zeros((), dtype or _leaves.type_of(entry)), entry.shape)  # takes no memory


def _sharding(asked: Any) -> Any:
    sharding: Any = getattr(asked, "sharding", None)
    if hasattr(sharding, "to_jax_sharding"):
        return sharding.to_jax_sharding()
    if sharding is None and getattr(asked, "mesh", None) is not None:
        return jax.sharding.NamedSharding(asked.mesh, asked.mesh_axes)
    return sharding


def _refuse_others(args: Any, known: tuple[str, ...], done: str) -> None:
    """Raises Error (unsupported) if fields that are not known have other values than by default."""
    given = [
        field.name
        for field in dataclasses.fields(args)
        if field.name not in known and field.name not in _HINTS and not _is_default(field, getattr(args, field.name))
    ]
    if given:
        raise Error(
            Code.UNSUPPORTED,
            f"{type(args).__name__} with {', '.join(sorted(given))}, which has no meaning for tailrace's files; "
            f"nothing was {done}",
        )


def _is_default(field: Any, value: Any) -> bool:
    return value is None or (field.default is not dataclasses.MISSING and bool(value == field.default))
