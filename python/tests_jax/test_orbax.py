"""tailrace.jax.orbax with Orbax's CheckpointManager and Checkpointer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import states
from jax.sharding import PartitionSpec
from processes import run

from tailrace import Error
from tailrace.jax.orbax import TailraceHandler, TailraceRestore, TailraceSave


def manager(place: Any, *, asynchronous: bool = True, files: int = 2, **options: Any) -> Any:
    options = {"max_to_keep": 2, "enable_async_checkpointing": asynchronous, **options}
    return ocp.CheckpointManager(
        str(place), options=ocp.CheckpointManagerOptions(**options), item_handlers=TailraceHandler(files=files)
    )


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_manager_keeps_steps_and_forgets_them(asynchronous: bool, tmp_path: Path) -> None:
    state = states.training()
    with manager(tmp_path, asynchronous=asynchronous) as kept:
        for step in range(4):
            state, _ = states.train(state, step, step + 1)
            assert kept.save(step, args=TailraceSave(state))
        kept.wait_until_finished()
        assert kept.all_steps() == [2, 3] and kept.latest_step() == 3
        states.assert_same(kept.restore(3, args=TailraceRestore(state)).opt_state, state.opt_state)
    files = [path.name for path in tmp_path.glob("3/default/*")]
    assert len([name for name in files if name.endswith(".tailrace")]) == 2
    with manager(tmp_path) as later:
        assert later.latest_step() == 3
        restored = later.restore(later.latest_step(), args=TailraceRestore(states.training(5)))
        states.assert_same(restored.params, state.params)


def test_intervals_and_best_steps_are_the_managers(tmp_path: Path) -> None:
    with manager(tmp_path, save_interval_steps=2, best_fn=lambda metrics: metrics["loss"], best_mode="min") as kept:
        for step in range(8):
            kept.save(step, args=TailraceSave({"x": jnp.full(3, step)}), metrics={"loss": abs(step - 2)})
        kept.wait_until_finished()
        assert kept.best_step() == 2 and len(kept.all_steps()) == 2


def test_items_are_saved_beside_those_of_other_handlers(tmp_path: Path) -> None:
    with ocp.CheckpointManager(
        str(tmp_path), item_handlers={"state": TailraceHandler(), "extra": ocp.JsonCheckpointHandler()}
    ) as kept:
        kept.save(
            1, args=ocp.args.Composite(state=TailraceSave({"x": jnp.arange(3)}), extra=ocp.args.JsonSave({"a": 1}))
        )
        kept.wait_until_finished()
        found = kept.restore(1, args=ocp.args.Composite(state=TailraceRestore(), extra=ocp.args.JsonRestore()))
    assert found["state"]["x"].tolist() == [0, 1, 2] and found["extra"] == {"a": 1}


def test_metadata_of_an_item(tmp_path: Path) -> None:
    with manager(tmp_path) as kept:
        kept.save(1, args=TailraceSave({"x": jnp.zeros((2, 3), jnp.bfloat16), "n": 4}))
        kept.wait_until_finished()
        found = kept.item_metadata(1)
    assert (found["x"].shape, found["x"].dtype, found["n"]) == ((2, 3), jnp.bfloat16, 4)


def test_types_are_converted_as_orbax_does(tmp_path: Path) -> None:
    with ocp.Checkpointer(TailraceHandler()) as checkpointer:
        checkpointer.save(tmp_path / "one", args=TailraceSave({"x": jnp.arange(3.0)}))
        target = {"x": jnp.zeros(3, jnp.bfloat16)}
        found = checkpointer.restore(tmp_path / "one", args=TailraceRestore(target))
        assert found["x"].dtype == jnp.bfloat16
        with pytest.raises(Error, match="was saved as float32"):
            checkpointer.restore(tmp_path / "one", args=TailraceRestore(target, cast=False))


def test_a_failed_save_is_raised_and_leaves_no_step(tmp_path: Path) -> None:
    with ocp.AsyncCheckpointer(TailraceHandler()) as checkpointer:
        checkpointer.save(tmp_path / "bad", args=TailraceSave({"x": object()}))
        with pytest.raises(Error, match="no safe encoding"):
            checkpointer.wait_until_finished()
    assert not (tmp_path / "bad").exists()


def saves_and_restores(place: str) -> None:
    mesh = states.mesh(len(jax.devices()))
    values = states.values(1, 16, 8)
    state = {"w": states.spread(values, PartitionSpec("x"), mesh), "b": states.spread(values[0], PartitionSpec(), mesh)}
    with manager(place, files=3) as kept:
        for step in range(3):
            kept.save(step, args=TailraceSave(state))
        kept.wait_until_finished()
        assert kept.all_steps() == [1, 2]
        states.assert_same(kept.restore(2, args=TailraceRestore(state)), state)


def test_several_processes_save_one_item(tmp_path: Path) -> None:
    run(2, 2, saves_and_restores, str(tmp_path))
    assert len(list((tmp_path / "2" / "default").glob("*.tailrace"))) == 3
    with manager(tmp_path) as kept:
        found = kept.restore(2, args=TailraceRestore())
    assert (np.asarray(found["w"]) == states.values(1, 16, 8)).all()
