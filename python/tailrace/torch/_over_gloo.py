"""Sessions over the ranks of a torch.distributed process group (tailrace/_ranks.py).

Gloo has point-to-point calls and collectives that any thread may use. A receive goes straight into its memory, and a
message that nobody receives stays with its sender. Gloo cannot tell whether a send or a receive is complete. It can
only be waited for, and a wait that times out breaks the whole group. So threads wait, with the GIL released and without
a bound. What they wait for always comes, or the group breaks:

  receiver   a receive of one block from any rank (longer data follow under another tag), posted again at once
  watch      a receive from the next rank, of the word that it closes. It fails when that rank is gone. Then this
             rank breaks its groups too, and the watch of the rank before sees that. So all ranks learn of it.
  posts      waits for what was posted, in order
  waiters    one per transfer under way; a flush bounds their number by its buffers

We have two gloo groups of our own. Messages, data and the watch share one, by tags. Collectives use the other, because
they come from the program's threads. The program's groups see none of it, and may be destroyed before the session is
closed.
"""

from __future__ import annotations

import contextlib
import datetime
import queue
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tailrace import _core
from tailrace._errors import Code, Error
from tailrace.torch import _groups

_AT_ONCE = datetime.timedelta(milliseconds=1)
_LONGEST_END_SECONDS = 5.0

_BLOCK, _REST, _GONE, _NEVER, _FIRST_DATA = range(5)  # tags
_BLOCK_BYTES = 512
_LENGTH = struct.Struct("<Q")
_INLINE_BYTES = _BLOCK_BYTES - _LENGTH.size
_LAST = 2**64 - 1  # in place of a length: the sender closes
_ROUND_BYTES = 64 << 20  # for a rank in one step of an allgather or broadcast


def _tensor(data: Any) -> torch.Tensor:
    """A tensor over the same memory, which must be writable."""
    return torch.frombuffer(data, dtype=torch.uint8)


def _to_bytes(tensor: torch.Tensor, start: int, stop: int) -> bytes:
    return tensor[start:stop].numpy().tobytes()


