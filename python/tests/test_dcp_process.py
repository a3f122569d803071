"""AsyncCheckpointerType.PROCESS: DCP sends the writer and the staged copy to a process of each rank."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import distributed
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from tailrace.torch import StorageReader, StorageWriter

try:
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
except ImportError:
    pytest.skip("this PyTorch has no AsyncCheckpointerType", allow_module_level=True)


def saves(place: Path) -> None:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.chdir(place)
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(4000.0).view(100, 40)
    writer = StorageWriter(files=2)

    def save(number: int, name: str) -> None:
        state = {"w": distribute_tensor(whole + number, mesh, [Shard(0)]), "own": torch.ones(3) * number, "n": number}
        done = dcp.async_save(
            state, checkpoint_id=name, storage_writer=writer, async_checkpointer_type=AsyncCheckpointerType.PROCESS
        )
        for tensor in (state["w"].to_local(), state["own"]):
            tensor.zero_()  # the copy is complete
        getattr(done, "upload_completion", done).result()

    for number in (1, 2):
        save(number, f"step-{number}")  # a name that is relative to the working directory
    dist.barrier()
    for number in (1, 2):
        live = {"w": distribute_tensor(torch.zeros(100, 40), mesh, [Shard(0)]), "own": torch.zeros(3), "n": 0}
        dcp.load(live, checkpoint_id=place / f"step-{number}", storage_reader=StorageReader())
        assert torch.equal(live["w"].full_tensor(), whole + number)
        assert live["own"].tolist() == [number] * 3 and live["n"] == number
        assert len(os.listdir(place / f"step-{number}")) == 2
    # What fails there comes back here, on both ranks, and the process serves the next save.
    if rank == 0:
        (place / "file").write_text("")
    dist.barrier()
    with pytest.raises((dcp.CheckpointException, Exception), match="file"):
        save(3, "file/step-3")
    save(4, "step-4")
    dist.barrier()
    assert len(os.listdir(place / "step-4")) == 2


def test_two_ranks_save_by_their_processes(tmp_path: Path) -> None:
    assert state_dict_saver is not None
    distributed.run(2, saves, tmp_path)


def test_a_writer_that_is_sent_keeps_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.loads(pickle.dumps(StorageWriter("here", files=3, overwrite=False)))
    monkeypatch.chdir("/")
    dcp.save({"a": torch.ones(2)}, storage_writer=sent)
    assert len(os.listdir(tmp_path / "here")) == 3
    with pytest.raises(dcp.CheckpointException, match="overwrite is False"):
        dcp.save({"a": torch.ones(2)}, storage_writer=sent)
