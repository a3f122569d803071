"""The index of a checkpoint of tailrace.jax: trees that are deep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import tailrace
import tailrace.jax
from tailrace import Code, Error


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
