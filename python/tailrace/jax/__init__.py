"""Checkpoints of JAX programs: pytrees of jax.Arrays in K files, whatever the number of processes and devices.

    import tailrace.jax

    tailrace.jax.save("checkpoints", state, step=100, files=4)
    state = tailrace.jax.restore("checkpoints", state)        # the newest; onto the shardings that `state` has

tailrace.jax.orbax has a handler for Orbax's CheckpointManager. Failures raise tailrace.Error.
"""

from __future__ import annotations

import os
from typing import Any

from tailrace.jax._restore import latest_step, metadata, restore
from tailrace.jax._save import Save, Saver

__all__ = ["Save", "Saver", "async_save", "latest_step", "metadata", "restore", "save"]

_last: Saver | None = None  # of async_save


def save(directory: str | os.PathLike[str], tree: Any, *, step: int | None = None, **options: Any) -> None:
    """Saves the tree as epoch `step` of the directory (by default the number at the end of the directory's name, or 0).

    Returns when the checkpoint is complete and durable. An earlier checkpoint of that step is replaced then, and not
    before. options: files, name, threads and buffer_bytes, as Saver has them. Collective over the processes.
    """
    _wait()
    Saver(**options).save(directory, tree, step=step)


def async_save(directory: str | os.PathLike[str], tree: Any, *, step: int | None = None, **options: Any) -> Save:
    """As save, but returns when the tree is copied. Before that it waits for the last one to end.

    The Save's result() returns when the checkpoint is complete and durable, and raises what has failed. The copy takes
    new memory each time; a Saver uses its memory again.
    """
    global _last
    _wait()
    _last = Saver(keep=False, **options)
    return _last.async_save(directory, tree, step=step)


def _wait() -> None:
    if _last is not None:
        _last.wait()
