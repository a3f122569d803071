"""Sessions over the ranks of a torch.distributed process group."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
import torch
import torch.distributed as dist

import tailrace
from tailrace import _core
from tailrace.torch import _over_gloo


def check_transport() -> None:
    for round_bytes in (_over_gloo._ROUND_BYTES, 20_000):
        _over_gloo._ROUND_BYTES = round_bytes
        wrong = _core._check_transport(_over_gloo.OverGloo(dist.group.WORLD))
        assert not wrong, wrong


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_transport_does_what_every_transport_must(ranks: int) -> None:
    distributed.run(ranks, check_transport)


def open_session(place: str, **settings: Any) -> tailrace.Session:
    settings = {"ranks_per_node": 2, "comm": dist.group.WORLD, **settings}
    return tailrace.open(shared_dir=f"{place}/shared", local_dir=f"{place}/local", **settings)


ROWS = 3 << 18  # a rank's part of the array that all share: 24 MiB, so that a leader takes several chunks


def state_of(step: int) -> dict[str, Any]:
    """Of this rank; sizes and trees differ among ranks."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    random = np.random.default_rng([step, rank])
    total = 4 * ROWS
    first, last = total * rank // ranks, total * (rank + 1) // ranks
    state: dict[str, Any] = {
        "own": torch.from_numpy(random.standard_normal(100_000 + rank)),
        "meta": {"step": step, "rank": rank},
        "field": tailrace.Shard(np.arange(first, last, dtype=np.int64) * step, [total], [first]),
    }
    if rank == 1:
        state["more"] = [random.integers(0, 255, 3, np.uint8)]
    return state


def empty(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: empty(value) for key, value in state.items()}
    if isinstance(state, list):
        return [empty(value) for value in state]
    if isinstance(state, tailrace.Shard):
        return tailrace.Shard(np.zeros_like(state.array), state.global_shape, state.offset)
    return state * 0 if hasattr(state, "shape") else None


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, tailrace.Shard):
        assert np.array_equal(one.array, other.array)
    elif hasattr(one, "shape"):
        assert one.dtype == other.dtype and np.array_equal(np.asarray(one), np.asarray(other))
    else:
        assert one == other


def files_of(place: str, step: int) -> list[str]:
    return sorted(path.name for path in Path(place, "shared").glob(f"*{step:08}*"))


def save_and_restore(place: str, files: int) -> None:
    with open_session(place, files=files) as session:
        assert (session.rank, session.rank_count) == (dist.get_rank(), 4)
        assert session.restore_latest(into=empty(state_of(1))) is None
        for step in (1, 2):
            session.save(step, state_of(step))
        assert session.wait(2)
        into = empty(state_of(2))
        assert session.restore_latest(into=into) == 2
        assert_same(into, state_of(2))
    if dist.get_rank() == 0:
        names = [path.name for path in Path(place, "shared").iterdir()]
        assert len(names) == 2 * files, names


def restore_again(place: str) -> None:
    with open_session(place) as session:
        for step in (1, 2):
            into = empty(state_of(step))
            session.restore(step, into=into)
            assert_same(into, state_of(step))
        wrong = empty(state_of(2))
        if session.rank == 2:
            del wrong["own"]
        # One rank's refusal is everybody's.
        with pytest.raises(tailrace.Error, match=r"own.* is in the checkpoint only") as caught:
            session.restore_latest(into=wrong)
        assert caught.value.code is tailrace.Code.INVALID_ARGUMENT
        assert wrong["meta"]["step"] is None


def restore_elsewhere(place: str) -> None:
    with open_session(place, ranks_per_node=0) as session:
        part = state_of(2)["field"]
        into = empty(part)
        with pytest.raises(tailrace.Error, match="saved by 4 ranks and is restored by 3"):
            session.restore_latest(into=empty({key: state_of(2)[key] for key in ("own", "meta", "field")}))
        with session.read(2) as checkpoint:
            total = checkpoint["field"].load()
            assert np.array_equal(total, np.arange(4 * ROWS) * 2)
            assert [checkpoint.at_rank(rank)["own"].shape for rank in range(4)] == [(100_000 + r,) for r in range(4)]
        assert into.array.shape == part.array.shape


@pytest.mark.parametrize("files", [1, 2])
def test_each_rank_gets_its_own_back_from_so_many_files(files: int, tmp_path: Path) -> None:
    distributed.run(4, save_and_restore, str(tmp_path), files)
    # Also without the node-local tier, from the files alone.
    subprocess.run(["rm", "-r", tmp_path / "local"], check=True)
    distributed.run(4, restore_again, str(tmp_path))
    distributed.run(3, restore_elsewhere, str(tmp_path))
    with tailrace.read(tmp_path / "shared", rank=1) as checkpoint:
        assert checkpoint.tree()["meta"] == {"step": 2, "rank": 1}


