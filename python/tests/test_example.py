"""examples/train_bloom.py on two ranks: killed in the middle of a save, started again, with the same losses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil

import tailrace

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_bloom.py"
SMALL = ["--layers=2", "--hidden=64", "--heads=4", "--vocabulary=512", "--tokens=16"]


def run(place: Path, steps: int, kill_at: int | None = None) -> dict[int, str]:
    """The losses by step. kill_at: all ranks get SIGKILL when this step is reported."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, str(EXAMPLE), f"--directory={place}", f"--steps={steps}", "--save-every=2", *SMALL]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    losses: dict[int, str] = {}
    log = place.with_suffix(".log")
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as launched,
    ):
        assert launched.stdout is not None
        for line in launched.stdout:
            found = re.fullmatch(r"step (\d+) loss (\S+)\n", line)
            if found:
                losses[int(found[1])] = found[2]
                if int(found[1]) == kill_at:
                    launcher = psutil.Process(launched.pid)  # its ranks have sessions of their own
                    for process in [*launcher.children(recursive=True), launcher]:
                        process.kill()
    assert kill_at is not None or launched.returncode == 0, log.read_text()
    return losses


def test_the_model_goes_on_with_the_losses_of_an_uninterrupted_run(tmp_path: Path) -> None:
    expected = run(tmp_path / "whole", 8)
    assert list(expected) == list(range(1, 9))
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == ["step-2", "step-4", "step-6", "step-8"]
    assert len(list((tmp_path / "whole" / "step-8").iterdir())) == 2
    weights = tailrace.read(tmp_path / "whole" / "step-8")["model.transformer.word_embeddings.weight"]
    assert weights.shape == (512, 64)

    killed = run(tmp_path / "killed", 8, kill_at=5)  # step 4 may be complete, or not
    resumed = run(tmp_path / "killed", 8)
    assert min(resumed) in (3, 5) and max(resumed) == 8
    assert {**killed, **resumed} == expected
