"""The training examples: interrupted, started again, with the losses of an uninterrupted run."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import tailrace

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def environment() -> dict[str, str]:
    return {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}


def losses_in(text: str) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"^step (\d+) loss (\S+)$", text, re.M)}


def run(example: str, place: Path, steps: int, kill_at: int | None = None) -> dict[int, str]:
    """The losses by step. kill_at: all ranks get SIGKILL when this step is reported."""
    command = [*TORCHRUN, str(EXAMPLES / example), f"--directory={place}", f"--steps={steps}", "--save-every=2"]
    losses: dict[int, str] = {}
    log = place.with_suffix(".log")
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True) as launched,
    ):
        assert launched.stdout is not None
        for line in launched.stdout:
            told = losses_in(line)
            losses.update(told)
            if kill_at in told:
                launcher = psutil.Process(launched.pid)  # its ranks have sessions of their own
                for process in [*launcher.children(recursive=True), launcher]:
                    process.kill()
    assert launched.returncode == 0 if kill_at is None else kill_at in losses, log.read_text()
    return losses


@pytest.mark.parametrize(
    ("example", "embedding"),
    [
        ("train_bloom.py", "model.transformer.word_embeddings.weight"),
        ("train_torchtitan.py", "embedding.weight"),
    ],
)
def test_the_model_goes_on_with_the_losses_of_an_uninterrupted_run(
    example: str, embedding: str, tmp_path: Path
) -> None:
    expected = run(example, tmp_path / "whole", 8)
    assert list(expected) == list(range(1, 9))
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == ["step-2", "step-4", "step-6", "step-8"]
    assert len(list((tmp_path / "whole" / "step-8").iterdir())) == 2
    weights = tailrace.read(tmp_path / "whole" / "step-8")[embedding]
    assert weights.shape == (512, 64)

    killed = run(example, tmp_path / "killed", 8, kill_at=5)  # step 4 may be complete, or not
    resumed = run(example, tmp_path / "killed", 8)
    assert min(resumed) in (3, 5) and max(resumed) == 8
    assert {**killed, **resumed} == expected


@pytest.mark.filterwarnings("ignore")  # the libraries' own
@pytest.mark.parametrize(
    ("example", "first", "second"),
    [
        ("train_lightning.py", "step-3.ckpt", "step-6.ckpt"),
        ("train_trainer.py", "checkpoint-3", "checkpoint-6"),
        ("train_accelerate.py", "checkpoints/checkpoint_3", "checkpoints/checkpoint_6"),
    ],
)
def test_an_example_of_one_process_goes_on(
    example: str,
    first: str,
    second: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [example, f"--directory={tmp_path}", "--steps=6", "--save-every=3"])

    def losses() -> dict[int, str]:
        runpy.run_path(str(EXAMPLES / example), run_name="__main__")
        return losses_in(capsys.readouterr().out)

    expected = losses()
    assert list(expected) == list(range(1, 7))
    newest = tmp_path / second
    assert sorted(newest.parent.iterdir()) == [tmp_path / first, newest]
    tailrace.read(newest).close()
    if newest.is_dir():
        shutil.rmtree(newest)
    else:
        newest.unlink()
    assert losses() == {step: expected[step] for step in (4, 5, 6)}
    assert newest.exists()


# DeepSpeed's operations are not compiled: that takes minutes, and a compiler.
START = """
import runpy, sys
if "deepspeed" in sys.argv[1]:
    import deepspeed
    deepspeed.ops.__compatible_ops__ = {}
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("example", "first", "second"),
    [
        (["train_deepspeed.py", "--stage=3"], "global_step3", "global_step6"),
        (["train_megatron.py"], "iter_3", "iter_6"),
    ],
)
def test_an_example_of_two_ranks_goes_on(example: list[str], first: str, second: str, tmp_path: Path) -> None:
    (tmp_path / "start.py").write_text(START)
    place = tmp_path / "checkpoints"
    program = [str(EXAMPLES / example[0]), *example[1:], f"--directory={place}", "--steps=6", "--save-every=3"]
    surroundings = {**environment(), "PYTHONPATH": os.pathsep.join(sys.path)}

    def losses() -> dict[int, str]:
        command = [*TORCHRUN, str(tmp_path / "start.py"), *program]
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return losses_in(done.stdout)

    expected = losses()
    assert list(expected) == list(range(1, 7))
    assert len(list((place / second).glob("*.tailrace"))) == 2
    shutil.rmtree(place / second)
    if (place / "latest").exists():
        (place / "latest").write_text(first)
    assert losses() == {step: expected[step] for step in (4, 5, 6)}


@pytest.mark.parametrize(
    ("example", "place_of"),
    [
        (["train_accelerate.py"], "checkpoints/checkpoint_{}"),
        (["train_deepspeed.py", "--stage=3"], "global_step{}"),
        (["train_megatron.py"], "iter_{}"),
    ],
)
def test_sigterm_at_one_rank_saves_once_more_and_ends_both(example: list[str], place_of: str, tmp_path: Path) -> None:
    (tmp_path / "start.py").write_text(START)
    place = tmp_path / "checkpoints"
    place.mkdir()
    program = [str(EXAMPLES / example[0]), *example[1:], f"--directory={place}", "--save-every=100000"]
    command = [*TORCHRUN, str(tmp_path / "start.py"), *program, "--steps=100000"]
    surroundings = {**environment(), "PYTHONPATH": os.pathsep.join(sys.path)}
    log = tmp_path / "log"
    said, asked = "", False
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, stderr=errors, text=True) as launched,
    ):
        assert launched.stdout is not None
        for line in launched.stdout:
            said += line
            if not asked and 3 in losses_in(said):
                asked = True
                ranks = psutil.Process(launched.pid).children()
                (second,) = [rank for rank in ranks if rank.environ().get("RANK") == "1"]
                second.terminate()
    assert launched.returncode == 0, log.read_text()
    assert "stopping: signal TERM at rank 1" in said
    last = max(losses_in(said))
    assert last < 100000
    newest = place / place_of.format(last)
    assert [path for path in newest.parent.glob(newest.name.rstrip("0123456789") + "*") if path.is_dir()] == [newest]
    tailrace.read(newest).close()
