"""Looks at the nodes while the program runs. Some launchers do not notice that a node is gone, or wait
for ever for one that went while they started the ranks.

A node is lost when it fails the check twice in a row. Then the program is ended, and started again
on the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

FAILURES_OF_A_LOST_NODE = 2


class Watch:
    """`check` returns the nodes that are not well now, and why. It may take its time. It is called in
    a thread of the watch, from `start` to `stop`."""

    def __init__(self, check: Callable[[], dict[str, str]], every_s: float) -> None:
        self._check = check
        self._every_s = every_s
        self._over = threading.Event()
        self._lost: dict[str, str] = {}
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait for a check that is under way."""
        self._over.set()

    def lost(self) -> dict[str, str]:
        """The lost nodes, and why. Empty until there is one; then the watch is over."""
        return self._lost

    def _look(self) -> None:
        failures: dict[str, int] = {}
        while not self._over.wait(self._every_s):
            sick = self._check()
            failures = {host: failures.get(host, 0) + 1 for host in sick}
            lost = {host: why for host, why in sick.items() if failures[host] >= FAILURES_OF_A_LOST_NODE}
            if lost:
                self._lost = lost
                return
