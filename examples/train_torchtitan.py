#!/usr/bin/env python3
"""Trains a small language model with FSDP2 and TorchTitan's components, and saves it in the background.

    torchrun --nproc-per-node 2 examples/train_torchtitan.py --directory checkpoints --steps 20

Kill it, start it again: it goes on from the newest complete checkpoint, with the losses of a run without interruption.
TorchTitan's Trainer asks for a GPU, and its models for Triton; here are its optimizers, schedules and checkpoint
manager, around a model and a loop of our own. Needs torch, torchtitan and tailrace; no GPU, no network.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw

from tailrace.torch.torchtitan import TailraceCheckpointManager

VOCABULARY, HIDDEN, BLOCKS, TOKENS = 512, 64, 2, 64


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.GELU()) for _ in range(BLOCKS)
        )
        self.head = torch.nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Data:
    """The batches of this rank, which follow from their number. TorchTitan saves and loads what has these methods."""

    def __init__(self) -> None:
        self.number = 0

    def next(self) -> torch.Tensor:
        seeds = torch.Generator().manual_seed(self.number * dist.get_world_size() + dist.get_rank())
        self.number += 1
        return torch.randint(0, VOCABULARY, (TOKENS,), generator=seeds)

    def state_dict(self) -> dict[str, Any]:
        return {f"rank_{dist.get_rank()}": self.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state[f"rank_{dist.get_rank()}"]


class Progress:
    """What the Trainer itself is among the states."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": torch.tensor(self.step)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = int(state["step"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True, help="of the checkpoints, shared by all ranks")
    parser.add_argument("--steps", type=int, default=20, help="the last step (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints (default: %(default)s)")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Network()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizers = default_adamw(lr=1e-2).build(model_parts=[model])
    schedules = LRSchedulersContainer.Config(warmup_steps=2).build(optimizers=optimizers, training_steps=options.steps)
    data, progress = Data(), Progress()

    config = TailraceCheckpointManager.Config(
        enable=True, folder=str(options.directory), interval=options.save_every, async_mode="async", files=2,
        last_save_model_only=False,
    )  # fmt: skip
    manager = config.build(  # as the Trainer does with its config's `checkpoint`
        dataloader=data, model_parts=[model], optimizers=optimizers, lr_schedulers=schedules,
        states={"train_state": progress}, sd_adapter=None,
    )  # fmt: skip
    manager.load()  # the newest complete one; nothing on a first run
    while progress.step < options.steps:
        progress.step += 1
        tokens = data.next()
        loss = torch.nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:])
        optimizers.zero_grad()
        loss.backward()
        manager.maybe_wait_for_staging()
        optimizers.step()
        schedules.step()
        if dist.get_rank() == 0:
            print(f"step {progress.step} loss {loss.item()!r}", flush=True)
        manager.save(progress.step, last_step=progress.step == options.steps)
    manager.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
