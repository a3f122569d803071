"""What is no tensor, through torch.distributed.checkpoint: comes back as DCP itself gives it, and runs nothing."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from test_dcp import load, save
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

import tailrace
import tailrace.torch
from tailrace.convert import convert
from tailrace.torch import _byte_entries

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def objects() -> dict[str, Any]:
    return {
        "numpy state": np.random.default_rng(1).bit_generator.state,
        "old numpy state": np.random.RandomState(2).get_state(),
        "python state": random.Random(3).getstate(),
        "scalar": np.float32(1.5),
        "time": np.datetime64("2026-01-02"),
        "array": np.arange(12, dtype=">i4").reshape(3, 4),
        "record": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        "empty": np.empty((0, 3)),
        "many": [np.arange(3), frozenset({np.float64(2)})],
        "frozenset": frozenset({1, "a"}),
        "slice": slice(1, None, 2),
        "range": range(3, 9, 2),
        "complex": 1 + 2j,
        "int of 256 bytes": 1 << 2047,
        "plain": ["a", 1, None, b"bytes", {1, 2}],
    }


def blank(state: dict[str, Any]) -> dict[str, Any]:
    return {key: blank(part) if isinstance(part, dict) else None for key, part in state.items()}


def test_objects_come_back_as_from_dcps_own_writer(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    state = {"w": torch.ones(3), **objects()}
    ours = {"w": torch.zeros(3), **blank(objects())}
    theirs = {"w": torch.zeros(3), **blank(objects())}
    save(state, tmp_path / "ours")
    load(ours, tmp_path / "ours")
    dcp.save(state, storage_writer=FileSystemWriter(tmp_path / "theirs"))
    dcp.load(theirs, storage_reader=FileSystemReader(tmp_path / "theirs"))
    assert ours.pop("frozenset") == theirs.pop("frozenset")  # whose order is that of its making
    assert repr(ours) == repr(theirs)
    generator = np.random.RandomState(5)
    generator.set_state(ours["old numpy state"])
    assert generator.rand() == np.random.RandomState(2).rand()
    assert ours["array"].flags.writeable
    assert not [str(one.message) for one in recwarn if "trust_pickle" in str(one.message)]


def test_they_are_converted_too(tmp_path: Path) -> None:
    save({"w": torch.ones(3), **objects()}, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "file.tailrace")
    assert repr(tailrace.torch.load(tmp_path / "file.tailrace")["old numpy state"]) == repr(
        objects()["old numpy state"]
    )


def test_a_file_in_memory_comes_back_as_it_was(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    losses = io.BytesIO()  # as some training states hold what they save themselves
    torch.save([1.5, 2.5], losses)
    save({"losses": losses}, tmp_path / "c")
    found = load({"losses": io.BytesIO()}, tmp_path / "c")["losses"]
    assert (found.getvalue(), found.tell()) == (losses.getvalue(), losses.tell())
    assert not [str(one.message) for one in recwarn if "trust_pickle" in str(one.message)]


class Custom:
    pass


def test_what_stays_a_pickle_is_told_when_it_is_saved(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"'object' is saved as a pickle .*trust_pickle=True\): .*Custom"):
        save({"w": torch.ones(3), "object": Custom()}, tmp_path / "c")


def test_a_pickle_that_is_refused_is_told_with_what_is_in_it(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"Custom, which has no safe encoding; save its parts$"):
        save({"object": Custom()}, tmp_path / "c")
    why = r"is a pickle that could run any code when it is loaded \(Unsupported global: GLOBAL [a-z_.]+\.Custom\); pass"
    with pytest.raises(dcp.api.CheckpointException, match=why):
        load({"object": Custom()}, tmp_path / "c")


def test_an_entry_that_is_refused_is_told_with_the_reason() -> None:
    pickled = io.BytesIO()
    torch.save(1 << 2047, pickled)
    assert _byte_entries.refusal_of(pickled.getvalue()) == "Unsupported operand 139"


def test_an_entry_that_is_damaged_is_corrupt() -> None:
    content = _byte_entries._pack({"a": np.arange(5)})
    assert _byte_entries._unpack(content)["a"].tolist() == [0, 1, 2, 3, 4]
    for length in range(len(_byte_entries.MARK), len(content)):
        with pytest.raises(tailrace.Error) as refused:
            _byte_entries._unpack(content[:length])
        assert refused.value.code is tailrace.Code.CORRUPT
