#!/usr/bin/env python3
"""Trains a network whose hidden layer is spread over the ranks as by Megatron-core, and saves it in the background.

    torchrun --nproc-per-node 2 examples/train_megatron.py --directory checkpoints --steps 20

Kill it, start it again: it goes on from the newest complete checkpoint, with the losses of a run without
interruption; or start it on another number of ranks. Needs torch, megatron-core and tailrace; no GPU, no network.
"""

import argparse
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.mapping import ShardedTensor
from megatron.core.dist_checkpointing.optimizer import get_param_id_to_sharded_param_map, optim_state_to_sharding_state
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)

from tailrace.torch.megatron import BACKEND, register
from tailrace.torch.stopping import Stopping

INPUTS, HIDDEN = 32, 256


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        whole = {"up": torch.randn(HIDDEN, INPUTS) / INPUTS**0.5, "down": torch.randn(1, HIDDEN) / HIDDEN**0.5}
        self.axes = {"up": 0, "down": 1}  # along which each weight is spread
        for name, axis in self.axes.items():
            mine = whole[name].chunk(dist.get_world_size(), axis)[dist.get_rank()]
            self.register_parameter(name, torch.nn.Parameter(mine.contiguous()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = copy_to_tensor_model_parallel_region(x, dist.group.WORLD)
        x = torch.nn.functional.gelu(x @ self.up.T) @ self.down.T
        return reduce_from_tensor_model_parallel_region(x, dist.group.WORLD)

    def sharded_state_dict(self) -> dict[str, ShardedTensor]:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        parts = self.state_dict(keep_vars=True)
        return {
            name: ShardedTensor.from_rank_offsets(name, parts[name], (axis, rank, ranks))
            for name, axis in self.axes.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True, help="of the checkpoints, shared by all ranks")
    parser.add_argument("--steps", type=int, default=20, help="the last step (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints (default: %(default)s)")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    register(files=2)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    for parameter in model.parameters():  # a step that changes nothing makes the optimizer's state, to be loaded
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()

    stopping = Stopping(options.directory)  # at SIGTERM, before the end of the job, by `tailrace halt`
    saves: list[AsyncRequest] = []  # the last one

    def save(step: int) -> None:  # returns when the shards are copied
        wait()
        place = options.directory / f"iter_{step}"
        place.mkdir(parents=True, exist_ok=True)
        state = state_of(model, optimizer, step)
        saves.append(dist_checkpointing.save(state, str(place), sharded_strategy=BACKEND, async_sharded_save=True))

    def wait() -> None:
        while saves:
            saves.pop().execute_sync()  # waits for the files; then Megatron writes metadata.json

    for step in range(restore(model, optimizer, options.directory) + 1, options.steps + 1):
        torch.manual_seed(step)  # the batch of this step; all ranks have the same
        batch = torch.randn(8, INPUTS)
        loss = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item()!r}", flush=True)
        if reason := stopping.stop_in_time(partial(save, step)):  # the same on all ranks; saves once more
            if dist.get_rank() == 0:
                print(f"stopping: {reason}", flush=True)
            break
        if step % options.save_every == 0:
            save(step)
    wait()
    dist.destroy_process_group()


def state_of(model: Network, optimizer: torch.optim.Optimizer, step: int) -> dict:
    shards = model.sharded_state_dict()
    state = optimizer.state_dict()
    optim_state_to_sharding_state(state, get_param_id_to_sharded_param_map(shards, model.parameters()))
    return {"model": shards, "optimizer": state, "step": step}


def restore(model: Network, optimizer: torch.optim.Optimizer, directory: Path) -> int:
    """Fills both from the newest complete checkpoint; returns its step, 0 on a first run."""
    complete = dist_checkpointing.check_is_distributed_checkpoint
    steps = [int(path.name.removeprefix("iter_")) for path in directory.glob("iter_*") if complete(str(path))]
    # One rank looks, since all have to take the same.
    newest = [max(steps, default=0)]
    dist.broadcast_object_list(newest)
    if newest[0] > 0:
        state = dist_checkpointing.load(state_of(model, optimizer, 0), str(directory / f"iter_{newest[0]}"))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    return newest[0]


if __name__ == "__main__":
    main()