class OverGloo:
    concurrent = True
    polled = False

    def __init__(self, group: dist.ProcessGroup) -> None:
        if not dist.is_initialized():
            raise Error(Code.FAILED_STATE, "torch.distributed is not initialised, or not any more; nothing was opened")
        try:
            ranks = dist.get_process_group_ranks(group)
        except (KeyError, ValueError):
            raise Error(Code.FAILED_STATE, "this process group has been destroyed; nothing was opened") from None
        if not dist.is_gloo_available():
            raise Error(Code.UNSUPPORTED, "this PyTorch was built without gloo; nothing was opened")
        self.rank, self.size = ranks.index(dist.get_rank()), len(ranks)
        self.host = socket.gethostname()
        self._messages, self._collectives = _groups.new_group(ranks), _groups.new_group(ranks)
        self._next, self._previous = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        self._ending = False
        self._broken = threading.Event()
        self._breaking = threading.RLock()  # a signal handler may come back here
        self._posts: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._posted = self._delivered = 0
        self._threads: list[threading.Thread] = []
        self._waiters = _Waiters(self)

    def begin(self, arrivals: _core.Arrivals) -> None:
        self._arrivals = arrivals
        if self.size > 1:
            self._receiver = self._start(self._receive_messages)
            self._threads = [self._start(self._watch), self._start(self._wait_for_posts)]

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        # No thread of ours may keep the interpreter from ending. leave() is called before that, but
        # does not end a receiver that gloo does not wake.
        thread = threading.Thread(target=self.guarded, args=(work,), name="tailrace gloo", daemon=True)
        thread.start()
        return thread

    def guarded(self, work: Callable[[], None]) -> None:
        _core.this_thread_may_be_late()
        try:
            work()
        except Exception as error:
            self._fail(str(error))

    def _fail(self, why: str) -> None:
        if not self._ending:
            self._arrivals.failed(why)
        self._break()

    # ---- messages ------------------------------------------------------------------------------------------

    def post(self, target: int, frame: bytes) -> None:
        self._post(target, len(frame), frame)

    def _post(self, target: int, length: int, frame: bytes) -> None:
        block = bytearray(_BLOCK_BYTES)
        inline = frame[:_INLINE_BYTES]
        _LENGTH.pack_into(block, 0, length)
        block[_LENGTH.size : _LENGTH.size + len(inline)] = inline
        works = [self._messages.send([_tensor(block)], target, _BLOCK)]
        if len(frame) > _INLINE_BYTES:
            works.append(self._messages.send([_tensor(bytearray(frame[_INLINE_BYTES:]))], target, _REST))
        self._posted += 1
        self._posts.put(tuple(works))

    def posts_delivered(self) -> bool:
        return self._posted == self._delivered

    def _wait_for_posts(self) -> None:
        while (works := self._posts.get()) is not None:
            for work in works:
                work.wait()
            self._delivered += 1

    def _receive_messages(self) -> None:
        block = torch.empty(_BLOCK_BYTES, dtype=torch.uint8)
        while True:
            work = self._messages.recv_anysource([block], _BLOCK)
            work.wait()
            source = work._source_rank()
            (length,) = _LENGTH.unpack(_to_bytes(block, 0, _LENGTH.size))
            if length == _LAST:
                return
            frame = _to_bytes(block, _LENGTH.size, _LENGTH.size + min(length, _INLINE_BYTES))
            if length > _INLINE_BYTES:
                rest = torch.empty(length - _INLINE_BYTES, dtype=torch.uint8)
                self._messages.recv([rest], source, _REST).wait()
                frame += rest.numpy().tobytes()
            self._arrivals.frame(source, frame)

    def _watch(self) -> None:
        word = torch.empty(1, dtype=torch.uint8)
        try:
            self._messages.recv([word], self._next, _GONE).wait()
        except RuntimeError as error:
            self._fail(f"rank {self._next} has left without closing its session, or cannot be reached: {error}")

    # ---- data ----------------------------------------------------------------------------------------------

    def send(self, number: int, target: int, tag: int, memory: memoryview) -> None:
        self._waiters.wait(number, self._messages.send([_tensor(memory)], target, _FIRST_DATA + tag))

    def receive(self, number: int, source: int, tag: int, memory: memoryview) -> None:
        self._waiters.wait(number, self._messages.recv([_tensor(memory)], source, _FIRST_DATA + tag))

    def transfer_ended(self, number: int) -> None:
        self._arrivals.transfer_ended(number)

    def progress(self) -> bool:
        return False

    # ---- collectives ---------------------------------------------------------------------------------------

    def allgather(self, mine: bytes) -> list[bytes]:
        block = bytearray(_BLOCK_BYTES)
        _LENGTH.pack_into(block, 0, len(mine))
        inline = mine[:_INLINE_BYTES]
        block[_LENGTH.size : _LENGTH.size + len(inline)] = inline
        parts, lengths = [], []
        for opening in self._gather(block):
            (length,) = _LENGTH.unpack(_to_bytes(opening, 0, _LENGTH.size))
            lengths.append(length)
            parts.append(bytearray(_to_bytes(opening, _LENGTH.size, _LENGTH.size + min(length, _INLINE_BYTES))))
        # Rounds of equal size, because gloo offers no others.
        share = max(_BLOCK_BYTES, _ROUND_BYTES // self.size)
        done, longest = _INLINE_BYTES, max(lengths)
        while done < longest:
            count = min(share, longest - done)
            block = bytearray(mine[done : done + count])
            block.extend(bytes(count - len(block)))
            for part, length, piece in zip(parts, lengths, self._gather(block), strict=True):
                part += _to_bytes(piece, 0, max(0, min(count, length - done)))
            done += count
        return [bytes(part) for part in parts]

    def _gather(self, block: bytearray) -> list[torch.Tensor]:
        parts = [torch.empty(len(block), dtype=torch.uint8) for _ in range(self.size)]
        self._collect(self._collectives.allgather, [parts], [_tensor(block)])
        return parts

    def broadcast(self, root: int, mine: bytes) -> bytes:
        options = dist.BroadcastOptions()
        options.rootRank = root
        length = torch.tensor([len(mine)])
        self._collect(self._collectives.broadcast, [length], options)
        whole = bytearray(mine) if self.rank == root else bytearray(int(length))
        for start in range(0, len(whole), _ROUND_BYTES):
            piece = _tensor(memoryview(whole)[start : start + _ROUND_BYTES])
            self._collect(self._collectives.broadcast, [piece], options)
        return bytes(whole)

    def _collect(self, start: Callable[..., Any], *arguments: Any) -> None:
        try:
            start(*arguments).wait()
        except RuntimeError as error:
            self._fail(str(error))
            raise

    # ---- the end -------------------------------------------------------------------------------------------

    def close(self) -> bool:
        if self.size > 1 and not self._broken.is_set():
            try:
                # No rank takes its groups down while another still uses them.
                self._gather(bytearray(1))
                self._ending = True
                word = self._messages.send([torch.zeros(1, dtype=torch.uint8)], self._previous, _GONE)
                self._post(self._next, _LAST, b"")
                word.wait()
                self._receiver.join(_LONGEST_END_SECONDS)
            except RuntimeError:
                pass  # another rank is gone, so this one ends too
        closed = self.size == 1 or not (self._broken.is_set() or self._receiver.is_alive())
        return self._take_down() if closed else self.leave()

    def leave(self) -> bool:
        # The receiver may stay behind: gloo does not end a receive from any rank, which never wakes
        # up once all connections are closed.
        self._ending = True
        self._break()
        return self._take_down()

    def _take_down(self) -> bool:
        self._posts.put(None)
        self._waiters.close()
        for thread in [*self._threads, *self._waiters.threads]:
            if thread is not threading.current_thread():
                thread.join(_LONGEST_END_SECONDS)
        ended = not any(thread.is_alive() for thread in [*self._threads, *self._waiters.threads])
        self._broken.set()  # nobody closes connections of groups that are gone
        groups = [self._messages, self._collectives]
        # A thread that has not ended does not use it.
        del self._collectives
        if ended and (self.size == 1 or not self._receiver.is_alive()):
            del self._messages
        _groups.end(groups)
        return ended

    def _break(self) -> None:
        """Ends every wait here and closes the connections, which the other ranks notice.

        Waits for a thread that is doing this already. That may be the receiver, which nobody joins. It refers to the
        groups meanwhile, and gloo's threads would stay behind with them (_groups.py).
        """
        with self._breaking:
            if self._broken.is_set() or self.size == 1:
                return
            self._broken.set()
            self._close_connections()

    def _close_connections(self) -> None:
        for group in (self._messages, self._collectives):
            for peer in range(self.size):
                if peer != self.rank:
                    self._close_connection(group, peer)

    def _close_connection(self, group: Any, peer: int) -> None:
        with contextlib.suppress(RuntimeError):
            group.recv([torch.empty(1, dtype=torch.uint8)], peer, _NEVER).wait(_AT_ONCE)


class _Waiters:
    """Threads that wait for transfers. There are as many as transfers at one time, and they are used
    again."""

    def __init__(self, owner: OverGloo) -> None:
        self._owner = owner
        self._work: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        self.threads: list[threading.Thread] = []

    def wait(self, number: int, work: Any) -> None:
        with self._lock:
            if self._free > 0:
                self._free -= 1
            else:
                self.threads.append(self._owner._start(self._run))
        self._work.put((number, work))

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            number, work = job
            work.wait()
            del work, job
            self._owner.transfer_ended(number)
            with self._lock:
                self._free += 1

    def close(self) -> None:
        for _ in self.threads:
            self._work.put(None)
