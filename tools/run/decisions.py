"""What to do next after an attempt. Pure: it knows nothing of processes, files or clocks.

A death counts against the epoch that the program went on from if it brought no newer epoch and no
node was lost. After two such deaths a restart would most likely die as well, so the epoch is set
aside, and the program goes on from the one before it. A program that dies before it opens a session
has not read any epoch, and no epoch is set aside for it.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Sequence
from dataclasses import dataclass

DEATHS_BEFORE_STEP_BACK = 2
AT_ONCE_S = 60  # where there is no epoch, or nobody knows, only deaths as early as this count


@dataclass(frozen=True, order=True)
class Epoch:
    """An epoch of a run. The default order is not that of a restore."""

    number: int
    run: int

    def __str__(self) -> str:
        return f"epoch {self.number} (run {self.run})"


@dataclass(frozen=True)
class Rules:
    """What the user allows. Without step_back, only the number of restarts ends it."""

    restarts: int
    step_back: bool


@dataclass(frozen=True)
class Attempt:
    """One start of the program, once it has ended.

    status: as of subprocess: the exit status, or minus the signal's number. before, after: what a
    restore of the newest epoch would take when the program was started, and takes now; None: nothing.
    known: whether anybody knows that. opened: the program came as far as to open a session. lost: the
    nodes that are not well any more. asked_to_end: a signal came.
    """

    status: int
    seconds: float
    before: Epoch | None
    after: Epoch | None
    lost: tuple[str, ...] = ()
    asked_to_end: bool = False
    opened: bool = True
    known: bool = True

    @property
    def brought_nothing(self) -> bool:
        if not self.known or self.before is None:
            return self.after is None and self.seconds < AT_ONCE_S
        return self.after == self.before


class Action(enum.Enum):
    """END: the program's status is ours."""

    END = "end"
    RESTART = "restart"
    STEP_BACK = "step back"


@dataclass(frozen=True)
class Decision:
    """`why`: a sentence if the program is not started again although it failed; else empty."""

    action: Action
    why: str = ""


def exit_status(status: int) -> int:
    """As a shell reports it."""
    return status if status >= 0 else 128 - status


def describe(status: int) -> str:
    """ "ended with status 3", "was killed by SIGKILL". Launchers report a rank's signal as 128 + its number."""
    if status == 0:
        return "ended well"
    number = -status if status < 0 else status - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"ended with status {status}"
    return f"was killed by {name}" if status < 0 else f"ended with status {status} ({name})"


def deaths_at_once(attempts: Sequence[Attempt]) -> int:
    """How many of the last attempts started from where the last one did, did as much as the last one, and brought
    nothing. Deaths with a lost node are passed over: they are the node's fault."""
    deaths = 0
    for attempt in reversed(attempts):
        last = attempts[-1]
        if attempt.before != last.before or attempt.opened != last.opened or not attempt.brought_nothing:
            break
        deaths += not attempt.lost
    return deaths


def times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def decide(attempts: Sequence[Attempt], rules: Rules, *, nodes_left: int, older_exists: bool) -> Decision:
    """What to do after the last of `attempts`. nodes_left: that the next attempt could use. older_exists:
    there is a complete epoch besides the newest one."""
    last = attempts[-1]
    if last.status == 0 or last.asked_to_end:
        return Decision(Action.END)
    if nodes_left == 0:
        return Decision(Action.END, "no node is left")
    if len(attempts) > rules.restarts:
        return Decision(Action.END, f"it was restarted {times(rules.restarts)}, which is what --restarts allows")
    if not rules.step_back or deaths_at_once(attempts) < DEATHS_BEFORE_STEP_BACK:
        return Decision(Action.RESTART)
    if not last.opened:
        return Decision(Action.END, f"it died {DEATHS_BEFORE_STEP_BACK} times before it opened a session")
    if not last.known:
        return Decision(Action.END, f"it died {DEATHS_BEFORE_STEP_BACK} times within {AT_ONCE_S} s")
    if last.before is None:
        return Decision(
            Action.END, f"it died {DEATHS_BEFORE_STEP_BACK} times within {AT_ONCE_S} s, without reaching an epoch"
        )
    if not older_exists:
        return Decision(
            Action.END, f"it died {DEATHS_BEFORE_STEP_BACK} times from {last.before}, and there is no older epoch"
        )
    return Decision(Action.STEP_BACK)
