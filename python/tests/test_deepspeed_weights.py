"""ZeRO's weights without its optimizer states, which DeepSpeed takes past the checkpoint engine, beside its own."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import distributed
import torch
from test_deepspeed import make_engine, train

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # DeepSpeed's own
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint  # before install()

    from tailrace.torch.deepspeed import install

STAGES = (2, 3)


def save_both(place: str) -> None:
    for stage in STAGES:
        engine = make_engine(stage)
        train(engine, range(2))
        engine.save_checkpoint(f"{place}/theirs{stage}")
        saving = install(engine, files=2)
        os.chdir(place)
        engine.save_checkpoint(f"ours{stage}", client_state={"seen": 3})
        os.chdir("/")  # while it is written
        saving.wait()


def load_both(place: str) -> None:
    losses: list[list[float]] = []
    for name in ("theirs3", "ours3"):
        engine = make_engine(3)
        if name == "ours3":
            install(engine)
        path, client_state = engine.load_checkpoint(f"{place}/{name}", load_optimizer_states=False)
        assert path is not None and client_state.get("seen") == (3 if name == "ours3" else None)
        losses.append(train(engine, range(2, 4)))
    assert losses[0] == losses[1]
    for stage in STAGES:
        theirs, ours = (weights_of(f"{place}/{whose}{stage}") for whose in ("theirs", "ours"))
        assert theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in theirs)


def weights_of(place: str) -> dict[str, Any]:
    found: dict[str, Any] = get_fp32_state_dict_from_zero_checkpoint(place)
    return found


def test_weights_without_optimizer_states_are_those_of_deepspeeds_own_files(tmp_path: Path) -> None:
    distributed.run(2, save_both, str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["ours2", "ours3", "theirs2", "theirs3"]
    distributed.run(2, load_both, str(tmp_path))