# ---- ranks that end ----------------------------------------------------------------------------------------


def die_in_a_flush(place: str) -> None:
    rank = dist.get_rank()
    with open_session(place) as session:
        session.save(1, state_of(1))
    session = open_session(place, bandwidth_cap="1MiB")
    session.save(2, state_of(2))
    if rank == 2:  # the agent of the second node
        while session.state(2).state is not tailrace.State.FLUSHING:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(tailrace.Error):
        session.wait(2)
    with pytest.raises(tailrace.Error) as caught:
        session.close()
    assert caught.value.code is tailrace.Code.TRANSPORT, caught.value


def expect_newest(place: str, step: int) -> None:
    with open_session(place) as session:
        into = empty(state_of(step))
        assert session.restore_latest(into=into) == step
        assert_same(into, state_of(step))


def test_a_rank_killed_in_a_flush_leaves_the_epoch_before(tmp_path: Path) -> None:
    assert distributed.exit_codes(4, die_in_a_flush, str(tmp_path)) == [0, 0, -signal.SIGKILL, 0]
    subprocess.run(["cp", "-r", tmp_path, tmp_path.with_name("copy")], check=True)
    subprocess.run(["rm", "-r", tmp_path / "local"], check=True)
    distributed.run(4, expect_newest, str(tmp_path), 1)


def save_with_a_gap(place: str) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    with pytest.raises(tailrace.Error) as caught, open_session(place) as session:
        for step in (1, 2):
            rows = 4 if step == 1 or rank != 1 else 3
            shard = tailrace.Shard(np.ones((rows, 5)), (4 * size, 5), (4 * rank, 0))
            session.save(step, {"field": shard})
            session.wait(step)
    assert caught.value.code is tailrace.Code.INVALID_ARGUMENT, caught.value
    assert "elements [7:8, 0:5] of array" in str(caught.value)


def test_all_ranks_hear_why_an_epoch_was_refused_before_the_first_has_left(tmp_path: Path) -> None:
    assert distributed.exit_codes(4, save_with_a_gap, str(tmp_path)) == [0, 0, 0, 0]
    with tailrace.read(tmp_path / "shared") as checkpoint:
        assert checkpoint.step == 1


def raise_before_close(place: str) -> None:
    rank = dist.get_rank()
    if rank == 1:
        with pytest.raises(ZeroDivisionError), open_session(place) as session:
            session.save(1, state_of(1))
            print(1 / 0)
        return
    with pytest.raises(tailrace.Error) as caught, open_session(place) as session:
        session.save(1, state_of(1))
        session.save(2, state_of(2))
        session.wait(2)
    assert caught.value.code is tailrace.Code.TRANSPORT, caught.value


def test_a_rank_that_raises_neither_waits_nor_is_waited_for(tmp_path: Path) -> None:
    assert distributed.exit_codes(3, raise_before_close, str(tmp_path)) == [0, 0, 0]
    with tailrace.read(tmp_path / "shared") as checkpoint:
        assert checkpoint.step == 1


# ---- a lost node -------------------------------------------------------------------------------------------


def open_on_four_nodes(place: str, redundancy: str, **settings: Any) -> tailrace.Session:
    # All in domains of their own. Otherwise this machine is one, and its nodes are dealt to sets of two.
    domain = f"command:echo {dist.get_rank()}"
    return open_session(place, redundancy=redundancy, ranks_per_node=1, failure_domain=domain, **settings)


def die_when_protected(place: str, redundancy: str) -> None:
    session = open_on_four_nodes(place, redundancy, shared_every=100)
    session.save(1, state_of(1))
    assert session.wait(1)
    session.save(2, state_of(2))
    deadline = time.monotonic() + distributed.PATIENCE_SECONDS / 4
    if redundancy == "none":
        assert session.wait(2)
    while redundancy != "none" and session.state(2).losses_survived < LOSSES[redundancy]:
        assert time.monotonic() < deadline, session.state(2)
        time.sleep(0.01)
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def restore_what_is_left(place: str, redundancy: str, step: int) -> None:
    with open_on_four_nodes(place, redundancy) as session:
        into = empty(state_of(step))
        assert session.restore_latest(into=into) == step
        assert_same(into, state_of(step))
        session.wait()  # what was rebuilt is flushed


LOSSES = {"none": 0, "partner": 1, "xor": 1, "rs:2": 2}


