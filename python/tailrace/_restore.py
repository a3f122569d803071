"""Restoring in place: compares what a checkpoint holds with what the program has.

compare() walks skeleton and target side by side. It returns everything that has to be filled and set, or raises every
difference that it finds. So nothing is touched before all of it is known to fit. read_in_place() then fills the arrays
of one rank, in the order of the file and with bounded buffers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tailrace import _core, _leaves, _marks, _tree
from tailrace._errors import Code, Error

_MOST_SHOWN = 20
_MOST_ASKED = 1 << 20  # items that the owner of a list is asked for at once
_MOST_BUFFERED_BYTES = 24 << 20  # in addition to the reader's own


class Differences(NamedTuple):
    """What strict=False has left out: names that the checkpoint lacks, and names that the state lacks.
    They are called as load_state_dict calls them."""

    missing_keys: list[str]
    unexpected_keys: list[str]


@dataclasses.dataclass
class Fill:
    """An array of the program, and where its bytes are. `box` is the wanted shard of a global array."""

    ref: _tree.ArrayRef
    target: _leaves.Target | _leaves.StorageTarget
    box: tuple[tuple[int, ...], tuple[int, ...]] | None = None


@dataclasses.dataclass
class Plan:
    fills: list[Fill] = dataclasses.field(default_factory=list)
    set_plain: list[Callable[[], None]] = dataclasses.field(default_factory=list)
    differences: list[str] = dataclasses.field(default_factory=list)
    # None: a name that one side lacks is a difference like any other.
    left_out: Differences | None = None
    converts: bool = False
    lists: list[tuple[_tree.ArrayRef, _marks.List]] = dataclasses.field(default_factory=list)
    # By region: a storage that was saved whole, and the program's tensors that were views of it.
    views: dict[str, tuple[_tree.ArrayRef, list[tuple[Any, Any]]]] = dataclasses.field(default_factory=dict)
    # By region, if the checkpoint is in memory already: the source of the program's arrays.
    sources: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def compare(
    skeleton: Any,
    into: Any,
    what: str,
    trust_pickle: bool,
    sources: Mapping[str, Any] | None = None,
    *,
    strict: bool = True,
    convert: bool = False,
) -> Plan:
    """Raises Error: invalid argument with all differences if the checkpoint, `what`, does not belong
    to this state; corrupt if its skeleton cannot be understood.

    strict: False: what only one side has is left out, and named in the plan.
    convert: elements of another type are converted if _leaves.may_convert allows it.
    """
    plan = Plan(sources=sources or {}, left_out=None if strict else Differences([], []), converts=convert)
    try:
        _compare(skeleton, into, (), plan, None, trust_pickle)
    except Error:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Error(Code.CORRUPT, f"the tree of {what} cannot be understood: {error!r}; nothing was changed") from None
    for ref, members in plan.views.values() if not plan.differences else ():
        plan.fills.append(Fill(ref, _leaves.StorageTarget(ref.nbytes, members)))
    if plan.differences:
        shown = plan.differences[:_MOST_SHOWN]
        more = len(plan.differences) - len(shown)
        raise Error(
            Code.INVALID_ARGUMENT,
            f"{what} does not belong to this state; nothing was changed. Differences:\n  "
            + "\n  ".join(shown)
            + (f"\n  and {more} more" if more else ""),
        )
    return plan


def place_lists(plan: Plan, reader: _core.Reader, rank: int, rank_count: int) -> None:
    """Adds to the plan new memory for this rank's items of each list: its own ones if as many ranks
    saved them, else an even share."""
    resized = plan.lists and reader.rank_count != rank_count
    whole = {name: shape[0] for name, _, shape, _ in reader.arrays()} if resized else {}
    for ref, target in plan.lists:
        runs: list[tuple[int, int]] | None = None
        if resized:
            if ref.region not in whole:
                raise Error(Code.CORRUPT, f"the list {ref.region!r} is in no rank's part; nothing was changed")
            runs = _share(ref.region, whole[ref.region], target.owner, rank, rank_count)
        count = ref.shape[0] if runs is None else sum(length for _, length in runs)
        kind, dtype, _ = _leaves.describe(target.items)
        items = _leaves.empty(kind, dtype, (count, *ref.shape[1:]), getattr(target.items, "device", "cpu"))
        if runs is None:
            plan.fills.append(Fill(ref, _leaves.Target(items)))
        begin = 0
        for first, length in runs or ():
            extent = _leaves.list_shape(ref.dtype, ref.element_type.itemsize, (length, *ref.shape[1:]))
            box = ((first, 0)[: len(extent)], extent)
            plan.fills.append(Fill(ref, _leaves.Target(items[begin : begin + length]), box))
            begin += length
        plan.set_plain.append(functools.partial(setattr, target, "items", items))


def _share(region: str, total: int, owner: Any, rank: int, rank_count: int) -> list[tuple[int, int]]:
    """Begin and length of each run of consecutive items that this rank gets."""
    if owner is None:
        each, more = divmod(total, rank_count)
        return [(rank * each + min(rank, more), each + (rank < more))]
    runs: list[tuple[int, int]] = []
    for begin in range(0, total, _MOST_ASKED):
        indices = np.arange(begin, min(total, begin + _MOST_ASKED))
        owners = np.asarray(owner(indices, total, rank_count))
        if owners.shape != indices.shape or owners.dtype.kind not in "iu":
            raise Error(
                Code.INVALID_ARGUMENT,
                f"the owner of the list {region!r} returns {owners.dtype} of shape {owners.shape} for {indices.shape} "
                "items; it must return a rank for each; nothing was changed",
            )
        wrong = np.flatnonzero((owners < 0) | (owners >= rank_count))
        if wrong.size:
            raise Error(
                Code.INVALID_ARGUMENT,
                f"the owner of the list {region!r} gives item {indices[wrong[0]]} to rank {owners[wrong[0]]}, but "
                f"there are {rank_count} ranks; nothing was changed",
            )
        edges = np.flatnonzero(np.diff(np.concatenate(([0], owners == rank, [0])).astype(np.int8)))
        for first, last in edges.reshape(-1, 2) + begin:
            if runs and sum(runs[-1]) == first:
                runs[-1] = (runs[-1][0], int(last) - runs[-1][0])
            else:
                runs.append((int(first), int(last - first)))
    return runs


def read_in_place(reader: _core.Reader, rank: int, plan: Plan) -> None:
    """Fills all arrays of the plan, which has no boxes and no lists. After a failure the arrays hold what was read
    so far."""
    if plan.lists:
        raise Error(Code.UNSUPPORTED, "a List is restored by a Session only; nothing was changed")
    order = {name: number for number, (name, _, _) in enumerate(reader.regions(rank))}
    waiting: list[Fill] = []
    buffered = 0

    def flush() -> None:
        reader.read(rank, [(f.ref.region, f.target.leaf.address, f.target.leaf.nbytes) for f in waiting])
        for fill in waiting:
            fill.target.finish()
        waiting.clear()

    plan.fills.sort(key=lambda fill: order.get(fill.ref.region, -1), reverse=True)
    while plan.fills:  # a filled array releases its buffer
        fill = plan.fills.pop()
        nbytes = fill.target.buffer_bytes
        if waiting and buffered + nbytes > _MOST_BUFFERED_BYTES:
            flush()
            buffered = 0
        waiting.append(fill)
        buffered += nbytes
    flush()


def _compare(
    node: Any, target: Any, path: tuple[Any, ...], plan: Plan, put: Callable[[Any], None] | None, trust: bool
) -> None:
    view = _tree.view_of(node)
    if view is not None:
        return _compare_view(node, view, target, path, plan)
    ref = _tree.array_of(node)
    if isinstance(target, _marks.List) or (ref is not None and ref.is_list):
        return _compare_list(ref, target, path, plan)
    if ref is not None or isinstance(target, _marks.Shard) or _leaves.is_array(target):
        return _compare_array(ref, target, path, plan)
    members = members_of(node)
    if isinstance(target, dict) and isinstance(members, dict):
        for key in dict.fromkeys([*target, *members]):  # in the order of the state, as load_state_dict names them
            where = (*path, key)
            if key not in target:
                if not _has_array(members[key]):
                    _set_later(members[key], plan, _putter(target, key), trust)
                elif plan.left_out is not None:
                    plan.left_out.unexpected_keys.extend(_names(members[key], where))
                else:
                    plan.differences.append(f"{_tree.path_text(where)} is in the checkpoint only")
            elif key not in members and plan.left_out is not None:
                plan.left_out.missing_keys.extend(_names(target[key], where))
            elif key not in members:
                plan.differences.append(f"{_tree.path_text(where)} is not in the checkpoint")
            else:
                _compare(members[key], target[key], where, plan, _putter(target, key), trust)
        return None
    if isinstance(target, (list, tuple)) and isinstance(members, list) and _has_array(node):
        if len(members) != len(target):
            plan.differences.append(
                f"{_tree.path_text(path)} has {len(members)} entries in the checkpoint, and {len(target)} here"
            )
            return None
        for i, member in enumerate(members):
            putter = _putter(target, i) if isinstance(target, list) else None
            _compare(member, target[i], (*path, i), plan, putter, trust)
        return None
    if hasattr(type(target), "state_dict") and not _tree.holds_pickle(node):  # a model, and not saved as one
        plan.differences.append(f"{_tree.path_text(path)} is a {type(target).__qualname__} here: give its state_dict()")
    elif _has_array(node) or _holds_array(target):
        plan.differences.append(f"{_tree.path_text(path)} holds arrays on one side only, or in another container")
    elif put is None:
        if not _is_value_of(node, target, trust):
            why = "is in a tuple" if path else "is no dict or list"
            plan.differences.append(f"{_tree.path_text(path)} {why}, so it cannot be set, and has another value here")
    else:
        _set_later(node, plan, put, trust)
    return None


def _compare_array(ref: _tree.ArrayRef | None, target: Any, path: tuple[Any, ...], plan: Plan) -> None:
    where = _tree.path_text(path)
    array = target.own if isinstance(target, _marks.Shard) else target
    if ref is not None and _leaves.is_jax_array(array):
        plan.differences.append(f"{where} is a jax.Array here, which cannot be filled: give an array of NumPy")
        return
    if ref is None or not _leaves.is_array(array):
        plan.differences.append(f"{where} is an array {'here' if ref is None else 'in the checkpoint'} only")
        return
    if getattr(array, "is_nested", False):
        plan.differences.append(f"{where}: a nested tensor cannot be filled")
        return
    _, dtype, shape = _leaves.describe(array)
    fits = dtype == ref.dtype or (plan.converts and _leaves.may_convert(ref.dtype, dtype))
    if not fits:
        plan.differences.append(f"{where} is of {ref.dtype} in the checkpoint, and of {dtype} here")
    wanted_shape = tuple(target.global_shape) if isinstance(target, _marks.Shard) else shape
    saved_shape = ref.global_shape or ref.shape
    if wanted_shape != saved_shape:
        plan.differences.append(f"{where} has shape {saved_shape} in the checkpoint, and {wanted_shape} here")
    if not fits or wanted_shape != saved_shape:
        return
    lacking = _leaves.why_not(plan.sources[ref.region]) if ref.region in plan.sources else None
    if lacking is not None:
        plan.differences.append(f"{where} in the checkpoint: {lacking}")
        return
    try:
        filled = _leaves.Target(array, (ref.kind, ref.dtype))
    except TypeError as error:
        plan.differences.append(f"{where}: {error}")
        return
    box = None
    if isinstance(target, _marks.Shard):
        box = (tuple(target.offset), shape)
    elif ref.global_shape is not None:
        box = ((0,) * len(shape), shape)
    plan.fills.append(Fill(ref, filled, box))


def _compare_list(ref: _tree.ArrayRef | None, target: Any, path: tuple[Any, ...], plan: Plan) -> None:
    where = _tree.path_text(path)
    if ref is None or not ref.is_list or not isinstance(target, _marks.List):
        plan.differences.append(
            f"{where} is a List {'here' if ref is None or not ref.is_list else 'in the checkpoint'} only"
        )
        return
    if not _leaves.is_array(target.items) or not tuple(target.items.shape):
        plan.differences.append(f"{where} is a List without an array of items, one in each row")
        return
    _, dtype, shape = _leaves.describe(target.items)
    if dtype != ref.dtype or shape[1:] != ref.shape[1:]:
        plan.differences.append(
            f"{where} has items of {ref.dtype} with shape {ref.shape[1:]} in the checkpoint, and of {dtype} with "
            f"shape {shape[1:]} here"
        )
        return
    plan.lists.append((ref, target))


def _compare_view(node: Any, ref: _tree.ArrayRef, target: Any, path: tuple[Any, ...], plan: Plan) -> None:
    """Like _compare_array, for a tensor that was saved as a view of the storage `ref`."""
    before = len(plan.fills), len(plan.differences)
    _compare_array(dataclasses.replace(ref, dtype=node["dtype"], shape=tuple(node["shape"])), target, path, plan)
    del plan.fills[before[0] :]
    if len(plan.differences) == before[1]:
        _leaves.check_view(node, ref.nbytes)
        plan.views.setdefault(ref.region, (ref, []))[1].append((node, target))


def members_of(node: Any) -> dict[Any, Any] | list[Any] | None:
    """The parts of a container's node, by key or in order."""
    if isinstance(node, list):
        return node
    if not isinstance(node, dict):
        return None
    kind = node.get("$")
    if kind is None:
        return node
    if kind in ("dict", "ordered"):
        return {_tree.decode(key, None): part for key, part in node["v"]}
    return node["v"] if kind == "tuple" and isinstance(node["v"], list) else None


