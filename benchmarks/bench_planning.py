"""What a save through torch.distributed.checkpoint costs beside its data, as ranks and tensors grow.

All ranks are threads of this process. They take the steps that dcp.save takes, with DCP's planner and with
cached plans (enable_plan_caching). Between them go pickles, which are counted. Every tensor is split over all
ranks, as FSDP does it. A rank's piece is four numbers, so that next to nothing is written.

Each row is a save by one rank count: the first one, and a later one of the same layout. The columns are

  plans      bytes of the plans, from all ranks to the coordinator and back
  results    bytes that the ranks tell each other, and the coordinator, of what they have written
  metadata   bytes of the checkpoint's metadata
  planning   processor seconds of the coordinator in the planner: DCP's own, the same for both
  rest       processor seconds of the coordinator for everything else but writing tensors

DCP's writer writes its metadata, and no tensors: its results are made up in the form that it gives them.
tailrace's writer writes its tensors; the time of that is not counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pickle
import shutil
import statistics
import tempfile
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from tailrace import _core
from tailrace.torch import StorageWriter, _among, _runs, _writer

_COLUMNS = 4


class Group:
    """All ranks, as threads. Its calls count the bytes of the pickles that pass."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.bytes: dict[str, int] = {}
        self.phase = ""
        self._barrier = threading.Barrier(ranks)
        self._slots: list[bytes] = [b""] * ranks

    def gather(self, rank: int, value: Any) -> list[Any]:
        self._slots[rank] = pickle.dumps(value)
        self._barrier.wait()
        values = []
        if rank == 0:
            self.bytes[self.phase] = self.bytes.get(self.phase, 0) + sum(map(len, self._slots))
            values = [pickle.loads(slot) for slot in self._slots]
        self._barrier.wait()
        return values

    def scatter(self, rank: int, values: list[Any]) -> Any:
        if rank == 0:
            self._slots = [pickle.dumps(value) for value in values]
            self.bytes[self.phase] = self.bytes.get(self.phase, 0) + sum(map(len, self._slots))
        self._barrier.wait()
        mine = pickle.loads(self._slots[rank])
        self._barrier.wait()
        return mine

    def abort(self) -> None:
        self._barrier.abort()


@dataclasses.dataclass(frozen=True)
class Member:
    """A rank's view of the group, in place of a process group."""

    group: Group
    rank: int


class Planner(DefaultSavePlanner):
    """DCP's planner, for a state of which there are only the plan's items."""

    def __init__(self, rank: int, items: list[WriteItem]) -> None:
        super().__init__(flatten_state_dict=False, enable_plan_caching=True)
        self._cached_plans_key = f"rank {rank}"  # DCP keeps one for each process
        self._items = items
        self._memory = torch.zeros(1, _COLUMNS)

    def create_local_plan(self) -> SavePlan:
        self.plan = SavePlan(self._items)
        if self._cached_plans_key in SavePlanner._cached_save_plan:
            return SavePlan([], usable=False)
        self._pending_local_plan = self.plan
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        return self._memory


class MetadataWriter(FileSystemWriter):
    """DCP's writer, without the tensors."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        name = f"__{id(plan)}_0.distcp"
        results = [WriteResult(item.index, 1024, _StorageInfo(name, i, 1024)) for i, item in enumerate(plan.items)]
        return types.SimpleNamespace(wait=lambda: results)


def items_of(rank: int, ranks: int, tensors: int) -> list[WriteItem]:
    properties = TensorProperties.create_from_tensor(torch.zeros(1, _COLUMNS))
    size, offset, piece = torch.Size([ranks, _COLUMNS]), torch.Size([rank, 0]), torch.Size([1, _COLUMNS])
    return [
        WriteItem(
            MetadataIndex(f"model.layers.{i // 10}.block.weight_{i % 10}", offset),
            WriteItemType.SHARD,
            tensor_data=TensorWriteData(ChunkStorageMetadata(offset, piece), properties, size),
        )
        for i in range(tensors)
    ]


@dataclasses.dataclass
class Row:
    plans: int
    results: int
    metadata: int
    planning: float
    rest: float


PARTS = [field.name for field in dataclasses.fields(Row)]


class Clock:
    """Processor seconds of the calling thread, by purpose."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {"planning": 0.0, "rest": 0.0, "data": 0.0}
        self._last = time.thread_time()

    def count(self, purpose: str) -> None:
        now = time.thread_time()
        self.seconds[purpose] += now - self._last
        self._last = now


