"""Restores pytrees, onto any mesh and any number of processes.

Each process reads the boxes of arrays that its devices need, each box once, in the order of the files, and compares
every byte with its checksum. All processes restore the same epoch, and a failure on one of them is raised on all.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from tailrace import _arguments, _checkpoint, _core, _tree
from tailrace._errors import Code, Error, about, sentence_of
from tailrace.jax import _leaves, _pieces
from tailrace.jax._processes import Operation

_NOTHING = "nothing was restored"
_BATCH_BYTES = 1 << 30  # of boxes that are on the host at one time, if they are not the arrays themselves
_MOST_DIFFERENCES = 20  # in a sentence
_NUMBERS = (bool, int, float)


@dataclasses.dataclass
class _Wanted:
    """A leaf of the result. `finish` makes it when the boxes are filled."""

    boxes: list[tuple[_pieces.Box, Any]]  # of the array in the files, each with its memory
    finish: Callable[[], Any]


class Source:
    """An epoch that is open for reading, with its index."""

    def __init__(self, place: str, step: int | None, name: str | None) -> None:
        if step is not None:
            step = _arguments.number(step, "step", _NOTHING)
        if name is not None:
            name = _arguments.checked(name, "name", _NOTHING)
        with about(place):
            self.reader = _checkpoint.open_directory(place, name, step)
            with _checkpoint.closed_by_failure(self.reader):
                self.entries, self.custom = self._index(place)

    def _index(self, place: str) -> tuple[list[_leaves.Entry], Any]:
        nbytes = next((n for name, n, _ in self.reader.regions(0) if name == _leaves.REGION), None)
        if nbytes is None:
            raise Error(
                Code.NOT_FOUND, f"'{place}' holds another kind of checkpoint of tailrace's, not a pytree; {_NOTHING}"
            )
        text = np.empty(nbytes, np.uint8)
        self.reader.read(0, [(_leaves.REGION, text.ctypes.data, nbytes)])
        return _leaves.decode(text.tobytes())

    def check_arrays(self) -> None:
        """Raises Error (corrupt) if the index gives an array another type or shape than the files do. So a damaged
        index cannot ask for more memory than the checkpoint holds."""
        held = {name: (number, tuple(shape)) for name, number, shape, complete in self.reader.arrays() if complete}
        for entry in self.entries:
            if entry.kind in ("plain", "empty") or 0 in entry.shape:
                continue
            try:
                dtype = _leaves.type_of(entry)
            except Error:  # who needs this array will raise it
                continue
            if held.get(entry.region) != _pieces.in_files(dtype, entry.shape):
                raise Error(
                    Code.CORRUPT,
                    f"{entry.text} is {dtype} of shape {entry.shape} in the index, and the region {entry.region!r} "
                    f"does not hold that; {_NOTHING}",
                )

    def described(self) -> Any:
        """The tree as dicts and lists, with a jax.ShapeDtypeStruct for each array."""
        return _leaves.nested(self.entries, [_described(entry) for entry in self.entries])

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exception: object) -> None:
        self.reader.close()


def restore(
    directory: str | os.PathLike[str],
    target: Any = None,
    *,
    shardings: Any = None,
    step: int | None = None,
    partial: bool = False,
    cast: bool = False,
    name: str | None = None,
) -> Any:
    """The pytree of a checkpoint. Collective over the processes of jax.distributed.

    target: a pytree like the one that was saved. The result has its containers. A leaf says what it becomes: a
        jax.Array or a jax.ShapeDtypeStruct with a sharding becomes a jax.Array with that sharding, a NumPy array or a
        number becomes one, and `...` (Orbax's PLACEHOLDER) stays and is not read. Without a target the result has dicts
        and lists, and NumPy arrays if there are no shardings.
    shardings: a jax.sharding.Sharding for all arrays, or a pytree of them like the target (without a target: like the
        result). They count more than those of the target.
    step: which epoch of the directory; None for the newest that is whole.
    partial: the target may lack leaves of the checkpoint, which are not read.
    cast: arrays whose element type differs from the target's are converted.

    Raises Error: not found if there is no complete checkpoint, corrupt if it is damaged, invalid argument if it does
    not fit the target. Then the sentence lists every difference.
    """
    return restore_as(
        directory, lambda entries: target, shardings=shardings, step=step, partial=partial, cast=cast, name=name
    )


def restore_as(
    directory: str | os.PathLike[str],
    target_of: Callable[[list[_leaves.Entry]], Any],
    *,
    shardings: Any,
    step: int | None,
    partial: bool,
    cast: bool,
    name: str | None = None,
) -> Any:
    """As restore, with a target that depends on the checkpoint's leaves. A failure of target_of ends it on all
    processes."""
    operation = Operation("the restore")
    failure: BaseException | None = None
    source: Source | None = None
    told: Any = None
    try:
        try:
            place = _arguments.path(directory, "directory", _NOTHING)
            if operation.rank == 0:
                try:
                    source = Source(place, step, name)
                    told = [source.reader.epoch, source.reader.run]
                except Error as error:
                    if error.code != Code.NOT_FOUND:
                        raise
                    told = sentence_of(error)  # perhaps a first run, and then one on all processes
        except Exception as error:
            failure = error
        operation.raise_any(failure)
        told = operation.broadcast(told)
        if isinstance(told, str):
            raise Error(Code.NOT_FOUND, told)
        made = None
        try:
            if source is None:
                source = Source(place, told[0], name)
            if [source.reader.epoch, source.reader.run] != told:
                raise Error(
                    Code.NOT_FOUND,
                    f"'{place}' has run {source.reader.run} of epoch {told[0]} on this process, and run {told[1]} on "
                    f"process 0; {_NOTHING}",
                )
            made = _read(source, target_of(source.entries), shardings, partial, cast)
        except Exception as error:
            failure = error
        operation.raise_any(failure)
        return made
    finally:
        if source is not None:
            source.reader.close()


def metadata(directory: str | os.PathLike[str], *, step: int | None = None, name: str | None = None) -> Any:
    """The tree of a checkpoint as dicts and lists, with a jax.ShapeDtypeStruct for each array. Reads no array. For one
    process alone, not collective."""
    with Source(_arguments.path(directory, "directory", _NOTHING), step, name) as source:
        return source.described()


def latest_step(directory: str | os.PathLike[str], *, name: str | None = None) -> int | None:
    """The newest step that is whole; None if there is none. For one process alone, not collective."""
    try:
        with Source(_arguments.path(directory, "directory", _NOTHING), None, name) as source:
            return source.reader.epoch
    except Error as error:
        if error.code == Code.NOT_FOUND:
            return None
        raise


def _described(entry: _leaves.Entry) -> Any:
    if entry.kind in ("plain", "empty"):
        return plain_value(entry)
    return jax.ShapeDtypeStruct(*(key_type(entry) if entry.kind == "prng" else (entry.shape, _leaves.type_of(entry))))


def _read(source: Source, target: Any, shardings: Any, partial: bool, cast: bool) -> Any:
    source.check_arrays()
    if target is None:
        entries = source.entries
        try:
            wanted = _without_target(entries, shardings)
        except ValueError as difference:
            raise difference if isinstance(difference, Error) else _refused(str(difference)) from None
        return _leaves.nested(entries, list(_filled(source.reader, entries, wanted)))
    leaves, structure = _leaves.taken_apart(target, _NOTHING)
    names = [_leaves.names_of(path) for path, _ in leaves]
    known = {entry.names: entry for entry in source.entries}
    spread = _spread(shardings, names)
    differences = [f"{_leaves.text_of(n)} is not in the checkpoint" for n in names if not _is_leaf(known.get(n))]
    if not partial:
        missing = set(known) - set(names)
        differences += [
            f"{entry.text} is not in the target"
            for entry in source.entries
            if _is_leaf(entry) and entry.names in missing
        ]
    wanted, entries = [], []
    for path, (_, leaf), sharding in zip(names, leaves, spread, strict=True):
        entry = known.get(path)
        if entry is None or not _is_leaf(entry):
            continue
        try:
            wanted.append(_for_leaf(entry, leaf, sharding, cast))
            entries.append(entry)
        except ValueError as difference:
            differences.append(str(difference).removesuffix(f"; {_NOTHING}"))
    if differences:
        raise _refused(f"the checkpoint does not fit the target: {_listed(differences)}")
    return jax.tree_util.tree_unflatten(structure, list(_filled(source.reader, entries, wanted)))


def _refused(why: str) -> Error:
    return Error(Code.INVALID_ARGUMENT, f"{why}; {_NOTHING}")


def _listed(differences: list[str]) -> str:
    more = len(differences) - _MOST_DIFFERENCES
    return "; ".join(differences[:_MOST_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")


def _is_leaf(entry: _leaves.Entry | None) -> bool:
    return entry is not None and entry.kind != "empty"


def _spread(shardings: Any, names: list[tuple[str, ...]]) -> list[Any]:
    """A sharding, or None, for each leaf of the target. Raises Error (invalid argument) if the shardings are of other
    names."""
    if shardings is None or isinstance(shardings, jax.sharding.Sharding):
        return [shardings] * len(names)
    leaves, _ = _leaves.taken_apart(shardings, _NOTHING, lambda leaf: leaf is None)
    found = {_leaves.names_of(path): sharding for path, sharding in leaves}
    known = set(names)
    differences = [f"{_leaves.text_of(one)} has no sharding" for one in names if one not in found]
    differences += [
        f"{_leaves.text_of(one)} is not in the target"
        for one, sharding in found.items()
        if one not in known and sharding is not None
    ]
    if differences:
        raise _refused(f"the shardings do not fit the target: {_listed(differences)}")
    return [found[one] for one in names]


# ---- what a leaf becomes ---------------------------------------------------------------------------------


def _without_target(entries: list[_leaves.Entry], shardings: Any) -> list[_Wanted]:
    one = shardings if shardings is None or isinstance(shardings, jax.sharding.Sharding) else None
    by_name: dict[tuple[str, ...], Any] = {}
    if shardings is not None and one is None:
        for path, sharding in _leaves.taken_apart(shardings, _NOTHING)[0]:
            by_name[_leaves.names_of(path)] = sharding
        known = {entry.names for entry in entries}
        unknown = [_leaves.text_of(names) for names in by_name if names not in known]
        if unknown:
            raise ValueError(f"there are shardings for what is not in the checkpoint: {_listed(unknown)}")
    wanted = []
    for entry in entries:
        sharding = by_name.get(entry.names, one)
        if entry.kind in ("plain", "empty"):
            wanted.append(_plain(entry))
        elif entry.kind == "prng":
            wanted.append(_random_keys(entry, sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])))
        elif sharding is not None and entry.kind == "array":
            _check_type(entry, _leaves.type_of(entry), False)
            wanted.append(_jax_array(entry, sharding, _leaves.type_of(entry)))
        else:
            wanted.append(_numpy_array(entry))
    return wanted


def _for_leaf(entry: _leaves.Entry, leaf: Any, sharding: Any, cast: bool) -> _Wanted:
    """Raises ValueError, with the difference, if what was saved does not fit the leaf."""
    if leaf is ...:
        return _Wanted([], lambda: leaf)
    if _leaves.is_random_key(leaf) != (entry.kind == "prng") and not _is_key_data(entry, leaf):
        raise ValueError(f"{entry.text} is random keys on one side only")
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return _for_plain(entry, leaf, cast)
    if entry.kind == "plain":
        value = np.asarray(plain_value(entry))
        if value.shape != tuple(leaf.shape) or value.dtype.kind not in "biufc":
            raise ValueError(f"{entry.text} was saved as {value.tolist()!r}, and the target has an array")
        if not cast and _changes(value, leaf.dtype):
            raise ValueError(f"{entry.text} was saved as {value.tolist()!r}, the target's type is {leaf.dtype}")
        return _placed_value(value, leaf, sharding, entry, cast)
    if entry.kind == "prng":
        shape, keys = key_type(entry)
        if not _is_key_data(entry, leaf) and (shape != tuple(leaf.shape) or keys != leaf.dtype):
            raise ValueError(
                f"{entry.text} was saved as {keys} of shape {shape}, the target's is {leaf.dtype} of shape {leaf.shape}"
            )
        return _random_keys(entry, sharding or getattr(leaf, "sharding", None) or _own_device(entry))
    if entry.shape != tuple(leaf.shape):
        raise ValueError(f"{entry.text} was saved with shape {entry.shape}, the target's is {tuple(leaf.shape)}")
    saved = _leaves.type_of(entry)
    if saved != leaf.dtype and not cast:
        raise ValueError(f"{entry.text} was saved as {saved}, the target's type is {leaf.dtype}")
    if sharding is None and (isinstance(leaf, (np.ndarray, np.generic)) or _describes_numpy(entry, leaf)):
        wanted = _numpy_array(entry, leaf.dtype)
        if isinstance(leaf, np.generic):
            finish = wanted.finish
            wanted.finish = lambda: finish()[()]
        return wanted
    where = sharding or getattr(leaf, "sharding", None) or _own_device(entry)
    _check_type(entry, leaf.dtype, cast)
    return _jax_array(entry, where, leaf.dtype)


def _describes_numpy(entry: _leaves.Entry, leaf: Any) -> bool:
    """Whether the leaf describes what was a NumPy array, and asks for no device."""
    return entry.kind == "numpy" and isinstance(leaf, jax.ShapeDtypeStruct) and leaf.sharding is None


def _check_type(entry: _leaves.Entry, dtype: Any, cast: bool) -> None:
    """Raises ValueError if a jax.Array cannot have this type, as when no number was saved: without jax_enable_x64, JAX
    makes 32 bits of 64."""
    saved = _leaves.type_of(entry) if entry.kind == "numpy" else np.dtype(dtype)
    is_number = _pieces.has_boxes(saved) or saved.kind in "iufc"  # in another byte order, or of more than 64 bits
    if not is_number or not _pieces.has_boxes(np.dtype(dtype)):
        raise ValueError(
            f"{entry.text} was saved as {saved} and is to become {np.dtype(dtype)}, which no array of JAX can: take a "
            "NumPy array as its target"
        )
    found = jax.dtypes.canonicalize_dtype(dtype)
    if found != dtype and not cast:
        raise ValueError(
            f"{entry.text} is to become {dtype}, and JAX would make {found} of it: set jax_enable_x64, or take a NumPy "
            "array as its target"
        )


def _as_jax_has_it(entry: _leaves.Entry, values: Any, dtype: Any) -> Any:
    """The values as `dtype`, or as what JAX makes of that type. Then integers keep their values, and finite numbers
    stay finite, or it raises Error (invalid argument)."""
    asked, found = values.astype(dtype, copy=False), jax.dtypes.canonicalize_dtype(dtype)
    with np.errstate(over="ignore"):
        made = asked.astype(found, copy=False)
    if found != dtype and not np.all(made == asked if found.kind in "iu" else np.isfinite(made) | ~np.isfinite(asked)):
        raise _refused(
            f"{entry.text} has values that {found} cannot hold, which is what JAX makes of {dtype}: set jax_enable_x64 "
            "or take a NumPy array as its target"
        )
    return made


def _is_key_data(entry: _leaves.Entry, leaf: Any) -> bool:
    """Whether the leaf describes the data of these keys. That is how Orbax's to_shape_dtype_struct describes keys."""
    described = entry.kind == "prng" and isinstance(leaf, jax.ShapeDtypeStruct)
    return described and leaf.shape == entry.shape and leaf.dtype == _leaves.type_of(entry)


def _for_plain(entry: _leaves.Entry, leaf: Any, cast: bool) -> _Wanted:
    """A number becomes a number of another type if that loses nothing, or if the caller asks for it (`cast`)."""
    if entry.kind == "plain":
        value = plain_value(entry)
        if type(value) is type(leaf):
            return _Wanted([], lambda: value)
        if not isinstance(value, _NUMBERS) or not isinstance(leaf, _NUMBERS) or _loses(value, leaf, cast):
            raise ValueError(f"{entry.text} was saved as {value!r}, the target's is {leaf!r}")
        return _Wanted([], lambda: type(leaf)(value))
    if entry.shape or not isinstance(leaf, (*_NUMBERS, complex)):
        raise ValueError(f"{entry.text} was saved as an array of shape {entry.shape}, the target's is {leaf!r}")
    wanted = _numpy_array(entry)
    finish = wanted.finish

    def number() -> Any:
        value = finish()[()]
        if _loses(value, leaf, cast):
            raise Error(
                Code.INVALID_ARGUMENT, f"{entry.text} was saved as {value!r}, the target's is {leaf!r}; {_NOTHING}"
            )
        return type(leaf)(value)

    wanted.finish = number
    return wanted


def _loses(value: Any, leaf: Any, cast: bool) -> bool:
    """Whether the value becomes another number as the leaf's type, or none at all, as infinity does as an int."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of an imaginary part: it is compared
            made = type(leaf)(value)
    except (TypeError, ValueError, OverflowError):
        return True
    is_same = made == value or (made != made and value != value)
    return not cast and not is_same


def _changes(value: Any, dtype: Any) -> bool:
    """Whether a number becomes another one as `dtype`. That a float has fewer digits then does not count."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of an imaginary part: it is compared
        made = value.astype(dtype)
    kept = jax.numpy.complexfloating if value.dtype.kind == "c" else jax.numpy.inexact
    if value.dtype.kind in "fc" and jax.numpy.issubdtype(dtype, kept):
        return bool(np.isfinite(value)) and not np.isfinite(made)
    return bool((made.item() if made.dtype.kind in "biufc" else float(made)) != value.item())


def _own_device(entry: _leaves.Entry) -> Any:
    if jax.process_count() > 1:
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{entry.text} is given no sharding, and there are {jax.process_count()} processes; {_NOTHING}",
        )
    return jax.sharding.SingleDeviceSharding(jax.devices()[0])


