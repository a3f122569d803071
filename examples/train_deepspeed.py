#!/usr/bin/env python3
"""Trains a small network with DeepSpeed's ZeRO-2, and saves it in the background into two files.

    torchrun --nproc-per-node 2 examples/train_deepspeed.py --directory checkpoints --steps 20

Kill it, start it again: it goes on from the newest complete checkpoint, with the losses of a run without
interruption. Needs torch, deepspeed and tailrace; no GPU, no network.
"""

import argparse

import deepspeed
import torch
import torch.distributed as dist

from tailrace.torch.deepspeed import install

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 2},
    # torch's AdamW: DeepSpeed's own is compiled when it is first used.
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", required=True, help="of the checkpoints, shared by all ranks")
    parser.add_argument("--steps", type=int, default=20, help="the last step (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints (default: %(default)s)")
    options = parser.parse_args()

    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    install(engine, files=2, keep=3)
    engine.load_checkpoint(options.directory)  # (None, None) on a first run
    while engine.global_steps < options.steps:
        torch.manual_seed(engine.global_steps * dist.get_world_size() + dist.get_rank())  # the batch of this step
        batch = torch.randn(8, 32, device=engine.device)
        loss = (engine(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        engine.backward(loss)
        engine.step()
        if dist.get_rank() == 0:
            print(f"step {engine.global_steps} loss {loss.item()!r}", flush=True)
        if engine.global_steps % options.save_every == 0:
            engine.save_checkpoint(options.directory)  # returns when the state is copied
    engine.destroy()  # waits for the last one
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
