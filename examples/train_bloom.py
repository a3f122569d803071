#!/usr/bin/env python3
"""Trains a language model (bloom.py) with FSDP2, and saves it in the background.

    torchrun --nproc-per-node 2 examples/train_bloom.py --directory checkpoints --steps 20 --save-every 5

Kill it, start it again: it goes on from the newest complete checkpoint, and its losses are those of a run without
interruption. With --full the checkpoints have about 2 GiB. Needs torch, transformers and tailrace; no GPU, no network.
"""

import argparse
import contextlib
import re
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import bloom
import tailrace
from tailrace.torch import StorageReader, StorageWriter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    bloom.add_options(parser)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    model = shard(bloom.make_model(options.full))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # Both are kept for the whole run: the writer has staging memory, and DCP's thread needs a group of its own.
    writer = StorageWriter(files=options.files)
    background = dist.new_group(backend="gloo")
    saving = None

    begin = restore(model, optimizer, options.directory)
    for step in range(begin, options.steps + 1):
        loss = train(model, optimizer, step)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss!r}", flush=True)
        if step % options.save_every == 0:
            if saving is not None:
                saving.result()  # raises what has failed
            place = options.directory / f"step-{step}"
            state = state_of(model, optimizer)
            saving = dcp.async_save(state, checkpoint_id=place, storage_writer=writer, process_group=background)
    if saving is not None:
        saving.result()
    dist.destroy_process_group()


def restore(model: torch.nn.Module, optimizer: torch.optim.Optimizer, directory: Path) -> int:
    """Fills both from the newest complete checkpoint; returns the step to go on with, 1 on a first run."""
    # One rank looks, since all have to take the same.
    found = [newest(directory) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return 1
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=directory / f"step-{found[0]}", storage_reader=StorageReader())
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return found[0] + 1


def newest(directory: Path) -> int | None:
    names = [re.fullmatch(r"step-(\d+)", path.name) for path in directory.glob("step-*")]
    for step in sorted((int(name[1]) for name in names if name), reverse=True):
        with contextlib.suppress(tailrace.Error):  # it was interrupted: then an older one
            tailrace.read(directory / f"step-{step}").close()
            return step
    return None


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> float:
    loss = model(**bloom.batch_of(step, model.config)).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def shard(model: torch.nn.Module) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


if __name__ == "__main__":
    main()