def plain_value(entry: _leaves.Entry) -> Any:
    """The plain object or the empty container that the index has."""
    if entry.kind == "empty":
        return {"dict": {}, "list": []}.get(str(entry.value))
    return _tree.decode(entry.value[0], None)


def key_type(entry: _leaves.Entry) -> tuple[tuple[int, ...], Any]:
    """Shape and type of an array of random keys, whose entry has those of its data. Raises Error (unsupported) for
    keys that this JAX does not have."""
    data = jax.ShapeDtypeStruct(entry.shape, _leaves.type_of(entry))
    try:
        keys = jax.eval_shape(lambda data: jax.random.wrap_key_data(data, impl=entry.value), data)
    except (TypeError, ValueError) as error:
        raise Error(
            Code.UNSUPPORTED,
            f"{entry.text} is random keys of kind {entry.value!r}, with data of {data.dtype} of shape {entry.shape}, "
            f"which are not known here: {error}; nothing was read",
        ) from None
    return keys.shape, keys.dtype


def _plain(entry: _leaves.Entry) -> _Wanted:
    value = plain_value(entry)
    return _Wanted([], lambda: value)


def _placed_value(value: Any, leaf: Any, sharding: Any, entry: _leaves.Entry, cast: bool) -> _Wanted:
    if isinstance(leaf, (np.ndarray, np.generic)) and sharding is None:
        return _Wanted([], lambda: value.astype(leaf.dtype))
    where = sharding or getattr(leaf, "sharding", None) or _own_device(entry)
    _check_type(entry, leaf.dtype, cast)
    made = _as_jax_has_it(entry, value, leaf.dtype)
    return _Wanted([], lambda: jax.make_array_from_callback(value.shape, where, lambda index: made[index]))