def _has_array(node: Any) -> bool:
    if isinstance(node, dict):
        return node.get("$") == "array" or any(_has_array(part) for part in node.values())
    return isinstance(node, list) and any(_has_array(part) for part in node)


def _holds_array(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_array(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_array(part) for part in value)
    return isinstance(value, (_marks.Shard, _marks.List)) or _leaves.is_array(value)


def _names(value: Any, path: tuple[Any, ...]) -> list[str]:
    """The names of all arrays in a part of the state, or of a skeleton. The name of the part itself if
    it has none."""
    members: Any = value
    if isinstance(value, dict) and "$" in value:
        members = None if value["$"] in ("array", "view") else members_of(value)
    if isinstance(members, dict):
        found = [name for key, part in members.items() for name in _names(part, (*path, key))]
    elif isinstance(members, (list, tuple)):
        found = [name for i, part in enumerate(members) for name in _names(part, (*path, i))]
    else:
        found = []
    return found or [_tree.region_name(path)]


def _putter(container: Any, key: Any) -> Callable[[Any], None]:
    return lambda value: container.__setitem__(key, value)


def _is_value_of(node: Any, target: Any, trust: bool) -> bool:
    """Whether a plain object is the one that was saved: it equals it, or would be saved as the same. The latter counts
    for objects that equal only themselves (io.BytesIO), or not even those (NaN)."""
    value = _tree.decode(node, None, trust)
    if value == target:
        return True
    try:
        return _tree.encode(value, trust) == _tree.encode(target, trust)
    except Exception:  # there is no safe encoding, or its own pickling fails
        return False


def _set_later(node: Any, plan: Plan, put: Callable[[Any], None], trust: bool) -> None:
    value = _tree.decode(node, None, trust)
    plan.set_plain.append(lambda: put(value))
