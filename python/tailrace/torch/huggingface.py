"""Hugging Face's Trainer: its checkpoints in K files, written in the background.

    from transformers import Trainer
    from tailrace.torch.huggingface import install

    trainer = Trainer(model, args, train_dataset=data)
    install(trainer, files=2)                                  # on all ranks
    trainer.train(resume_from_checkpoint=True)                 # as ever

OUTPUT_DIR/checkpoint-N holds the K files, and trainer_state.json, which the Trainer looks for. The directory has
another name until all of that is durable, so every checkpoint-N is complete. Model, optimizer, scheduler and scaler
are a segment of rank 0. The states of the random generators are a segment of each rank (_segments has the steps).
"""

from __future__ import annotations

import contextlib
import glob
import os
from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import HubStrategy, rotate_checkpoints

from tailrace._errors import Code, Error
from tailrace.torch import _durable, _hugging_face, _segments
from tailrace.torch.stopping import Stopping

_STATE = "trainer_state.json"


class TrainerCheckpoints:
    """What install() returns. Its wait() is for you; the rest is for the Trainer."""

    def __init__(self, trainer: Any, asynchronous: bool, writer: _segments.Writer, trust_pickle: bool) -> None:
        self._trainer = trainer
        self._asynchronous = asynchronous
        self._writer = writer
        self._trust_pickle = trust_pickle
        self._theirs = {name: getattr(trainer, name) for name in _OURS}
        for name, ours in _OURS.items():
            setattr(trainer, name, ours.__get__(self))
        trainer.add_callback(_WaitAtTheEnd(self))

    def wait(self) -> None:
        """Returns when the last checkpoint is durable. If it failed, raises Error, on all ranks and
        once."""
        self._writer.wait()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        trainer = self._trainer
        state, args = trainer.state, trainer.args
        if trainer.hp_search_backend is None and trial is None:
            trainer.store_flos()
        run_dir = trainer._get_output_dir(trial=trial)
        place = os.path.join(run_dir, f"checkpoint-{state.global_step}")
        self._writer.wait()  # also for what `then` removes
        if state.best_global_step:
            best = os.path.join(run_dir, f"checkpoint-{state.best_global_step}")
            if best == place or os.path.isdir(best):
                state.best_model_checkpoint = best
        for callback in [*trainer.callback_handler.callbacks, trainer.control]:
            if isinstance(callback, ExportableState):
                name, of = type(callback).__name__, callback.state()
                if isinstance(state.stateful_callbacks[name], list):
                    state.stateful_callbacks[name].append(of)
                else:
                    state.stateful_callbacks[name] = of
        limit, best_place = args.save_total_limit, state.best_model_checkpoint
        best_place = best_place and os.path.abspath(best_place)
        there = os.path.abspath(run_dir)  # the thread may find another working directory
        unfinished = os.path.join(there, f".checkpoint-{state.global_step}.unfinished")

        def then() -> None:
            _take_its_name(unfinished, os.path.join(there, os.path.basename(place)))
            rotate_checkpoints(
                output_dir=there, save_total_limit=limit, best_model_checkpoint=best_place, use_mtime=True
            )

        self._writer.open(unfinished, then)
        if args.should_save:
            try:
                _clear(run_dir)
                os.makedirs(unfinished)
                state.save_to_json(os.path.join(unfinished, _STATE))
            except Exception as error:  # the other ranks would wait for this one
                self._writer.fail(error)
            self._writer.add("model", lambda: trainer.model.state_dict())
        if not args.save_only_model:
            if args.should_save:
                self._writer.add("training", self._training_state)
            self._writer.add(f"random-{args.process_index}", _hugging_face.random_states)
        self._writer.start()
        if not self._asynchronous:
            self._writer.wait()

    def _training_state(self) -> dict[str, Any]:
        trainer = self._trainer
        scaler = getattr(trainer.accelerator, "scaler", None)
        return {
            "optimizer": trainer.optimizer.state_dict(),
            "scheduler": trainer.lr_scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
        }

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        target = self._trainer.model if model is None else model
        found = self._load(resume_from_checkpoint, "model", into=target.state_dict())
        if found is None:
            self._theirs["_load_from_checkpoint"](resume_from_checkpoint, model)
        else:
            target.load_state_dict(found)  # the tensors are filled already

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        found = self._load(checkpoint, "training")
        if found is None:
            self._theirs["_load_optimizer_and_scheduler"](checkpoint)
            return
        self._trainer.optimizer.load_state_dict(found["optimizer"])
        self._trainer.lr_scheduler.load_state_dict(found["scheduler"])
        if found["scaler"] is not None:
            self._trainer.accelerator.scaler.load_state_dict(found["scaler"])

    def _load_rng_state(self, checkpoint: str | None) -> None:
        found = self._load(checkpoint, f"random-{self._trainer.args.process_index}")
        if found is None:
            self._theirs["_load_rng_state"](checkpoint)
            return
        _hugging_face.set_random_states(found)

    def _load_best_model(self) -> None:
        self.wait()
        if dist.is_available() and dist.is_initialized():
            dist.barrier()  # rank 0 renames the directory, and the others look for it
        model = self._trainer.model
        found = self._load(self._trainer.state.best_model_checkpoint, "model", into=model.state_dict())
        if found is None:
            self._theirs["_load_best_model"]()
        else:
            model.load_state_dict(found)

    def _load(self, place: str | None, segment: str, into: Any = None) -> Any:
        """Loads a segment. None if the Trainer itself must load it, or does not have it either."""
        if place is None:
            return None
        owners = _segments.owners_in(place)
        if owners is None or segment not in owners:
            return None
        with _segments.Reader(place) as reader:
            return reader.load(segment, into=into, trust_pickle=self._trust_pickle)


