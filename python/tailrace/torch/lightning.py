"""Lightning: the Trainer's checkpoints through tailrace.

    from lightning.pytorch import Trainer
    from tailrace.torch.lightning import TailraceCheckpointIO

    trainer = Trainer(plugins=[TailraceCheckpointIO(asynchronous=True)])

StopInTime ends training before the job ends: at a signal, at the end of its time, or by `tailrace halt`.

It works with the packages lightning and pytorch_lightning: with the one that the program has imported, or else with
the one that is installed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from tailrace import _arguments, _tree
from tailrace._errors import Code, Error
from tailrace.torch._file import load, save
from tailrace.torch._staging import AsyncStager
from tailrace.torch.stopping import Stopping


def _from_lightning(module: str, name: str) -> Any:
    packages = ["lightning.pytorch", "pytorch_lightning"]
    for package in sorted(packages, key=lambda package: package not in sys.modules):
        with contextlib.suppress(ModuleNotFoundError):
            return getattr(importlib.import_module(f"{package}.{module}"), name)
    raise ImportError("tailrace.torch.lightning needs the package lightning or pytorch_lightning")


class TailraceCheckpointIO(_from_lightning("plugins.io", "CheckpointIO")):  # type: ignore[misc]
    """One file of tailrace.torch.save per checkpoint. It is durable when it has its name, and checked
    when it is loaded.

    pickle: pickles objects in the checkpoint (of a callback's state, or hyperparameters) that have
        no safe encoding. Without it, saving raises Error (invalid argument) with their path.
        Loading them needs weights_only=False in the Trainer's call.
    asynchronous: a save copies the state into memory that is kept, and returns. One thread writes
        and removes the files, in the Trainer's order. (Lightning's own AsyncCheckpointIO removes at
        once. If the save of a file is still to come then, the file stays for good.) The next save
        waits for the last one and raises its failure, and so does the end of the Trainer's run.
        Until then nothing is removed. An object without a safe encoding is reported at once. Views
        of one tensor come back as tensors of their own, unless they are equal.
    """

    def __init__(self, *, pickle: bool = False, asynchronous: bool = False) -> None:
        super().__init__()
        self._pickle = pickle
        self._thread = ThreadPoolExecutor(1, "tailrace-lightning") if asynchronous else None
        self._stager = AsyncStager()
        self._pending: list[Future[None]] = []

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        if storage_options is not None:
            raise Error(Code.INVALID_ARGUMENT, f"storage options for '{path}' are not supported; nothing was saved")
        self._wait()  # the next copy uses the memory of the one being written
        if self._thread is not None:
            _tree.encode(checkpoint, self._pickle)  # raises now what the thread would raise too late
            checkpoint = self._stager.stage_again(checkpoint)
        # The thread may find another working directory.
        place = os.path.abspath(_arguments.path(path, "path", "nothing was saved"))
        self._do(lambda: self._save(checkpoint, place))

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        self._wait()
        loaded: dict[str, Any] = load(path, map_location, weights_only=weights_only is not False)
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        before = list(self._pending)
        place = os.path.abspath(path)

        def remove() -> None:
            # The Trainer removes the checkpoints that this one makes superfluous, if this one and
            # those before succeed.
            if all(future.exception() is None for future in before):
                _remove(place)

        self._do(remove)

    def teardown(self) -> None:
        """Waits for what is being written, and raises its failure."""
        self._wait()

    def _save(self, checkpoint: dict[str, Any], path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        save(checkpoint, path, pickle=self._pickle)

    def _do(self, action: Callable[[], None]) -> None:
        if self._thread is None:
            action()
        else:
            self._pending.append(self._thread.submit(action))

    def _wait(self) -> None:
        wait(self._pending)  # after an interrupt they are still pending
        pending, self._pending = self._pending, []
        failures = [failure for future in pending if (failure := future.exception()) is not None]
        if failures:
            raise failures[0]


class StopInTime(_from_lightning("callbacks", "Callback")):  # type: ignore[misc]
    """Saves DIRECTORY/stopped.ckpt and ends fit(), on all ranks after the same batch, when there is a
    reason to stop (tailrace.torch.stopping). trainer.fit(..., ckpt_path=...) goes on from that file.

    directory, options: those of Stopping, but for `chain`. Lightning's own handler of SIGTERM is out of the way while
        fit() runs. (It sends a collective from inside the handler, and raises without saving.)

    After fit() `reason` says why it ended early; None if it did not.
    """

    def __init__(self, directory: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self.reason: str | None = None
        self._directory = _arguments.path(directory, "directory", "nothing was done")
        self._options = options
        self._stopping: Stopping | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.reason = None
        self._stopping = Stopping(self._directory, chain=False, **self._options)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        if self._stopping is None or self.reason is not None:
            return
        place = os.path.join(self._directory, "stopped.ckpt")
        self.reason = self._stopping.stop_in_time(lambda: trainer.save_checkpoint(place))
        if self.reason is None:
            return
        # Otherwise the Trainer would go on until these are reached.
        trainer.fit_loop.min_epochs = None
        trainer.fit_loop.epoch_loop.min_steps = None
        trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self._stopping is not None:
            self._stopping.close()
            self._stopping = None


def _remove(path: str | os.PathLike[str]) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
