"""Lightning: the Trainer's checkpoints through tailrace.

    from lightning.pytorch import Trainer
    from tailrace.torch.lightning import TailraceCheckpointIO

    trainer = Trainer(plugins=[TailraceCheckpointIO()])

For saving in the background wrap it in Lightning's own AsyncCheckpointIO. Works with the packages lightning and
pytorch_lightning: with the one that the program has imported, else with the one that is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

from tailrace._errors import Code, Error
from tailrace.torch._file import load, save


def _checkpoint_io() -> Any:
    names = ["lightning.pytorch", "pytorch_lightning"]
    for name in sorted(names, key=lambda name: name not in sys.modules):
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(f"{name}.plugins.io").CheckpointIO
    raise ImportError("tailrace.torch.lightning needs the package lightning or pytorch_lightning")


class TailraceCheckpointIO(_checkpoint_io()):  # type: ignore[misc]
    """One file of tailrace.torch.save per checkpoint: durable when it has its name, checked when it is loaded.

    pickle: objects in the checkpoint (of a callback's state, or hyperparameters) that have no safe encoding are
        pickled; without it saving raises Error (invalid argument) with their path. Loading them needs
        weights_only=False in the Trainer's call.
    """

    def __init__(self, *, pickle: bool = False) -> None:
        super().__init__()
        self._pickle = pickle

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        if storage_options is not None:
            raise Error(Code.INVALID_ARGUMENT, f"storage options for '{path}' are not known; nothing was saved")
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        save(checkpoint, path, pickle=self._pickle)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        # Lightning's default is a function that leaves every storage on the host.
        device = None if callable(map_location) else map_location
        loaded: dict[str, Any] = load(path, map_location=device, weights_only=weights_only is not False)
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
