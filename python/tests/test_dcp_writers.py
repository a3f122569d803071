"""Several writers at the same time, and what a failure on one rank leaves to the next save."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import tailrace
from tailrace import _core
from tailrace.torch import StorageReader, StorageWriter, _among, _groups, _runs, _segments

write = _runs.write


class InTurn:
    """_runs.write: on rank 1 the save of `b` comes to the others before that of `a`, on rank 0 after it."""

    def __init__(self) -> None:
        self._entered = threading.Event()

    def __call__(self, group: Any, epoch: Any, files: int, shapes: list[Any], *args: Any, **kwargs: Any) -> Any:
        if ("a" in shapes[0][0]) == (dist.get_rank() == 0):
            self._entered.set()
        else:
            assert self._entered.wait(60)
        return write(group, epoch, files, shapes, *args, **kwargs)


OPTIONS: dict[str, Any] = {"files": 1, "name": "job", "threads": 2, "buffer_bytes": 8 << 20, "pickle": False}
LENGTHS = {"a": 1000, "b": 300_000}


def save_through_dcp(place: str) -> None:
    rank = dist.get_rank()
    futures = []
    writers = {name: StorageWriter() for name in LENGTHS}
    groups = {name: dist.new_group(backend="gloo") for name in LENGTHS}
    _runs.write = InTurn()
    for name, length in LENGTHS.items():
        futures.append(
            dcp.async_save(
                {f"{name}{rank}": torch.full((length,), rank)},
                checkpoint_id=f"{place}/{name}",
                storage_writer=writers[name],
                process_group=groups[name],
            )
        )
    for future in futures:
        future.result()
    for name, length in LENGTHS.items():
        state = {f"{name}{rank}": torch.full((length,), -1)}
        dcp.load(state, checkpoint_id=f"{place}/{name}", storage_reader=StorageReader())
        assert (state[f"{name}{rank}"] == rank).all(), name


def save_segments(place: str) -> None:
    rank = dist.get_rank()
    writers = {name: _segments.Writer("test", **OPTIONS) for name in LENGTHS}
    _runs.write = InTurn()
    for name, writer in writers.items():
        writer.open(f"{place}/{name}", lambda: None)
        writer.add(f"{name}{rank}", lambda name=name: torch.full((LENGTHS[name],), rank))
        writer.start()
    for writer in writers.values():
        writer.wait()
    dist.barrier()
    for name in writers:
        with _segments.Reader(f"{place}/{name}") as reader:
            assert (reader.load(f"{name}{rank}") == rank).all(), name


def groups_of_writers() -> None:
    first, second = StorageWriter(), StorageWriter()
    assert first._group is not second._group
    group = first._group
    del first
    gc.collect()
    third = StorageWriter()
    assert third._group is group  # one made anew for each save does not add groups
    if dist.get_rank() == 0:
        del third
        gc.collect()
    fourth = StorageWriter()  # a group is free when it is so on all ranks
    assert fourth._group is not group
    for of_writer in (group, fourth._group):  # another rank's disk may be an hour behind
        assert of_writer._get_backend(torch.device("cpu")).options._timeout == _groups.FOR_EVER


def a_disk_that_fails(place: str) -> None:
    rank = dist.get_rank()
    writer = StorageWriter(f"{place}/c")
    real = _core.write_stream

    def fail(*args: Any) -> Any:
        raise OSError("the test's own failure")

    if rank == 1:
        _core.write_stream = fail
    with pytest.raises(dcp.CheckpointException, match="the test's own failure"):
        dcp.save({f"w{rank}": torch.ones(3)}, storage_writer=writer)
    _core.write_stream = real
    with ThreadPoolExecutor(1) as pool:  # the thread of the save that failed is this one, and lives
        pool.submit(dcp.save, {f"w{rank}": torch.full((3,), 2.0)}, storage_writer=writer).result()
    state = {f"w{rank}": torch.zeros(3)}
    dcp.load(state, storage_reader=StorageReader(f"{place}/c"))
    assert (state[f"w{rank}"] == 2).all()


def a_name_that_is_too_long(place: str) -> None:
    rank = dist.get_rank()
    state = {"w" * (5000 if rank == 1 else 1): torch.ones(3)}
    with pytest.raises(dcp.CheckpointException, match="rank 1 gave up the save"):
        dcp.save(state, checkpoint_id=f"{place}/dcp", storage_writer=StorageWriter())
    writer = _segments.Writer("test", **OPTIONS)
    writer.open(f"{place}/segments", lambda: None)
    writer.add(f"own{rank}", lambda: state)
    writer.start()
    with pytest.raises(tailrace.Error, match="name"):
        writer.wait()


def several_writers(place: str) -> None:
    groups_of_writers()
    a_disk_that_fails(f"{place}/disk")
    a_name_that_is_too_long(f"{place}/name")
    save_through_dcp(f"{place}/dcp")
    save_segments(f"{place}/segments")


def a_rank_that_is_gone() -> None:
    group = _groups.new_group(range(2))
    if dist.get_rank() == 1:
        os._exit(7)
    with pytest.raises(tailrace.Error, match="a rank is gone") as failed:
        _among.all_gather(group, 5)
    assert failed.value.code is tailrace.Code.TRANSPORT
    os._exit(8)


def test_that_a_rank_is_gone_is_told() -> None:
    assert distributed.exit_codes(2, a_rank_that_is_gone) == [8, 7]


def test_writers_at_the_same_time_and_after_a_failure(tmp_path: Path) -> None:
    distributed.run(2, several_writers, str(tmp_path))
