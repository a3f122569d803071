#!/usr/bin/env python3
"""Trains a small network with Hugging Face Accelerate, and saves it in the background into two files.

    python examples/train_accelerate.py --directory checkpoints --steps 20         # or with torchrun, on several ranks

Kill it, start it again: it goes on from the newest complete checkpoint, with the losses of a run without
interruption. Needs torch, accelerate and tailrace; no GPU, no network.
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

import tailrace
from tailrace.torch.accelerate import install
from tailrace.torch.stopping import Stopping


class Progress:
    step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", required=True, help="of the checkpoints, shared by all ranks")
    parser.add_argument("--steps", type=int, default=20, help="the last step (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints (default: %(default)s)")
    options = parser.parse_args()

    project = ProjectConfiguration(options.directory, automatic_checkpoint_naming=True, total_limit=3)
    # Without a GPU it finds torchrun's ranks only when it is told to use the CPU.
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), project_config=project)
    stopping = Stopping(options.directory)  # at SIGTERM, before the end of the job, by `tailrace halt`
    checkpoints = install(accelerator, files=2, stopping=stopping)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    try:
        accelerator.load_state()
    except tailrace.Error as error:
        if error.code != tailrace.Code.NOT_FOUND:  # a first run
            raise
    while progress.step < options.steps:
        torch.manual_seed(progress.step * accelerator.num_processes + accelerator.process_index)  # this step's batch
        batch = torch.randn(8, 32, device=accelerator.device)
        loss = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        progress.step += 1
        accelerator.print(f"step {progress.step} loss {loss.item()!r}", flush=True)
        project.iteration = progress.step  # the number in the name of a checkpoint that is made now
        if reason := checkpoints.stop_in_time():  # the same on all ranks; saves once more
            accelerator.print(f"stopping: {reason}", flush=True)
            break
        if progress.step % options.save_every == 0:
            accelerator.save_state()  # returns when the state is copied
    accelerator.end_training()  # waits for the last one


if __name__ == "__main__":
    main()