def _memory(entry: _leaves.Entry, extent: tuple[int, ...]) -> Any:
    return np.empty(extent, _leaves.type_of(entry))


def _numpy_array(entry: _leaves.Entry, dtype: Any = None) -> _Wanted:
    memory = _memory(entry, entry.shape)
    return _Wanted(
        [(((0,) * memory.ndim, memory.shape), memory)],
        lambda: memory if dtype is None else memory.astype(dtype, copy=False),
    )


def _jax_array(entry: _leaves.Entry, sharding: Any, dtype: Any) -> _Wanted:
    if not isinstance(sharding, jax.sharding.Sharding):
        raise ValueError(f"{entry.text} is given {sharding!r} as its sharding")
    try:
        indices = sharding.addressable_devices_indices_map(entry.shape)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{entry.text} of shape {entry.shape} cannot be sharded so: {error}") from None
    boxes = {device: _pieces.box_of(index or (), entry.shape) for device, index in indices.items()}
    whole: _pieces.Box = ((0,) * len(entry.shape), entry.shape)
    read = set(boxes.values()) if _pieces.has_boxes(_leaves.type_of(entry)) else {whole}
    memory = {box: _memory(entry, box[1]) for box in read}

    def part(box: _pieces.Box) -> Any:
        if box in memory:
            return memory[box]
        return memory[whole][tuple(slice(start, start + length) for start, length in zip(*box, strict=True))]

    def finish() -> Any:
        made = {box: _as_jax_has_it(entry, part(box), dtype) for box in set(boxes.values())}
        parts = [
            jax.device_put(made[box], jax.sharding.SingleDeviceSharding(device, memory_kind=sharding.memory_kind))
            for device, box in boxes.items()
        ]
        memory.clear()
        has = jax.dtypes.canonicalize_dtype(dtype)
        return jax.make_array_from_single_device_arrays(entry.shape, sharding, parts, dtype=has)

    return _Wanted(list(memory.items()), finish)