_OURS: dict[str, Any] = {
    name: getattr(TrainerCheckpoints, name)
    for name in (
        "_save_checkpoint",
        "_load_from_checkpoint",
        "_load_optimizer_and_scheduler",
        "_load_rng_state",
        "_load_best_model",
    )
}


class _StopInTime(TrainerCallback):  # type: ignore[misc]
    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._stopping.reason() is not None:
            control.should_save = control.should_training_stop = True


class _WaitAtTheEnd(TrainerCallback):  # type: ignore[misc]
    def __init__(self, checkpoints: TrainerCheckpoints) -> None:
        self._checkpoints = checkpoints

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._checkpoints.wait()


def install(
    trainer: Any,
    *,
    files: int = 1,
    asynchronous: bool = True,
    pickle: bool = False,
    trust_pickle: bool = False,
    name: str = "tailrace",
    threads: int = 2,
    buffer_bytes: int = 8 << 20,
    stopping: Stopping | None = None,
) -> TrainerCheckpoints:
    """Makes a Trainer (one process, or DDP) save and resume through tailrace. Collective over all
    ranks.

    The Trainer's arguments work as before: when it saves, how many checkpoints it keeps
    (save_total_limit), which one is best, and where it resumes. Checkpoints of the Trainer itself
    can be loaded, too.

    files: K, for all ranks together, at most 64 per rank.
    asynchronous: training goes on when the state is copied. train() ends when the last checkpoint
        is durable. A failure is raised by the next save, or at the end. If False, training waits
        for each checkpoint.
    pickle: pickles objects in the state that have no safe encoding. Loading them needs
        trust_pickle, and may then run any code.
    name: the job's name, a part of the files' names.
    threads, buffer_bytes: per rank, for writing.
    stopping: when it has a reason (tailrace.torch.stopping), all ranks save after the same step, and
        train() ends. It is told how long checkpoints take. It stays yours, to ask and to close.
    """
    _hugging_face.refuse_sharded("Trainer", deepspeed=trainer.is_deepspeed_enabled, fsdp=trainer.is_fsdp_enabled)
    if trainer.args.push_to_hub and trainer.args.hub_strategy != HubStrategy.END:
        raise Error(
            Code.UNSUPPORTED,
            f"this Trainer pushes its checkpoints to the Hub (hub_strategy {trainer.args.hub_strategy.value!r}), which "
            "would get K files that only tailrace reads: set hub_strategy='end', to push the model after training; "
            "nothing was changed",
        )
    writer = _segments.Writer(
        "huggingface",
        files=files,
        name=name,
        threads=threads,
        buffer_bytes=buffer_bytes,
        pickle=pickle,
        stopping=stopping,
    )
    writer.first(lambda: _give_names_back(trainer.args.output_dir))  # train() looks for the newest before it saves
    if stopping is not None:
        trainer.add_callback(_StopInTime(stopping))
    return TrainerCheckpoints(trainer, asynchronous, writer, trust_pickle)


def _clear(run_dir: str) -> None:
    """Removes what killed saves have left."""
    for place in glob.glob(os.path.join(glob.escape(run_dir), ".checkpoint-*.unfinished")):
        _durable.remove(place)
    _give_names_back(run_dir)
    for replaced in _replaced(run_dir):
        _durable.remove(replaced)


def _give_names_back(run_dir: str) -> None:
    """Gives checkpoints their names back that were renamed for new ones that never came."""
    for replaced in _replaced(run_dir):
        place = os.path.join(run_dir, os.path.basename(replaced)[1:].removesuffix(".replaced"))
        if not os.path.lexists(place):
            try:
                os.rename(replaced, place)
            except OSError as error:
                raise Error(
                    Code.IO_ERROR, f"giving '{place}' its name back: {error.strerror}; it is intact in '{replaced}'"
                ) from error


def _replaced(run_dir: str) -> list[str]:
    return glob.glob(os.path.join(glob.escape(run_dir), ".checkpoint-*.replaced"))


def _take_its_name(unfinished: str, place: str) -> None:
    """Gives a complete checkpoint its name. An older one of that name is renamed at that moment, and
    removed afterwards. So whatever has the name is complete at any time."""
    _durable.sync(os.path.join(unfinished, _STATE))
    _durable.sync(unfinished)
    directory, name = os.path.split(place)
    replaced = os.path.join(directory, f".{name}.replaced")
    try:
        if os.path.isdir(place) or os.path.islink(place):  # a file of that name is not ours to remove
            os.rename(place, replaced)
        os.rename(unfinished, place)
    except OSError as error:
        if not os.path.lexists(place):
            with contextlib.suppress(OSError):
                os.rename(replaced, place)
        raise Error(
            Code.IO_ERROR, f"giving '{place}' its name: {error.strerror}; older checkpoints are intact"
        ) from error
    _durable.sync_name_of(place)
    with contextlib.suppress(OSError):  # otherwise the next save removes it
        _durable.remove(replaced)
