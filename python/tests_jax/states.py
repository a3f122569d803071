"""States for the tests: pytrees of every kind of leaf, and the training state of a small network."""

from __future__ import annotations

import typing
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TYPES = (
    *(jnp.float32, jnp.bfloat16, jnp.float16, jnp.int8, jnp.uint32, jnp.bool_, jnp.complex64),
    *(jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.int4),
)


class Moments(typing.NamedTuple):
    mean: Any
    none: Any


def mesh(*shape: int) -> Mesh:
    """A mesh of all devices of all processes."""
    return Mesh(np.asarray(jax.devices()).reshape(shape), ("x", "y")[: len(shape)])


def spread(array: Any, spec: PartitionSpec, over: Mesh) -> Any:
    """A global array whose values every process knows."""
    array = np.asarray(array)
    return jax.make_array_from_callback(array.shape, NamedSharding(over, spec), lambda index: array[index])


def values(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).integers(-100, 100, shape).astype(dtype)


def every_kind() -> dict[str, Any]:
    """For one process."""
    return {
        "arrays": {str(np.dtype(dtype)): jnp.asarray(values(i, 3, 4), dtype) for i, dtype in enumerate(TYPES)},
        "scalar": jnp.float32(2.5),
        "nothing": jnp.zeros((0, 5)),
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(8, impl="rbg"), 6),
        "numpy": values(20, 5, dtype=np.float64),
        "fortran": np.asfortranarray(values(21, 4, 6)),
        "big endian": values(22, 4).astype(">i4"),
        "dates": np.array(["2024-02-29", "1970-01-01"], "datetime64[D]"),
        "item": np.float32(1.5),
        "plain": [1, 2.5, True, "text", float("inf"), 1 + 2j, b"bytes"],
        "tuple": (jnp.arange(3), {}, [], None),
        "named": Moments(jnp.ones((2, 2)), None),
        "empty": optax.EmptyState(),
        "by number": {3: jnp.arange(2)},
    }


class Network(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(8)(nn.relu(nn.Dense(64)(x)))


def training(seed: int = 0) -> Any:
    """A TrainState of flax with an optimizer of optax."""
    network = Network()
    parameters = network.init(jax.random.key(seed), jnp.ones((1, 16)))["params"]
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    return train_state.TrainState.create(apply_fn=network.apply, params=parameters, tx=optimizer)


def train(state: Any, first: int, last: int) -> tuple[Any, list[float]]:
    losses = []

    @jax.jit
    def step(state: Any, number: int) -> Any:
        x = jax.random.normal(jax.random.fold_in(jax.random.key(1), number), (32, 16))

        def loss_of(parameters: Any) -> Any:
            return jnp.mean((state.apply_fn({"params": parameters}, x) - x[:, :8]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    for number in range(first, last):
        state, loss = step(state, number)
        losses.append(float(loss))
    return state, losses


def assert_same(found: Any, expected: Any) -> None:
    """The same leaves, bit for bit, of the same types, in the same containers."""
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    pairs = zip(jax.tree_util.tree_leaves_with_path(found), jax.tree_util.tree_leaves_with_path(expected), strict=True)
    for (path, one), (_, other) in pairs:
        where = jax.tree_util.keystr(path)
        assert isinstance(one, jax.Array) == isinstance(other, jax.Array), where
        if not hasattr(other, "dtype"):
            assert type(one) is type(other) and one == other, where
            continue
        assert one.dtype == other.dtype and one.shape == other.shape, where
        if jax.dtypes.issubdtype(other.dtype, jax.dtypes.prng_key):
            assert jax.random.key_impl(one) == jax.random.key_impl(other), where
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        if isinstance(other, jax.Array):
            shards = zip(one.addressable_shards, other.addressable_shards, strict=True)
            for mine, its in shards if one.sharding == other.sharding else []:
                assert np.asarray(mine.data).tobytes() == np.asarray(its.data).tobytes(), where
            if not other.is_fully_addressable:
                continue
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), where
