"""A handler for Orbax: CheckpointManager and Checkpointer with tailrace's files.

    import orbax.checkpoint as ocp
    from tailrace.jax.orbax import TailraceHandler, TailraceRestore, TailraceSave

    with ocp.CheckpointManager(directory, options=options, item_handlers=TailraceHandler(files=4)) as manager:
        manager.save(step, args=TailraceSave(state))
        state = manager.restore(manager.latest_step(), args=TailraceRestore(state))

Orbax owns steps, retention, and the atomic rename of a step's directory. An item's directory has tailrace's K files and
nothing else.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import orbax.checkpoint as ocp

from tailrace._errors import Code, Error
from tailrace.jax import _restore
from tailrace.jax._save import Save, Saver

# Orbax numbers the steps, in the names of directories.
_STEP = 0


class TailraceHandler(ocp.AsyncCheckpointHandler):  # type: ignore[misc]
    """Saves a pytree into `files` files.

    The options are those of tailrace.jax.Saver. The handler keeps the memory of its asynchronous copies for the next
    save until it is closed. It serves all processes of the program, and no part of them.
    """

    def __init__(self, *, files: int = 1, threads: int = 2, buffer_bytes: int = 8 << 20) -> None:
        self._saver = Saver(files=files, threads=threads, buffer_bytes=buffer_bytes)
        # Orbax makes an item's directory meanwhile, and fails if somebody else has made it.
        self._saver.waits_for_directory = True

    async def async_save(self, directory: Any, args: Any) -> list[Save]:
        """Returns when the tree is copied. The futures are done when the files are durable."""
        return [self._saver.async_save(await _created(directory), _item(args), step=_STEP)]

    def save(self, directory: Any, args: Any) -> None:
        self._saver.save(os.fspath(directory), _item(args), step=_STEP)

    def restore(self, directory: Any, args: Any = None) -> Any:
        args = TailraceRestore() if args is None else args
        given = {
            field.name: getattr(args, field.name)
            for field in dataclasses.fields(args)
            if field.name not in ("item", *_OPTIONS) and getattr(args, field.name)
        }
        if given:
            raise Error(
                Code.UNSUPPORTED,
                f"{type(args).__name__} with {', '.join(sorted(given))}: TailraceRestore has what this handler knows; "
                "nothing was restored",
            )
        options = {name: getattr(args, name, default) for name, default in _OPTIONS.items()}
        return _restore.restore(os.fspath(directory), args.item, step=_STEP, **options)

    def metadata(self, directory: Any) -> Any:
        """The tree as dicts and lists, with a jax.ShapeDtypeStruct for each array."""
        return _restore.metadata(os.fspath(directory), step=_STEP)

    def finalize(self, directory: Any) -> None:
        """Does nothing: the files are complete when the futures are done."""

    def close(self) -> None:
        self._saver.close()


@ocp.args.register_with_handler(TailraceHandler, for_save=True)
@dataclasses.dataclass
class TailraceSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """item: the pytree to save."""

    item: Any


@ocp.args.register_with_handler(TailraceHandler, for_restore=True)
@dataclasses.dataclass
class TailraceRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """What tailrace.jax.restore takes: the target, its shardings, whether the target may lack leaves, and whether
    element types are converted, as Orbax does."""

    item: Any = None
    shardings: Any = None
    partial: bool = False
    cast: bool = True


_OPTIONS: dict[str, Any] = {"shardings": None, "partial": False, "cast": True}


async def _created(directory: Any) -> str:
    """The directory, when Orbax has made it, which newer versions do meanwhile."""
    if hasattr(directory, "await_creation"):
        directory = await directory.await_creation()
    return str(os.fspath(directory))


def _item(args: Any) -> Any:
    if getattr(args, "save_args", None):
        raise Error(
            Code.UNSUPPORTED, "save_args are Orbax's own: the handler saves arrays as they are; nothing was saved"
        )
    return args.item
