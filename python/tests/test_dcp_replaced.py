"""Loading a DCP checkpoint while it is replaced: the old one or the new one on all ranks, or an error."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

from tailrace.torch import StorageReader, StorageWriter

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.skipif(
        "no_dist" not in inspect.signature(dcp.save).parameters,
        reason="this PyTorch cannot be told that a rank saves alone",
    ),
]

SAVES = 30


def state_of(step: int) -> dict[str, Any]:
    return {name: torch.full((1000,), step) for name in ("a", "b", "c")} | {"step": step}


def save(step: int, place: Path | str, writer: StorageWriter | None = None) -> None:
    writer = writer or StorageWriter(files=3)
    dcp.save(state_of(step), checkpoint_id=place, storage_writer=writer, no_dist=True)


def step_of(state: dict[str, Any]) -> int:
    """Of a state all of whose parts are of one save."""
    step: int = state["step"]
    assert all((state[name] == step).all() for name in ("a", "b", "c")), state
    return step


def test_loads_beside_saves_give_each_a_whole_one(tmp_path: Path) -> None:
    place = tmp_path / "c"
    save(1, place)
    saving = threading.Thread(target=lambda: [save(step, place) for step in range(2, SAVES + 1)])
    saving.start()
    last = 1
    while last < SAVES:
        alive = saving.is_alive()
        state = state_of(0)
        dcp.load(state, checkpoint_id=place, storage_reader=StorageReader(), no_dist=True)
        assert step_of(state) >= last
        last = step_of(state)
        assert alive or last == SAVES
    saving.join()


def test_what_was_found_is_read_though_it_is_replaced(tmp_path: Path) -> None:
    class Replacing(DefaultLoadPlanner):
        def create_local_plan(self) -> Any:
            save(2, tmp_path)
            return super().create_local_plan()

    save(1, tmp_path)
    state = state_of(0)
    dcp.load(state, checkpoint_id=tmp_path, storage_reader=StorageReader(), planner=Replacing(), no_dist=True)
    assert step_of(state) == 1
    dcp.load(state, checkpoint_id=tmp_path, storage_reader=StorageReader(), no_dist=True)
    assert step_of(state) == 2


def test_a_rank_that_fails_to_find_it_is_not_asked_again_alone(tmp_path: Path) -> None:
    class FailsOnce(StorageReader):
        failures = 1

        def _open(self) -> Any:
            if self.failures:
                self.failures -= 1
                raise OSError("the test's own failure")
            return super()._open()

    save(1, tmp_path)
    with pytest.raises(dcp.CheckpointException, match="the test's own failure"):
        dcp.load(state_of(0), checkpoint_id=tmp_path, storage_reader=FailsOnce(), no_dist=True)


class LaterOnRank1(StorageReader):
    """On rank 1 it looks when rank 0 has looked, and has replaced what it saw."""

    writer: StorageWriter

    def read_metadata(self) -> Any:  # type: ignore[override]
        if dist.get_rank() == 1:
            dist.barrier()
            return super().read_metadata()
        metadata = super().read_metadata()
        save(2, self.checkpoint_id, self.writer)
        dist.barrier()
        return metadata


def find_different_ones(place: str) -> None:
    reader = LaterOnRank1()
    reader.writer = StorageWriter(files=3)  # on all ranks
    if dist.get_rank() == 0:
        save(1, place, reader.writer)
    dist.barrier()
    state = state_of(0)
    with pytest.raises(dcp.CheckpointException, match="it was replaced meanwhile"):
        dcp.load(state, checkpoint_id=place, storage_reader=reader)
    assert step_of(state) == 0
    dcp.load(state, checkpoint_id=place, storage_reader=StorageReader())
    assert step_of(state) == 2


def test_ranks_that_find_different_ones_refuse_both(tmp_path: Path) -> None:
    distributed.run(2, find_different_ones, str(tmp_path / "c"))
