"""examples/train_jax.py, interrupted and started again; and the examples of docs/jax.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import free_port

ROOT = Path(__file__).parents[2]


def train(place: Path, steps: int, *, devices: int, processes: int = 1) -> dict[int, str]:
    """The losses by step, of process 0."""
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    command = [sys.executable, str(ROOT / "examples/train_jax.py"), f"--directory={place}", f"--steps={steps}"]
    command += ["--save-every=2", f"--coordinator=localhost:{free_port()}", f"--processes={processes}"]
    started = [
        subprocess.Popen([*command, f"--process={rank}"], env=environment, stdout=subprocess.PIPE, text=True)
        for rank in range(processes)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    assert [process.returncode for process in started] == [0] * processes
    return {int(step): loss for step, loss in re.findall(r"^step (\d+) loss (\S+)$", outputs[0], re.M)}


def test_the_example_goes_on_with_the_same_losses(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 8, devices=2)
    assert train(tmp_path / "parts", 4, devices=2) == {step: whole[step] for step in range(1, 5)}
    assert train(tmp_path / "parts", 8, devices=2) == {step: whole[step] for step in range(5, 9)}


def test_the_example_goes_on_with_more_processes(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 6, devices=2)
    train(tmp_path / "parts", 4, devices=2)
    later = train(tmp_path / "parts", 6, devices=2, processes=2)
    assert sorted(later) == [5, 6]
    for step, loss in later.items():  # sums over other numbers of devices round differently
        assert float(loss) == pytest.approx(float(whole[step]), rel=1e-4)


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    page = (ROOT / "docs/jax.md").read_text()
    blocks = re.findall(r"^<!-- test -->\n```python\n(.*?)^```$", page, re.M | re.S)
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, block + done.stdout + done.stderr
