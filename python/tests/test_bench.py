"""make bench-llm, on a small state: every way saves and loads, and the table has its row."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from told_to_end import ended_at_work

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench_llm.py"
sys.path.insert(0, str(BENCH.parent))
import llm_aims  # noqa: E402
from llm_ways import WAYS, Raw  # noqa: E402


def test_every_way_gives_back_what_was_saved(tmp_path: Path) -> None:
    sizes = ["--layers", "1", "--hidden", "64", "--vocabulary", "500", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, BENCH, *sizes, "--no-calls", "--directory", tmp_path, "--json", tmp_path / "out.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # it compares every load with what was saved
    rounds = json.loads((tmp_path / "out.json").read_text())["rounds"]
    assert len(rounds) >= 17 and all(len(measured) == 1 for measured in rounds.values())
    mapped = ["torch.save, mmap", "safetensors", "tailrace.torch.save, mmap", "tailrace.torch.open"]
    assert all(rounds[name][0]["warm"] > 0 and name in done.stdout for name in mapped)
    assert "smallest to largest" in done.stdout
    for files, name in [(1, "tailrace DCP async, K = 1"), (2, "tailrace DCP async, K = 2")]:
        assert rounds[name][0]["files"] == files and name in done.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]
    assert "cold: " in done.stdout and "synced by themselves: " in done.stdout
    aims = done.stdout.split("aims")[1]
    for what, reached in [("files beyond K", "yes"), ("reads per write", "not measured"), ("cold load", "")]:
        assert any(line.startswith(what) and line.endswith(reached) for line in aims.splitlines()), aims


def test_who_ends_the_benchmark_ends_its_ranks(tmp_path: Path) -> None:
    sizes = ["--layers", "1", "--hidden", "64", "--vocabulary", "500", "--rounds", "1000000"]
    code, family, left = ended_at_work(
        [sys.executable, BENCH, *sizes, "--directory", tmp_path], lambda: list(tmp_path.glob("bench-llm-*/*"))
    )
    assert len(family) >= 2
    assert (code, left, list(tmp_path.iterdir())) == (128 + signal.SIGTERM, [], [])


def test_a_program_that_does_not_end_when_told_fails_its_test(tmp_path: Path) -> None:
    deaf = "import pathlib, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    deaf += "pathlib.Path(sys.argv[1]).touch(); signal.pause()"
    at_work = tmp_path / "at_work"
    with pytest.raises(AssertionError, match=r"has not ended 0\.1 seconds after SIGTERM"):
        ended_at_work([sys.executable, "-c", deaf, at_work], at_work.exists, limit_s=0.1)


def test_an_aim_is_reached_when_all_our_ways_reach_it() -> None:
    good = {"bytes": 2 << 30, "files": 1, "blocked": 0.2, "durable_ratio": 1.3, "load_ratio": 1.1, "save_memory": 0}
    good |= {"load_memory": 60 << 20, "reads_per_write": 1.0, "backward": 0, "syncs": 3}
    rows = {
        "DCP async": {"blocked": 0.25},
        "torch.save": {"blocked": 1.3},
        "tailrace DCP async, K = 1": good,
        "tailrace DCP async, K = 2": {**good, "files": 2},
    }
    told = llm_aims.verdicts(rows, 2)
    assert [verdict.what for verdict in told if verdict.reached is not True] == []
    bad = {"files": 3, "blocked": 0.3, "durable_ratio": 0.9, "load_ratio": 0.9, "save_memory": 2 << 30}
    bad |= {"load_memory": 65 << 20, "reads_per_write": 1.01, "backward": 1, "syncs": 0}
    told = llm_aims.verdicts({**rows, "tailrace DCP async, K = 2": {**good, **bad}}, 2)
    assert len(told) >= 10 and all(verdict.reached is False and verdict.which == "DCP async, K = 2" for verdict in told)
    assert "0.90 to 1.30" in "\n".join(llm_aims.table(told))
    assert all(verdict.reached is None for verdict in llm_aims.verdicts({}, 2))


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_our_loads_read_forwards_and_with_no_more_calls_than_the_saves_wrote(tmp_path: Path) -> None:
    # Tensors that are no multiples of a page or of a check block, 80 MiB on each rank.
    sizes = ["--layers", "2", "--hidden", "500", "--vocabulary", "16384", "--rounds", "1"]
    ours = [name for name in WAYS if name.startswith("tailrace") and name not in llm_aims.TENSOR_BY_TENSOR]
    ways = ["raw, one file per rank", *ours]
    told = ["--directory", tmp_path, "--json", tmp_path / "out.json"]
    done = subprocess.run(
        [sys.executable, BENCH, *sizes, "--ways", ";".join(ways), *told], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "reads/write" in done.stdout, done.stderr
    calls = json.loads((tmp_path / "out.json").read_text())["calls"]
    assert sorted(calls) == sorted(ways) and len(ours) >= 5
    # The calls of a way are its own.
    raw = calls[ways[0]]
    assert raw["reads_per_write"] == 1 and raw["backward"] == 0 and raw["syncs"] == 2  # two ranks
    # The posix engine's writes were seen.
    assert calls["tailrace DCP, K = 1"]["written_bytes"] >= raw["written_bytes"]
    # Who maps files goes back to the index, and sees that it has mapped those that it knows. That is five short reads.
    mapped = calls["tailrace DeepSpeed, K = 1"]
    ours.remove("tailrace DeepSpeed, K = 1")
    writes = mapped["writes_per_gib"] * mapped["written_bytes"] / 2**30
    assert mapped["reads_per_write"] * writes <= writes + 2 * 5 and mapped["backward"] <= 2 * 2  # two ranks
    worst = {name: (calls[name]["reads_per_write"], calls[name]["backward"]) for name in ours}
    assert all(reads <= 1 and backward == 0 for reads, backward in worst.values()), worst


def test_a_short_transfer_is_not_measured() -> None:
    raw = Raw.__new__(Raw)
    raw.buffer = memoryview(bytes(100))
    raw.transfer(len)
    with pytest.raises(AssertionError, match="short"):
        raw.transfer(lambda part: len(part) - 1)


def test_a_way_that_does_not_exist_is_refused_with_those_that_do() -> None:
    done = subprocess.run([sys.executable, BENCH, "--ways", "tape"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no way 'tape'" in done.stderr and "torch.save" in done.stderr
