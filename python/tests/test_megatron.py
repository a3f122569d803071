"""Megatron-core's distributed checkpoints through tailrace: sharded, replicated, asynchronous, on other ranks."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

import tailrace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
    from megatron.core.dist_checkpointing.serialization import load_sharded_metadata, remove_sharded_tensors
    from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper

    from tailrace.torch import megatron
    from tailrace.torch.megatron import BACKEND, register, stop_in_time
    from tailrace.torch.stopping import Stopping

ROWS, COLUMNS = 12, 5


def state(fill: bool, *, columns: int = COLUMNS, odd: Any = None) -> dict[str, Any]:
    """A weight whose rows are spread over the ranks, one that all have, an object of each rank, a plain number."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = ROWS // ranks
    weight = torch.zeros(mine, columns)
    bias = torch.zeros(7)
    if fill:
        weight += torch.arange(rank * mine, (rank + 1) * mine).unsqueeze(1)
        bias += torch.arange(7)
    objects = {"rank": rank} if fill else None
    return {
        "layer": {
            "weight": ShardedTensor.from_rank_offsets("weight", weight, (0, rank, ranks)),
            "bias": ShardedTensor.from_rank_offsets("bias", bias, replica_id=rank),
            "extra": ShardedObject("extra", odd if odd is not None else objects, (ranks,), (rank,)),
        },
        "iteration": 100,
    }


def check(loaded: dict[str, Any]) -> None:
    expected = state(fill=True)
    for name in ("weight", "bias"):
        assert torch.equal(loaded["layer"][name], expected["layer"][name].data), name
    assert loaded["iteration"] == 100


def save_on_two_ranks(place: Path) -> None:
    saving = register(files=2)
    save = dist_checkpointing.save
    for name in ("plain", "async", "process", "parallel", "other"):
        (place / name).mkdir(exist_ok=True)
    dist.barrier()
    save(state(fill=True), str(place / "plain"), sharded_strategy=BACKEND)
    check(dist_checkpointing.load(state(fill=False), str(place / "plain")))

    live = state(fill=True)
    request = save(live, str(place / "async"), sharded_strategy=BACKEND, async_sharded_save=True)
    live["layer"]["weight"].data.zero_()  # it was copied
    request.execute_sync()
    loaded = dist_checkpointing.load(state(fill=False), str(place / "async"))
    check(loaded)
    assert loaded["layer"]["extra"] == {"rank": dist.get_rank()}

    # As Megatron schedules it: in a process, then the rest in this one.
    request = save(state(fill=True), str(place / "process"), sharded_strategy=BACKEND, async_sharded_save=True)
    process = multiprocessing.get_context("fork").Process(target=request.async_fn, args=request.async_fn_args)
    process.start()
    process.join()
    assert process.exitcode == 0
    dist.barrier()
    for finalize in request.finalize_fns:
        finalize()
    check(dist_checkpointing.load(state(fill=False), str(place / "process")))

    save(state(fill=True), str(place / "parallel"), sharded_strategy=FullyParallelSaveStrategyWrapper(saving))
    check(dist_checkpointing.load(state(fill=False), str(place / "parallel")))

    # What is not loaded.
    with pytest.raises(CheckpointException, match="Global shape mismatch"):
        dist_checkpointing.load(state(fill=False, columns=4), str(place / "plain"))
    save(state(fill=True, odd=Fraction(1, 2)), str(place / "other"), sharded_strategy=BACKEND)
    with pytest.raises(CheckpointException, match="could run any code"):
        dist_checkpointing.load(state(fill=False), str(place / "other"))
    loading = megatron.LoadStrategy(trust_pickle=True)
    loaded = dist_checkpointing.load(state(fill=False), str(place / "other"), sharded_strategy=loading)
    assert loaded["layer"]["extra"] == Fraction(1, 2)


def failures_of_one_rank(place: Path) -> None:
    saving = register(files=2)

    def fail(*arguments: Any) -> None:
        raise OSError("the test's own failure")

    found, copy = megatron._by_key, saving._stager.stage_again
    for name, of, attribute, asynchronous in [
        ("sync", megatron, "_by_key", False),
        ("async", megatron, "_by_key", True),
        ("copy", saving._stager, "stage_again", True),
    ]:
        (place / name).mkdir(exist_ok=True)
        dist.barrier()
        if dist.get_rank() == 1:
            setattr(of, attribute, fail)
        with pytest.raises(CheckpointException, match="the test's own failure"):
            request = dist_checkpointing.save(
                state(fill=True), str(place / name), sharded_strategy=BACKEND, async_sharded_save=asynchronous
            )
            request.execute_sync()
        assert not (place / name / "metadata.json").exists()
        megatron._by_key, saving._stager.stage_again = found, copy  # type: ignore[method-assign]
    dist_checkpointing.save(state(fill=True), str(place / "sync"), sharded_strategy=BACKEND)
    check(dist_checkpointing.load(state(fill=False), str(place / "sync")))


@pytest.mark.filterwarnings("ignore")
def test_what_fails_on_one_rank_fails_on_all(tmp_path: Path) -> None:
    distributed.run(2, failures_of_one_rank, tmp_path)


