"""The index of a checkpoint of tailrace.jax: what nobody's save has written, and trees that are deep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import tailrace
import tailrace.jax
from tailrace import Code, Error
from tailrace.jax import _leaves


def deep(depth: int) -> Any:
    tree: Any = jnp.arange(3)
    for number in range(depth):
        tree = {"a": tree} if number % 2 else [tree]
    return tree


def test_a_tree_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    for tree in (deep(3000), deep(201), loop):
        with pytest.raises(Error, match="is nested more than 200 deep; nothing was saved") as caught:
            tailrace.jax.save(tmp_path, tree)
        assert caught.value.code is Code.INVALID_ARGUMENT
    tailrace.jax.save(tmp_path, deep(200))
    with pytest.raises(Error, match="is nested more than 200 deep; nothing was restored"):
        tailrace.jax.restore(tmp_path, deep(3000))
    for found in (tailrace.jax.restore(tmp_path), tailrace.jax.restore(tmp_path, deep(200))):
        for number in reversed(range(200)):
            found = found["a"] if number % 2 else found[0]
        assert found.tolist() == [0, 1, 2]


def test_paths_of_any_depth_make_a_tree() -> None:
    tree = _leaves.nested([_leaves.Entry((("d", "a"),) * 3000, "empty")], [5])
    for _ in range(3000):
        tree = tree["a"]
    assert tree == 5


def leaf(*path: Any, kind: Any = "empty", **more: Any) -> dict[str, Any]:
    return {"path": list(path), "kind": kind, **more}


HOSTILE: list[Any] = [
    [],
    {},
    {"version": 1},
    {"version": 1, "leaves": 5},
    {"version": 1, "leaves": ["text"]},
    {"version": 1, "leaves": [[]]},
    *(
        {"version": 1, "leaves": leaves}
        for leaves in (
            [leaf(5)],
            [leaf("d")],
            [leaf(["d", "a", "b"])],
            [leaf(["d", None])],
            [leaf(["d", True])],
            [leaf(["s", "a"])],
            [leaf(["s", [1]])],
            [leaf(["a", 1])],
            [leaf([[], "a"])],
            [leaf(["d", "a"], kind=[])],
            [leaf(["d", "a"], kind="nothing")],
            [leaf(["d", "a"], kind="plain")],
            [leaf(["d", "a"], kind="plain", value=3)],
            [leaf(["d", "a"], kind="plain", value=[])],
            [leaf(["d", "a"], kind="prng", value={}, dtype="uint32", shape=[2])],
            [leaf(["d", "a"], kind="array", shape=5)],
            [leaf(["d", "a"], kind="array", shape=[-1])],
            [leaf(["d", "a"], kind="array", shape=[1], dtype="float32", region="\udcff")],  # which is no UTF-8
            [leaf(["d", "a"]), leaf(["d", "a"])],  # one name twice
            [leaf(["d", "1"]), leaf(["s", 1])],
            [leaf(["d", "a"]), leaf(["d", "a"], ["d", "b"])],  # one leaf in another
            [leaf(["d", "a"], ["d", "b"]), leaf(["d", "a"])],
            [leaf(), leaf(["d", "a"])],
        )
    ),
]


@pytest.mark.parametrize("index", HOSTILE, ids=lambda index: json.dumps(index)[-60:])
def test_an_index_that_no_save_writes_is_corrupt(index: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_leaves, "encode", lambda *_: json.dumps(index).encode())
        tailrace.jax.save(tmp_path, {"w": jnp.ones(3)})
    for read in (tailrace.jax.restore, tailrace.jax.metadata):
        with pytest.raises(Error, match="nothing was read") as caught:
            read(tmp_path)
        assert caught.value.code is Code.CORRUPT


@pytest.mark.parametrize(
    "damage",
    [
        {"shape": [1 << 40]},
        {"shape": [1 << 40], "kind": "numpy"},
        {"shape": [1 << 20, 1 << 20], "kind": "prng", "dtype": "uint32", "value": "threefry2x32"},
        {"shape": [], "dtype": "<U500000000", "kind": "numpy"},
        {"shape": [2]},
        {"shape": [3], "dtype": "int32"},
        {"region": "v"},
    ],
    ids=str,
)
def test_an_array_that_the_files_do_not_hold_is_corrupt(
    damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"region": "w", "dtype": "float32", "shape": [3], "kind": "array"} | damage
    with monkeypatch.context() as patch:
        index = {"version": 1, "leaves": [leaf(["d", "w"], **entry)]}
        patch.setattr(_leaves, "encode", lambda *_: json.dumps(index).encode())
        tailrace.jax.save(tmp_path, {"w": jnp.ones(3)})
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for how in ({}, {"shardings": one}):
        with pytest.raises(Error, match=r"^the tree\['w'\] is .* and the region '.' does not hold that; ") as caught:
            tailrace.jax.restore(tmp_path, **how)
        assert caught.value.code is Code.CORRUPT


@pytest.mark.parametrize(
    "entry",
    [
        leaf(["d", "a"], kind="array", dtype="object", shape=[1], region="w"),
        leaf(["d", "a"], kind="prng", dtype="uint32", shape=[2], region="w", value="of another program"),
        leaf(["d", "a"], kind="prng", dtype="uint32", shape=[3], region="w", value="threefry2x32"),
        leaf(["d", "a"], kind="prng", dtype="uint32", shape=[], region="w", value="threefry2x32"),
        leaf(["d", "a"], kind="prng", dtype="float32", shape=[2], region="w", value="threefry2x32"),
    ],
    ids=lambda entry: f"{entry['kind']} of {entry['dtype']} of shape {entry['shape']}",
)
def test_elements_that_jax_does_not_have_are_unsupported(
    entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_leaves, "encode", lambda *_: json.dumps({"version": 1, "leaves": [entry]}).encode())
        held = jnp.ones(entry["shape"], "float32" if entry["dtype"] == "object" else entry["dtype"])
        tailrace.jax.save(tmp_path, {"w": held})
    for read in (tailrace.jax.restore, tailrace.jax.metadata):
        with pytest.raises(Error, match=r"the tree\['a'\] is .* not known here: .*; nothing was read") as caught:
            read(tmp_path)
        assert caught.value.code is Code.UNSUPPORTED


def test_keys_of_several_kinds_in_one_container_are_a_dict() -> None:
    entries = [_leaves.Entry((("s", 0),), "empty"), _leaves.Entry((("a", "name"),), "empty")]
    assert _leaves.nested(entries, [1, 2]) == {0: 1, "name": 2}


def test_a_leaf_in_a_leaf_is_told_whichever_comes_first() -> None:
    outer, inner = _leaves.Entry((("d", "a"),), "empty"), _leaves.Entry((("d", "a"), ("d", "b")), "empty")
    for entries, told in (
        ([outer, inner], r"\['a'\]\['b'\] lies within"),
        ([inner, outer], r"\['a'\] lies .* has another"),
    ):
        with pytest.raises(Error, match=rf"the tree{told}"):
            _leaves.nested(entries, [1, 2])
