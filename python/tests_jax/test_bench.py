"""make bench-jax, on a small state: both handlers save and restore, and its verdicts follow from the numbers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench_jax.py"
sys.path[:0] = [str(BENCH.parent), str(Path(__file__).parents[1] / "tests")]
import bench_jax  # noqa: E402
from told_to_end import ended_at_work  # noqa: E402


def test_every_way_gives_back_what_was_saved(tmp_path: Path) -> None:
    sizes = ["--layers=1", "--hidden=64", "--vocabulary=512", "--rounds=1"]
    done = subprocess.run(
        [sys.executable, BENCH, *sizes, "--directory", tmp_path, "--json", tmp_path / "out.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # it compares every restore with what was saved
    found = json.loads((tmp_path / "out.json").read_text())
    assert list(found["rounds"]) == list(bench_jax.WAYS) and found["processes"] == 2 and found["devices"] == 4
    for name, (measured,) in found["rounds"].items():
        assert measured["bytes"] >= found["state_bytes"] * (0.5 if name == bench_jax.ORBAX else 1), name
        assert 0 < measured["blocked"] <= measured["durable"] and measured["restore"] > 0, name
    # Orbax's checkpointer adds files of its own to each.
    files = {name: measured["files"] for name, (measured,) in found["rounds"].items()}
    assert files["tailrace, K = 2"] == files["tailrace, K = 1"] + 1 < files["Orbax"]
    assert "cold: " in done.stdout and "Orbax's value over the way's" in done.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


def test_who_ends_the_benchmark_ends_its_processes(tmp_path: Path) -> None:
    sizes = ["--layers=1", "--hidden=64", "--vocabulary=512", "--rounds=1000000"]
    code, family, left = ended_at_work(
        [sys.executable, BENCH, *sizes, "--directory", tmp_path], lambda: list(tmp_path.glob("bench-jax-*/*"))
    )
    assert len(family) == bench_jax.PROCESSES
    assert (code, left, list(tmp_path.iterdir())) == (128 + signal.SIGTERM, [], [])


def test_a_spread_that_contains_1_shows_no_difference() -> None:
    rounds = {"Orbax": [{"durable": 2.0}, {"durable": 3.0}], "ours": [{"durable": 1.0}, {"durable": 2.0}]}
    assert bench_jax.ratios(rounds, "ours", "durable") == [2.0, 1.5]
    assert bench_jax.verdict([2.0, 1.5]) == "better" and bench_jax.verdict([0.9, 0.8]) == "worse"
    assert bench_jax.verdict([0.9, 2.0]) == bench_jax.verdict([1.0, 1.0]) == "no difference shown"


def test_a_way_that_does_not_exist_is_refused_with_those_that_do() -> None:
    done = subprocess.run([sys.executable, BENCH, "--ways", "tape"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no way 'tape'" in done.stderr and "tailrace, K = 1" in done.stderr
