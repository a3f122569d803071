"""Gloo groups of our own, and how writers share them.

A writer works in a background thread (dcp.async_save). It must not use the program's own groups
there, because its collectives would mix with the program's. Two writers may work at the same time,
so each has a group of its own while it lives. A later writer of the same ranks gets the group of
one that is gone.

Ranks may notice at different times that a writer is gone (garbage collection). So they tell each
other which groups are free, over one more group that no writer gets.
"""

from __future__ import annotations

import contextlib
import datetime
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist

from tailrace._errors import Code, Error

FOR_EVER = datetime.timedelta(days=365)  # ranks may come to a collective call hours apart


def new_group(ranks: Sequence[int]) -> Any:
    """A gloo group of these ranks. Collective over them. Its calls wait for a rank that is late, and
    fail if one is gone."""
    some = len(ranks) < dist.get_world_size()
    return dist.new_group(list(ranks), timeout=FOR_EVER, backend="gloo", use_local_synchronization=some)


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Turns what torch raises when a group's call fails into Error (transport)."""
    try:
        yield
    except RuntimeError as error:
        raise Error(Code.TRANSPORT, f"a rank is gone, or cannot be reached: {error}") from error


class _Pool:
    """The groups of one set of ranks, in the same order on all of them."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self._ranks = ranks
        self._of_pool = new_group(ranks)
        self._groups: list[Any] = []
        self._free: set[int] = set()

    def take(self, owner: object) -> Any:
        free_of: list[list[int]] = [[] for _ in self._ranks]
        dist.all_gather_object(free_of, sorted(self._free), group=self._of_pool)
        free = set.intersection(*map(set, free_of))
        if free:
            number = min(free)
            self._free.remove(number)
        else:
            number = len(self._groups)
            self._groups.append(new_group(self._ranks))
        weakref.finalize(owner, self._free.add, number)
        return self._groups[number]


_pools: dict[tuple[int, ...], _Pool] = {}
_world: Any = None


def own_group(owner: object, process_group: dist.ProcessGroup | None = None) -> Any:
    """A group of these ranks (None: of all) that the owner alone uses, as long as the owner lives.
    None without torch.distributed. Collective over the ranks. Call it in the program's thread, as
    torch requires for new groups."""
    global _world
    if not (dist.is_available() and dist.is_initialized()):
        return None
    if _world is not dist.group.WORLD:  # the program has begun anew: the old groups are gone
        _pools.clear()
        _world = dist.group.WORLD
    ranks = tuple(dist.get_process_group_ranks(process_group or dist.group.WORLD))
    if ranks not in _pools:
        _pools[ranks] = _Pool(ranks)
    return _pools[ranks].take(owner)