@pytest.mark.parametrize("redundancy", LOSSES)
def test_what_a_lost_node_had_captured_comes_back_from_the_others(redundancy: str, tmp_path: Path) -> None:
    """Only epoch 1 is in the shared directory. Without redundancy it is all that is left."""
    newest = 1 if redundancy == "none" else 2
    killed = distributed.exit_codes(4, die_when_protected, str(tmp_path), redundancy)
    assert killed == [-signal.SIGKILL] * 4
    assert files_of(str(tmp_path), 1) and not files_of(str(tmp_path), 2)
    nodes = sorted((tmp_path / "local").glob("*.node*"))
    assert len(nodes) == 4
    for lost in nodes[1 : 1 + max(1, LOSSES[redundancy])]:
        shutil.rmtree(lost)
    distributed.run(4, restore_what_is_left, str(tmp_path), redundancy, newest)
    with tailrace.read(tmp_path / "shared", rank=1) as checkpoint:  # of the lost node
        assert checkpoint.tree()["meta"] == {"step": newest, "rank": 1}


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("bad \udcff")


class NotSaved:
    def __reduce__(self) -> str:
        raise Unspeakable


class NotLoadedByRank1:
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __setstate__(self, state: dict[str, Any]) -> None:
        if dist.get_rank() == 1:
            raise state["error"]


def save_what_cannot_be_saved(place: str) -> None:
    wrong: dict[int, tuple[Any, type[Exception]]] = {
        2: (object(), tailrace.Error),
        3: ({"n" * 5000: np.zeros(1)}, tailrace.Error),  # too long a name, for the core
        4: (NotSaved(), Unspeakable),
    }
    session = open_session(place)
    for step in (1, 2, 3, 4, 5):
        state = state_of(step)
        if session.rank == 1 and step in wrong:
            state["\udcff"], error = wrong[step]  # a key as os.listdir() may have it
            with pytest.raises(error):
                session.save(step, state, pickle=step == 4)
        else:
            session.save(step, state)
        if step in wrong:
            # Rank 1 does nothing more before the others have heard of it.
            with pytest.raises(tailrace.Error, match=f"epoch {step}" if session.rank == 1 else "rank 1") as caught:
                session.wait(step)
            assert caught.value.code is tailrace.Code.INVALID_ARGUMENT
            dist.barrier()
        else:
            assert session.wait(step)
    with pytest.raises(tailrace.Error, match="epoch 2"):
        session.close()


def test_what_one_rank_cannot_save_fails_that_epoch_only(tmp_path: Path) -> None:
    distributed.run(3, save_what_cannot_be_saved, str(tmp_path))
    assert [len(files_of(str(tmp_path), step)) for step in (1, 2, 3, 4, 5)] == [1, 0, 0, 0, 1]


def save_steps_that_differ(place: str) -> None:
    odd = dist.get_rank() == 1
    session = open_session(place)

    def expect_failure(step: int) -> None:
        different = r"save number \d+ has different epochs: .*; earlier epochs are intact"
        with pytest.raises(tailrace.Error, match=different):
            session.wait(step)

    session.save(1, state_of(1))
    # One wrong step: this save fails on all ranks, and the next one is whole.
    session.save(3 if odd else 2, state_of(2))
    expect_failure(3 if odd else 2)
    session.save(4, state_of(4))
    assert session.wait(4)
    # One save too many: each later one fails, until the others have made up for it.
    if odd:
        session.save(5, state_of(5))
    for step in (6, 7):
        session.save(step, state_of(step))
    for step in (5, 6) if odd else (6, 7):
        expect_failure(step)
    if not odd:
        session.save(8, state_of(8))
    expect_failure(7 if odd else 8)
    session.save(9, state_of(9))
    assert session.wait(9)
    # A step that is far ahead: this rank's next saves are refused, and the others hear that they were not whole.
    session.save(99 if odd else 10, state_of(10))
    expect_failure(99 if odd else 10)
    if odd:
        with pytest.raises(tailrace.Error, match="epoch 11 is not above epoch 99") as caught:
            session.save(11, state_of(11))
        assert caught.value.code is tailrace.Code.FAILED_STATE
    else:
        session.save(11, state_of(11))
        with pytest.raises(tailrace.Error, match="not every rank saved it before the session was closed"):
            session.wait(11)
    with pytest.raises(tailrace.Error, match="different epochs"):
        session.close()


def test_ranks_that_save_different_steps_hear_of_it(tmp_path: Path) -> None:
    distributed.run(3, save_steps_that_differ, str(tmp_path))
    assert [len(files_of(str(tmp_path), step)) for step in range(1, 13)] == [1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0]
    distributed.run(3, expect_newest, str(tmp_path), 9)


