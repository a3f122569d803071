"""Rebuilds the tree that DCP's planner has flattened, from the planner's description, which may hold
anything."""

from __future__ import annotations

from typing import Any

_MOST_DEPTH = 200
_MOST_HOLES = 1 << 16


def nested(flat: dict[str, Any], paths: Any) -> Any:
    """`flat` as a tree, by DCP's planner_data: for each name a tuple of strings (a dict's keys) and
    integers (a list's). `flat` itself if the planner does not describe all names. Raises ValueError
    if the description is not a tree.

    A list has None in the place of an empty container, because DCP does not save those.
    """
    if not paths:
        return flat
    if not isinstance(paths, dict):
        raise ValueError(f"its planner_data is a {type(paths).__name__}")
    if not all(name in paths for name in flat):
        return flat
    tree: dict[Any, Any] = {}
    inner = {id(tree)}  # the dicts that are containers; other dicts were loaded by the planner
    for name, value in flat.items():
        path = paths[name]
        if type(path) is not tuple or not 0 < len(path) <= _MOST_DEPTH or not all(type(k) in (str, int) for k in path):
            raise ValueError(f"the planner_data of {name!r} is not a path in a tree")
        at = tree
        for key in path[:-1]:
            if key not in at:
                at[key] = {}
                inner.add(id(at[key]))
            at = at[key]
            if id(at) not in inner:
                raise ValueError(f"the planner_data of {name!r} leads through another entry")
        if path[-1] in at:
            raise ValueError(f"the planner_data of {name!r} leads to another entry")
        at[path[-1]] = value
    return _Lists(inner, _MOST_HOLES + 16 * len(flat)).built(tree)


class _Lists:
    """Turns containers with integer keys into lists. The number of elements in all is bounded."""

    def __init__(self, containers: set[int], most: int) -> None:
        self._containers = containers
        self._left = most

    def built(self, node: Any) -> Any:
        if id(node) not in self._containers:
            return node
        parts = {key: self.built(part) for key, part in node.items()}
        if all(type(key) is str for key in parts):
            return parts
        if not all(type(key) is int and key >= 0 for key in parts):
            raise ValueError(f"its planner_data has a list with the indices {list(parts)[:5]!r}")
        self._left -= max(parts) + 1
        if self._left < 0:
            raise ValueError(
                f"its planner_data has a list of {max(parts) + 1} elements, with {len(parts)} of them saved"
            )
        return [parts.get(index) for index in range(max(parts) + 1)]
