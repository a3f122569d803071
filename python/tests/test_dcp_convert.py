"""tailrace.torch.format_utils does on our checkpoints what torch's format_utils does on DCP's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import format_utils as theirs

import tailrace
from tailrace.torch import StorageReader, StorageWriter
from tailrace.torch import format_utils as ours


def state() -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7, "name": "x"}


def test_there_and_back_gives_what_theirs_gives(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "a.pt")
    theirs.torch_save_to_dcp(tmp_path / "a.pt", tmp_path / "theirs")
    theirs.dcp_to_torch_save(tmp_path / "theirs", tmp_path / "theirs.pt")
    ours.torch_save_to_dcp(tmp_path / "a.pt", tmp_path / "ours", files=2)
    ours.dcp_to_torch_save(tmp_path / "ours", tmp_path / "ours.pt")
    ours.dcp_to_torch_save(tmp_path / "theirs", tmp_path / "of theirs.pt")  # reads DCP's own, too
    assert len(os.listdir(tmp_path / "ours")) == 2
    expected = repr(torch.load(tmp_path / "theirs.pt", weights_only=True))
    for name in ("ours.pt", "of theirs.pt"):
        assert repr(torch.load(tmp_path / name, weights_only=True)) == expected
    assert not [name for name in os.listdir(tmp_path) if "unfinished" in name]


def test_what_is_no_checkpoint_is_an_error_and_leaves_the_target(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_text("mine")
    (tmp_path / "nothing").mkdir()
    with pytest.raises((dcp.CheckpointException, tailrace.Error), match="no complete epoch"):
        ours.dcp_to_torch_save(tmp_path / "nothing", tmp_path / "a.pt")
    assert (tmp_path / "a.pt").read_text() == "mine"
    with pytest.raises(tailrace.Error, match="writing"):
        torch.save(state(), tmp_path / "b.pt")
        ours.torch_save_to_dcp(tmp_path / "b.pt", tmp_path / "c")
        ours.dcp_to_torch_save(tmp_path / "c", tmp_path / "no" / "such" / "directory.pt")


def one_of_two(place: Path) -> None:
    if dist.get_rank() == 0:  # the other rank takes no part
        torch.save({"a": torch.arange(6.0)}, place / "a.pt")
        ours.torch_save_to_dcp(place / "a.pt", place / "c")
        ours.dcp_to_torch_save(place / "c", place / "b.pt")
    dist.barrier()
    live = {"a": torch.zeros(6)}
    dcp.load(live, checkpoint_id=place / "c", storage_reader=StorageReader())
    assert live["a"].tolist() == list(range(6))
    assert torch.load(place / "b.pt")["a"].tolist() == list(range(6))
    # A file of torch.save, read by rank 0 for all, is saved by our writer.
    read = {"a": torch.zeros(6)}
    dcp.load(
        read,
        storage_reader=theirs.BroadcastingTorchSaveReader(),
        planner=theirs.DynamicMetaLoadPlanner(),
        checkpoint_id=place / "a.pt",
    )
    dcp.save(read, checkpoint_id=place / "d", storage_writer=StorageWriter(files=1))
    again = {"a": torch.zeros(6)}
    dcp.load(again, checkpoint_id=place / "d", storage_reader=StorageReader())
    assert again["a"].tolist() == list(range(6))


def test_one_rank_converts_without_the_others(tmp_path: Path) -> None:
    distributed.run(2, one_of_two, tmp_path)
