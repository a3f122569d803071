"""tailrace.jax on several processes of jax.distributed: other meshes and numbers of processes, failures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import states
from jax.sharding import NamedSharding, PartitionSpec
from processes import KILLED, run

import tailrace
import tailrace.jax
from tailrace import Code, Error
from tailrace.jax import _pieces, _processes

P = PartitionSpec
SPECS = {"rows": P("x"), "columns": P(None, "x"), "blocks": P("x", "y"), "replicated": P(), "second": P("y")}


def arrays() -> dict[str, Any]:
    """What every process knows of the global arrays."""
    made = {name: states.values(i, 32, 48) for i, name in enumerate(SPECS)}
    return {**made, "large": states.values(9, 1024, 512), "bfloat16": states.values(10, 16, 8).astype(jnp.bfloat16)}


def state_over(mesh: Any) -> dict[str, Any]:
    specs = {**SPECS, "large": P(), "bfloat16": P("x")}
    return {
        **{name: states.spread(value, specs[name], mesh) for name, value in arrays().items()},
        "step": 7,
        "local": jnp.float32(1.5),
        "numpy": np.arange(5),
        "key": jax.random.key(1),
    }


def a_mesh() -> Any:
    count = len(jax.devices())
    return states.mesh(count // 2, 2) if count > 1 else states.mesh(1, 1)


def saves(place: str) -> None:
    state = state_over(a_mesh())
    tailrace.jax.save(place, state, step=1, files=3)
    saving = tailrace.jax.async_save(place, state, step=2, files=2)
    saving.result(120)


def loads(place: str) -> None:
    expected = state_over(a_mesh())
    blank = jax.tree.map(lambda leaf: leaf * 0 if isinstance(leaf, np.ndarray) else leaf, expected)
    for step in (1, 2):
        states.assert_same(tailrace.jax.restore(place, blank, step=step), expected)
    other = NamedSharding(states.mesh(len(jax.devices())), P(None, "x"))
    found = tailrace.jax.restore(place, shardings={"rows": other})
    for shard in found["rows"].addressable_shards:
        assert (np.asarray(shard.data) == arrays()["rows"][shard.index]).all()
    assert found["step"] == 7 and found["local"] == 1.5 and isinstance(found["local"], np.ndarray)


@pytest.mark.parametrize(("processes", "devices"), [(2, 2), (4, 1)])
def test_another_number_of_processes_gets_every_bit(processes: int, devices: int, tmp_path: Path) -> None:
    run(processes, devices, saves, str(tmp_path))
    assert len(list(tmp_path.glob("*.tailrace"))) == 5
    for others, theirs in ((1, 4), (2, 1)):
        run(others, theirs, loads, str(tmp_path))
    whole = tailrace.read(tmp_path)
    for name, value in arrays().items():
        if name != "bfloat16":
            assert (np.asarray(whole[name]) == value).all()


def test_one_process_saves_for_several(tmp_path: Path) -> None:
    run(1, 2, saves, str(tmp_path))
    run(4, 2, loads, str(tmp_path))


def divides(place: str) -> None:
    array = state_over(a_mesh())["large"]
    mine = _pieces.of_array("large", array, jax.process_index())
    assert [piece.memory.shape for piece in mine] == [(512, 512)]
    assert mine[0].offset == (512 * jax.process_index(), 0)


def test_large_replicas_are_written_by_all_processes(tmp_path: Path) -> None:
    run(2, 2, divides, str(tmp_path))


def fails(place: str) -> None:
    state = state_over(a_mesh())
    first = jax.process_index() == 0
    for bad, sentence in (
        ({**state, "bad": object()} if not first else state, "process 1 gave up the save: .*no safe encoding"),
        ({**state, "more": 1} if not first else state, "process 1 saves a tree of other names"),
        ({**state, "local": jnp.float32(jax.process_index())}, "'local' lies on each process for itself"),
    ):
        with pytest.raises(Error, match=sentence if first or "bad" not in bad else "no safe encoding"):
            tailrace.jax.save(place, bad)
    with pytest.raises(Error):
        tailrace.jax.save(place, state, files=1000)
    assert tailrace.jax.latest_step(place) is None
    for missing in (place, f"{place}/missing"):  # on a first run all processes take the same way
        with pytest.raises(FileNotFoundError) as not_found:
            tailrace.jax.restore(missing, state)
        assert missing in str(not_found.value)
    tailrace.jax.save(place, state)
    with pytest.raises(Error) as raised:
        tailrace.jax.restore(place, state if first else {**state, "more": 1})
    assert raised.value.code == (Code.ABORTED if first else Code.INVALID_ARGUMENT)
    with pytest.raises(Error, match="is given no sharding"):
        tailrace.jax.restore(place, {"key": jax.eval_shape(lambda: jax.random.key(0))}, partial=True)
    states.assert_same(tailrace.jax.restore(place, state), state)


def test_a_failure_on_one_process_is_told_to_all(tmp_path: Path) -> None:
    run(2, 1, fails, str(tmp_path))


def is_killed(place: str) -> None:
    import signal

    state = state_over(a_mesh())
    tailrace.jax.save(place, state, step=1, files=2)
    write = tailrace.jax.Saver._write

    def killed(*arguments: Any) -> Any:
        write(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    tailrace.jax.Saver._write = killed  # type: ignore[method-assign]
    tailrace.jax.async_save(place, state, step=2, files=2).result()


def test_processes_that_are_killed_during_a_save_leave_the_older_one(tmp_path: Path) -> None:
    run(2, 1, is_killed, str(tmp_path), ends=KILLED)
    assert tailrace.jax.latest_step(tmp_path) == 1
    assert list(tmp_path.glob("*.unfinished"))


def talks(place: str) -> None:
    del place
    _processes._PART_BYTES = 1000
    operation = _processes.Operation("it")
    rank, size = operation.rank, operation.size
    long = "x" * 9_999
    assert operation.gather([rank, long]) == ([[r, long] for r in range(size)] if rank == 0 else [])
    assert operation.scatter([f"for {r}" for r in range(size)] if rank == 0 else []) == f"for {rank}"
    assert operation.broadcast(long if rank == 0 else None) == long
    told = "process 2 gave up it: RuntimeError: two"
    with pytest.raises(Error if rank != 2 else RuntimeError, match="^two$" if rank == 2 else told):
        operation.raise_any(RuntimeError("two") if rank == 2 else None)
    operation.raise_any(None)


def test_messages_of_any_length_arrive(tmp_path: Path) -> None:
    run(4, 1, talks, str(tmp_path))
