"""Stopping: all ranks hear of a reason at the same step, whoever got the signal; and what sessions say."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import distributed
import numpy as np
import pytest
import torch.distributed as dist

import tailrace
from tailrace.torch.stopping import Stopping


def halt(directory: Path, order: str = "now") -> None:
    """As `tailrace halt` does."""
    directory.mkdir(exist_ok=True)
    with open(os.open(directory / "tailrace.halt", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(f"tailrace halt 1\n{order}\nid 5\nby anna@login\n")


def until(reason: Callable[[], str | None]) -> str | None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if (found := reason()) is not None:
            return found
        time.sleep(0.005)
    return None


# ---- sessions ------------------------------------------------------------------------------------------------


def test_a_session_says_when_to_save_and_when_to_stop(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    state = {"u": np.zeros(10)}
    with tailrace.open(
        shared_dir=tmp_path / "shared", local_dir=tmp_path / "local", save_every=3, stop_signals="USR1", record=False
    ) as session:
        assert [session.should_save() for _ in range(6)] == [False, False, True] * 2
        assert session.should_stop() is None
        os.kill(os.getpid(), signal.SIGUSR1)
        assert until(session.should_stop) == "signal USR1 at rank 0"
        assert session.should_stop() == "signal USR1 at rank 0"
        session.save(1, state)
    assert signal.getsignal(signal.SIGUSR1) == before
    with pytest.raises(tailrace.Error, match="closed"):
        session.should_stop()
    with pytest.raises(tailrace.Error, match="closed"):
        session.should_save()


def test_a_session_obeys_a_halt_file(tmp_path: Path) -> None:
    with tailrace.open(shared_dir=tmp_path / "shared", local_dir=tmp_path / "local", record=False) as session:
        halt(tmp_path / "shared", "after 1")
        for _ in range(250):  # it looks once a second
            assert session.should_stop() is None
            time.sleep(0.005)
        session.save(1, {"step": 1})
        assert until(session.should_stop) == "halted by anna@login after 1 save"
    assert not (tmp_path / "shared" / "tailrace.halt").exists()


def sessions_over_ranks(place: str, seed: int) -> None:
    dice, rank = random.Random(seed), dist.get_rank()
    asked, at = dice.randrange(dist.get_world_size()), dice.randrange(1, 40)
    with tailrace.open(
        shared_dir=f"{place}/shared",
        local_dir=f"{place}/local",
        comm=dist.group.WORLD,
        stop_signals="USR1",
        ranks_per_node=2,
        record=False,
    ) as session:
        step, reason = 0, None
        while reason is None:
            step += 1
            time.sleep(random.random() * 0.01 * (1 + rank))
            if rank == asked and step == at:
                os.kill(os.getpid(), signal.SIGUSR1)
            reason = session.should_stop()
        assert reason == f"signal USR1 at rank {asked}"
        steps: list[int] = [0] * dist.get_world_size()
        dist.all_gather_object(steps, step)
        assert len(set(steps)) == 1, steps
        session.save(step, {"step": step})


def test_sessions_over_ranks_stop_at_the_same_step(tmp_path: Path) -> None:
    seed = int(os.environ.get("TAILRACE_SEED", random.randrange(1 << 30)))
    print(f"TAILRACE_SEED={seed}")
    distributed.run(3, sessions_over_ranks, str(tmp_path), seed)


# ---- without a session ------------------------------------------------------------------------------------------


def test_a_signal_is_a_reason_that_stays(tmp_path: Path) -> None:
    called: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _: called.append(number))
    try:
        stopping = Stopping(tmp_path, signals=["USR2"])
        assert stopping.reason() is None
        os.kill(os.getpid(), signal.SIGUSR2)
        assert stopping.reason() == "signal USR2 at rank 0"
        assert called == [signal.SIGUSR2]
        assert stopping.reason() == "signal USR2 at rank 0"
        stopping.close()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert len(called) == 2
    finally:
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def test_a_handler_installed_later_is_out_of_the_way_until_close(tmp_path: Path) -> None:
    stopping = Stopping(tmp_path, signals=["SIGUSR2"])
    later: list[int] = []

    def theirs(number: int, _: object) -> None:
        later.append(number)

    try:
        signal.signal(signal.SIGUSR2, theirs)
        assert stopping.reason() is None
        os.kill(os.getpid(), signal.SIGUSR2)
        assert stopping.reason() == "signal USR2 at rank 0"
        assert later == []
        stopping.close()
        assert signal.getsignal(signal.SIGUSR2) is theirs
    finally:
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def test_one_that_is_forgotten_swallows_no_signal(tmp_path: Path) -> None:
    called: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _: called.append(number))
    try:
        stopping = Stopping(tmp_path, signals=["USR2"], chain=False)
        assert stopping.reason() is None
        del stopping
        os.kill(os.getpid(), signal.SIGUSR2)
        assert until(lambda: "called" if called else None) == "called"
    finally:
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def test_the_end_of_the_job_and_a_halt_file_are_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ends in" in str(Stopping(tmp_path, signals=None, job_minutes=1).reason())
    early = Stopping(tmp_path, signals=None, job_minutes=1, stop_before="5s")
    assert early.reason() is None
    early.close()
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 70))
    slurm = Stopping(tmp_path, signals=None)
    assert slurm.reason() is None
    slurm.saved(40.0)
    assert "ends in" in str(slurm.reason()), "a last checkpoint may take 80 s"
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    halted = Stopping(tmp_path, signals=None)
    assert halted.reason() is None
    halt(tmp_path)
    assert until(halted.reason) == "halted by anna@login"
    halted.close()
    assert not (tmp_path / "tailrace.halt").exists()


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tailrace.Error, match="'KILL' is not a signal"):
        Stopping(tmp_path, signals=["KILL"])
    with pytest.raises(tailrace.Error, match="'files' is not a setting"):
        Stopping(tmp_path, files=2)
    with pytest.raises(tailrace.Error, match="not a point in time"):
        Stopping(tmp_path, job_end="soon")
    failures: list[str] = []

    def elsewhere() -> None:
        try:
            Stopping(tmp_path)
        except tailrace.Error as error:
            failures.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in failures[0]


def test_it_saves_once_more_and_again_only_if_that_failed(tmp_path: Path) -> None:
    saves: list[str] = []

    def save() -> None:
        saves.append("")
        if len(saves) == 1:
            raise OSError("the test's own failure")

    stopping = Stopping(tmp_path, signals=["USR2"])
    assert stopping.stop_in_time(save) is None and not saves
    os.kill(os.getpid(), signal.SIGUSR2)
    with pytest.raises(OSError, match="the test's own failure"):
        stopping.stop_in_time(save)
    for _ in range(2):
        assert stopping.stop_in_time(save) == "signal USR2 at rank 0"
    assert len(saves) == 2
    stopping.close()


def ranks_stop(place: str, seed: int) -> None:
    dice, rank = random.Random(seed), dist.get_rank()
    asked, at, by_halt = dice.randrange(dist.get_world_size()), dice.randrange(1, 30), dice.random() < 0.3
    stopping = Stopping(place, signals=["USR1"])
    step, reason = 0, None
    while reason is None:
        step += 1
        time.sleep(random.random() * 0.004 * (1 + rank))
        if rank == asked and step == at:
            if by_halt:
                halt(Path(place))
            else:
                os.kill(os.getpid(), signal.SIGUSR1)
        reason = stopping.reason()
    assert reason == ("halted by anna@login" if by_halt else f"signal USR1 at rank {asked}")
    steps: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(steps, step)
    assert len(set(steps)) == 1, steps
    assert stopping.reason() == reason
    stopping.close()


def test_all_ranks_stop_at_the_same_step(tmp_path: Path) -> None:
    first = int(os.environ.get("TAILRACE_SEED", random.randrange(1 << 30)))
    for seed in range(first, first + (1 if "TAILRACE_SEED" in os.environ else 4)):
        print(f"TAILRACE_SEED={seed}")
        distributed.run(3, ranks_stop, str(tmp_path), seed)


def test_one_that_is_forgotten_does_not_end_the_program_under_another(tmp_path: Path) -> None:
    called: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _: called.append(number))
    try:
        forgotten = Stopping(tmp_path, signals=["USR2"])
        assert forgotten.reason() is None
        del forgotten
        stopping = Stopping(tmp_path, signals=["USR2"])
        os.kill(os.getpid(), signal.SIGUSR2)
        assert stopping.reason() == "signal USR2 at rank 0"
        assert called == [signal.SIGUSR2]
        stopping.close()
    finally:
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