def _random_keys(entry: _leaves.Entry, sharding: Any) -> _Wanted:
    """Keys lie in the files as their data, which have one more dimension, or several."""
    key_type(entry)  # before anything is read
    if isinstance(sharding, jax.sharding.NamedSharding):
        more = (None,) * (len(entry.shape) - len(sharding.spec))
        spec = jax.sharding.PartitionSpec(*sharding.spec, *more)
        sharding = jax.sharding.NamedSharding(sharding.mesh, spec, memory_kind=sharding.memory_kind)
    wanted = _jax_array(entry, sharding, _leaves.type_of(entry))
    finish = wanted.finish
    wanted.finish = lambda: jax.random.wrap_key_data(finish(), impl=entry.value)
    return wanted


# ---- reading ---------------------------------------------------------------------------------------------


def _filled(reader: _core.Reader, entries: list[_leaves.Entry], wanted: list[_Wanted]) -> Iterator[Any]:
    """The leaves, in order. Boxes are read together, up to a bound."""
    begin = 0
    while begin < len(wanted):
        end, nbytes = begin, 0
        while end < len(wanted) and (end == begin or nbytes < _BATCH_BYTES):
            nbytes += sum(memory.nbytes for _, memory in wanted[end].boxes)
            end += 1
        targets = []
        for entry, leaf in zip(entries[begin:end], wanted[begin:end], strict=True):
            for (offset, _), memory in leaf.boxes:
                stored = _pieces.stored(memory)
                if stored.size:
                    at = offset if stored.ndim == len(offset) else (0,)
                    targets.append((entry.region, at, stored.shape, stored.ctypes.data, stored.nbytes))
        reader.read_boxes(targets)
        for leaf in wanted[begin:end]:
            leaf.boxes.clear()
            yield leaf.finish()
        begin = end
