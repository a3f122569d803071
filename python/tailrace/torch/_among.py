"""What the ranks of a group tell each other besides their data: small Python objects.

The first rank of the group is in the middle: the others send to it and hear from it. So a rank other than
the first sends and gets no more if there are more ranks. Each function is collective over the group (None:
one rank), and raises Error (transport) if a rank is gone.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from tailrace.torch import _groups


def all_gather(group: Any, value: Any) -> list[Any]:
    """The values of all ranks, on each of them."""
    if group is None:
        return [value]
    values: list[Any] = [None] * dist.get_world_size(group)
    with _groups.failures_told():
        dist.all_gather_object(values, value, group=group)
    return values


def gather(group: Any, value: Any) -> list[Any]:
    """The values of all ranks on the first one; nothing on the others."""
    if group is None:
        return [value]
    values = [None] * dist.get_world_size(group) if dist.get_rank(group) == 0 else None
    with _groups.failures_told():
        dist.gather_object(value, values, dst=dist.get_global_rank(group, 0), group=group)
    return values or []


def scatter(group: Any, values: list[Any]) -> Any:
    """This rank's value, of those that the first rank has. The others give an empty list."""
    if group is None:
        return values[0]
    mine: list[Any] = [None]
    with _groups.failures_told():
        dist.scatter_object_list(mine, values or None, src=dist.get_global_rank(group, 0), group=group)
    return mine[0]


def broadcast(group: Any, value: Any) -> Any:
    """The first rank's value."""
    if group is None:
        return value
    values = [value]
    with _groups.failures_told():
        dist.broadcast_object_list(values, src=dist.get_global_rank(group, 0), group=group)
    return values[0]
