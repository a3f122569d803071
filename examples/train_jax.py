#!/usr/bin/env python3
"""Trains a network of flax with optax on all devices of all processes, and saves it in the background.

    python examples/train_jax.py --directory checkpoints --steps 20

Kill it, start it again: it goes on from the newest complete checkpoint, with the losses of a run without interruption.
With several processes, start each with --coordinator localhost:1234 --processes 2 --process 0 (and 1). A later run may
have another number of processes and devices. Needs jax, flax, optax, orbax-checkpoint and tailrace; no accelerator.
"""

import argparse
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tailrace.jax.orbax import TailraceHandler, TailraceRestore, TailraceSave

INPUTS, HIDDEN = 32, 256


class Network(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(1)(nn.gelu(nn.Dense(HIDDEN)(x)))


def make_state() -> TrainState:
    network = Network()
    parameters = network.init(jax.random.key(0), jnp.ones((1, INPUTS)))["params"]
    return TrainState.create(apply_fn=network.apply, params=parameters, tx=optax.adamw(1e-2))


def spread_over(mesh: Mesh, state: TrainState) -> TrainState:
    """How each array lies on the devices: matrices and their moments by columns, where these can be divided."""

    def sharding(leaf: jax.ShapeDtypeStruct) -> NamedSharding:
        divided = len(leaf.shape) == 2 and leaf.shape[1] % mesh.size == 0
        return NamedSharding(mesh, PartitionSpec(None, "devices") if divided else PartitionSpec())

    return jax.tree.map(sharding, state)


def batch_of(step: int) -> jax.Array:
    return jax.random.normal(jax.random.fold_in(jax.random.key(1), step), (64, INPUTS))


def train_step(state: TrainState, step: int) -> tuple[TrainState, jax.Array]:
    x = batch_of(step)

    def loss_of(parameters: dict) -> jax.Array:
        return jnp.mean((state.apply_fn({"params": parameters}, x)[:, 0] - jnp.sin(x.sum(axis=1))) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True, help="of the checkpoints, shared by all processes")
    parser.add_argument("--steps", type=int, default=20, help="the last step (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints (default: %(default)s)")
    parser.add_argument("--files", type=int, default=2, help="of a checkpoint (default: %(default)s)")
    parser.add_argument("--coordinator", help="host and port of process 0, with several processes")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0, help="the number of this one")
    options = parser.parse_args()

    if options.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(options.coordinator, options.processes, options.process)
    mesh = Mesh(np.asarray(jax.devices()), ("devices",))
    shapes = jax.eval_shape(make_state)
    shardings = spread_over(mesh, shapes)

    keeping = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=options.save_every)
    handler = TailraceHandler(files=options.files)
    with ocp.CheckpointManager(options.directory.absolute(), options=keeping, item_handlers=handler) as manager:
        newest = manager.latest_step()
        if newest is None:
            state, first = jax.jit(make_state, out_shardings=shardings)(), 1
        else:
            state = manager.restore(newest, args=TailraceRestore(shapes, shardings=shardings))
            first = newest + 1
            if jax.process_index() == 0:
                print(f"going on after step {newest}", flush=True)
        advance = jax.jit(train_step, out_shardings=(shardings, NamedSharding(mesh, PartitionSpec())), donate_argnums=0)
        for step in range(first, options.steps + 1):
            state, loss = advance(state, step)
            if jax.process_index() == 0:
                print(f"step {step} loss {float(loss):.9e}", flush=True)
            manager.save(step, args=TailraceSave(state))  # every --save-every steps; returns when the state is copied
        manager.wait_until_finished()


if __name__ == "__main__":
    main()