def save(group: Group, rank: int, writer: Any, planner: Planner, place: str) -> Clock:
    """The steps of torch.distributed.checkpoint.state_dict_saver._save_state_dict, on one rank."""
    clock = Clock()
    writer.reset(place)
    group.phase = "plans"
    planner.set_up_planner({}, writer.storage_meta(), rank == 0)
    writer.set_up_storage_writer(rank == 0, rank=rank, use_collectives=True)
    local = writer.prepare_local_plan(planner.create_local_plan())
    clock.count("rest")
    plans = group.gather(rank, local)
    clock.count("rest")
    metadata: Any = None
    if rank == 0:
        plans, metadata = planner.create_global_plan(plans)
        clock.count("planning")
        plans = writer.prepare_global_plan(plans)
        clock.count("rest")
    plan = group.scatter(rank, plans)
    plan = planner.finish_plan(plan)
    group.phase = "results"
    clock.count("rest")
    written = writer.write_data(plan, planner)
    written.wait()
    value = written.value() if hasattr(written, "value") else written.wait()
    clock.count("rest")
    results = group.gather(rank, value)
    if rank == 0:
        writer.finish(metadata, results)
    clock.count("rest")
    return clock


def measure(ranks: int, tensors: int, directory: str, make: Callable[[str, Member], Any], saves: int) -> list[Row]:
    """The rows of `saves` saves with one writer on each rank."""
    for cache in ("save_plan", "all_plans", "global_plan", "metadata", "final_save_plan"):
        getattr(SavePlanner, f"_cached_{cache}").clear()
    group = Group(ranks)
    rows: list[Row] = []
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            writer = make(directory, Member(group, rank))
            planner = Planner(rank, items_of(rank, ranks, tensors))
            for number in range(saves):
                place = os.path.join(directory, f"step-{number}")
                clock = save(group, rank, writer, planner, place)
                if rank == 0:
                    counted, group.bytes = group.bytes, {}
                    seconds = clock.seconds
                    rows.append(
                        Row(
                            counted["plans"],
                            counted["results"],
                            metadata_bytes(place),
                            seconds["planning"],
                            seconds["rest"],
                        )
                    )
                    shutil.rmtree(place)
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            failures.append(error)
            group.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return rows


def metadata_bytes(place: str) -> int:
    """The bytes of what is not a tensor: DCP's file; tailrace's regions of the metadata, and all tables."""
    own = os.path.join(place, ".metadata")
    if os.path.exists(own):
        return os.path.getsize(own)
    reader = _core.Reader.open_directory(place, None, None)
    about = sum(nbytes for name, nbytes, _ in reader.regions(0) if name.startswith("tailrace."))
    reader.close()
    return about


def of_tailrace(directory: str, member: Member) -> StorageWriter:
    writer = StorageWriter()
    writer._own = types.SimpleNamespace(get=lambda: member)
    return writer


def of_dcp(directory: str, member: Member) -> FileSystemWriter:
    return MetadataWriter(directory)


def among_threads() -> None:
    """Lets tailrace's writers talk through a Group."""
    ranks = types.SimpleNamespace(get_rank=lambda of: of.rank, get_world_size=lambda of: of.group.ranks)
    _runs.dist = _writer.dist = ranks
    _among.gather = lambda of, value: of.group.gather(of.rank, value)
    _among.scatter = lambda of, values: of.group.scatter(of.rank, values)
    _among.broadcast = lambda of, value: of.group.scatter(of.rank, [value] * of.group.ranks if of.rank == 0 else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--tensors", type=int, default=10_000)
    parser.add_argument("--saves", type=int, default=4, help="the first one, and those of the same layout (at least 2)")
    parser.add_argument("--directory", help="where the checkpoints go (default: a temporary directory)")
    options = parser.parse_args()
    among_threads()
    print(f"{options.tensors} tensors, each split over all ranks; medians of {options.saves - 1} later saves")
    print("| ranks | writer | save | plans | results | metadata | planning, s | rest, s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for ranks in options.ranks:
        for name, make in (("DCP", of_dcp), ("tailrace", of_tailrace)):
            with tempfile.TemporaryDirectory(dir=options.directory) as directory:
                first, *later = measure(ranks, options.tensors, directory, make, options.saves)
            for save_of, rows in (("first", [first]), ("later", later)):
                median = {part: statistics.median(getattr(row, part) for row in rows) for part in PARTS}
                parts = [f"{int(median[part]):,}" for part in PARTS[:3]] + [f"{median[part]:.3f}" for part in PARTS[3:]]
                print(f"| {ranks} | {name} | {save_of} | {' | '.join(parts)} |", flush=True)


if __name__ == "__main__":
    main()
