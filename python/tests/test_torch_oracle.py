"""tailrace.torch.save and load take what torch.save and torch.load take, and give what they give."""

from __future__ import annotations

import collections
import datetime
import inspect
import io
import os
import pathlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tailrace
import tailrace.torch

SAVES = [tailrace.torch.save, torch.save]


def state() -> dict[str, Any]:
    base = torch.arange(12.0)
    weight = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    return {
        "weight": weight,
        "same": weight,
        "frozen": torch.nn.Parameter(torch.ones(3), requires_grad=False),
        "of it": weight.detach(),
        "wanted": torch.ones(4, requires_grad=True),
        "across": torch.arange(6.0).view(2, 3).t(),
        "channels last": torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "views": [base[2:8], torch.nn.Parameter(base[1:5])],
        "plain": torch.arange(4),
        "scalar": torch.tensor(2.0),
        "nothing": torch.empty(0, 3),
    }


def told(value: Any) -> Any:
    """What is said of a state's tensors: all that has to be the same."""
    if isinstance(value, dict):
        return {key: told(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [told(part) for part in value]
    if isinstance(value, torch.Tensor):
        return type(value), value.requires_grad, value.stride(), value.dtype, str(value.device), value.tolist()
    return value


def test_parameters_gradients_and_strides_come_back(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "theirs")
    tailrace.torch.save(state(), tmp_path / "ours")
    theirs = torch.load(tmp_path / "theirs", weights_only=True)
    for ours in (tailrace.torch.load(tmp_path / "ours"), tailrace.torch.load(tmp_path / "ours", lambda s, _: s)):
        del theirs["channels last"], ours["channels last"]
        assert told(ours) == told(theirs)
        assert ours["weight"] is ours["same"]
        with torch.no_grad():
            ours["weight"][0, 0] = 7
            ours["views"][0][0] = 8
        assert ours["of it"][0, 0] == 7 and ours["views"][1][1] == 8
        theirs["channels last"] = ours["channels last"] = None
    again = tailrace.torch.load(tmp_path / "ours")["channels last"]
    assert again.is_contiguous(memory_format=torch.channels_last)
    module = torch.nn.Linear(3, 2, bias=False)
    module.weight = tailrace.torch.load(tmp_path / "ours")["weight"]  # takes a Parameter alone


def test_a_stride_that_a_file_makes_up_is_corrupt() -> None:
    from tailrace import _tree

    node = {"$": "array", "region": "r", "kind": "torch", "dtype": "float32", "shape": [2, 3], "stride": [1, 2]}
    assert _tree.decode(node, lambda ref: ref.empty()).stride() == (1, 2)
    for stride in ([1, 1 << 40], [0, 0], [1], [-1, 2], "x"):
        with pytest.raises(tailrace.Error):
            _tree.decode({**node, "stride": stride}, lambda ref: ref.empty())


def test_plain_objects_of_the_standard_library_need_no_pickle(tmp_path: Path) -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2, seconds=5))
    saved = {
        "counter": collections.Counter("abca"),
        "deque": collections.deque([1, torch.ones(2), "a"], maxlen=5),
        "datetime": datetime.datetime(2026, 11, 23, 10, 11, 12, 13, zone, fold=1),
        "naive": datetime.datetime(1, 1, 1),
        "date": datetime.date(2026, 1, 2),
        "time": datetime.time(1, 2, 3, 4, datetime.timezone.utc),
        "timedelta": datetime.timedelta(-1, 5, 7),
        "zone": [zone, datetime.timezone.utc],
        "path": Path("/a/b\udcff"),
        "pure": [pathlib.PurePosixPath("a"), pathlib.PureWindowsPath("c:\\a")],
        "BytesIO": io.BytesIO(b"\0abc"),
    }
    saved["BytesIO"].seek(2)
    tailrace.torch.save(saved, tmp_path / "f")
    loaded = tailrace.torch.load(tmp_path / "f")
    files = [loaded.pop("BytesIO"), saved.pop("BytesIO")]
    assert [(file.getvalue(), file.tell()) for file in files] == [(b"\0abc", 2)] * 2
    assert repr(loaded) == repr(saved) and loaded["deque"].maxlen == 5 and loaded["datetime"].fold == 1
    named = datetime.timezone(datetime.timedelta(0), "mine")
    for odd in (named, datetime.datetime(2026, 1, 1, tzinfo=named)):
        with pytest.raises(tailrace.Error, match="no safe encoding"):
            tailrace.torch.save({"odd": odd}, tmp_path / "f")


