"""tailrace.jax in one process: every kind of leaf, targets and none, meshes, failures."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import warnings
import weakref
from concurrent.futures import Future
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
from tailrace.jax import _save

P = PartitionSpec


def test_no_threads_are_refused(tmp_path: Path) -> None:
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"^threads: {wrong} is given, where a number from 1 to 4294967295 is"):
            tailrace.jax.save(tmp_path, {"w": np.ones(2)}, step=1, threads=wrong)
    assert os.listdir(tmp_path) == []


def test_a_failure_that_nobody_asked_for_is_told_when_the_program_ends(tmp_path: Path) -> None:
    program = (
        "import sys, numpy, tailrace.jax\n"
        "tailrace.jax.async_save(sys.argv[1], {'w': numpy.ones(2)}, step=1)\n"
        "told = tailrace.jax.Saver().async_save(sys.argv[1], {'w': numpy.ones(2)}, step=2)\n"
        "try: told.result()\nexcept ValueError: pass\n"
        "tailrace.jax.Saver().async_save(sys.argv[2], {'w': numpy.ones(2)}, step=3)\n"
    )
    (tmp_path / "file").touch()
    command = [sys.executable, "-c", program, str(tmp_path / "file"), str(tmp_path / "good")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("nobody asked for its result") == 1, ended.stderr
    assert tailrace.jax.latest_step(tmp_path / "good") == 3


def test_a_failed_save_that_nobody_asks_for_keeps_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_save, "_untold", type(_save._untold)())
    (tmp_path / "file").touch()
    saver = tailrace.jax.Saver()
    saver.async_save(tmp_path / "file", {"w": np.ones(2)}, step=1)
    _save._thread.submit(int).result()  # so the save has ended
    assert len(_save._untold) == 1
    kept = weakref.ref(saver)
    del saver
    gc.collect()
    assert kept() is None


def test_a_pytree_is_no_tree_of_sessions_and_the_error_says_what_restores_it(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"w": np.ones(2)}, step=3)
    with (
        tailrace.read(tmp_path) as checkpoint,
        pytest.raises(Error, match=r"saved by tailrace\.jax, and tailrace\.jax\.restore loads it; nothing"),
    ):
        checkpoint.tree()


def test_a_session_says_what_saves_and_restores_arrays_of_jax(tmp_path: Path) -> None:
    with tailrace.open(shared_dir=tmp_path / "shared", local_dir=tmp_path / "local") as session:
        with pytest.raises(Error, match=r"tree\['w'\] is a jax\.Array: tailrace\.jax\.save saves it"):
            session.save(1, {"w": jnp.ones(2)})
        session.save(2, {"w": np.asarray(jnp.ones(2))})
        with pytest.raises(Error, match=r"the tree\['w'\] is a jax\.Array here.*give an array of NumPy"):
            session.restore(2, into={"w": jnp.zeros(2)})


def test_every_kind_of_leaf_comes_back(tmp_path: Path) -> None:
    state = states.every_kind()
    tailrace.jax.save(tmp_path, state, step=3, files=2)
    states.assert_same(tailrace.jax.restore(tmp_path, state), state)
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".tailrace")]) == 2
    assert tailrace.jax.latest_step(tmp_path) == 3


def test_without_a_target_containers_are_dicts_and_lists(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, states.every_kind())
    found = tailrace.jax.restore(tmp_path)
    assert found["plain"] == states.every_kind()["plain"]
    assert found["tuple"][1:] == [{}, [], None] and isinstance(found["tuple"][0], np.ndarray)
    assert found["named"]["none"] is None and found["named"]["mean"].tolist() == [[1, 1], [1, 1]]
    assert found["by number"][3].tolist() == [0, 1] and found["empty"] is None
    assert found["arrays"]["bfloat16"].dtype == jnp.bfloat16
    assert found["dates"].tolist() == states.every_kind()["dates"].tolist()
    assert (jax.random.key_data(found["key"]) == jax.random.key_data(jax.random.key(7))).all()


def test_a_lone_array_is_a_tree(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, jnp.arange(5))
    assert tailrace.jax.restore(tmp_path).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P("x", "y"), P(), P("y"), P(("x", "y"))])
def test_shards_come_back_onto_another_mesh(spec: PartitionSpec, tmp_path: Path) -> None:
    values = states.values(1, 16, 24)
    tailrace.jax.save(tmp_path, {"w": states.spread(values, spec, states.mesh(2, 2))}, files=3)
    for other in (P("x"), P(None, "x"), P()):
        sharding = NamedSharding(states.mesh(4), other)
        found = tailrace.jax.restore(tmp_path, shardings=sharding)["w"]
        assert found.sharding == sharding and (np.asarray(found) == values).all()
    whole = tailrace.read(tmp_path)["w"]
    assert whole.shape == (16, 24) and (whole[3:5] == values[3:5]).all()


SMALL = ("int1", "uint1", "int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float8_e8m0fnu", "float8_e5m2")


@pytest.mark.parametrize("name", SMALL)
def test_elements_of_less_than_a_byte_come_back_from_shards(name: str, tmp_path: Path) -> None:
    dtype = jnp.dtype(name)
    bits = 1 if "int1" in name else 2
    numbers = np.random.default_rng(1).integers(0, 1 << bits, (8, 12), np.uint8)
    values = np.array([0, 1, 2, 1] if bits > 1 and "e8m0" not in name else [1, 1, 2, 4])[numbers % 4]
    values = (values if "int1" not in name else numbers).astype(dtype)
    assert len(np.unique(values.view(np.uint8))) > 1
    rows, blocks = (NamedSharding(states.mesh(2, 2), spec) for spec in (P("x"), P("x", "y")))
    state = {"w": jax.device_put(values, blocks), "numpy": values}
    tailrace.jax.save(tmp_path, state, files=2)
    described = {"w": jax.ShapeDtypeStruct(values.shape, dtype, sharding=rows), "numpy": values}
    for found in (tailrace.jax.restore(tmp_path), tailrace.jax.restore(tmp_path, described)):
        for array in found.values():
            assert array.dtype == dtype
            assert (np.asarray(array).view(np.uint8) == values.view(np.uint8)).all()


def test_each_element_is_saved_once(tmp_path: Path) -> None:
    values = states.values(2, 1024, 1024)
    tailrace.jax.save(tmp_path, {"w": states.spread(values, P("x"), states.mesh(2, 2))})
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert values.nbytes <= size < values.nbytes * 1.1


def test_random_keys_are_sharded(tmp_path: Path) -> None:
    sharding = NamedSharding(states.mesh(4), P("x"))
    keys = jax.device_put(jax.random.split(jax.random.key(3), 8), sharding)
    tailrace.jax.save(tmp_path, {"keys": keys})
    found = tailrace.jax.restore(tmp_path, {"keys": keys})["keys"]
    assert (jax.random.key_data(found) == jax.random.key_data(keys)).all() and found.sharding.is_equivalent_to(
        sharding, 1
    )


def test_a_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    middle, _ = states.train(states.training(), 0, 3)
    tailrace.jax.save(tmp_path, middle, step=3)
    _, expected = states.train(middle, 3, 6)
    restored = tailrace.jax.restore(tmp_path, states.training(seed=5))
    states.assert_same(restored.opt_state, middle.opt_state)
    assert states.train(restored, 3, 6)[1] == expected


def test_memory_that_is_donated_after_an_asynchronous_save_is_saved_before(tmp_path: Path) -> None:
    saver = tailrace.jax.Saver(files=2)
    advance = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros((512, 512))
    for step in range(4):
        saving = saver.async_save(tmp_path, {"x": x}, step=step)
        for _ in range(5):
            x = advance(x)
        saving.result(60)
        assert saving.done()
    saver.close()
    for step in range(4):
        assert (tailrace.jax.restore(tmp_path, step=step)["x"] == 5 * step).all()


def test_restored_replicas_may_be_donated(tmp_path: Path) -> None:
    sharding = NamedSharding(states.mesh(4), P())
    tailrace.jax.save(tmp_path, {"x": np.ones((256, 256), np.float32)})
    found = tailrace.jax.restore(tmp_path, {"x": jax.ShapeDtypeStruct((256, 256), jnp.float32, sharding=sharding)})["x"]
    found = jax.jit(lambda x: x * 2, donate_argnums=0)(found)
    assert all((np.asarray(shard.data) == 2).all() for shard in found.addressable_shards)


def test_a_failed_save_of_whose_result_nobody_asked_is_told_by_the_next(tmp_path: Path) -> None:
    saver = tailrace.jax.Saver()
    (tmp_path / "file").touch()
    saver.async_save(tmp_path / "file", {"x": jnp.ones(3)})
    with pytest.warns(UserWarning, match="an asynchronous save has failed, and nobody asked for its result: .*file"):
        saver.save(tmp_path / "place", {"x": jnp.ones(3)})
    asked = saver.async_save(tmp_path / "file", {"x": jnp.ones(3)})
    with pytest.raises(Error):
        asked.result()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saver.close()


def test_a_failure_that_comes_when_a_wait_gives_up_is_told_later() -> None:
    class Late(Future[None]):  # fails between the end of the wait and what comes after it
        def result(self, timeout: float | None = None) -> None:
            try:
                super().result(timeout)
            except TimeoutError:
                self.set_exception(Error(Code.NO_SPACE, "the test's own failure"))
                raise

    future = Late()
    saving = _save.Save(future)
    with pytest.raises(TimeoutError):
        saving.result(0)
    if not future.done():
        future.set_exception(Error(Code.NO_SPACE, "the test's own failure"))
    with pytest.warns(UserWarning, match="nobody asked for its result: the test's own failure"):
        saving._end()


def test_asynchronous_saves_follow_one_another(tmp_path: Path) -> None:
    saves = [tailrace.jax.async_save(tmp_path, {"x": jnp.full(1000, step)}, step=step) for step in range(3)]
    for saving in saves:
        saving.result(60)
    assert tailrace.jax.restore(tmp_path)["x"][0] == 2


def test_every_difference_is_named(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"a": jnp.zeros(3), "b": jnp.zeros(3), "c": jnp.zeros(3), "s": "text"})
    target = {"a": jnp.zeros(4), "b": jnp.zeros(3, jnp.int32), "d": jnp.zeros(1), "s": jnp.zeros(2)}
    with pytest.raises(Error) as raised:
        tailrace.jax.restore(tmp_path, target)
    assert raised.value.code == Code.INVALID_ARGUMENT
    for part in ("['a'] was saved with shape (3,)", "['b'] was saved as float32", "['c'] is not in the target"):
        assert part in str(raised.value)
    assert "['d'] is not in the checkpoint" in str(raised.value) and "['s']" in str(raised.value)


def test_a_target_may_be_partial_and_of_another_type_if_it_says_so(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"a": jnp.arange(3), "b": jnp.zeros(3), "n": 3})
    found = tailrace.jax.restore(tmp_path, {"a": jnp.zeros(3, jnp.bfloat16)}, partial=True, cast=True)
    assert found["a"].dtype == jnp.bfloat16 and found["a"].tolist() == [0, 1, 2]
    assert tailrace.jax.restore(tmp_path, {"n": jnp.int32(0)}, partial=True)["n"] == 3


def test_what_is_described_comes_back_as_the_kind_that_it_was(tmp_path: Path) -> None:
    wide = {"ints": np.array([2**40 + 1, 3]), "floats": np.array([1e300])}
    tailrace.jax.save(tmp_path, {**wide, "jax": jnp.arange(3)})
    for cast in (False, True):
        found = tailrace.jax.restore(tmp_path, tailrace.jax.metadata(tmp_path), cast=cast)
        assert isinstance(found["jax"], jax.Array)
        for name, values in wide.items():
            assert isinstance(found[name], np.ndarray) and found[name].dtype == values.dtype
            np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("values", [np.array([2**40 + 1, 3]), np.array([1e300]), np.array([2**63], np.uint64)])
def test_values_of_64_bits_are_not_cut(values: Any, tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"fits": np.ones(2), "wide": values, "number": 2**40})
    on_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target = {"wide": jax.ShapeDtypeStruct(values.shape, values.dtype, sharding=on_device)}
    with pytest.raises(Error, match=r"\['wide'\] is to become .*64, and JAX would make .*32 of it: set jax_enable_x64"):
        tailrace.jax.restore(tmp_path, target, partial=True)
    with pytest.raises(Error, match=r"\['wide'\] has values that .*32 cannot hold"):
        tailrace.jax.restore(tmp_path, target, partial=True, cast=True)
    with pytest.raises(Error, match=r"\['number'\] has values that int32 cannot hold"):
        number = {"number": jax.ShapeDtypeStruct((), np.int64, sharding=on_device)}
        tailrace.jax.restore(tmp_path, number, partial=True, cast=True)
    fits = {"fits": jax.ShapeDtypeStruct((2,), np.float64, sharding=on_device)}
    found = tailrace.jax.restore(tmp_path, fits, partial=True, cast=True)["fits"]
    assert found.dtype == np.float32 and found.tolist() == [1, 1]


@pytest.mark.parametrize(
    "value, dtype", [(0.1, "float32"), (3, "bfloat16"), (2.0, "int32"), (float("inf"), "float16"), (True, "uint8")]
)
def test_a_number_comes_back_as_an_array_that_can_hold_it(value: Any, dtype: str, tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"x": value})
    found = tailrace.jax.restore(tmp_path, {"x": jnp.zeros((), jnp.dtype(dtype))})["x"]
    assert found.dtype == jnp.dtype(dtype) and found == jnp.array(value, jnp.dtype(dtype))


def test_what_a_target_cannot_take_is_said_once_and_as_an_error_of_ours(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"nan": float("nan"), "wide": 2**70, "infinite": jnp.float32("inf"), "n": 2**40})
    on_device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for target, why in (
        ({"nan": 0}, r"\['nan'\] was saved as nan, the target's is 0"),
        ({"infinite": 0}, r"\['infinite'\] was saved as .*inf.*, the target's is 0"),
        ({"n": jax.ShapeDtypeStruct((), np.int64, sharding=on_device)}, "has values that int32 cannot hold.*"),
        ({1: 0, "1": 0}, "the tree has keys of several kinds.*"),
        ({1.5: 0}, "the tree has the key 1.5.*"),
    ):
        with pytest.raises(Error, match=f"{why}; nothing was restored$") as raised:
            tailrace.jax.restore(tmp_path, target, partial=True, cast=True)
        assert str(raised.value).count("nothing was") == 1
    found = tailrace.jax.restore(tmp_path, {"nan": 0.0, "wide": 0.0, "infinite": 0.0}, partial=True)
    assert found["nan"] != found["nan"] and found["wide"] == 2.0**70 and found["infinite"] == float("inf")


NUMBERS = (
    *((1.5, "int32"), (300, "uint8"), (300, "int8"), (2**40, "int32"), (-1, "uint32"), (-1, "uint8"), (2, "bool")),
    *((2**24 + 1, "float32"), (1e300, "float32"), (1e300, "bfloat16"), (1 + 2j, "float32"), (float("nan"), "int32")),
)


@pytest.mark.parametrize(
    ("saved", "target"),
    [
        *((saved, zeros((), jnp.dtype(dtype))) for saved, dtype in NUMBERS for zeros in (np.zeros, jnp.zeros)),
        (2.7, np.int32(0)),
        (float("nan"), 0),
        (float("nan"), False),
        (float("inf"), 0),
        (10**30, 0.5),
        (10**400, 0.5),
        (np.float32("nan"), 0),
        (np.complex64(complex("inf+1j")), 0.5),
        (np.array("7"), 0),
        (np.datetime64("2020-01-01"), 0),
    ],
)
def test_no_number_changes_in_silence(saved: Any, target: Any, tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"n": saved})
    is_array = hasattr(target, "dtype")
    told = f"type is {target.dtype}" if is_array else f"is {target!r}"
    value = re.escape(repr(saved[()] if isinstance(saved, np.ndarray) else saved))
    with pytest.raises(
        Error, match=rf"\['n'\] was saved as {value}, the target's {re.escape(told)}; nothing was restored"
    ) as raised:
        tailrace.jax.restore(tmp_path, {"n": target})
    assert raised.value.code == Code.INVALID_ARGUMENT
    if is_array and saved == saved and not isinstance(saved, complex):
        found = tailrace.jax.restore(tmp_path, {"n": target}, cast=True)["n"]
        assert found.dtype == target.dtype and isinstance(found, jax.Array) == isinstance(target, jax.Array)


def test_numbers_of_other_types_are_the_same_numbers(tmp_path: Path) -> None:
    numbers = {"a": 3, "b": 0.1, "c": float("inf"), "d": True, "e": 2.0, "f": float("nan"), "g": np.float32("nan")}
    tailrace.jax.save(tmp_path, numbers)
    target = {"a": jnp.int8(0), "b": jnp.float32(0), "c": np.float16(0), "d": 0, "e": np.int8(0), "f": jnp.ones(())}
    found = tailrace.jax.restore(tmp_path, {**target, "g": 0.5})
    assert [found[name] for name in "acde"] == [3, np.inf, 1, 2]
    assert found["b"] == np.float32(0.1) and np.isnan(found["f"]) and np.isnan(found["g"])
    assert tailrace.jax.restore(tmp_path, {"b": jnp.int32(1)}, partial=True, cast=True)["b"] == 0
    with pytest.raises(Error, match="nothing was restored"):
        tailrace.jax.restore(tmp_path, {"c": 1}, partial=True, cast=True)


def test_arrays_of_64_bits_come_back_where_jax_has_them(tmp_path: Path) -> None:
    with jax.enable_x64(True):
        tailrace.jax.save(tmp_path, {"wide": jnp.array([2**40 + 1])})
        one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        assert tailrace.jax.restore(tmp_path, shardings=one)["wide"].tolist() == [2**40 + 1]
    with pytest.raises(Error, match=r"\['wide'\] is to become int64, and JAX would make int32.*nothing was restored"):
        tailrace.jax.restore(tmp_path, shardings=one)
    assert tailrace.jax.restore(tmp_path)["wide"].tolist() == [2**40 + 1]


@pytest.mark.parametrize("dtype", [">f4", ">i2", "longdouble", "clongdouble"])
def test_numbers_that_jax_has_no_type_for_can_be_cast_onto_shards(dtype: str, tmp_path: Path) -> None:
    values = np.arange(32, dtype=dtype).reshape(8, 4)
    tailrace.jax.save(tmp_path, {"w": values})
    made = np.complex64 if values.dtype.kind == "c" else np.float32
    for spec in (P("x"), P(None, "x"), P()):
        where = NamedSharding(states.mesh(4), spec)
        target = {"w": jax.ShapeDtypeStruct(values.shape, made, sharding=where)}
        found = tailrace.jax.restore(tmp_path, target, cast=True)["w"]
        assert found.sharding == where and found.dtype == made
        np.testing.assert_array_equal(np.asarray(found), values.astype(made))


@pytest.mark.parametrize("values", [np.arange(8).astype("M8[D]"), np.array(list("12345678")), np.zeros(8, "V4")])
def test_what_is_no_number_becomes_no_array_of_jax(values: Any, tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"w": values})
    where = NamedSharding(states.mesh(4), P("x"))
    for dtype in (np.int32, values.dtype):
        with pytest.raises(Error, match=r"\['w'\] was saved as .* NumPy array as its target; nothing was restored"):
            tailrace.jax.restore(tmp_path, {"w": jax.ShapeDtypeStruct((8,), dtype, sharding=where)}, cast=True)
    with pytest.raises(Error, match="NumPy array as its target"):
        tailrace.jax.restore(tmp_path, {"w": values}, shardings=where)
    assert tailrace.jax.restore(tmp_path, {"w": values})["w"].tolist() == values.tolist()


def test_shardings_without_a_target_must_fit(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"w": jnp.ones((4, 4)), "v": jnp.ones(4), "s": 1})
    flat, both = NamedSharding(states.mesh(4), P("x")), NamedSharding(states.mesh(2, 2), P("x", "y"))
    for shardings, why in (
        (
            {"wrong": flat, "more": [flat, flat]},
            r"not in the checkpoint: the tree\['more'\]\['0'\]; the tree\['more'\]\['1'\]; the tree\['wrong'\];",
        ),
        ({"w": 3}, r"the tree\['w'\] is given 3 as its sharding"),
        (both, r"the tree\['v'\] of shape \(4,\) cannot be sharded so"),
    ):
        with pytest.raises(Error, match=f"{why}.*nothing was restored"):
            tailrace.jax.restore(tmp_path, shardings=shardings)
    found = tailrace.jax.restore(tmp_path, shardings={"w": both, "s": flat})
    assert found["w"].sharding == both and isinstance(found["v"], np.ndarray)


def test_shardings_are_taken_by_their_names(tmp_path: Path) -> None:
    state = {"v": jnp.ones((4, 4)), "w": jnp.ones((4, 4)), "nothing": None}
    tailrace.jax.save(tmp_path, state)
    rows, columns = (NamedSharding(states.mesh(4), spec) for spec in (P("x"), P(None, "x")))
    found = tailrace.jax.restore(tmp_path, state, shardings={"w": rows, "v": columns, "nothing": None})
    assert found["w"].sharding == rows and found["v"].sharding == columns
    assert tailrace.jax.restore(tmp_path, state, shardings={"w": rows, "v": None})["w"].sharding == rows
    for shardings, why in (
        ({"w": rows, "x": columns}, r"the tree\['v'\] has no sharding; the tree\['x'\] is not in the target"),
        (
            [rows, columns],
            r"the tree\['v'\] has no sharding; .*; the tree\['0'\] is not in the target; the tree\['1'\] is",
        ),
        ({"w": rows}, r"the tree\['v'\] has no sharding"),
        (
            {"w": {"a": rows}, "v": columns},
            r"the tree\['w'\] has no sharding; the tree\['w'\]\['a'\] is not in the target",
        ),
    ):
        with pytest.raises(Error, match=f"the shardings do not fit the target: {why}.*nothing was restored") as caught:
            tailrace.jax.restore(tmp_path, state, shardings=shardings)
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_a_wrong_step_or_name_is_an_error_of_ours(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"w": 1}, step=1)
    for call in (tailrace.jax.restore, tailrace.jax.metadata):
        for how, name in (({"step": -1}, "step"), ({"step": "1"}, "step"), ({"name": 3}, "name")):
            with pytest.raises(Error, match=f"{name}: .* is given.*; nothing was restored"):
                call(tmp_path, **how)
    with pytest.raises(Error, match="name: a int is given"):
        tailrace.jax.latest_step(tmp_path, name=3)
    assert tailrace.jax.restore(tmp_path, step=np.int64(1)) == {"w": 1}


def test_metadata_tells_shapes_and_types(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"a": [jnp.zeros((2, 3), jnp.bfloat16), 5]})
    found = tailrace.jax.metadata(tmp_path)["a"]
    assert (found[0].shape, found[0].dtype, found[1]) == ((2, 3), jnp.bfloat16, 5)


@pytest.mark.parametrize(
    ("leaf", "sentence"),
    [
        (object(), "no safe encoding; save its parts; nothing was saved"),
        (np.array([object()]), "no plain bytes"),
        (jnp.zeros((1,) * 17), "17 dimensions"),
        ({("a", 1): 1}, "neither a string nor an int"),
        ({1: 2, "1": 3}, "keys of several kinds.*all strings or all ints; nothing was saved"),
        (np.ma.MaskedArray([1], [True]), "save a masked array's data and mask apart; nothing was saved"),
    ],
)
def test_what_cannot_be_saved_is_refused_with_its_place(leaf: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(Error, match=sentence) as raised:
        tailrace.jax.save(tmp_path, {"bad": leaf})
    assert "'bad'" in str(raised.value) and not list(tmp_path.glob("*.tailrace"))


def test_a_name_that_is_too_long_is_told_with_what_is_intact(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"w": 1})
    with pytest.raises(Error, match=r"has 5000 bytes, but may have 1 to 4096; what was there is intact$"):
        tailrace.jax.save(tmp_path, {"w" * 5000: jnp.ones(2)})
    assert tailrace.jax.restore(tmp_path) == {"w": 1}


def test_a_traced_or_donated_array_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Error, match="is traced"):
        jax.jit(lambda x: tailrace.jax.save(tmp_path, {"x": x}))(jnp.zeros(2))
    x = jnp.zeros(2)
    x.delete()
    with pytest.raises(Error, match="deleted or donated"):
        tailrace.jax.save(tmp_path, {"x": x})


def test_a_damaged_byte_is_named_by_file_and_offset(tmp_path: Path) -> None:
    tailrace.jax.save(tmp_path, {"x": jnp.ones(1 << 20)})
    (file,) = tmp_path.glob("*.tailrace")
    with open(file, "r+b") as damaged:
        damaged.seek(file.stat().st_size // 2)
        damaged.write(b"\x55")
    with pytest.raises(Error) as raised:
        tailrace.jax.restore(tmp_path)
    assert raised.value.code == Code.CORRUPT
    assert raised.value.path == str(file) and raised.value.offset is not None


def test_where_nothing_is_nothing_is_found(tmp_path: Path) -> None:
    assert tailrace.jax.latest_step(tmp_path) is None
    with pytest.raises(FileNotFoundError):
        tailrace.jax.restore(tmp_path)


def test_another_kind_of_checkpoint_is_refused(tmp_path: Path) -> None:
    with tailrace.open(shared_dir=str(tmp_path), local_dir=str(tmp_path / "local")) as session:
        session.save(1, {"u": np.zeros(3)})
    with pytest.raises(Error, match="not a pytree"):
        tailrace.jax.restore(tmp_path)


def is_killed(place: str) -> None:
    import signal

    tailrace.jax.save(place, {"x": jnp.ones(1000)}, step=1)
    write = tailrace.jax.Saver._write

    def killed(*arguments: Any) -> Any:
        write(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    tailrace.jax.Saver._write = killed  # type: ignore[method-assign]
    tailrace.jax.async_save(place, {"x": jnp.zeros(1000)}, step=2).result()


def test_a_save_that_is_killed_leaves_the_older_one(tmp_path: Path) -> None:
    run(1, 1, is_killed, str(tmp_path), ends=KILLED)
    assert tailrace.jax.latest_step(tmp_path) == 1
    assert (tailrace.jax.restore(tmp_path)["x"] == 1).all()
    tailrace.jax.save(tmp_path, {"x": jnp.zeros(1000)}, step=2)
    assert not list(tmp_path.glob("*.unfinished"))
