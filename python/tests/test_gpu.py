"""State on a GPU: staging into pinned memory, FSDP2's tensors, and loading back onto the device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from distributed import PLAN_CACHING
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict

import tailrace
import tailrace.torch
from tailrace.torch import AsyncStager, StorageReader, StorageWriter

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: staging from a device is not tested"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]

KEEP_BUSY = 1 << 27  # cycles of the GPU, some 70 ms


def state_on_gpu() -> dict[str, Any]:
    torch.manual_seed(3)
    tied = torch.randn(300, 700, device="cuda")
    return {
        "model": {
            "embedding": tied,
            "head": tied,
            "half": torch.randn(17, 5, device="cuda").bfloat16(),
            "eight": torch.randn(64, device="cuda").to(torch.float8_e4m3fn),
            "scalar": torch.tensor(3.25, device="cuda"),
            "empty": torch.empty(0, 4, device="cuda"),
            "strided": torch.randn(40, 30, device="cuda").t()[::2],
            "conjugate": torch.randn(9, dtype=torch.complex64, device="cuda").conj(),
        },
        "on_the_host": torch.arange(1 << 10),
        "step": 12,
    }


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, dict):
        for part in value.values():
            yield from tensors(part)
    elif isinstance(value, torch.Tensor):
        yield value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    wide = torch.complex128 if a.is_complex() else torch.float64
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.cpu().to(wide), b.cpu().to(wide))


@pytest.mark.parametrize("background", [False, True])
def test_staged_tensors_are_equal_and_pinned(background: bool) -> None:
    stager = AsyncStager(background=background)
    state = state_on_gpu()
    for _ in range(3):  # the memory of the first copy is used again
        made = stager.stage_again(state)
        staged = made.result() if background else made
        assert same(staged, state)
        assert all(tensor.device.type == "cpu" for tensor in tensors(staged))
        assert all(tensor.is_pinned() for tensor in tensors(staged["model"]) if tensor.numel() > 0)
        assert staged["model"]["embedding"] is staged["model"]["head"]
        for tensor in tensors(state):
            if tensor.dtype == torch.float32:
                tensor.add_(1)
    stager.close()


@pytest.mark.parametrize("background", [False, True])
def test_a_copy_has_what_was_queued_before_it_and_nothing_after(background: bool) -> None:
    stager = AsyncStager(background=background)
    weight = torch.zeros(1 << 22, device="cuda")
    for step in range(1, 4):
        torch.cuda._sleep(KEEP_BUSY)
        weight.fill_(step)  # not yet done when the copy is asked for
        made = stager.stage_again({"w": weight})
        if background:
            made = made.result()
        weight.fill_(-1)
        assert (made["w"] == step).all()
    stager.close()


def test_the_program_computes_while_a_copy_waits_for_its_own_work() -> None:
    # The stager's stream waits for the event of the program's stream, and no other work does.
    stager = AsyncStager(background=True)
    stager.stage_again({"w": torch.zeros(4, device="cuda")}).result()  # makes the stream
    weight, other = torch.ones(1 << 20, device="cuda"), torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(20 * KEEP_BUSY)
    future = stager.stage_again({"w": weight})
    with torch.cuda.stream(torch.cuda.Stream()):
        other.add_(1)
        assert other.item() == 1  # synchronizes that stream alone
    assert not future.done()
    assert (future.result()["w"] == 1).all()
    stager.close()


@pytest.mark.parametrize("background", [False, True])
def test_a_state_is_saved_from_and_loaded_onto_a_gpu(tmp_path: Path, background: bool) -> None:
    state = state_on_gpu()
    del state["model"]["conjugate"]  # DCP's own planner does not load it
    writer = StorageWriter(files=2, stager=AsyncStager(background=background))
    for step in range(3):
        state["model"]["embedding"].fill_(step)
        saving = dcp.async_save(state, checkpoint_id=tmp_path / str(step), storage_writer=writer)
        if background and hasattr(saving, "staging_completion"):
            saving.staging_completion.result()
        state["model"]["embedding"].fill_(-1)
        getattr(saving, "upload_completion", saving).result()
    writer.close()
    for step in range(3):
        loaded = {
            "model": {name: torch.zeros_like(tensor) for name, tensor in state["model"].items()},
            "on_the_host": torch.zeros(1 << 10, dtype=torch.int64),
            "step": 0,
        }
        dcp.load(loaded, checkpoint_id=tmp_path / str(step), storage_reader=StorageReader())
        expected = state_on_gpu()
        del expected["model"]["conjugate"]
        expected["model"]["embedding"].fill_(step)
        expected["model"]["head"].fill_(step)
        assert same(loaded, expected)
        assert all(tensor.is_cuda for tensor in tensors(loaded["model"]))


def test_torch_save_and_load_and_sessions_take_tensors_on_a_gpu(tmp_path: Path) -> None:
    state = state_on_gpu()
    tailrace.torch.save(state, tmp_path / "file")
    loaded = tailrace.torch.load(tmp_path / "file", map_location="cuda")
    assert same(loaded, state) and all(tensor.is_cuda for tensor in tensors(loaded["model"]))
    assert same(tailrace.torch.load(tmp_path / "file"), state)
    with tailrace.open(shared_dir=tmp_path / "shared", local_dir=tmp_path / "local") as session:
        session.save(1, state)
        for tensor in tensors(state["model"]):
            tensor.zero_()
        session.wait()
        assert session.restore_latest(into=state) == 1
    assert same(state, state_on_gpu()) and all(tensor.is_cuda for tensor in tensors(state["model"]))


def test_fsdp2_state_on_a_gpu_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    monkeypatch.setitem(os.environ, "GLOO_SOCKET_IFNAME", "lo")
    meeting = f"file://{tmp_path / 'meeting'}"
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=meeting, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cuda", (1,))

        def trained(steps: int) -> tuple[Any, Any]:
            torch.manual_seed(5)
            model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda()
            fully_shard(model, mesh=mesh)
            optimizer = torch.optim.AdamW(model.parameters())
            for _ in range(steps):
                model(torch.ones(4, 64, device="cuda")).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            return model, optimizer

        def of(model: Any, optimizer: Any) -> dict[str, Any]:
            parts = get_state_dict(model, optimizer)
            return {"model": parts[0], "optimizer": parts[1]}

        writer = StorageWriter(files=1)
        planner = DefaultSavePlanner(**PLAN_CACHING)
        for step in (1, 2):
            saved = of(*trained(step))
            place = tmp_path / str(step)
            dcp.async_save(saved, checkpoint_id=place, storage_writer=writer, planner=planner).result()
            fresh = of(*trained(3))
            dcp.load(fresh, checkpoint_id=place, storage_reader=StorageReader())
            local = {name: tensor.to_local() for name, tensor in saved["model"].items()}
            assert all(torch.equal(fresh["model"][name].to_local(), tensor) for name, tensor in local.items())
            for name, moments in saved["optimizer"]["state"].items():
                for key, tensor in moments.items():
                    again = fresh["optimizer"]["state"][name][key]
                    assert torch.equal(getattr(again, "_local_tensor", again), getattr(tensor, "_local_tensor", tensor))
            whole = tailrace.read(place)["model.0.weight"][:]
            assert np.array_equal(whole, local["0.weight"].cpu().numpy())
        writer.close()
    finally:
        dist.destroy_process_group()
