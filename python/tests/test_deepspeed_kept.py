"""What tailrace.torch.deepspeed keeps, and what it takes, where several checkpoints lie in one directory."""

from __future__ import annotations

import os
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import tailrace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # DeepSpeed's own
    from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointCommitInfo
    from deepspeed.utils import zero_to_fp32
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    from tailrace.torch import _zero_to_fp32
    from tailrace.torch.deepspeed import TailraceCheckpointEngine, export

NAME = "mp_rank_00_model_states.pt"


def save(engine: Any, place: Path, tag: str, value: float, *, latest: bool = True) -> None:
    info = CheckpointCommitInfo(tag, str(place), latest)
    engine.create(info)
    engine.save({"w": torch.full((3,), value)}, os.path.join(place, tag, NAME))
    engine.commit(info)


def value_of(engine: Any, path: str) -> float:
    try:
        return float(engine.load(path)["w"][0])
    finally:
        engine.end_reading()


@pytest.mark.parametrize("tag", ["a/", "./a", "b/../a"])
def test_a_save_never_removes_itself(tag: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    engine = TailraceCheckpointEngine(keep=1)
    save(engine, tmp_path, "older", 1)
    save(engine, tmp_path, tag, 2)
    assert value_of(engine, str(tmp_path / "a" / NAME)) == 2
    assert not (tmp_path / "older").exists()


def test_what_latest_names_stays(tmp_path: Path) -> None:
    engine = TailraceCheckpointEngine(keep=1)
    save(engine, tmp_path, "one", 1)
    save(engine, tmp_path, "two", 2, latest=False)
    assert (tmp_path / "latest").read_text() == "one"
    assert value_of(engine, str(tmp_path / "one" / NAME)) == 1 and value_of(engine, str(tmp_path / "two" / NAME)) == 2
    save(engine, tmp_path, "three", 3)
    assert sorted(os.listdir(tmp_path)) == ["latest", "three"]


def test_a_job_removes_no_checkpoints_of_another(tmp_path: Path) -> None:
    mine, others = TailraceCheckpointEngine(keep=1), TailraceCheckpointEngine(name="other")
    save(others, tmp_path, "theirs", 1)
    save(others, tmp_path, "both", 2)
    save(mine, tmp_path, "both", 3)
    save(mine, tmp_path, "older", 4)
    save(mine, tmp_path, "newer", 5)
    assert sorted(os.listdir(tmp_path)) == ["both", "latest", "newer", "theirs"]


def test_of_two_jobs_under_one_tag_each_loads_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "tag" / NAME)
    for number, name in enumerate(("one", "two")):
        engine = TailraceCheckpointEngine(name=name)
        save(engine, tmp_path, "tag", number)
    for number, name in enumerate(("one", "two")):
        engine = TailraceCheckpointEngine(name=name)
        assert value_of(engine, place) == number
        told_by_deepspeeds_own(monkeypatch, engine)
        assert weights_in(tmp_path, "tag") == [number]
        export(tmp_path / "tag", tmp_path / name, name=name)
        assert torch.load(tmp_path / name / NAME)["w"].tolist() == [number] * 3
    with pytest.raises(tailrace.Error, match="several jobs: one, two; name one; here the name is 'tailrace'") as caught:
        value_of(TailraceCheckpointEngine(), place)
    assert caught.value.code == tailrace.Code.INVALID_ARGUMENT
    with pytest.raises(tailrace.Error, match="several jobs: one, two; name one"):
        export(tmp_path / "tag", tmp_path / "out")


def test_of_two_checkpoints_in_one_directory_the_newer_is_taken_whole(tmp_path: Path) -> None:
    engine = TailraceCheckpointEngine()
    save(engine, tmp_path, "step", 1)
    (ours,) = (tmp_path / "step").glob("*.tailrace")
    theirs = tmp_path / "step" / NAME
    torch.save({"w": torch.full((3,), 2.0)}, theirs)
    now = ours.stat().st_mtime_ns
    for newer, value in ((-1, 1), (1, 2)):
        os.utime(theirs, ns=(now + newer, now + newer))
        assert value_of(engine, str(theirs)) == value
        found = engine.paths_of(str(tmp_path / "step"), "mp_rank_*")
        assert (found is None) == (value == 2)
        engine.end_reading()
    # The older one does not stand in for what is lost of the newer one.
    os.utime(theirs, ns=(now - 1, now - 1))
    ours.write_bytes(ours.read_bytes()[:100])
    with pytest.raises(tailrace.Error):
        value_of(engine, str(theirs))


