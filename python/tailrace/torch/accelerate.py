"""Hugging Face Accelerate: save_state and load_state through K files, written in the background.

    from accelerate import Accelerator
    from tailrace.torch.accelerate import install

    accelerator = Accelerator()
    install(accelerator, files=2)                              # on all ranks
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    accelerator.save_state("ckpt")                             # returns when the state is copied
    accelerator.load_state("ckpt")
    accelerator.end_training()                                 # waits for the last one

The models' weights and what is trained with them are segments of rank 0. The states of random generators and data
loaders are a segment of each rank (_segments has the steps). Hooks see the weights as before, and may remove them.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any

from accelerate.utils import DistributedType

from tailrace import _arguments, _restore, _tree
from tailrace._errors import Code, Error
from tailrace.torch import _durable, _hugging_face, _segments
from tailrace.torch.stopping import Stopping


class AcceleratorCheckpoints:
    """What install() returns. wait() and stop_in_time() are for you; the rest is for the Accelerator."""

    def __init__(self, accelerator: Any, asynchronous: bool, writer: _segments.Writer, trust_pickle: bool) -> None:
        self._accelerator = accelerator
        self._asynchronous = asynchronous
        self._writer = writer
        self._trust_pickle = trust_pickle
        self._load_theirs, self._end_training = accelerator.load_state, accelerator.end_training
        accelerator.save_state, accelerator.load_state = self._save_state, self._load_state
        accelerator.end_training = self._wait_and_end

    def wait(self) -> None:
        """Returns when the last checkpoint is durable. If it failed, raises Error, on all ranks and
        once."""
        self._writer.wait()

    def stop_in_time(self, output_dir: str | os.PathLike[str] | None = None, **options: Any) -> str | None:
        """The reason to stop, or None; the same on all ranks at the same call. Call it after each step,
        before a save_state of your own. The first call with a reason calls save_state, with these
        arguments, and returns when that checkpoint is durable. Collective. Needs install(stopping=...)."""
        return self._writer.stop_in_time(lambda: self._accelerator.save_state(output_dir, **options))

    def _save_state(
        self, output_dir: str | os.PathLike[str] | None = None, safe_serialization: bool = True, **options: Any
    ) -> str:
        accelerator = self._accelerator
        self._writer.wait()  # also for what `then` removes
        place, then = self._place(output_dir)
        self._writer.open(place, then)
        weights: list[Any] = []
        try:
            os.makedirs(place, exist_ok=True)
            weights += [accelerator.get_state_dict(model, unwrap=False) for model in accelerator._models]
            for hook in accelerator._save_model_state_pre_hook.values():
                hook(accelerator._models, weights, place)
        except Exception as error:  # the other ranks would wait for this one
            self._writer.fail(error)
        if accelerator.is_main_process:
            for number, state in enumerate(weights):
                self._writer.add(_model(number), functools.partial(dict, state))
            self._writer.add("training", self._training_state)
        self._writer.add(f"rank-{accelerator.process_index}", self._rank_state)
        self._writer.start()
        accelerator.project_configuration.iteration += 1
        if not self._asynchronous:
            self._writer.wait()
        return place

    def _place(self, given: str | os.PathLike[str] | None) -> tuple[str, Callable[[], Any]]:
        """The directory of a checkpoint, and what is done after its commit."""
        accelerator = self._accelerator
        project = accelerator.project_configuration
        if not project.automatic_checkpoint_naming:
            if given is None:
                raise Error(Code.INVALID_ARGUMENT, "save_state without a directory; nothing was saved")
            return os.path.expanduser(_arguments.path(given, "output_dir", "nothing was saved")), lambda: None
        directory = os.path.join(accelerator.project_dir, "checkpoints")
        place = os.path.join(directory, f"checkpoint_{accelerator.save_iteration}")
        if _is_complete(place):
            raise Error(
                Code.ALREADY_EXISTS,
                f"'{place}' holds a checkpoint already: set accelerator.project_configuration.iteration to the number "
                "to go on with; nothing was saved",
            )
        limit = project.total_limit
        there = os.path.abspath(directory)  # the thread may find another working directory

        def remove_old() -> None:
            # The new one stays, whatever its number is, because the program may have begun to count
            # anew.
            others = [other for other in _numbered(there) if os.path.basename(other) != os.path.basename(place)]
            for old in others[: max(0, len(others) + 1 - limit) if limit else 0]:
                _durable.remove(old)

        return place, remove_old

    def _training_state(self) -> dict[str, Any]:
        accelerator = self._accelerator
        return {
            "optimizers": [optimizer.state_dict() for optimizer in accelerator._optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in accelerator._schedulers],
            "scaler": None if accelerator.scaler is None else accelerator.scaler.state_dict(),
            "custom": [each.state_dict() for each in accelerator._custom_objects],
        }

    def _rank_state(self) -> dict[str, Any]:
        return {
            "random": _hugging_face.random_states(),
            "step": self._accelerator.step,
            "data": [data.state_dict() if _is_stateful(data) else None for data in self._accelerator._dataloaders],
        }

    def _load_state(
        self, input_dir: str | os.PathLike[str] | None = None, load_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> None:
        accelerator = self._accelerator
        self._writer.wait()
        if input_dir is not None:
            place = os.path.expanduser(_arguments.path(input_dir, "input_dir", "nothing was loaded"))
        elif accelerator.project_configuration.automatic_checkpoint_naming:
            place = _newest(os.path.join(accelerator.project_dir, "checkpoints"))
        else:
            raise Error(Code.INVALID_ARGUMENT, "load_state without a directory; nothing was loaded")
        if _segments.owners_in(place) is None:
            self._load_theirs(place, load_kwargs, **options)
            return
        models = list(accelerator._models)
        for hook in accelerator._load_model_state_pre_hook.values():
            hook(models, place)
        options.pop("map_location", None)  # the state goes to the model's device
        with _segments.Reader(place) as reader:

            def load(segment: str) -> Any:
                return reader.load(segment, trust_pickle=self._trust_pickle)

            # Everything is read before anything changes.
            training, rank = load("training"), f"rank-{accelerator.process_index}"
            mine = load(rank) if rank in reader.owners else None  # there may have been fewer ranks
            _check(training, _TRAINING, f"'training' in '{place}'")
            if mine is not None:
                _check(mine, _OF_RANK, f"{rank!r} in '{place}'")
            self._compare(training, place)
            weights = [load(_model(number)) for number in range(len(models))]
        # PyTorch would copy what fits before it raises, and cast other types. (Only schedulers and
        # the program's objects know what they make of their states.)
        for number, (model, state) in enumerate(zip(models, weights, strict=True)):
            self._compare_weights(model, state, f"{_model(number)!r} in '{place}'", options.get("strict", True))
        for model, state in zip(models, weights, strict=True):
            model.load_state_dict(state, **options)
        for kind, targets in self._targets().items():
            for target, state in zip(targets, training[kind], strict=True):
                target.load_state_dict(state)
        if accelerator.scaler is not None and training["scaler"] is not None:
            accelerator.scaler.load_state_dict(training["scaler"])
        if mine is not None:
            for data, state in zip(accelerator._dataloaders, mine["data"], strict=False):
                if state is not None and _is_stateful(data):
                    data.load_state_dict(state)
            accelerator.step = mine["step"]
            _hugging_face.set_random_states(mine["random"])

    def _targets(self) -> dict[str, list[Any]]:
        """Everything that has a state besides models, by its name in the segment."""
        accelerator = self._accelerator
        return {
            "optimizers": accelerator._optimizers,
            "schedulers": accelerator._schedulers,
            "custom": accelerator._custom_objects,
        }

    def _compare(self, training: dict[str, Any], place: str) -> None:
        for kind, targets in self._targets().items():
            if len(targets) != len(training[kind]):
                raise Error(
                    Code.INVALID_ARGUMENT,
                    f"the checkpoint in '{place}' has {len(training[kind])} {kind}, the Accelerator {len(targets)}; "
                    "nothing was loaded",
                )
        for number, (optimizer, state) in enumerate(
            zip(self._accelerator._optimizers, training["optimizers"], strict=True)
        ):
            what = f"optimizer {number} in '{place}'"
            saved, mine = _group_sizes(state, what), _group_sizes(optimizer.state_dict(), what)
            if saved != mine:
                raise Error(
                    Code.INVALID_ARGUMENT,
                    f"{what} has groups of {saved} parameters, and of {mine} here; nothing was loaded",
                )

    def _compare_weights(self, model: Any, saved: dict[str, Any], what: str, strict: bool) -> None:
        mine = model.state_dict()
        if not strict:
            common = saved.keys() & mine.keys()
            saved, mine = ({name: state[name] for name in common} for state in (saved, mine))
        text, _ = _tree.encode(saved, allow_pickle=self._trust_pickle)
        _restore.compare(_tree.parse(text), mine, what, self._trust_pickle)

    def _wait_and_end(self) -> None:
        self._writer.wait()
        self._end_training()


def install(
    accelerator: Any,
    *,
    files: int = 1,
    asynchronous: bool = True,
    pickle: bool = False,
    trust_pickle: bool = False,
    name: str = "tailrace",
    threads: int = 2,
    buffer_bytes: int = 8 << 20,
    stopping: Stopping | None = None,
) -> AcceleratorCheckpoints:
    """Makes an Accelerator (one process, or DDP) save and load through tailrace. Collective over all
    ranks.

    Names and number of the checkpoints (ProjectConfiguration), registered objects and hooks work as
    before. With total_limit the oldest checkpoints are removed when the new one is complete.
    Checkpoints of Accelerate itself can be loaded, too.

    files: K, for all ranks together, at most 64 per rank.
    asynchronous: save_state returns when the state is copied. A failure is raised by the next
        save_state, by end_training(), or by wait() of the returned object. Call one of the latter
        two before you destroy the process group. If False, save_state returns when the checkpoint
        is durable.
    pickle: pickles objects in the state that have no safe encoding. Loading them needs
        trust_pickle, and may then run any code.
    name: the job's name, a part of the files' names.
    threads, buffer_bytes: per rank, for writing.
    stopping: what stop_in_time() of the returned object asks (tailrace.torch.stopping). It is told how
        long checkpoints take. It stays yours, to close.
    """
    kind = accelerator.distributed_type
    _hugging_face.refuse_sharded(
        "Accelerator", deepspeed=kind == DistributedType.DEEPSPEED, fsdp=kind == DistributedType.FSDP
    )
    for unknown, why in (
        (kind in (DistributedType.MEGATRON_LM, DistributedType.XLA), f"its state with {kind.value} is not known"),
        (accelerator.project_configuration.save_on_each_node, "save_on_each_node needs one file per node"),
    ):
        if unknown:
            raise Error(Code.UNSUPPORTED, f"this Accelerator cannot save through tailrace: {why}; nothing was changed")
    writer = _segments.Writer(
        "accelerate",
        files=files,
        name=name,
        threads=threads,
        buffer_bytes=buffer_bytes,
        pickle=pickle,
        stopping=stopping,
    )
    return AcceleratorCheckpoints(accelerator, asynchronous, writer, trust_pickle)


def _model(number: int) -> str:
    return "model" if number == 0 else f"model_{number}"


# The parts of segments.
_TRAINING: dict[str, Any] = {"optimizers": list, "schedulers": list, "custom": list, "scaler": (dict, type(None))}
_OF_RANK: dict[str, Any] = {"random": dict, "step": int, "data": list}


def _check(segment: Any, parts: dict[str, Any], what: str) -> None:
    for name, kind in parts.items():
        if not isinstance(segment, dict) or name not in segment or not isinstance(segment[name], kind):
            raise Error(Code.CORRUPT, f"{what} has no {name!r}, or one of another kind; nothing was loaded")


def _group_sizes(optimizer: Any, what: str) -> list[int]:
    """The number of parameters of each group in an optimizer's state. Empty for an optimizer without
    groups."""
    try:
        groups = optimizer.get("param_groups", []) if isinstance(optimizer, dict) else []
        return [len(group["params"]) for group in groups]
    except (KeyError, TypeError) as error:
        raise Error(Code.CORRUPT, f"{what} cannot be understood: {error!r}; nothing was loaded") from None


def _is_stateful(data: Any) -> bool:
    return bool(getattr(data, "use_stateful_dataloader", False))


def _is_complete(place: str) -> bool:
    """Whether a directory holds a checkpoint of tailrace's or of Accelerate's own."""
    if not os.path.isdir(place):
        return False
    return _segments.owners_in(place) is not None or any(
        name.startswith("random_states_") for name in os.listdir(place)
    )


def _numbered(directory: str) -> list[str]:
    """The checkpoints with automatic names, oldest first, complete or not."""
    found = {int(name[1]): name[0] for of in os.listdir(directory) if (name := re.fullmatch(r"checkpoint_(\d+)", of))}
    return [os.path.join(directory, found[number]) for number in sorted(found)]


def _newest(directory: str) -> str:
    for place in reversed(_numbered(directory) if os.path.isdir(directory) else []):
        if _is_complete(place):
            return place
    raise Error(Code.NOT_FOUND, f"there is no complete checkpoint in '{directory}'; nothing was loaded")
