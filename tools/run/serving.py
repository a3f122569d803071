"""A process that runs one agent or several, and what it says. A thread reads that, to its end, so the process is never
held up by us.
"""

from __future__ import annotations

import collections
import re
import subprocess
import threading
from collections.abc import Callable, Sequence

import launchers

LINES_KEPT = 20


class Serving:
    """`serves`: what a line holds that says so. `ended_early` is called, in the thread, with the reason if the process
    ends without such a line."""

    def __init__(
        self, command: Sequence[str], serves: re.Pattern[str], ended_early: Callable[[str], None] | None = None
    ) -> None:
        """Raises OSError if it cannot be started."""
        self.served: re.Match[str] | None = None
        self.over = False  # it will say no more
        self._serves = serves
        self._ended_early = ended_early
        self._said: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, time_left: launchers.TimeLeft) -> bool:
        """Until it serves or is over, for that long at most. Whether it has served."""
        with self._changed:
            while not self.served and not self.over and (left := time_left()) > 0:
                self._changed.wait(min(left, launchers.POLL_S))
            return self.served is not None

    def last_words(self) -> str:
        """What agents complained of, rather than what their launcher makes of that. Empty: nothing."""
        with self._changed:
            own = [line for line in self._said if line.startswith("tailrace")]
            said = own[-1:] or list(self._said)[:1]
        return said[0] if said else ""

    def _read(self) -> None:
        try:
            self._read_all()
        finally:
            with self._changed:
                self.over = True
                self._changed.notify_all()

    def _read_all(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                with self._changed:
                    if match := self._serves.search(line):
                        self.served = match
                    elif re.search(r"\w", line):
                        self._said.append(line.strip())
                    self._changed.notify_all()
        if self._ended_early and not self.served:
            status = self.process.wait()
            self._ended_early(self.last_words() or f"it ended with status {status}")