def told_by_deepspeeds_own(monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
    """Makes zero_to_fp32's functions, as install() changes them, give the tensors of the files that they find."""

    def weights(checkpoint_dir: Any, _exclude_frozen_parameters: bool) -> dict[str, torch.Tensor]:
        files = zero_to_fp32.get_checkpoint_files(checkpoint_dir, "*_states.pt")
        return {str(number): zero_to_fp32.torch.load(file)["w"] for number, file in enumerate(files)}

    monkeypatch.setattr(zero_to_fp32, _zero_to_fp32.NAME, weights)  # what install() sets is taken back with it
    monkeypatch.setattr(_zero_to_fp32, "_theirs", weights)
    _zero_to_fp32.install(False, engine._job)


def weights_in(place: Path, tag: str) -> list[float]:
    found = get_fp32_state_dict_from_zero_checkpoint(place, tag)
    return [float(tensor[0]) for tensor in found.values()]


def test_weights_are_those_of_the_newer_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TailraceCheckpointEngine(files=1)
    save(engine, tmp_path, "step", 1)
    (ours,) = (tmp_path / "step").glob("*.tailrace")
    theirs = tmp_path / "step" / NAME
    torch.save({"w": torch.full((3,), 2.0)}, theirs)
    told_by_deepspeeds_own(monkeypatch, engine)
    now = ours.stat().st_mtime_ns
    for newer, value in ((-1, 1), (1, 2)):
        os.utime(theirs, ns=(now + newer, now + newer))
        assert weights_in(tmp_path, "step") == [value]


def test_a_lost_file_is_told_where_weights_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TailraceCheckpointEngine(files=2)
    save(engine, tmp_path, "step", 1)
    next((tmp_path / "step").glob("*.2of2.tailrace")).unlink()
    told_by_deepspeeds_own(monkeypatch, engine)
    with pytest.raises(tailrace.Error, match=r"2of2\.tailrace is missing") as caught:
        weights_in(tmp_path, "step")
    assert caught.value.code == tailrace.Code.NOT_FOUND
    (tmp_path / "empty").mkdir()
    for tag in ("empty", "not there"):  # DeepSpeed's own function says what is missing
        with pytest.raises(FileNotFoundError) as missing:
            weights_in(tmp_path, tag)
        assert not isinstance(missing.value, tailrace.Error)


def test_an_export_that_fails_says_where(tmp_path: Path) -> None:
    engine = TailraceCheckpointEngine()
    info = CheckpointCommitInfo("step", str(tmp_path), True)
    engine.create(info)
    engine.save({"w": torch.ones(1 << 18)}, str(tmp_path / "step" / NAME))
    engine.commit(info)
    (tmp_path / "file").touch()
    for target in ("file", "file/below"):
        with pytest.raises(tailrace.Error, match=r"making the directory '.*/file"):
            export(tmp_path / "step", tmp_path / target)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / f"{NAME}.unfinished").symlink_to("/dev/full")
    with pytest.raises(tailrace.Error, match=f"writing '.*{NAME}'.*is intact") as caught:
        export(tmp_path / "step", tmp_path / "full")
    assert caught.value.code == tailrace.Code.NO_SPACE and os.listdir(tmp_path / "full") == []


def test_pickled_objects_are_exported_if_they_are_trusted(tmp_path: Path) -> None:
    engine = TailraceCheckpointEngine(pickle=True)
    info = CheckpointCommitInfo("step", str(tmp_path), True)
    engine.create(info)
    engine.save({"odd": Fraction(1, 2)}, str(tmp_path / "step" / NAME))
    engine.commit(info)
    with pytest.raises(tailrace.Error, match="pass trust_pickle=True"):
        export(tmp_path / "step", tmp_path / "out")
    export(tmp_path / "step", tmp_path / "out", trust_pickle=True)
    assert torch.load(tmp_path / "out" / NAME, weights_only=False) == {"odd": Fraction(1, 2)}
