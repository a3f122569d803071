"""torch.distributed.checkpoint on several ranks: FSDP2 state, other numbers of ranks, cached plans, failures."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # PyTorch 2.5 has it under another name, and for GPUs only
    fully_shard = None
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from tailrace.torch import StorageReader, StorageWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def make_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(33, 64), torch.nn.GELU(), torch.nn.Linear(64, 7))
    if dist.is_initialized():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in model:
            if isinstance(part, torch.nn.Linear):
                fully_shard(part, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        torch.manual_seed(step)
        x = torch.randn(16, 33)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def resume(place: str, name: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model, optimizer = make_model()
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=f"{place}/{name}", storage_reader=StorageReader())
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return model, optimizer


def full(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: full(value) for key, value in state.items()}
    if isinstance(state, DTensor):
        return state.full_tensor()
    return state.clone() if isinstance(state, torch.Tensor) else state


def save_and_go_on(place: str) -> None:
    model, optimizer = make_model()
    train(model, optimizer, range(3))
    for files in (1, 3):
        state = state_of(model, optimizer)
        dcp.save(state, checkpoint_id=f"{place}/sync-{files}", storage_writer=StorageWriter(files=files))
    # DCP's own collectives run in its thread: they need a group that training does not use.
    background = dist.new_group(backend="gloo")
    future = dcp.async_save(
        state_of(model, optimizer),
        checkpoint_id=f"{place}/async-2",
        storage_writer=StorageWriter(files=2),
        process_group=background,
    )
    uninterrupted = train(model, optimizer, range(3, 6))
    future.result()
    for name in ("sync-1", "sync-3", "async-2"):
        assert train(*resume(place, name), range(3, 6)) == uninterrupted, name
    state = full(state_of(*resume(place, "sync-1")))
    if dist.get_rank() == 0:
        torch.save(state, f"{place}/expected.pt")


def load_elsewhere(place: str) -> None:
    expected = torch.load(f"{place}/expected.pt", weights_only=True)
    for name in ("sync-1", "sync-3", "async-2"):
        state = full(state_of(*resume(place, name)))
        torch.testing.assert_close(state["model"], expected["model"], rtol=0, atol=0)
        torch.testing.assert_close(state["optimizer"]["state"], expected["optimizer"]["state"], rtol=0, atol=0)


@pytest.mark.skipif(fully_shard is None, reason="this PyTorch has FSDP2 for GPUs only")
def test_training_goes_on_and_other_numbers_of_ranks_load(tmp_path: Path) -> None:
    distributed.run(2, save_and_go_on, str(tmp_path))
    for name, files in [("sync-1", 1), ("sync-3", 3), ("async-2", 2)]:
        assert len(list((tmp_path / name).iterdir())) == files
    load_elsewhere(str(tmp_path))  # without ranks
    distributed.run(3, load_elsewhere, str(tmp_path))


class Planner(DefaultSavePlanner):
    """A class of its own, since torch keys its cache of plans by the class's name."""


def sharded(fill: bool) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state: dict[str, Any] = {"step": torch.tensor(3.0 if fill else 0.0)}
    for number in range(50):
        whole = torch.arange(37.0 * 11).view(37, 11) + number
        state[f"w{number}"] = distribute_tensor(whole if fill else torch.zeros(37, 11), mesh, [Shard(number % 2)])
    return state


def save_sharded(place: str) -> None:
    dcp.save(sharded(True), checkpoint_id=place, storage_writer=StorageWriter())


class Counting:
    """A core reader, and how often each of its methods was called."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self.calls: collections.Counter[str] = collections.Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._core, name)


def load_sharded_with_few_calls(place: str) -> None:
    reader = StorageReader(place)
    counting = Counting(reader._open())
    reader._open = lambda: counting  # type: ignore[assignment,return-value]
    state = sharded(False)
    dcp.load(state, storage_reader=reader)
    for name, tensor in sharded(True).items():
        assert torch.equal(full(state[name]), full(tensor)), name
    # DCP's metadata, and the scalar; then parts of 50 tensors of two ranks with one call.
    assert counting.calls["read"] == 2 and counting.calls["read_box"] == 0, counting.calls
    assert counting.calls["read_boxes"] == 1, counting.calls


def test_parts_of_many_tensors_are_read_with_one_call(tmp_path: Path) -> None:
    distributed.run(2, save_sharded, str(tmp_path / "c"))
    distributed.run(3, load_sharded_with_few_calls, str(tmp_path / "c"))


def plans_and_failures(place: str) -> None:
    rank = dist.get_rank()
    # Replicated tensors are saved once, each rank's own under its name; with cached plans, and one that changes.
    for step in range(4):
        mine = torch.full((10 + rank + (5 if step == 3 and rank == 1 else 0),), 10 * step + rank)
        state = {"both": torch.full((1000,), step), f"own{rank}": mine, "step": step}
        planner = Planner(**distributed.PLAN_CACHING)
        writer = StorageWriter(files=1 + step % 2)
        dcp.save(state, checkpoint_id=f"{place}/plan{step}", storage_writer=writer, planner=planner)
    for step in range(4):
        length = 10 + rank + (5 if step == 3 and rank == 1 else 0)
        state = {"both": torch.zeros(1000, dtype=torch.int64), "step": -1}
        state[f"own{rank}"] = torch.zeros(length, dtype=torch.int64)
        dcp.load(state, checkpoint_id=f"{place}/plan{step}", storage_reader=StorageReader())
        assert (state["both"] == step).all() and state["step"] == step, step
        assert (state[f"own{rank}"] == 10 * step + rank).all(), step

    # A rank that cannot give its data ends the save on all ranks, at once, and nothing of it stays.
    class Broken(DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            if dist.get_rank() == 1:
                raise OSError("the test's own failure")
            return super().resolve_data(write_item)

    state = {f"own{rank}": torch.ones(5)}
    for _ in range(2):
        with pytest.raises(dcp.CheckpointException, match="the test's own failure"):
            dcp.save(state, checkpoint_id=f"{place}/bad", storage_writer=StorageWriter(), planner=Broken())
    dist.barrier()
    assert not list(Path(place, "bad").iterdir())

    # A writer for other ranks than those of the save is refused before anything is written.
    some = dist.new_group([0])
    if rank == 0:
        writer = StorageWriter(f"{place}/some", process_group=some)
        dcp.save({"w": torch.ones(3)}, storage_writer=writer, process_group=some)
        assert len(list(Path(place, "some").iterdir())) == 1
    dist.barrier()


def test_plans_are_followed_and_failures_are_everybodys(tmp_path: Path) -> None:
    distributed.run(2, plans_and_failures, str(tmp_path))
