"""Gloo groups of our own, and how writers share them.

A writer works in a background thread (dcp.async_save). It must not use the program's own groups
there, because its collectives would mix with the program's. Two writers may work at the same time,
so each has a group of its own while it lives. A later writer of the same ranks gets the group of
one that is gone.

Ranks may notice at different times that a writer is gone (garbage collection). So they tell each
other which groups are free, over one more group that no writer gets.

A group has threads of gloo's, which end when nothing refers to the group any more. They must end
before Python does. Such a thread lets go of a call's tensors some time after the call has returned,
and needs the GIL for it. If Python is ending, the thread is unwound where it asks for the GIL, and
that ends the process (std::terminate, SIGABRT), after the program has done all of its work. PyTorch
has this problem with all groups that are not destroyed in time. So we keep no reference to a group
of a writer, and it ends with the program's destroy_process_group(). If the program does not call
that, we destroy the writers' groups before Python ends.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tailrace._errors import Code, Error

FOR_EVER = datetime.timedelta(days=365)  # ranks may come to a collective call hours apart
_PATIENT_SECONDS = 60.0  # until a rank says that it waits


def new_group(ranks: Sequence[int]) -> Any:
    """A gloo group of these ranks. Collective over them. Its calls wait for a rank that is late, and
    fail if one is gone."""
    some = len(ranks) < dist.get_world_size()
    return dist.new_group(list(ranks), timeout=FOR_EVER, backend="gloo", use_local_synchronization=some)


def end(groups: list[Any]) -> None:
    """Destroys these groups, and takes them out of the list. Waits for the threads of those that
    nothing else refers to."""
    while groups:
        group = groups.pop()
        backend = group._get_backend(torch.device("cpu"))
        with contextlib.suppress(Exception):  # the program may have destroyed all groups
            dist.destroy_process_group(group)
        # What goes last waits for the threads. In every PyTorch a backend releases the GIL meanwhile;
        # in older ones a group does not.
        del group
        del backend


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Turns what torch raises when a group's call fails into Error (transport)."""
    try:
        yield
    except RuntimeError as error:
        raise Error(Code.TRANSPORT, f"a rank is gone, or cannot be reached: {error}") from error


class Group:
    """Leads to a group of our own that torch.distributed keeps. Making one is collective over the
    ranks."""

    def __init__(self, ranks: Sequence[int]) -> None:
        group = new_group(ranks)
        self._to = weakref.ref(group)
        _kept_by_torch.add(group)

    def get(self) -> Any:
        """The group, for the length of a call. Raises Error (failed state) when the program has
        destroyed all groups."""
        group = self._to()
        if group is None:
            raise Error(
                Code.FAILED_STATE,
                "the program has called destroy_process_group, and the group that was made before is gone; "
                "nothing was saved",
            )
        return group


class _Pool:
    """The groups of one set of ranks, in the same order on all of them."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self._ranks = ranks
        self._of_pool = Group(ranks)
        self._groups: list[Group] = []
        self._free: set[int] = set()

    def take(self, owner: object) -> Group:
        free_of: list[list[int]] = [[] for _ in self._ranks]
        dist.all_gather_object(free_of, sorted(self._free), group=self._of_pool.get())
        free = set.intersection(*map(set, free_of))
        if free:
            number = min(free)
            self._free.remove(number)
        else:
            number = len(self._groups)
            self._groups.append(Group(self._ranks))
        weakref.finalize(owner, self._free.add, number)
        return self._groups[number]


_pools: dict[tuple[int, ...], _Pool] = {}
_world: weakref.ref[Any] | None = None  # of the pools
_kept_by_torch: weakref.WeakSet[Any] = weakref.WeakSet()
os.register_at_fork(after_in_child=_kept_by_torch.clear)  # a child has the groups without their threads


@atexit.register
def _end_before_python() -> None:
    end(list(_kept_by_torch))


def own_group(owner: object, process_group: dist.ProcessGroup | None = None) -> Group | None:
    """A group of these ranks (None: of all) that the owner alone uses, as long as the owner lives.
    None without torch.distributed. Collective over the ranks. Call it in the program's thread, as
    torch requires for new groups."""
    global _world
    if not (dist.is_available() and dist.is_initialized()):
        return None
    if _world is None or _world() is not dist.group.WORLD:  # the program has begun anew: the old groups are gone
        _pools.clear()
        _world = weakref.ref(dist.group.WORLD)
    ranks = tuple(dist.get_process_group_ranks(process_group or dist.group.WORLD))
    with _telling_of_a_wait(len(ranks)):
        if ranks not in _pools:
            _pools[ranks] = _Pool(ranks)
        return _pools[ranks].take(owner)


@contextlib.contextmanager
def _telling_of_a_wait(ranks: int) -> Iterator[None]:
    """Warns of a wait that may never end, because ranks do not make what this one makes."""
    told = (
        f"this rank has waited {_PATIENT_SECONDS:g} s for others of {ranks} ranks. A StorageWriter, an install() or a "
        "Stopping has to be made on all of them. A rank that saves by itself makes StorageWriter.alone(path)"
    )
    timer = threading.Timer(_PATIENT_SECONDS, warnings.warn, (told, RuntimeWarning))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
