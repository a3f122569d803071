"""Paths and numbers that are none are refused by name, by every call; and what is one is taken, of whatever type."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import tailrace
import tailrace.torch
from tailrace import convert
from tailrace.torch import StorageReader, StorageWriter, _segments

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

CALLS: dict[str, Callable[[Any], Any]] = {
    "shared_dir": lambda path: tailrace.open(shared_dir=path),
    "local_dir": lambda path: tailrace.open(shared_dir="shared", local_dir=path),
    "config_file": lambda path: tailrace.open(shared_dir="shared", config_file=path),
    "path: read": lambda path: tailrace.read(path),
    "path: load": lambda path: tailrace.torch.load(path),
    "path: save": lambda path: tailrace.torch.save({"n": 1}, path),
    "path: reader": lambda path: StorageReader(path),
    "path: writer": lambda path: StorageWriter(path),
    "checkpoint_id: reset": lambda path: StorageReader().reset(path),
    "checkpoint_id: save": lambda path: StorageWriter().reset(path),
    "source": lambda path: convert.convert(path, "out.pt"),
    "target": lambda path: convert.convert("in.pt", path),
    "source: format": lambda path: convert.format_of(path),
    "target: format": lambda path: convert.target_format(path),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_path_is_refused_by_the_arguments_name(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, said in {
        "nu\0l": "has a NUL byte",
        b"nu\0l": "has a NUL byte",
        b"latin\xe9": "is not UTF-8",
        os.fsdecode(b"latin\xe9"): "is not UTF-8",
        3: "a int is given",
        1.5: "a float is given",
        ("a",): "a tuple is given",
    }.items():
        with pytest.raises(tailrace.Error, match=f"{call.split(':')[0]}: .*{said}") as refused:
            CALLS[call](path)
        assert refused.value.code is tailrace.Code.INVALID_ARGUMENT
    assert os.listdir() == []


@pytest.mark.parametrize("call", CALLS)
def test_a_relative_path_without_a_working_directory_is_told(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # to come back
    Path("gone").mkdir()
    os.chdir("gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(tailrace.Error, match="is relative, and the working directory has been removed; no") as told:
        CALLS[call]("name")
    assert told.value.code is tailrace.Code.NOT_FOUND


def test_none_and_nothing_are_no_paths() -> None:
    for path, said in ((None, "a NoneType is given"), ("", "is empty"), (b"", "is empty")):
        for call in ("path: read", "path: load", "path: save", "source", "target"):
            with pytest.raises(tailrace.Error, match=said):
                CALLS[call](path)


def test_a_reader_without_a_path_asks_for_one() -> None:
    with pytest.raises(tailrace.Error, match=r"neither the reader nor dcp\.load was given a path") as refused:
        StorageReader().read_metadata()
    assert refused.value.code is tailrace.Code.INVALID_ARGUMENT


@pytest.mark.parametrize("kind", [StorageReader, StorageWriter])
@pytest.mark.parametrize("wrong", ["", None, "nu\0l"])
def test_dcps_question_whether_it_is_a_path_is_answered(kind: Any, wrong: Any, tmp_path: Path) -> None:
    assert kind.validate_checkpoint_id(tmp_path) is True
    assert kind.validate_checkpoint_id(wrong) is False


@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
def test_paths_are_taken_of_every_type(kind: Callable[[str], Any], tmp_path: Path) -> None:
    def place(name: str) -> Any:
        return kind(str(tmp_path / name))

    state = {"w": torch.arange(5.0)}
    tailrace.torch.save(state, place("f"))
    assert torch.equal(tailrace.torch.load(place("f"))["w"], state["w"])
    assert tailrace.read(place("f"))["w"].shape == (5,)
    convert.convert(place("f"), place("f.pt"))
    assert convert.format_of(place("f.pt")) == "torch"
    dcp.save(state, storage_writer=StorageWriter(place("dcp")))
    blank = {"w": torch.zeros(5)}
    dcp.load(blank, storage_reader=StorageReader(place("dcp")))
    assert torch.equal(blank["w"], state["w"])
    with tailrace.open(shared_dir=place("shared"), local_dir=place("local")) as session:
        session.save(1, state)
    assert tailrace.read(place("shared"), step=1).step == 1


@pytest.mark.parametrize("wrong", [-1, 1 << 64, 1.5, "3", b"3"])
def test_what_is_no_number_is_refused_by_name(wrong: Any, tmp_path: Path) -> None:
    tailrace.torch.save({"n": 1}, tmp_path / "f")
    with tailrace.open(shared_dir=tmp_path / "shared", local_dir=tmp_path / "local") as session:
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("step", lambda: session.save(wrong, {})),
            ("step", lambda: session.state(wrong)),
            ("step", lambda: session.wait(wrong)),
            ("step", lambda: session.read(wrong)),
            ("step", lambda: session.restore(wrong, {})),
            ("step", lambda: tailrace.read(tmp_path / "f", step=wrong)),
            ("rank", lambda: tailrace.read(tmp_path / "f", rank=wrong)),
            ("threads", lambda: tailrace.torch.save({}, tmp_path / "g", threads=wrong)),
            ("buffer_bytes", lambda: tailrace.torch.save({}, tmp_path / "g", buffer_bytes=wrong)),
            ("files", lambda: convert.convert(tmp_path / "f", tmp_path / "d", to="tailrace-dcp", files=wrong)),
            ("rank", lambda: convert.convert(tmp_path / "f", tmp_path / "d.pt", rank=wrong)),
            ("files", lambda: StorageWriter(files=wrong)),
            ("threads", lambda: StorageWriter(threads=wrong)),
            ("buffer_bytes", lambda: StorageWriter(buffer_bytes=wrong)),
        ]
        for name, call in calls:
            with pytest.raises(tailrace.Error, match=f"{name}: .* is given, where a number") as refused:
                call()
            assert refused.value.code is tailrace.Code.INVALID_ARGUMENT
    for name, call in (
        ("threads", lambda: tailrace.torch.save({}, tmp_path / "g", threads=1 << 32)),
        ("threads", lambda: StorageWriter(threads=1 << 32)),
        ("files", lambda: StorageWriter(files=1 << 32)),
    ):
        with pytest.raises(tailrace.Error, match=f"{name}: 4294967296 is given, where a number .* to 4294967295"):
            call()
    with pytest.raises(tailrace.Error, match="name: "):
        tailrace.read(tmp_path / "shared", name="nu\0l")
    assert sorted(os.listdir(tmp_path)) == ["f", "local", "shared"]


def test_no_threads_are_refused(tmp_path: Path) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda threads: tailrace.torch.save({}, tmp_path / "f", threads=threads),
        lambda threads: StorageWriter(tmp_path / "d", threads=threads),
        lambda threads: _segments.Writer(
            "test", files=1, name="test", threads=threads, buffer_bytes=1 << 20, pickle=False
        ),
    ]
    for call in calls:
        for wrong in (0, -1, np.int64(0)):
            with pytest.raises(ValueError, match=f"^threads: {wrong} is given, where a number from 1 to 4294967295 is"):
                call(wrong)
        call(np.int64(1))
    assert os.listdir(tmp_path) == ["f"]


def test_a_state_in_place_of_a_step_is_told_by_its_type_alone(tmp_path: Path) -> None:
    states: list[tuple[Any, str]] = [({"u": np.zeros(3)}, "a dict"), (np.zeros(3), "a numpy.ndarray")]
    numbers: list[tuple[Any, str]] = [(1.5, "1.5"), ("1", "'1'"), (-1, "-1"), (np.int64(-2), "-2")]
    with tailrace.open(shared_dir=tmp_path / "shared", local_dir=tmp_path / "local") as session:
        for wrong, shown in (*states, *numbers):
            with pytest.raises(ValueError, match=f"^step: {shown} is given, where a number from 0 to [0-9]+ is needed"):
                session.save(wrong, 1)
