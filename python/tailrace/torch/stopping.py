"""Stop training in time: one last checkpoint, then a clean end, on all ranks at the same step.

    from tailrace.torch.stopping import Stopping

    stopping = Stopping("checkpoints")                         # on all ranks, in the main thread
    for step, batch in enumerate(data):
        train(batch)
        if stopping.stop_in_time(lambda: save(step)):          # on all ranks, after each step
            break

It is for programs that save without a session: through torch.distributed.checkpoint or the frameworks' adapters, which
take a Stopping and have such a call of their own. A program with a session asks session.should_stop(), which sends
fewer messages.

The ranks agree by an all_reduce of one number at each call, over a gloo group of their own. So a call waits for all
ranks, as the exchange of gradients in the step before it has done. Reasons are:

  - a signal (SIGTERM unless others are named) at any rank;
  - the end of the job: SLURM_JOB_END_TIME, or the settings job_end and job_minutes, less stop_before;
  - `tailrace halt DIRECTORY`.

Rank 0 looks for the last two.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from tailrace import _arguments, _core
from tailrace._errors import Code, Error
from tailrace.torch import _groups

_REASON_BYTES = 1024


class Stopping:
    """Making one is collective over all ranks of torch.distributed, if it is initialized.

    directory: where `tailrace halt` leaves its order; the directory of the checkpoints. Rank 0
        needs it, and makes nothing in it.
    signals: by name. They no longer end the program. Handlers that are installed later, as
        Lightning does, are taken out by the next reason(), and put back by close(). None: no signal
        is caught.
    chain: a handler that Python has now for one of the signals is called as well.
    settings: job_end, job_minutes, stop_before, as in docs/settings.md.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        signals: Iterable[str] | None = ("TERM",),
        chain: bool = True,
        **settings: Any,
    ) -> None:
        unknown = settings.keys() - {"job_end", "job_minutes", "stop_before"}
        if unknown:
            raise Error(Code.INVALID_ARGUMENT, f"{sorted(unknown)[0]!r} is not a setting of Stopping; nothing was done")
        place = _arguments.path(directory, "directory", "nothing was done")
        self._numbers = _numbers(signals or ())
        if self._numbers and threading.current_thread() is not threading.main_thread():
            raise Error(Code.INVALID_ARGUMENT, "signals can be caught in the main thread only; nothing was done")
        self._own = _groups.own_group(self)
        self._rank = 0 if self._own is None else dist.get_rank(self._own.get())
        # On every rank, so that a wrong setting is an error on every rank. Rank 0 asks it.
        self._rules = _core.StopReasons(os.path.abspath(place), [(key, str(of)) for key, of in settings.items()])
        self._got: list[str] = []  # signals of this rank
        self._put_back: dict[int, Any] = {number: signal.getsignal(number) for number in self._numbers}
        self._chained = dict(self._put_back) if chain else {}
        self._handler = _handler_of(weakref.ref(self), self._put_back)
        self._reason: str | None = None
        self._saved_once_more = False
        self._saves = 0
        self._save_seconds = 0.0
        self.catch()

    def reason(self) -> str | None:
        """The reason to stop, or None; the same on all ranks at the same call. Collective. Once there
        is a reason, it stays, and no messages are sent any more."""
        if self._reason is not None:
            return self._reason
        self.catch()
        mine = f"signal {self._got[0]} at rank {self._rank}" if self._got else None
        if self._rank == 0:
            mine = mine or self._rules.why(self._saves, self._save_seconds)
        self._reason = mine if self._own is None else self._agree(mine, self._own.get())
        return self._reason

    def stop_in_time(self, save: Callable[[], Any]) -> str | None:
        """As reason(). The first call with a reason also saves once more, by save(). Call it after a
        step and before the program's own save of that step, so that the step is saved once."""
        reason = self.reason()
        if reason is not None and not self._saved_once_more:
            save()
            self._saved_once_more = True
        return reason

    def saved(self, seconds: float) -> None:
        """A checkpoint was made, and took so long until it was durable. The end of the job is then
        announced early enough for another one, and `tailrace halt --after N` counts it. May be called
        in any thread. The adapters for DeepSpeed, Accelerate and the Trainer call it."""
        self._saves += 1
        self._save_seconds = max(self._save_seconds / 2, seconds)

    def close(self) -> None:
        """Puts the handlers back that were there before. Not collective."""
        for number in self._numbers:
            if signal.getsignal(number) is self._handler:
                signal.signal(number, self._put_back[number] or signal.SIG_DFL)
        self._numbers = []
        self._rules.close()

    def _agree(self, mine: str | None, group: dist.ProcessGroup) -> str | None:
        # Ranks that have a reason give their number, counted from the end, so that the lowest wins.
        size = dist.get_world_size(group)
        asked = torch.tensor([size - self._rank if mine is not None else 0])
        with _groups.failures_told():
            dist.all_reduce(asked, op=dist.ReduceOp.MAX, group=group)
            if asked.item() == 0:
                return None
            source = size - int(asked.item())
            text = torch.zeros(_REASON_BYTES, dtype=torch.uint8)
            if source == self._rank and mine is not None:
                own = mine.encode()[:_REASON_BYTES]
                text[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
            dist.broadcast(text, dist.get_global_rank(group, source), group=group)
        return bytes(text.tolist()).rstrip(b"\0").decode(errors="replace")

    def catch(self) -> None:
        """Puts the handlers in place of those that were installed since. reason() does it, too."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._numbers:
            current = signal.getsignal(number)
            if current is not self._handler:
                self._put_back[number] = current
                signal.signal(number, self._handler)


def _handler_of(weak: weakref.ref[Stopping], put_back: dict[int, Any]) -> Callable[[int, Any], None]:
    def on_signal(number: int, frame: Any) -> None:
        stopping = weak()
        if stopping is None:  # forgotten without close(): the signal does what it did before
            former = put_back[number]
            if signal.getsignal(number) is on_signal:
                signal.signal(number, former or signal.SIG_DFL)
                os.kill(os.getpid(), number)
            elif callable(former):  # a later handler called this one, and decides whether the program ends
                former(number, frame)
            return
        stopping._got.append(signal.Signals(number).name.removeprefix("SIG"))
        before = stopping._chained.get(number)
        if callable(before):
            before(number, frame)

    return on_signal


def _numbers(names: Iterable[str]) -> list[int]:
    numbers = []
    for name in names:
        full = "SIG" + name.upper().removeprefix("SIG")
        if full not in signal.Signals.__members__ or full in ("SIGKILL", "SIGSTOP"):
            raise Error(Code.INVALID_ARGUMENT, f"{name!r} is not a signal that can be caught; nothing was done")
        numbers.append(int(signal.Signals[full]))
    return numbers
