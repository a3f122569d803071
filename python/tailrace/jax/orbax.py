"""A handler for Orbax: CheckpointManager and Checkpointer with tailrace's files.

    import orbax.checkpoint as ocp
    from tailrace.jax.orbax import TailraceHandler, TailraceRestore, TailraceSave

    with ocp.CheckpointManager(directory, options=options, item_handlers=TailraceHandler(files=4)) as manager:
        manager.save(step, args=TailraceSave(state))
        state = manager.restore(manager.latest_step(), args=TailraceRestore(state))

Orbax owns steps, retention, and the atomic rename of a step's directory. An item's directory has tailrace's K files and
nothing else. A program that has StandardSave, StandardRestore, PyTreeSave or PyTreeRestore keeps them with

    ocp.CheckpointManager(directory, options=options, handler_registry=registry(default=TailraceHandler(files=4)))
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import orbax.checkpoint as ocp

from tailrace.jax import _orbax_arguments, _restore
from tailrace.jax._orbax_arguments import TreeMetadata
from tailrace.jax._save import Save, Saver

__all__ = ["TailraceHandler", "TailraceRestore", "TailraceSave", "TreeMetadata", "registry"]

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
        place = await _created(directory)
        tree = _orbax_arguments.to_save(args)
        return [self._saver.async_save(place, tree, step=_STEP, custom=getattr(args, "custom_metadata", None))]

    def save(self, directory: Any, args: Any) -> None:
        custom = getattr(args, "custom_metadata", None)
        self._saver.save(os.fspath(directory), _orbax_arguments.to_save(args), step=_STEP, custom=custom)

    def restore(self, directory: Any, args: Any = None) -> Any:
        given = TailraceRestore() if args is None else args
        return _restore.restore_as(
            os.fspath(directory),
            lambda entries: _orbax_arguments.to_restore(given, entries),
            shardings=_orbax_arguments.shardings_of(given),
            step=_STEP,
            partial=getattr(given, "partial", False) or getattr(given, "partial_restore", False),
            cast=getattr(given, "cast", True),
        )

    def metadata(self, directory: Any) -> TreeMetadata:
        """What was saved, without reading an array."""
        with _restore.Source(os.fspath(directory), _STEP, None) as source:
            return TreeMetadata(source.described(), source.custom)

    def finalize(self, directory: Any) -> None:
        """Does nothing: the files are complete when the futures are done."""

    def close(self) -> None:
        self._saver.close()


@ocp.args.register_with_handler(TailraceHandler, for_save=True)
@dataclasses.dataclass
class TailraceSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """item: the pytree to save.

    save_args: a pytree like it, of Orbax's SaveArgs or None. Their `dtype` converts arrays.
    custom_metadata: an object of JSON's types, which `item_metadata` gives back.
    """

    item: Any
    save_args: Any = None
    custom_metadata: Any = None


@ocp.args.register_with_handler(TailraceHandler, for_restore=True)
@dataclasses.dataclass
class TailraceRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """What tailrace.jax.restore takes: the target, its shardings, whether the target may lack leaves, and whether
    element types are converted, as Orbax does.

    restore_args: a pytree of Orbax's RestoreArgs, which count more than the leaves of the target.
    """

    item: Any = None
    shardings: Any = None
    partial: bool = False
    cast: bool = True
    restore_args: Any = None


def registry(**handlers: TailraceHandler) -> Any:
    """For CheckpointManager's `handler_registry`: the handler of each item, with Orbax's arguments for pytrees as well
    as tailrace's. An item without a name has the name `default`."""
    made = ocp.handlers.DefaultCheckpointHandlerRegistry()
    for item, handler in handlers.items():
        for args in (TailraceSave, TailraceRestore, *_ORBAX_ARGUMENTS):
            made.add(item, args, handler)
    return made


_ORBAX_ARGUMENTS = (ocp.args.StandardSave, ocp.args.StandardRestore, ocp.args.PyTreeSave, ocp.args.PyTreeRestore)


async def _created(directory: Any) -> str:
    """The directory, when Orbax has made it, which newer versions do meanwhile."""
    if hasattr(directory, "await_creation"):
        directory = await directory.await_creation()
    return str(os.fspath(directory))
