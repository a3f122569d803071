"""The gloo groups that writers use among themselves.

A writer works in a background thread (dcp.async_save), where the program's own groups must not be used: their
collectives would mix with the program's. So each set of ranks has one group for all its writers, made in the
thread that makes the first writer, as torch wants it; and another one for each other kind of user, whose threads
may be at work at the same time.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

_groups: dict[tuple[str, tuple[int, ...]], Any] = {}
_world: Any = None


def own_group(process_group: dist.ProcessGroup | None, user: str = "dcp") -> Any:
    """The group of these ranks (None: of all); None without torch.distributed. Collective over the ranks."""
    global _world
    if not (dist.is_available() and dist.is_initialized()):
        return None
    if _world is not dist.group.WORLD:  # the program has begun anew: the old groups are gone
        _groups.clear()
        _world = dist.group.WORLD
    ranks = tuple(dist.get_process_group_ranks(process_group or dist.group.WORLD))
    if (user, ranks) not in _groups:
        some = len(ranks) < dist.get_world_size()
        _groups[user, ranks] = dist.new_group(list(ranks), backend="gloo", use_local_synchronization=some)
    return _groups[user, ranks]
