"""TorchTitan's checkpoint manager through tailrace: all its modes, the newest checkpoint, its own ones, other ranks."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpointer import AsyncMode, CheckpointManager
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw

import tailrace
from tailrace.torch.torchtitan import TailraceCheckpointManager

MODES = [mode.value for mode in AsyncMode]
STEPS = 3


class Kept:
    """A state beside model, optimizer and schedule."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class Adapter:
    """Names as Hugging Face's, for what is saved in its format."""

    fqn_to_index_mapping = None

    def to_hf(self, state: dict[str, Any]) -> dict[str, Any]:
        return {f"model.{name}": tensor for name, tensor in state.items()}

    def from_hf(self, state: dict[str, Any]) -> dict[str, Any]:
        return {name.removeprefix("model."): tensor for name, tensor in state.items()}

    def get_hf_storage_reader(self, path: str, from_quantized: bool) -> HuggingFaceStorageReader:
        return HuggingFaceStorageReader(path)


class Job:
    """A model that FSDP2 spreads over the ranks, its training, and a manager with the options given."""

    def __init__(self, place: Path, seed: int, own: Any = None, kind: Any = TailraceCheckpointManager, **options: Any):
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 3))
        fully_shard(self.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        self.optimizers = default_adamw(lr=1e-2).build(model_parts=[self.model])
        schedules = LRSchedulersContainer.Config(warmup_steps=2)
        self.schedules = schedules.build(optimizers=self.optimizers, training_steps=10)
        self.kept = Kept(own)
        options = {"enable": True, "folder": str(place), "interval": 1, "last_save_model_only": False, **options}
        self.manager = kind.Config(**options).build(
            dataloader=None,
            model_parts=[self.model],
            optimizers=self.optimizers,
            lr_schedulers=self.schedules,
            states={"kept": self.kept},
            sd_adapter=Adapter(),
        )

    def step(self) -> None:
        self.optimizers.zero_grad()
        self.model(torch.ones(2, 6)).square().mean().backward()
        self.manager.maybe_wait_for_staging()
        self.optimizers.step()
        self.schedules.step()

    def tensors(self) -> dict[str, torch.Tensor]:
        """On all ranks, all of it."""
        state = {**self.model.state_dict(), **self.optimizers.state_dict()}
        whole = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        return {name: getattr(value, "full_tensor", lambda value=value: value)() for name, value in whole.items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def save_in_all_modes(place: Path) -> None:
    for mode in MODES:
        job = Job(place / mode, 1, own="mine", async_mode=mode, files=2)
        saved: list[dict[str, torch.Tensor]] = []
        for step in range(1, STEPS + 1):
            job.step()
            saved.append({name: tensor.clone() for name, tensor in job.tensors().items()})
            assert job.manager.save(step)
        job.step()  # while the last one is written: it was copied, or TorchTitan waits
        job.manager.maybe_wait_for_saving()
        for step in (-1, 1, 2):
            again = Job(place / mode, 2, async_mode=mode)
            assert again.manager.load(step)
            assert equal(again.tensors(), saved[step if step == -1 else step - 1])
            assert again.schedules.state_dict() == {"last_epoch": STEPS if step == -1 else step}
            assert again.kept.value == "mine"
        torch.save(saved[-1], place / f"{mode}.{dist.get_rank()}.pt")
        job.manager.close()
        assert job.manager.stager.kept_bytes == 0


def load_on_one_rank(place: Path) -> None:
    for mode in MODES:
        job = Job(place / mode, 2)
        assert job.manager.load()
        assert equal(job.tensors(), torch.load(place / f"{mode}.0.pt"))


@pytest.mark.filterwarnings("ignore")
def test_two_ranks_save_and_one_loads(tmp_path: Path) -> None:
    distributed.run(2, save_in_all_modes, tmp_path)
    for mode in MODES:
        place = tmp_path / mode
        assert sorted(path.name for path in place.iterdir()) == [f"step-{step}" for step in range(1, STEPS + 1)]
        assert [len(list(of.iterdir())) for of in place.iterdir()] == [2] * STEPS
        assert tailrace.read(place / "step-1")["0.weight"].shape == (5, 6)
    distributed.run(1, load_on_one_rank, tmp_path)


def mix_checkpoints(place: Path) -> None:
    own = Job(place, 1, kind=CheckpointManager)
    own.step()
    own.manager.save(1)
    ours = Job(place, 2)
    assert ours.manager.load() and equal(ours.tensors(), own.tensors())  # TorchTitan's own one
    ours.step()
    ours.manager.save(2)
    # Newer ones that are none: interrupted, another's files, a name that says more.
    for name in ("step-3", "step-4", "step-50.old"):
        (place / name).mkdir()
    (place / "step-3" / "tailrace.e000000003.r0001.1of1.tailrace.unfinished").write_bytes(bytes(4096))
    (place / "step-4" / "notes.txt").write_bytes(b"x")
    again = Job(place, 3)
    assert again.manager.load() and equal(again.tensors(), ours.tensors())
    again.step()
    assert again.manager.load(1) and equal(again.tensors(), own.tensors())
    # In the directory of one of TorchTitan's: the newer one, which is ours.
    ours.step()
    ours.manager.save(1)
    assert again.manager.load(1) and equal(again.tensors(), ours.tensors())
    # A newer one of TorchTitan's.
    own.manager.save(5)
    assert again.manager.load() and equal(again.tensors(), own.tensors())


@pytest.mark.filterwarnings("ignore")
def test_the_newest_complete_checkpoint_is_loaded_whoever_wrote_it(tmp_path: Path) -> None:
    distributed.run(1, mix_checkpoints, tmp_path)


def try_the_rest(place: Path) -> None:
    job = Job(place / "new", 1)
    assert not job.manager.load()  # a first run
    with pytest.raises(FileNotFoundError):
        job.manager.load(7)

    # A damaged one is told, and not passed over in silence.
    job.manager.save(1)
    (file,) = (place / "new" / "step-1").iterdir()
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(tailrace.Error, match="no complete epoch"):
        job.manager.load()

    job = Job(place / "pickled", 1, own=Fraction(1, 2))
    job.manager.save(1)
    with pytest.raises(CheckpointException, match="could run any code"):
        Job(place / "pickled", 2).manager.load()
    trusting = Job(place / "pickled", 2, trust_pickle=True)
    assert trusting.manager.load() and trusting.kept.value == Fraction(1, 2)

    job = Job(place / "hf", 1, last_save_model_only=True, last_save_in_hf=True)
    job.manager.save(1, last_step=True)
    exported = place / "hf" / "step-1"
    assert [path.suffix for path in exported.iterdir() if path.name.startswith("model-")] == [".safetensors"]
    imported = Job(place / "other", 2, initial_load_path=str(exported), initial_load_in_hf=True)
    assert imported.manager.load()
    assert equal(imported.model.state_dict(), job.model.state_dict())

    with pytest.raises(tailrace.Error, match="'memory://x' is not one"):
        Job(Path("x"), 1, folder="memory://x")
    disabled = Job(place / "disabled", 1, enable=False).manager
    assert not disabled.save(1) and not disabled.load()
    disabled.close()


@pytest.mark.filterwarnings("ignore")
def test_what_is_not_an_ordinary_checkpoint(tmp_path: Path) -> None:
    distributed.run(1, try_the_rest, tmp_path)


def fail_in_the_background(place: Path) -> None:
    place.mkdir()
    job = Job(place, 1, async_mode="async")
    (place / "step-1").write_bytes(b"a file, where a directory has to be")
    job.manager.save(1)
    with pytest.raises(CheckpointException):
        job.manager.save(2)


@pytest.mark.filterwarnings("ignore")
def test_the_next_save_raises_what_has_failed_in_the_background(tmp_path: Path) -> None:
    distributed.run(1, fail_in_the_background, tmp_path / "checkpoints")
