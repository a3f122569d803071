"""Sessions over an mpi4py communicator (tailrace/_ranks.py).

MPI makes progress only while it is called. So everything is started here, and looked at in progress(). Messages, data
and collectives have communicators of their own. Below MPI_THREAD_MULTIPLE only collectives are used, from the program's
threads.
"""

from __future__ import annotations

import time
from typing import Any

from mpi4py import MPI

from tailrace import _core
from tailrace._errors import Code, Error

# Messages that nobody has received when a session ends stay in MPI's queues, and a later
# communicator may have the same number there. So each session uses a message tag that none of its
# ranks has used before.
_newest_session = 0

_ROUND_BYTES = 1 << 28  # for a rank in one step of a collective, because counts are ints
_LARGEST = 1 << 30  # bytes of one send
_LONGEST_NAP_SECONDS = 1e-3
_LONGEST_FAREWELL_SECONDS = 1.0

# Memory that MPI may still access after a session has ended. It is kept until the process ends.
_given_up: list[Any] = []


class OverMpi:
    polled = True

    def __init__(self, comm: MPI.Comm) -> None:
        if MPI.Is_finalized():
            raise Error(Code.FAILED_STATE, "MPI has been finalized; nothing was opened")
        if comm == MPI.COMM_NULL:
            raise Error(Code.INVALID_ARGUMENT, "comm is MPI.COMM_NULL: this rank is not part of it; nothing was opened")
        if comm.Is_inter():
            raise Error(Code.INVALID_ARGUMENT, "comm is an intercommunicator: merge it first; nothing was opened")
        global _newest_session
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.host = MPI.Get_processor_name()
        self.concurrent = MPI.Query_thread() >= MPI.THREAD_MULTIPLE
        self._messages, self._data, self._collectives = comm.Dup(), comm.Dup(), comm.Dup()
        _newest_session = self._collectives.allreduce(_newest_session + 1, MPI.MAX)
        self._message_tag = _newest_session % (MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) + 1)
        self._posts: list[tuple[MPI.Request, bytes]] = []
        self._transfers: list[tuple[int, list[MPI.Request], memoryview]] = []
        self._arrival: tuple[int, MPI.Request, bytearray] | None = None
        self._failed = False

    def begin(self, arrivals: _core.Arrivals) -> None:
        self._arrivals = arrivals

    # ---- messages and data -----------------------------------------------------------------------------------

    def post(self, target: int, frame: bytes) -> None:
        request = self._messages.Isend([frame, MPI.BYTE], target, self._message_tag)
        self._posts.append((request, frame))

    def posts_delivered(self) -> bool:
        return not self._posts

    def send(self, number: int, target: int, tag: int, memory: memoryview) -> None:
        requests = [self._data.Isend([part, MPI.BYTE], target, tag) for part in _parts(memory)]
        self._transfers.append((number, requests, memory))

    def receive(self, number: int, source: int, tag: int, memory: memoryview) -> None:
        requests = [self._data.Irecv([part, MPI.BYTE], source, tag) for part in _parts(memory)]
        self._transfers.append((number, requests, memory))

    def progress(self) -> bool:
        before = len(self._posts) + len(self._transfers)
        self._posts = [post for post in self._posts if not post[0].Test()]
        under_way = []
        for transfer in self._transfers:
            if MPI.Request.Testall(transfer[1]):
                self._arrivals.transfer_ended(transfer[0])
            else:
                under_way.append(transfer)
        self._transfers = under_way
        return self._take_message() or len(self._posts) + len(self._transfers) < before

    def _take_message(self) -> bool:
        if self._arrival is None:
            status = MPI.Status()
            message = self._messages.Improbe(MPI.ANY_SOURCE, self._message_tag, status)
            if message is None:
                return False
            frame = bytearray(status.Get_count(MPI.BYTE))
            self._arrival = status.Get_source(), message.Irecv([frame, MPI.BYTE]), frame
        source, request, frame = self._arrival
        if not request.Test():
            return False
        self._arrival = None
        self._arrivals.frame(source, bytes(frame))
        return True

    # ---- collectives ------------------------------------------------------------------------------------------

    def allgather(self, mine: bytes) -> list[bytes]:
        lengths = bytearray(8 * self.size)
        self._wait(self._collectives.Iallgather([len(mine).to_bytes(8, "little"), MPI.BYTE], [lengths, MPI.BYTE]))
        counts = [int.from_bytes(lengths[8 * rank : 8 * rank + 8], "little") for rank in range(self.size)]
        parts = [bytearray() for _ in counts]
        share = max(1, _ROUND_BYTES // self.size)
        for done in range(0, max(counts), share):
            now = [max(0, min(share, count - done)) for count in counts]
            places = [sum(now[:rank]) for rank in range(self.size)]
            together = bytearray(sum(now))
            self._wait(
                self._collectives.Iallgatherv(
                    [mine[done : done + share], MPI.BYTE], [together, (now, places), MPI.BYTE]
                )
            )
            for part, place, count in zip(parts, places, now, strict=True):
                part += together[place : place + count]
        return [bytes(part) for part in parts]

    def broadcast(self, root: int, mine: bytes) -> bytes:
        length = bytearray(len(mine).to_bytes(8, "little"))
        self._wait(self._collectives.Ibcast([length, MPI.BYTE], root))
        whole = bytearray(mine) if self.rank == root else bytearray(int.from_bytes(length, "little"))
        for start in range(0, len(whole), _ROUND_BYTES):
            self._wait(self._collectives.Ibcast([memoryview(whole)[start : start + _ROUND_BYTES], MPI.BYTE], root))
        return bytes(whole)

    def _wait(self, request: MPI.Request) -> None:
        # The program's own thread waits here. MPI would burn its core, and the program's other
        # threads may have work.
        nap = 0.0
        while not request.Test():
            if self._failed:
                raise RuntimeError("this rank has left the others")
            time.sleep(nap)
            nap = min(_LONGEST_NAP_SECONDS, 2 * nap + 1e-6)

    # ---- the end ---------------------------------------------------------------------------------------------

    def close(self) -> bool:
        if self._failed or MPI.Is_finalized():
            return self.leave()
        deadline = time.monotonic() + _LONGEST_FAREWELL_SECONDS
        while self._posts and time.monotonic() < deadline:
            self.progress()
            time.sleep(1e-5)
        self.leave()
        for comm in (self._messages, self._data, self._collectives):
            comm.Free()
        return not self._transfers

    def leave(self) -> bool:
        self._failed = True
        _given_up.append((self._posts, self._transfers, self._arrival))
        return not self._transfers


def _parts(memory: memoryview) -> list[memoryview]:
    """Pieces that fit MPI's counts, which are ints."""
    return [memory[start : start + _LARGEST] for start in range(0, len(memory), _LARGEST)]
