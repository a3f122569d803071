"""What a save through torch.distributed.checkpoint sends and checks if its layout is that of the last save, and if it
is not."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

from tailrace import _core
from tailrace.torch import StorageReader, StorageWriter, _metadata

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Watched(StorageWriter):
    """Notes how many bytes the ranks' results have, and how often layouts are checked."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sent: list[int] = []

    def finish(self, metadata: Any, results: Any) -> None:
        self.sent.append(max(len(pickle.dumps(result)) for result in results[1:]))
        super().finish(metadata, results)


def state_of(rank: int, step: int, tensors: int = 300) -> dict[str, Any]:
    state: dict[str, Any] = {f"own.{rank}.{i}": torch.full((3, 5), float(1000 * step + i)) for i in range(tensors)}
    state["both"] = torch.full((4,), step)  # on all ranks
    state["scalar"] = torch.tensor(float(step))
    state[f"entry.{rank}"] = "x" * step  # of another size in each save
    return state


def check(place: str, rank: int, step: int, tensors: int = 300) -> None:
    expected = state_of(rank, step, tensors)
    state = {name: torch.zeros_like(v) if isinstance(v, torch.Tensor) else "" for name, v in expected.items()}
    dcp.load(state, checkpoint_id=place, storage_reader=StorageReader())
    for name, value in expected.items():
        assert torch.equal(state[name], value) if isinstance(value, torch.Tensor) else state[name] == value, name


def saves_of_one_layout(place: str, caching: dict[str, bool]) -> None:
    rank = dist.get_rank()
    writer = Watched(files=2)
    checks = []
    real = _core.CheckedArrays

    class Counting:
        @staticmethod
        def check(ranks: Any) -> Any:
            checks.append(len(ranks))
            return real.check(ranks)

    _core.CheckedArrays = Counting  # type: ignore[misc]

    def save(step: int, tensors: int = 300) -> None:
        dcp.save(
            state_of(rank, step, tensors),
            checkpoint_id=f"{place}/step-{step}",
            storage_writer=writer,
            planner=DefaultSavePlanner(**caching),
        )
        check(f"{place}/step-{step}", rank, step, tensors)

    for step in (1, 2, 3):
        save(step)
    # One rank has changed: all are checked anew.
    save(4, 300 + 20 * rank)
    save(5, 300 + 20 * rank)
    # A save that fails changes nothing for the next one.
    real_write = _core.write_stream

    def fail(*_: Any) -> Any:
        raise OSError("the test's own failure")

    _core.write_stream = fail
    with pytest.raises(dcp.CheckpointException, match="the test's own failure"):
        save(6, 300 + 20 * rank)
    _core.write_stream = real_write
    save(7, 300 + 20 * rank)
    if rank == 0:
        first, second, third, changed, fifth, seventh = writer.sent
        assert max(second, third, fifth, seventh) < 1000
        assert first > 300 * 20
        assert changed > 300 * 20
        assert checks == [dist.get_world_size()] * 2


@pytest.mark.parametrize("caching", [{}, distributed.PLAN_CACHING])
def test_an_unchanged_layout_is_neither_sent_nor_checked_again(tmp_path: Path, caching: dict[str, bool]) -> None:
    distributed.run(3, saves_of_one_layout, str(tmp_path), caching)


def arrays_that_cannot_be_restored(place: str) -> None:
    """A layout that is refused is not remembered as checked."""
    rank = dist.get_rank()
    writer = StorageWriter()

    class Lying(DefaultSavePlanner):
        """Plans two ranks' rows of one tensor; the lengths of the array differ."""

        def create_local_plan(self) -> Any:
            plan = super().create_local_plan()
            items = [
                dataclasses.replace(
                    item, tensor_data=dataclasses.replace(item.tensor_data, size=torch.Size([4 + rank]))
                )
                for item in plan.items
            ]
            return dataclasses.replace(plan, items=items)

        def create_global_plan(self, all_plans: Any) -> Any:
            _, metadata = super().create_global_plan(all_plans[:1])
            return all_plans, metadata

    for _ in range(2):
        with pytest.raises(dcp.CheckpointException, match="'t' cannot be put together"):
            dcp.save({"t": torch.ones(4)}, checkpoint_id=place, storage_writer=writer, planner=Lying())
    dcp.save({"t": torch.ones(4)}, checkpoint_id=place, storage_writer=writer)
    state = {"t": torch.zeros(4)}
    dcp.load(state, checkpoint_id=place, storage_reader=StorageReader())
    assert (state["t"] == 1).all()


def test_a_refused_layout_is_refused_again(tmp_path: Path) -> None:
    distributed.run(2, arrays_that_cannot_be_restored, str(tmp_path))


# As it was written before the metadata had two regions.
OLD = (
    b'{"tailrace":1,"tree":{"entries":[["w","bfloat16",false,[4,2],[[[0,0],[2,2]],[[2,0],[2,2]]]],["n"'
    b']],"places":[["w",[0,0],0,0,"w",8,true],["w",[2,0],1,1,"w",8,true],["n",null,null,0,"n",300,fals'
    b'e]],"planner_data":{"w":{"$":"tuple","v":["w"]},"n":{"$":"tuple","v":["n"]}},"version":null,"che'
    b'ckpoint_id":"step-1","save_id":"an id","modules":[],"replaces":"mark"}}'
)


def test_metadata_of_earlier_versions_are_read() -> None:
    metadata, replaces = _metadata.decode(OLD, None)
    assert replaces == "mark"
    assert metadata.storage_meta is not None
    assert metadata.storage_meta.save_id == "an id"
    entry: Any = metadata.state_dict_metadata["w"]
    assert entry.size == torch.Size([4, 2])
    assert entry.properties.dtype == torch.bfloat16
    assert entry.chunks == [
        ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([2, 2])),
        ChunkStorageMetadata(torch.Size([2, 0]), torch.Size([2, 2])),
    ]
    assert metadata.storage_data == {
        MetadataIndex("w", torch.Size([0, 0])): _metadata.Place(0, "w", 8, True),
        MetadataIndex("w", torch.Size([2, 0])): _metadata.Place(1, "w", 8, True),
        MetadataIndex("n"): _metadata.Place(0, "n", 300, False),
    }
    assert metadata.planner_data == {"w": ("w",), "n": ("n",)}
