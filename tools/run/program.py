"""Runs the program once: passes signals to it, and ends it when the time of grace is over, or when
somebody says that it cannot go on."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CUT_SHORT_S = 15  # between SIGTERM and SIGKILL for a program that cannot go on


@dataclass(frozen=True)
class Ended:
    status: int  # as of subprocess; of a program that was cut short never 0
    seconds: float


class Program:
    """One at a time. From its making on, signals do not end this process any more."""

    def __init__(self, grace_s: float, inherited: Sequence[int] = ()) -> None:
        """The program inherits these descriptors."""
        self.grace_s = grace_s
        self.inherited = inherited
        self.asked_at: float | None = None  # by the steady clock, when the first signal that ends came
        self.asked_by = 0  # that signal's number
        self._process: subprocess.Popen[bytes] | None = None
        for number in PASSED_ON:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
                signal.signal(number, self._take)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if number in ENDING and self.asked_at is None:
            self.asked_at, self.asked_by = time.monotonic(), number
        process = self._process
        if process is not None and process.returncode is None:
            process.send_signal(number)

    @property
    def asked_to_end(self) -> bool:
        return self.asked_at is not None

    def grace_left(self) -> float:
        """Seconds; the whole time if nobody has asked."""
        spent = 0.0 if self.asked_at is None else time.monotonic() - self.asked_at
        return max(0.0, self.grace_s - spent)

    def unless_asked_to_end(self) -> Callable[[], float]:
        """No limit, until somebody asks for an end; then no time is left."""
        return lambda: 0.0 if self.asked_to_end else math.inf

    def at_most(self, longest_s: float) -> Callable[[], float]:
        """How many seconds are left of so many, counted from now. Less, when somebody asks for an end meanwhile."""
        deadline = time.monotonic() + longest_s
        return lambda: min(deadline - time.monotonic(), self.grace_left() if self.asked_to_end else math.inf)

    def run(self, command: Sequence[str], cannot_go_on: Callable[[], object] = lambda: False) -> Ended:
        """Raises OSError if it cannot be started. Nothing of it is left in its process group.
        `cannot_go_on` is asked every second."""
        began = time.monotonic()
        cut_short_at: float | None = None
        # A session of its own: Ctrl-C comes to us alone, and reaches it once.
        self._process = process = subprocess.Popen(command, start_new_session=True, pass_fds=self.inherited)
        if self.asked_at is not None:  # in between
            process.send_signal(signal.SIGTERM)
        while True:
            try:
                status = process.wait(timeout=0.1 if self.asked_to_end else 1)
                break
            except subprocess.TimeoutExpired:
                if self.asked_to_end and self.grace_left() == 0:
                    _kill_group(process.pid)
                if cut_short_at is None and cannot_go_on():
                    cut_short_at = time.monotonic()
                    process.send_signal(signal.SIGTERM)
                if cut_short_at is not None and time.monotonic() - cut_short_at > CUT_SHORT_S:
                    _kill_group(process.pid)
        _kill_group(process.pid)
        self._process = None
        # MPICH's mpiexec ends with status 0 after SIGTERM, whatever its ranks did.
        if status == 0 and cut_short_at is not None:
            status = -signal.SIGTERM
        return Ended(status, time.monotonic() - began)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