def loads(path: Path) -> dict[str, Callable[[Callable[..., Any]], Any]]:
    return {
        "device": lambda load: load(path, "cpu"),
        "torch.device": lambda load: load(path, torch.device("meta")),
        "named": lambda load: load(path, map_location="meta"),
        "dict": lambda load: load(path, map_location={"cpu": "meta"}),
        "other dict": lambda load: load(path, map_location={"cuda:0": "cpu"}),
        "function": lambda load: load(path, map_location=lambda storage, location: storage),
        "no answer": lambda load: load(path, lambda storage, location: None),
        "mmap": lambda load: load(path, mmap=True),
        "bytes": lambda load: load(io.BytesIO(path.read_bytes())),
        "bytes to a device": lambda load: load(io.BytesIO(path.read_bytes()), "cpu"),
        "string": lambda load: load(str(path)),
    }


@pytest.mark.parametrize("how", loads(Path()))
def test_load_takes_what_torch_load_takes(tmp_path: Path, how: str) -> None:
    saved = {"a": torch.arange(3.0), "n": 1, "p": (torch.nn.Parameter(torch.ones(2)),)}
    tailrace.torch.save(saved, tmp_path / "ours")
    torch.save(saved, tmp_path / "theirs")
    of_theirs = loads(tmp_path / "theirs")[how]

    def known(value: Any) -> str:
        return repr(value)

    expected = known(of_theirs(torch.load))
    assert known(loads(tmp_path / "ours")[how](tailrace.torch.load)) == expected
    assert known(of_theirs(tailrace.torch.load)) == expected
    assert (
        list(inspect.signature(tailrace.torch.load).parameters)[1] == list(inspect.signature(torch.load).parameters)[1]
    )


def test_a_function_moves_each_storage_once(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    tailrace.torch.save({"a": base, "b": [base[1:3]], "c": torch.ones(2)}, tmp_path / "f")
    calls: list[tuple[int, str]] = []

    def move(storage: Any, location: str) -> Any:
        calls.append((storage.nbytes(), location))
        return storage.clone()

    loaded = tailrace.torch.load(tmp_path / "f", move)
    assert sorted(calls) == [(8, "cpu"), (24, "cpu")]
    loaded["a"][1] = 9
    assert loaded["b"][0].tolist() == [9, 2]


@pytest.mark.parametrize("save", SAVES)
def test_file_objects_are_written_and_read_where_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    saved = {"a": torch.arange(1000.0), "n": 1}
    buffer = io.BytesIO()
    save(saved, buffer)
    buffer.seek(0)
    assert repr(tailrace.torch.load(buffer)) == repr(saved)
    with open(tmp_path / "f", "wb") as file:
        save(saved, file)
    with open(tmp_path / "f", "rb") as file:
        live = {"a": torch.zeros(1000), "n": 0}
        assert tailrace.torch.load(file, into=live) is live and repr(live) == repr(saved)
    assert repr(tailrace.torch.load(tmp_path / "f")) == repr(saved)
    if save is tailrace.torch.save:  # and among others' bytes
        with open(tmp_path / "g", "wb") as file:
            file.write(b"head")
            save(saved, file)
        with open(tmp_path / "g", "rb") as file:
            file.seek(4)
            assert repr(tailrace.torch.load(file)) == repr(saved)
    with pytest.raises(tailrace.Error, match="the file object"):
        tailrace.torch.load(io.BytesIO(b"no checkpoint"))
    with pytest.raises(ValueError, match="nothing to read where it stands"):
        tailrace.torch.load(io.BytesIO())
    if save is tailrace.torch.save:
        with pytest.raises(ValueError, match="the file object: map_location is 'nosuch'"):
            buffer.seek(0)
            tailrace.torch.load(buffer, "nosuch")
        with open(tmp_path / "f", "rb") as file, pytest.raises(ValueError, match="cannot be written to; nothing was"):
            save(saved, file)
    assert os.listdir(tmp_path / "temporary") == []
