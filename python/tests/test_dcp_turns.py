"""Saves of one StorageWriter by several threads: one at a time, each to the place that its call named."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from test_dcp import Slow, load
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

import tailrace
from tailrace.torch import StorageWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Paused(DefaultSavePlanner):
    """Stands still while it plans, or before it writes."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def _pause(self, where: str) -> None:
        if where == self._where:
            self.reached.set()
            assert self.goes_on.wait(60)

    def create_local_plan(self) -> Any:
        self._pause("plan")
        return super().create_local_plan()

    def finish_plan(self, new_plan: Any) -> Any:
        self._pause("write")
        return super().finish_plan(new_plan)

    def resolve_data(self, write_item: Any) -> Any:
        self._pause("within")
        return super().resolve_data(write_item)


@pytest.mark.parametrize("where", ["plan", "write", "within"])
@pytest.mark.parametrize("by_id", [True, False])
def test_a_save_beside_that_of_another_thread_is_refused(tmp_path: Path, where: str, by_id: bool) -> None:
    writer, planner = StorageWriter(tmp_path / "a"), Paused(where)
    storage_writer = writer  # as a program may name it: what counts is who is in dcp.save
    given: dict[str, Any] = {"checkpoint_id": tmp_path / "a"} if by_id else {}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(dcp.save, {"w": torch.ones(3)}, storage_writer=writer, planner=planner, **given)
        assert planner.reached.wait(60)
        for other in (given, {"checkpoint_id": tmp_path / "b"}):
            with pytest.raises(dcp.CheckpointException, match="another thread is saving with this writer") as refused:
                dcp.save({"w": torch.zeros(3)}, storage_writer=storage_writer, **other)
            error = refused.value.failures[0][0]
            assert isinstance(error, tailrace.Error) and error.code is tailrace.Code.BUSY
        planner.goes_on.set()
        first.result()
        assert not (tmp_path / "b").exists()
        assert (load({"w": torch.zeros(3)}, tmp_path / "a")["w"] == 1).all()
        dcp.save({"w": torch.full((3,), 2.0)}, checkpoint_id=tmp_path / "b", storage_writer=writer)
        assert (load({"w": torch.zeros(3)}, tmp_path / "b")["w"] == 2).all()


def test_whatever_a_save_of_several_threads_returns_from_is_there(tmp_path: Path) -> None:
    writer = StorageWriter()
    together = threading.Barrier(4)

    def work(thread: int) -> list[int]:
        saved = []
        for number in range(10 * thread, 10 * thread + 10):
            together.wait(60)
            try:
                how: Any = dcp.save if thread % 2 else dcp.async_save
                state = {"w": torch.full((1000,), number)}
                saving = how(state, checkpoint_id=tmp_path / str(number), storage_writer=writer)
                if not thread % 2:
                    saving.result()
                saved.append(number)
            except (dcp.CheckpointException, tailrace.Error) as refused:
                assert "another thread" in str(refused)
        return saved

    with ThreadPoolExecutor(4) as pool:
        saved = [number for of_thread in pool.map(work, range(4)) for number in of_thread]
    assert saved
    for number in saved:
        assert (load({"w": torch.zeros(1000, dtype=torch.int64)}, tmp_path / str(number))["w"] == number).all()
    assert {path.name for path in tmp_path.iterdir() if any(path.iterdir())} == {str(number) for number in saved}


def test_what_one_thread_has_staged_is_not_overwritten_by_another(tmp_path: Path) -> None:
    writer = StorageWriter()
    together = threading.Barrier(4)

    def save_one(number: int) -> None:
        state = {"w": torch.full((100_000,), float(number))}
        together.wait(60)
        dcp.async_save(state, checkpoint_id=tmp_path / str(number), storage_writer=writer).result()

    with ThreadPoolExecutor(4) as pool:
        for saving in [pool.submit(save_one, number) for number in range(4)]:
            saving.result()
    for number in range(4):
        assert (load({"w": torch.zeros(100_000)}, tmp_path / str(number))["w"] == number).all()


def test_a_relative_checkpoint_id_is_that_of_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    writers = {"by_id": Slow(), "by_path": Slow("by_path")}
    for name, writer in writers.items():
        given = {"checkpoint_id": name} if name == "by_id" else {}
        saving = dcp.async_save({"w": torch.ones(3)}, storage_writer=writer, **given)
        monkeypatch.chdir(tmp_path / "other")
        writer.released.set()
        saving.result()
        monkeypatch.chdir(tmp_path)
        assert (load({"w": torch.zeros(3)}, tmp_path / name)["w"] == 1).all()
    assert sorted(os.listdir(tmp_path)) == ["by_id", "by_path", "other"] and not os.listdir(tmp_path / "other")
