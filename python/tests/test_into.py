"""into= with strict=False and convert=True."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tailrace
import tailrace.torch
from tailrace import _leaves

SAVES = [tailrace.torch.save, torch.save]


@pytest.mark.parametrize("save", SAVES)
def test_what_one_side_lacks_is_left_alone_and_told(tmp_path: Path, save: Any) -> None:
    save({"a": torch.ones(2), "old": {"x": torch.ones(3), "y": [torch.ones(1)]}, "n": 5}, tmp_path / "f")
    live = {"a": torch.zeros(2), "new": {"z": torch.zeros(4)}, "m": 1, "n": 0}
    with pytest.raises(ValueError, match=r"\['old'\] is in the checkpoint only"):
        tailrace.torch.load(tmp_path / "f", into=live)
    assert live["a"].tolist() == [0, 0] and live["n"] == 0
    left = tailrace.torch.load(tmp_path / "f", into=live, strict=False)
    assert left == (["new/z", "m"], ["old/x", "old/y/0"])  # in their order
    assert live["a"].tolist() == [1, 1] and live["n"] == 5 and live["m"] == 1
    assert live["new"]["z"].tolist() == [0] * 4 and "old" not in live
    assert tailrace.torch.load(tmp_path / "f", into=dict(live, old={"x": torch.zeros(3), "y": [torch.zeros(1)]}),
                               strict=False) == (["new/z", "m"], [])  # fmt: skip


class WithoutEquality:
    def __init__(self, value: int) -> None:
        self.value = value


def values_in_a_tuple(number: int) -> tuple[Any, ...]:
    moved = io.BytesIO(b"%d" % number)
    moved.seek(1)
    nan = float("nan")
    return (torch.ones(1), moved, nan, [number, (float("nan"),)], {"a": (io.BytesIO(),)}, complex(number, nan))


@pytest.mark.parametrize("save", SAVES)
def test_what_equals_only_itself_is_compared_by_its_value(tmp_path: Path, save: Any) -> None:
    save({"t": values_in_a_tuple(12), "w": torch.ones(2)}, tmp_path / "f")
    live = {"t": values_in_a_tuple(12), "w": torch.zeros(2)}
    how = {} if save is tailrace.torch.save else {"weights_only": False}  # for torch, a BytesIO is any object
    tailrace.torch.load(tmp_path / "f", into=live, **how)
    assert live["w"].tolist() == [1, 1]
    for other in ((*values_in_a_tuple(12)[:-1], None), values_in_a_tuple(13)):
        with pytest.raises(tailrace.Error, match=r"\['t'\]\[\d\].* so it cannot be set, and has another value"):
            tailrace.torch.load(tmp_path / "f", into={"t": other, "w": torch.zeros(2)}, **how)


def test_pickled_objects_without_equality_are_compared_by_their_pickles(tmp_path: Path) -> None:
    tailrace.torch.save({"t": (torch.ones(1), WithoutEquality(1))}, tmp_path / "f", pickle=True)
    tailrace.torch.load(tmp_path / "f", into={"t": (torch.ones(1), WithoutEquality(1))}, weights_only=False)
    for other in (WithoutEquality(2), lambda: None):  # the latter cannot be pickled
        with pytest.raises(tailrace.Error, match="has another value"):
            tailrace.torch.load(tmp_path / "f", into={"t": (torch.ones(1), other)}, weights_only=False)


@pytest.mark.parametrize("how", [{}, {"strict": False}, {"convert": True}, {"strict": False, "convert": True}])
def test_another_shape_is_always_an_error(tmp_path: Path, how: Any) -> None:
    tailrace.torch.save({"a": torch.ones(2), "b": torch.ones(3)}, tmp_path / "f")
    live = {"a": torch.zeros(2), "b": torch.zeros(4)}
    with pytest.raises(ValueError, match=r"\['b'\] has shape \(3,\) in the checkpoint, and \(4,\) here"):
        tailrace.torch.load(tmp_path / "f", into=live, **how)
    assert live["a"].tolist() == [0, 0]


@pytest.mark.parametrize("save", SAVES)
def test_values_are_converted_only_when_asked(tmp_path: Path, save: Any) -> None:
    base = torch.arange(6.0)
    saved: dict[str, Any] = {"a": torch.tensor([1.5, 2.0]), "i": torch.arange(3, dtype=torch.int32)}
    saved["v"] = [base, base[2:4]]
    saved["n"] = torch.arange(3.0) if save is torch.save else np.arange(3, dtype=np.float32)
    save(saved, tmp_path / "f")
    live_base = torch.zeros(6, dtype=torch.float64)
    live = {
        "a": torch.zeros(2, 2, dtype=torch.bfloat16)[:, 0],  # not contiguous, either
        "i": torch.zeros(3, dtype=torch.int64),
        "v": [live_base, live_base[2:4]],
        "n": torch.zeros(3, dtype=torch.bfloat16),
    }
    with pytest.raises(ValueError) as refused:
        tailrace.torch.load(tmp_path / "f", into=live)
    for words in ("['a'] is of float32 in the checkpoint, and of bfloat16 here", "['i']", "['v'][0]", "['n']"):
        assert words in str(refused.value)
    assert live["a"].tolist() == [0, 0]
    assert tailrace.torch.load(tmp_path / "f", into=live, convert=True) is live
    assert live["a"].tolist() == [1.5, 2] and live["i"].tolist() == [0, 1, 2]
    assert live["v"][0].tolist() == base.tolist() and live["n"].tolist() == [0, 1, 2]


def test_only_conversions_that_keep_their_meaning_are_made(tmp_path: Path) -> None:
    for saved, live, may in [
        ("float32", "bfloat16", True), ("bfloat16", "float32", True), ("float64", "float8_e4m3fn", True),
        ("complex128", "complex64", True), ("complex64", "float32", False), ("float32", "int64", False),
        ("int64", "int32", False), ("int8", "int64", True), ("bool", "uint8", True), ("uint8", "int8", False),
        ("int32", "bfloat16", False), ("float32", "float32", True), ([["a", "<i4"]], "int32", False),
    ]:  # fmt: skip
        assert _leaves.may_convert(saved, live) is may, (saved, live)
    tailrace.torch.save({"a": torch.ones(2)}, tmp_path / "f")
    live = {"a": torch.zeros(2, dtype=torch.int64)}
    with pytest.raises(ValueError, match="is of float32 in the checkpoint, and of int64 here"):
        tailrace.torch.load(tmp_path / "f", into=live, convert=True)


def test_views_of_another_type_of_the_same_size_are_converted_not_taken_as_bytes(tmp_path: Path) -> None:
    base = torch.arange(6.0, dtype=torch.float16)
    tailrace.torch.save({"v": [base, base[2:4]]}, tmp_path / "f")
    live_base = torch.zeros(6, dtype=torch.bfloat16)
    live = {"v": [live_base, live_base[2:4]]}
    tailrace.torch.load(tmp_path / "f", into=live, convert=True)
    assert live["v"][0].tolist() == base.tolist()


def test_arrays_and_tensors_of_another_type_fill_each_other(tmp_path: Path) -> None:
    tailrace.torch.save(
        {"a": np.arange(3, dtype=np.float32), "t": torch.arange(3, dtype=torch.bfloat16)}, tmp_path / "f"
    )
    live = {"a": torch.zeros(3, dtype=torch.float64), "t": np.zeros(3, np.float32)}
    tailrace.torch.load(tmp_path / "f", into=live, convert=True)
    assert live["a"].tolist() == [0, 1, 2] and live["t"].tolist() == [0, 1, 2]


def test_sessions_restore_what_fits(tmp_path: Path) -> None:
    with tailrace.open(shared_dir=str(tmp_path / "s"), local_dir=str(tmp_path / "l")) as session:
        session.save(1, {"u": np.arange(4, dtype=np.float64), "gone": np.ones(2)})
        session.wait()
        live = {"u": np.zeros(4, np.float32), "new": np.zeros(1)}
        with pytest.raises(ValueError, match="is of float64"):
            session.restore_latest(into=live)
        assert session.differences is None and not live["u"].any()
        assert session.restore_latest(into=live, strict=False, convert=True) == 1
        assert live["u"].tolist() == [0, 1, 2, 3]
        assert session.differences == tailrace.Differences(["new"], ["gone"])


def test_strict_and_convert_go_with_into(tmp_path: Path) -> None:
    tailrace.torch.save({"a": torch.ones(2)}, tmp_path / "f")
    for how in ({"strict": False}, {"convert": True}):
        with pytest.raises(ValueError, match="strict and convert need `into`"):
            tailrace.torch.load(tmp_path / "f", **how)


def test_differences_are_in_the_order_of_the_state(tmp_path: Path) -> None:
    tailrace.torch.save({f"old{i}": torch.ones(1) for i in range(15)}, tmp_path / "f")
    live = {f"new{i}": torch.zeros(1) for i in range(15)}
    left = tailrace.torch.load(tmp_path / "f", into=live, strict=False)
    assert left == (list(live), [f"old{i}" for i in range(15)])
    with pytest.raises(ValueError) as refused:
        tailrace.torch.load(tmp_path / "f", into=live)
    told = re.findall(r"the tree\['(\w+)'\] is not in the checkpoint", str(refused.value))
    assert told == list(live)[: len(told)] and len(told) > 5