def load_on_one_rank(place: Path) -> None:
    register()
    part = state(fill=False)
    del part["layer"]["extra"]
    check(dist_checkpointing.load(part, str(place / "plain")))
    metadata = load_sharded_metadata(str(place / "plain"))
    assert metadata["weight"].data is None and metadata["weight"].global_shape == (ROWS, COLUMNS)
    assert sorted(type(of).__name__ for of in metadata.values()) == ["ShardedObject"] * 2 + ["ShardedTensor"] * 2
    with pytest.raises(tailrace.Error, match="not rewritten"):
        remove_sharded_tensors(str(place / "plain"), "weight")


@pytest.mark.filterwarnings("ignore")
def test_two_ranks_save_and_one_loads(tmp_path: Path) -> None:
    distributed.run(2, save_on_two_ranks, tmp_path)
    names = sorted(path.name for path in (tmp_path / "plain").iterdir())
    assert len(names) == 4 and names[:2] == ["common.pt", "metadata.json"]  # Megatron's, and K files
    assert tailrace.read(tmp_path / "async")["weight"].shape == (ROWS, COLUMNS)
    distributed.run(1, load_on_one_rank, tmp_path)


def save_that_takes_a_while(place: Path) -> None:
    go_on = threading.Event()
    saved = megatron.state_dict_saver.save

    def slow(*arguments: Any, **options: Any) -> Any:
        assert go_on.wait(60)
        return saved(*arguments, **options)

    megatron.state_dict_saver.save = slow
    register()
    request = dist_checkpointing.save(state(fill=True), str(place), sharded_strategy=BACKEND, async_sharded_save=True)

    def is_locked(answers: Any) -> None:
        with open(request.async_fn_args[0], "r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                answers.put(False)
            except BlockingIOError:
                answers.put(True)

    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=is_locked, args=(answers,))
    process.start()
    process.join()
    assert answers.get() is True  # Megatron's process waits
    assert not (place / "metadata.json").exists()
    go_on.set()
    for finalize in request.finalize_fns:
        finalize()
    assert not os.path.exists(request.async_fn_args[0])
    check(dist_checkpointing.load(state(fill=False), str(place)))

    # A failure in the thread is raised, and Megatron does not write metadata.json.
    def fail(*arguments: Any, **options: Any) -> None:
        raise CheckpointException("", {0: ZeroDivisionError()})  # type: ignore[dict-item]

    megatron.state_dict_saver.save = fail
    (place / "failed").mkdir()
    request = dist_checkpointing.save(
        state(fill=True), str(place / "failed"), sharded_strategy=BACKEND, async_sharded_save=True
    )
    with pytest.raises(CheckpointException):
        request.execute_sync()
    assert not (place / "failed" / "metadata.json").exists()


@pytest.mark.filterwarnings("ignore")
def test_megatron_waits_for_the_thread(tmp_path: Path) -> None:
    distributed.run(1, save_that_takes_a_while, tmp_path)


class SignalHandler:
    """As that of Megatron-LM: one answer per rank."""

    def __init__(self) -> None:
        self._received = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, *_: Any) -> None:
        self._received = True

    def signals_received(self) -> list[bool]:
        everybody = [False] * dist.get_world_size()
        dist.all_gather_object(everybody, self._received)
        return everybody


def train_as_megatron_does(place: Path, handler: SignalHandler, act: Callable[[int], None]) -> int:
    for iteration in range(1, 2000):
        act(iteration)
        if any(handler.signals_received()):
            directory = place / f"iter_{iteration}"
            directory.mkdir(parents=True, exist_ok=True)
            dist_checkpointing.save(state(fill=True), str(directory), sharded_strategy=BACKEND)
            return iteration
    raise AssertionError("it has not stopped")


def stop_at_sigterm_and_by_halt(place: Path) -> None:
    def terminate_rank_1(iteration: int) -> None:
        if iteration == 3 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    def halt(iteration: int) -> None:
        if iteration == 2 and dist.get_rank() == 0:
            with open(os.open(place / "tailrace.halt", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write("tailrace halt 1\nnow\nid 5\nby anna@login\n")
        time.sleep(0.01)

    register(files=2)
    for name, act, expected in (
        ("signal", terminate_rank_1, "signal TERM at rank 1"),
        ("halt", halt, "halted by anna"),
    ):
        handler, stopping = SignalHandler(), Stopping(place)
        stop_in_time(handler, stopping)
        stopped = [0, 0]
        dist.all_gather_object(stopped, train_as_megatron_does(place / name, handler, act))
        assert stopped == [3, 3] if name == "signal" else stopped[0] == stopped[1] > 2
        assert expected in str(stopping.reason())
        stopping.close()


def load_what_was_saved_last(place: Path) -> None:
    register()
    for saved in sorted(place.glob("*/iter_*")):
        check(dist_checkpointing.load(state(fill=False), str(saved)))


@pytest.mark.filterwarnings("ignore")
def test_megatrons_loop_saves_once_more_and_stops_at_the_same_iteration(tmp_path: Path) -> None:
    distributed.run(2, stop_at_sigterm_and_by_halt, tmp_path)
    assert len(list(tmp_path.glob("*/iter_*"))) == 2
    distributed.run(2, load_what_was_saved_last, tmp_path)
