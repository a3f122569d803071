"""Sessions over ranks: what a way of communicating must offer, and which way belongs to a `comm`.

The transport (python/src/transport.cc) builds messages, transfers and waiting from it. The package has two ways:
mpi4py (_over_mpi4py.py), and torch.distributed with gloo (torch/_over_gloo.py).
"""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol

from tailrace import _core
from tailrace._errors import Code, Error

# The number of ranks, as launchers give it to each: torchrun, Open MPI, MPICH, srun.
_NUMBERS_OF_RANKS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def launched() -> str | None:
    """What says that a launcher has started this process as one of several ("WORLD_SIZE is 2"). None if
    nothing does."""
    for variable in _NUMBERS_OF_RANKS:
        number = os.environ.get(variable, "")
        if number.isdecimal() and int(number) > 1:
            return f"{variable} is {number}"
    return None


class Primitives(Protocol):
    """One rank's end. Calls come from one thread at a time, except allgather and broadcast. These come
    from the program's threads, in the same order on all ranks. If `concurrent`, they may run beside
    the other calls.

    An exception is a failure of the transport. Only allgather, broadcast, begin and close wait for
    other ranks.
    """

    rank: int
    size: int
    host: str  # ranks with equal names share a node-local tier
    concurrent: bool  # may a background thread communicate while program threads do?
    polled: bool  # progress() must be called; otherwise threads of its own fill the arrivals

    def begin(self, arrivals: _core.Arrivals) -> None:
        """Collective. From now on it calls arrivals.frame(source, bytes) for what others posted to
        this rank, in order; arrivals.transfer_ended(number) when a transfer is complete and its
        memory free; and arrivals.failed(why) when nothing works any more."""

    def post(self, target: int, frame: bytes) -> None:
        """Posts a frame of any length. Most are short."""

    def posts_delivered(self) -> bool:
        """Whether everything posted has left."""

    def send(self, number: int, target: int, tag: int, memory: memoryview) -> None: ...

    def receive(self, number: int, source: int, tag: int, memory: memoryview) -> None:
        """Receives exactly as many bytes as are sent. Between two ranks no two transfers under way
        have the same tag (below 32767)."""

    def progress(self) -> bool:
        """Whether something moved."""

    def allgather(self, mine: bytes) -> list[bytes]: ...

    def broadcast(self, root: int, mine: bytes) -> bytes: ...

    def close(self) -> bool:
        """Ends the communication. Collective. Everything posted leaves first. Returns whether nobody
        accesses the memory of transfers any more. After a failure it does what leave() does."""

    def leave(self) -> bool:
        """Like close, but without the other ranks, which are told as far as possible. Ends calls that
        wait in other threads."""


def primitives_of(comm: Any) -> Primitives:
    """Collective over the ranks of `comm`. Raises Error (invalid argument, failed state)."""
    # Neither library is imported here. An object can only belong to one that is loaded.
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(comm, mpi.Comm):
        from tailrace._over_mpi4py import OverMpi

        return OverMpi(comm)
    torch = sys.modules.get("torch")
    if torch and torch.distributed.is_available() and isinstance(comm, torch.distributed.ProcessGroup):
        from tailrace.torch._over_gloo import OverGloo

        return OverGloo(comm)
    stranger = torch.distributed.GroupMember.NON_GROUP_MEMBER if torch and torch.distributed.is_available() else None
    if comm is None:
        why = "it is None, as torch.distributed.group.WORLD is before init_process_group"
    elif type(comm) is type(stranger) and comm == stranger:
        why = "this rank is not part of the process group"
    else:
        why = f"it is of type {type(comm).__module__}.{type(comm).__qualname__}"
    raise Error(
        Code.INVALID_ARGUMENT,
        f"comm must be an mpi4py communicator or a process group of torch.distributed: {why}; nothing was opened",
    )
