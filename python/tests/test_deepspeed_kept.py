"""What tailrace.torch.deepspeed keeps, and what it takes, where several checkpoints lie in one directory."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # DeepSpeed's own
    from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointCommitInfo

    from tailrace.torch.deepspeed import TailraceCheckpointEngine

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
