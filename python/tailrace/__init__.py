"""tailrace: save a program's state in one memory copy; it flows into few files in the background.

    import tailrace

    state = {"u": u, "meta": {"step": 0, "lr": 1e-3}}
    with tailrace.open(shared_dir="checkpoints", files=2) as session:
        session.restore_latest(into=state)                # None on a first run
        for step in range(state["meta"]["step"] + 1, 1001):
            advance(u)
            state["meta"]["step"] = step
            if step % 100 == 0:
                session.save(step, state)

    u = tailrace.read("checkpoints")["u"]                 # without a job; u[:10] reads ten rows

Failures raise tailrace.Error.
"""

from typing import TYPE_CHECKING

from tailrace import _meant
from tailrace._checkpoint import Checkpoint, LazyArray, read
from tailrace._core import version as __version__
from tailrace._errors import Code, Error
from tailrace._marks import List, Shard
from tailrace._restore import Differences
from tailrace._session import Epoch, Session, State, open

__all__ = [
    "Checkpoint",
    "Code",
    "Differences",
    "Epoch",
    "Error",
    "LazyArray",
    "List",
    "Session",
    "Shard",
    "State",
    "__version__",
    "open",
    "read",
]

if not TYPE_CHECKING:  # or type checkers would take every name for one of ours

    def __getattr__(name):
        raise _meant.error(name)
