"""tailrace.torch.save, load and open, called as they are not meant: what the errors say."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import tailrace
import tailrace.torch
from tailrace import _tree


@pytest.mark.parametrize("how", [{}, {"mmap": True}, {"into": {"custom": 1, "t": torch.zeros(2)}}])
def test_a_pickle_is_refused_with_the_name_of_the_argument_that_allows_it(how: Any, tmp_path: Path) -> None:
    tailrace.torch.save({"custom": Fraction(1, 3), "t": torch.ones(2)}, tmp_path / "f", pickle=True)
    with pytest.raises(tailrace.Error, match="pass weights_only=False if you know who wrote it") as refused:
        tailrace.torch.load(tmp_path / "f", **how)
    assert "trust_pickle" not in str(refused.value)
    loaded = tailrace.torch.load(tmp_path / "f", weights_only=False, **how)
    assert loaded["custom"] == Fraction(1, 3)


def test_a_model_in_place_of_its_state_is_told_what_to_give(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    for given, place in ((model, ""), ({"optimizer": torch.optim.SGD(model.parameters())}, r"\['optimizer'\]")):
        with pytest.raises(ValueError, match=rf"the tree{place} is a torch\..*; save its state_dict\(\), or"):
            tailrace.torch.save(given, tmp_path / "f")
    tailrace.torch.save({"model": model.state_dict()}, tmp_path / "f")
    with pytest.raises(ValueError, match=r"the tree\['model'\] is a Linear here: give its state_dict\(\)"):
        tailrace.torch.load(tmp_path / "f", into={"model": model})


def test_a_scheduler_that_was_pickled_takes_the_place_of_the_one_that_is_there(tmp_path: Path) -> None:
    parameters = [torch.nn.Parameter(torch.ones(2))]
    saved, live = (torch.optim.lr_scheduler.StepLR(torch.optim.SGD(parameters), 1 + n) for n in range(2))
    tailrace.torch.save({"scheduler": saved, "t": torch.ones(2)}, tmp_path / "f", pickle=True)
    state = {"scheduler": live, "t": torch.zeros(2)}
    tailrace.torch.load(tmp_path / "f", into=state, weights_only=False)
    assert state["t"].tolist() == [1, 1] and state["scheduler"].step_size == 1


def test_a_tensor_that_is_not_there_is_told_with_the_nearest_and_asking_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tailrace.torch.save({"model": torch.nn.Linear(2, 3).state_dict()}, tmp_path / "f")
    with tailrace.torch.open(tmp_path / "f") as file:
        assert repr(file) == "<TensorFile of 2 tensors and arrays>"
        for take in (file.__getitem__, file.get_tensor, file.get_slice):
            with pytest.raises(KeyError, match=r"there is no array 'model\.wieght' in .*; near are 'model/weight' of"):
                take("model.wieght")
        monkeypatch.setattr(tailrace.LazyArray, "load", lambda array: pytest.fail(f"{array.name} was read"))
        assert "model/weight" in file and "model.weight" not in file


def test_a_device_that_is_none_is_told_with_the_devices_that_there_are(tmp_path: Path) -> None:
    tailrace.torch.save({"t": torch.ones(2)}, tmp_path / "f")
    with pytest.raises(ValueError, match=r"map_location is .gpu., .* \(Expected one of cpu, .*\); nothing"):
        tailrace.torch.load(tmp_path / "f", map_location="gpu")


@pytest.mark.parametrize("name", ["model/", "directory/", "file/", "directory/.", "missing/..", ".", ".."])
def test_the_name_of_a_directory_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"^path: '{name}' names a directory, where .*; nothing was saved$"):
        tailrace.torch.save({"n": 1}, name)
    assert sorted(os.listdir()) == ["directory", "file"] and (tmp_path / "file").read_text() == "mine"


def test_open_tells_a_file_of_torch_save_from_a_damaged_one(tmp_path: Path) -> None:
    torch.save({"t": torch.ones(2)}, tmp_path / "f.pt")
    said = r"f\.pt' is a file of torch\.save, .*: tailrace\.torch\.load and torch\.load open it, .*; nothing was read$"
    with pytest.raises(tailrace.Error, match=said) as refused:
        tailrace.torch.open(tmp_path / "f.pt")
    assert refused.value.code is tailrace.Code.UNSUPPORTED


def test_a_name_that_is_too_long_is_told_with_what_is_intact(tmp_path: Path) -> None:
    tailrace.torch.save({"w": 1}, tmp_path / "f")
    with pytest.raises(ValueError, match=r"has 5000 bytes, but may have 1 to 4096; what was there is intact$"):
        tailrace.torch.save({"w" * 5000: torch.ones(2)}, tmp_path / "f")
    assert os.listdir(tmp_path) == ["f"] and tailrace.torch.load(tmp_path / "f") == {"w": 1}


@pytest.mark.parametrize("change", [{"dtype": "nothing"}, {"v": 5}, {"offset": 1 << 40}, {"shape": 3}, {"$": "tuple"}])
def test_a_skeleton_that_no_save_writes_is_corrupt_to_open_too(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = torch.arange(6.0)
    made = _tree.text_of

    def text_of(node: Any) -> bytes:
        node["part"].update(change)
        node["dict"]["v"] = 3
        if "$" not in change:
            del node["dict"]
        return made(node)

    monkeypatch.setattr(_tree, "text_of", text_of)
    tailrace.torch.save({"whole": both, "part": both[2:4], "dict": {1: 2}}, tmp_path / "f")
    told = r"'tailrace\.tree' cannot be understood: .*; nothing was read"
    with pytest.raises(tailrace.Error, match=told) as caught, tailrace.torch.open(tmp_path / "f") as file:
        file["part"]
    assert caught.value.code is tailrace.Code.CORRUPT
