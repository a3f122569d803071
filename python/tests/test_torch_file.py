"""tailrace.torch.save and load: as torch.save and torch.load for state dicts, and safer."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tailrace
import tailrace.torch


def test_a_state_dict_comes_back_as_torch_would_give_it(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(3, 30)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    torch.save(state, tmp_path / "torch.pt")
    tailrace.torch.save(state, tmp_path / "ours")
    ours, theirs = tailrace.torch.load(tmp_path / "ours"), torch.load(tmp_path / "torch.pt", weights_only=True)
    assert type(ours["model"]) is collections.OrderedDict and ours["model"]._metadata == theirs["model"]._metadata
    assert str(ours) == str(theirs)
    for key, tensor in theirs["model"].items():
        assert torch.equal(ours["model"][key], tensor)
    model.load_state_dict(ours["model"])
    optimizer.load_state_dict(ours["optimizer"])
    assert sorted(os.listdir(tmp_path)) == ["ours", "torch.pt"]  # nothing else is left
    assert str(tailrace.torch.load(tmp_path / "torch.pt")) == str(theirs)  # reads torch's files too
    assert tailrace.read(tmp_path / "ours")["model/0.weight"][3:5].shape == (2, 30)


def test_shared_storages_stay_shared(tmp_path: Path) -> None:
    base = torch.arange(1000.0)
    state = {
        "whole": base,
        "row": base[100:200],
        "matrix": base.view(10, 100).t(),
        "bits": base.view(torch.int32)[::7],
        "tied": [base.detach(), base[100:200].detach()],
        "alone": torch.arange(1e6)[5:8],
    }
    tailrace.torch.save(state, tmp_path / "f")
    assert (tmp_path / "f").stat().st_size < 100_000  # the storage once, and of the last only what is seen of it
    loaded = tailrace.torch.load(tmp_path / "f")
    for key in ("whole", "row", "matrix", "bits", "alone"):
        assert torch.equal(loaded[key], state[key]) and loaded[key].stride() == state[key].stride(), key
    loaded["whole"][100] = -1
    assert loaded["row"][0] == -1 and loaded["matrix"][0, 1] == -1 and loaded["tied"][1][0] == -1


def test_views_that_do_not_fit_their_storage_are_corrupt() -> None:
    from tailrace import _tree

    base = torch.zeros(64, dtype=torch.uint8)
    node = {"$": "array", "region": "b", "kind": "torch", "dtype": "uint8", "shape": [64]}
    good = {"$": "view", "v": node, "dtype": "float32", "offset": 1, "shape": [3, 5], "stride": [5, 1]}
    assert _tree.decode(good, lambda ref: base).shape == (3, 5)
    for change in [
        {"offset": 2},
        {"offset": -1},
        {"stride": [5, 2]},
        {"shape": [3]},
        {"dtype": "load"},
        {"shape": "x"},
    ]:
        with pytest.raises(tailrace.Error) as refused:
            _tree.decode({**good, **change}, lambda ref: base)
        assert refused.value.code is tailrace.Code.CORRUPT, change
    assert base.untyped_storage().nbytes() == 64


class Custom:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom)

    __hash__ = None  # type: ignore[assignment]


def test_pickled_objects_load_only_without_weights_only(tmp_path: Path) -> None:
    with pytest.raises(tailrace.Error, match=r"the tree\['c'\]"):
        tailrace.torch.save({"c": Custom()}, tmp_path / "f")
    tailrace.torch.save({"c": Custom()}, tmp_path / "f", pickle=True)
    with pytest.raises(tailrace.Error, match="trust_pickle"):
        tailrace.torch.load(tmp_path / "f")
    assert tailrace.torch.load(tmp_path / "f", weights_only=False) == {"c": Custom()}


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tailrace.torch.save({"w": torch.ones(5)}, path)
    with pytest.raises(tailrace.Error):
        tailrace.torch.save({"w": torch.ones(5).to_sparse()}, path)
    assert tailrace.torch.load(path)["w"].sum() == 5
    code = f"""
import os, torch, tailrace.torch
from tailrace import _core
real = _core.write_runs
def die(*arguments):
    real(*arguments)
    os._exit(9)
_core.write_runs = die
tailrace.torch.save({{"w": torch.zeros(5)}}, {str(path)!r})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert tailrace.torch.load(path)["w"].sum() == 5
    tailrace.torch.save({"w": torch.full((5,), 2.0)}, path)
    assert tailrace.torch.load(path)["w"].sum() == 10
    assert os.listdir(tmp_path) == ["f"]


def test_damage_and_absence_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with pytest.raises(tailrace.Error) as missing:
        tailrace.torch.load(path)
    assert missing.value.code is tailrace.Code.NOT_FOUND and missing.value.path == str(path)
    tailrace.torch.save({"w": torch.full((500,), 77, dtype=torch.int64)}, path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(tailrace.Error) as cut:
        tailrace.torch.load(path)
    assert cut.value.code is tailrace.Code.CORRUPT
    at = data.index(b"\x4d\0\0\0\0\0\0\0" * 4)
    path.write_bytes(data[:at] + b"\x4c" + data[at + 1 :])
    with pytest.raises(tailrace.Error) as flipped:
        tailrace.torch.load(path)
    assert flipped.value.code is tailrace.Code.CORRUPT and flipped.value.offset is not None


def test_tensors_go_to_the_device_that_is_asked_for(tmp_path: Path) -> None:
    state: dict[str, Any] = {"a": torch.ones(3), "n": 1}
    tailrace.torch.save(state, tmp_path / "f")
    assert tailrace.torch.load(tmp_path / "f", map_location="meta")["a"].is_meta
