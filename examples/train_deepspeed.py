#!/usr/bin/env python3
"""Trains a language model (bloom.py) with DeepSpeed's ZeRO-1, 2 or 3, and saves it in the background.

    torchrun --nproc-per-node 2 examples/train_deepspeed.py --directory checkpoints --stage 3 --steps 20 --save-every 5

Kill it, start it again: it goes on from the newest complete checkpoint, and its losses are those of a run without
interruption. With --full the checkpoints have about 2 GiB. Needs torch, transformers, deepspeed and tailrace; no GPU,
no network.
"""

import argparse

import deepspeed
import torch
import torch.distributed as dist

import bloom
from tailrace.torch.deepspeed import install
from tailrace.torch.stopping import Stopping


def config_of(stage: int) -> dict:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        # torch's AdamW: DeepSpeed's own is compiled when it is first used.
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bloom.add_options(parser)
    parser.add_argument("--stage", type=int, choices=(1, 2, 3), default=2, help="of ZeRO (default: %(default)s)")
    options = parser.parse_args()

    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    model = bloom.make_model(options.full)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config_of(options.stage))
    stopping = Stopping(options.directory)  # at SIGTERM, before the end of the job, by `tailrace halt`
    checkpoints = install(engine, files=options.files, keep=3, stopping=stopping)
    engine.load_checkpoint(options.directory)  # (None, None) on a first run
    while engine.global_steps < options.steps:
        loss = engine(**bloom.batch_of(engine.global_steps + 1, model.config, engine.device)).loss
        engine.backward(loss)
        engine.step()
        if dist.get_rank() == 0:
            print(f"step {engine.global_steps} loss {loss.item()!r}", flush=True)
        if reason := checkpoints.stop_in_time(options.directory):  # the same on all ranks; saves once more
            if dist.get_rank() == 0:
                print(f"stopping: {reason}", flush=True)
            break
        if engine.global_steps % options.save_every == 0:
            engine.save_checkpoint(options.directory)  # returns when the state is copied
    engine.destroy()  # waits for the last one
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