def load_what_one_rank_cannot(place: str) -> None:
    with open_session(place) as session:
        for step, error in enumerate([Unspeakable, KeyboardInterrupt]):
            session.save(step, {"object": NotLoadedByRank1(error)}, pickle=True)
            session.wait(step)
            stays = error if session.rank == 1 and not issubclass(error, Exception) else tailrace.Error
            with pytest.raises(stays):
                session.restore_latest(into={"object": None}, trust_pickle=True)
        session.save(2, {"object": 2})


def test_what_one_rank_cannot_load_is_heard_of_by_all(tmp_path: Path) -> None:
    distributed.run(3, load_what_one_rank_cannot, str(tmp_path))
    assert len(files_of(str(tmp_path), 2)) == 1


left_open: list[tailrace.Session] = []


def forget_to_close(place: str) -> None:
    session = open_session(place)
    session.save(1, state_of(1))
    dist.barrier()  # who leaves while another still saves fails its save, and that is not meant here
    left_open.append(session)
    if dist.get_rank() == 0:
        threading.Thread(target=session.close, daemon=True).start()  # waits for the others until the end


def test_a_session_left_open_does_not_keep_the_interpreter(tmp_path: Path) -> None:
    assert distributed.exit_codes(3, forget_to_close, str(tmp_path)) == [0, 0, 0]


WAKES_WHEN_PYTHON_HAS_ENDED = """
import os, sys, threading, time
import torch.distributed as dist
from tailrace import _core

store, started = dist.HashStore(), threading.Event()

def wait():
    _core.this_thread_may_be_late()
    started.set()
    store.wait(["ended"])

class Last:
    def __del__(self, store=store, sleep=time.sleep, write=os.write):
        store.set("ended", "")
        sleep(0.5)
        write(1, b"ended")

threading.Thread(target=wait, daemon=True).start()
started.wait()
sys.last = Last()  # removed when the thread can get no further
"""


def test_a_thread_that_wakes_when_python_has_ended_does_not_end_the_process() -> None:
    command = [sys.executable, "-c", WAKES_WHEN_PYTHON_HAS_ENDED]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=distributed.PATIENCE_SECONDS)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ended", "")


def destroy_groups_before_close(place: str) -> None:
    world = dist.group.WORLD
    threads = threading.active_count()
    with open_session(place) as session:
        dist.destroy_process_group()
        session.save(1, {"rank": np.arange(session.rank + 1)})
        rank = session.rank
    assert threading.active_count() == threads
    with pytest.raises(tailrace.Error, match="not initialised") as caught:
        tailrace.open(shared_dir=f"{place}/shared", comm=world)
    assert caught.value.code is tailrace.Code.FAILED_STATE
    with tailrace.read(f"{place}/shared", rank=rank) as checkpoint:
        assert checkpoint["rank"].shape == (rank + 1,)


def test_the_programs_groups_may_go_before_the_session(tmp_path: Path) -> None:
    assert distributed.exit_codes(2, destroy_groups_before_close, str(tmp_path)) == [0, 0]


def open_with_settings_of_its_own(place: str) -> None:
    rank = dist.get_rank()
    with pytest.raises(tailrace.Error) as caught:
        open_session(place, **({"fils": 1} if rank == 1 else {}))
    assert caught.value.code is (tailrace.Code.INVALID_ARGUMENT if rank == 1 else tailrace.Code.TRANSPORT)
    with pytest.raises(tailrace.Error, match="ranks_per_node") as caught:  # refused by all together
        open_session(place, files=1, ranks_per_node=1 + rank)
    some = dist.new_group([0, 2])
    if rank == 1:
        with pytest.raises(tailrace.Error, match="not part of the process group"):
            open_session(place, comm=some)
        return
    with open_session(place, comm=some) as session:  # some ranks, which are others in the group
        assert (session.rank, session.rank_count) == (rank // 2, 2)
        session.save(1, {"rank": rank})


def test_a_session_is_opened_by_all_or_none(tmp_path: Path) -> None:
    distributed.run(3, open_with_settings_of_its_own, str(tmp_path))
    with tailrace.read(tmp_path / "shared", rank=1) as checkpoint:
        assert checkpoint.tree() == {"rank": 2}


def test_what_is_no_communicator_is_refused(tmp_path: Path) -> None:
    for comm, why in [(None, "group.WORLD is before init_process_group"), (4, "builtins.int")]:
        with pytest.raises(tailrace.Error, match=why) as caught:
            tailrace.open(shared_dir=tmp_path, comm=comm)
        assert caught.value.code is tailrace.Code.INVALID_ARGUMENT
