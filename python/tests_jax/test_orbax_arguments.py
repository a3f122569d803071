"""Orbax's own arguments, metadata and placeholders with tailrace's handler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import states
from jax.sharding import NamedSharding, PartitionSpec

import tailrace.jax
from tailrace import Error
from tailrace.jax.orbax import TailraceHandler, TailraceRestore, TailraceSave, TreeMetadata, registry

P = PartitionSpec


def some() -> dict[str, Any]:
    sharded = states.spread(states.values(1, 8, 4), P("x"), states.mesh(4))
    return {"w": sharded, "b": jnp.ones(3, jnp.bfloat16), "n": 5, "key": jax.random.key(3), "opt": [jnp.arange(4), {}]}


def saved(place: Path, state: Any, **given: Any) -> Path:
    with ocp.Checkpointer(TailraceHandler(files=2)) as checkpointer:
        checkpointer.save(place / "one", args=TailraceSave(state, **given))
    return place / "one"


def restored(place: Path, args: Any) -> Any:
    return TailraceHandler().restore(place, args)


def test_a_program_with_standard_arguments_keeps_them(tmp_path: Path) -> None:
    state, registered = some(), registry(default=TailraceHandler(files=2))
    with ocp.CheckpointManager(tmp_path, handler_registry=registered) as manager:
        manager.save(1, args=ocp.args.StandardSave(state, custom_metadata={"lr": 0.1}))
        manager.wait_until_finished()
        states.assert_same(manager.restore(1, args=ocp.args.StandardRestore(state)), state)
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        found = manager.restore(1, args=ocp.args.StandardRestore(abstract))
        assert found["w"].sharding == state["w"].sharding and (found["w"] == state["w"]).all()
        assert (jax.random.key_data(found["key"]) == jax.random.key_data(state["key"])).all()
        assert manager.restore(1)["n"] == 5
        assert manager.item_metadata(1).custom_metadata == {"lr": 0.1}
    assert len(list((tmp_path / "1" / "default").glob("*.tailrace"))) == 2


def test_the_fallback_is_for_arrays_without_a_sharding(tmp_path: Path) -> None:
    state = some()
    place = saved(tmp_path, {"w": state["w"], "b": state["b"]})
    spread = NamedSharding(states.mesh(4), P())
    target = {"w": state["w"], "b": jax.ShapeDtypeStruct((3,), jnp.bfloat16)}
    found = restored(place, ocp.args.StandardRestore(target, fallback_sharding=spread))
    assert found["b"].sharding == spread and found["w"].sharding == state["w"].sharding
    found = restored(place, ocp.args.StandardRestore(fallback_sharding=spread))
    assert found["w"].sharding == spread and (found["w"] == state["w"]).all()


def test_restore_args_say_what_each_leaf_becomes(tmp_path: Path) -> None:
    state = some()
    place = saved(tmp_path, state)
    mesh = states.mesh(2, 2)
    asked = {
        "w": ocp.ArrayRestoreArgs(mesh=mesh, mesh_axes=P("y", "x"), dtype=jnp.float16),
        "b": ocp.RestoreArgs(restore_type=np.ndarray, dtype=np.float32),
        "n": ocp.RestoreArgs(restore_type=float),
        "key": ocp.ArrayRestoreArgs(sharding=NamedSharding(mesh, P())),
        "opt": [ocp.RestoreArgs(), {}],
    }
    blank = jax.tree.map(lambda leaf: 0, state)  # with restore_args only the structure of an item counts
    for item in (None, blank):
        for args in (ocp.args.PyTreeRestore(item, restore_args=asked), TailraceRestore(item, restore_args=asked)):
            found = restored(place, args)
            assert found["w"].sharding == NamedSharding(mesh, P("y", "x")) and found["w"].dtype == jnp.float16
            assert (np.asarray(found["w"], np.float32) == np.asarray(state["w"])).all()
            assert type(found["b"]) is np.ndarray and found["b"].dtype == np.float32 and (found["b"] == 1).all()
            assert type(found["n"]) is float and found["n"] == 5
            assert (jax.random.key_data(found["key"]) == jax.random.key_data(state["key"])).all()
            assert type(found["opt"][0]) is np.ndarray and found["opt"][0].tolist() == [0, 1, 2, 3]
    made = ocp.checkpoint_utils.construct_restore_args(state)
    states.assert_same(restored(place, ocp.args.PyTreeRestore(state, restore_args=made)), state)


def test_orbax_calls_without_args_are_understood(tmp_path: Path) -> None:
    state = some()
    with ocp.AsyncCheckpointer(TailraceHandler()) as checkpointer:
        checkpointer.save(tmp_path / "one", state)
        checkpointer.wait_until_finished()
        states.assert_same(checkpointer.restore(tmp_path / "one", item=state), state)
        made = ocp.checkpoint_utils.construct_restore_args(state)
        states.assert_same(checkpointer.restore(tmp_path / "one", item=state, restore_args=made), state)


def test_part_of_a_tree_is_restored(tmp_path: Path) -> None:
    state = some()
    place = saved(tmp_path, state)
    found = restored(place, TailraceRestore({**state, "w": ocp.PLACEHOLDER, "opt": [..., {}]}))
    assert found["w"] is ... and found["opt"][0] is ... and found["n"] == 5
    found = restored(place, ocp.args.PyTreeRestore({"b": state["b"]}, partial_restore=True))
    states.assert_same(found, {"b": state["b"]})
    with pytest.raises(Error, match="'opt'] is not in the checkpoint"):
        restored(place, TailraceRestore({**state, "opt": ...}))


def test_save_args_convert_types(tmp_path: Path) -> None:
    cast = ocp.SaveArgs(dtype=jnp.dtype(jnp.bfloat16))
    tree = {"w": jnp.ones((4, 4)), "a": np.ones(3), "n": 3, "same": jnp.zeros(2)}
    place = saved(tmp_path, tree, save_args={"w": cast, "a": cast, "n": ocp.SaveArgs(dtype=np.float32), "same": None})
    found = restored(place, None)
    assert (found["w"].dtype, found["a"].dtype, found["same"].dtype) == (jnp.bfloat16, jnp.bfloat16, np.float32)
    assert type(found["n"]) is float and found["n"] == 3


def test_metadata_is_a_target(tmp_path: Path) -> None:
    place = saved(tmp_path, some(), custom_metadata={"epoch": [1, "two", None]})
    found = TailraceHandler().metadata(place)
    assert isinstance(found, TreeMetadata) and found.custom_metadata == {"epoch": [1, "two", None]}
    assert set(found) == set(some()) and "w" in found and len(found) == 5
    assert jax.tree.map(lambda leaf: leaf, found).tree["w"].shape == (8, 4)
    assert found["key"].dtype == some()["key"].dtype and found["key"].shape == ()
    again = restored(place, TailraceRestore(found))
    assert (np.asarray(again["w"]) == np.asarray(some()["w"])).all() and again["n"] == 5
    assert (jax.random.key_data(again["key"]) == jax.random.key_data(some()["key"])).all()


def test_what_has_another_meaning_is_refused_by_name(tmp_path: Path) -> None:
    place = saved(tmp_path, {"x": jnp.zeros(4)})
    cut = ocp.ArrayRestoreArgs(sharding=NamedSharding(states.mesh(4), P()), global_shape=(2,), strict=False)
    for args, name in (
        (ocp.args.StandardRestore({"x": jnp.zeros(2)}, strict=False), "strict"),
        (ocp.args.StandardRestore({"x": jnp.zeros(4)}, support_layout=True), "support_layout"),
        (ocp.args.PyTreeRestore({"x": 0}, transforms={}), "transforms"),
        (ocp.args.PyTreeRestore(restore_args={"x": cut}), "strict"),
    ):
        with pytest.raises(Error, match=f"{name}, which has no meaning"):
            restored(place, args)
    with pytest.raises(Error, match="custom_metadata is not of JSON's types"):
        TailraceHandler().save(tmp_path, TailraceSave({"x": 1}, custom_metadata={"x": object()}))


def test_numbers_do_not_lose_in_silence(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"a": 1.5, "b": jnp.float32(2.5), "c": 3})
    for target in ({"a": 0}, {"b": 0}, {"b": False}, {"c": False}):
        with pytest.raises(Error, match="was saved as"):
            tailrace.jax.restore(tmp_path, target, partial=True)
        (value,) = tailrace.jax.restore(tmp_path, target, partial=True, cast=True).values()
        assert type(value) is type(next(iter(target.values())))
    assert tailrace.jax.restore(tmp_path, {"b": 0.0, "c": 0.0}, partial=True) == {"b": 2.5, "c": 3.0}


def test_random_keys_of_another_kind_or_shape_are_a_difference(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"k": jax.random.split(jax.random.key(1), 6)})
    for target in (jax.random.key(0), jax.random.split(jax.random.key(0, impl="rbg"), 6)):
        with pytest.raises(Error, match="was saved as key<fry> of shape"):
            tailrace.jax.restore(tmp_path, {"k": target})
