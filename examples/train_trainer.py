#!/usr/bin/env python3
"""Trains a small BLOOM model with Hugging Face's Trainer, and saves it in the background into two files.

    python examples/train_trainer.py --directory checkpoints --steps 20            # or with torchrun, on several ranks

Kill it, start it again: it goes on from the newest complete checkpoint, with the losses of a run without
interruption. Needs torch, transformers, accelerate and tailrace; no GPU, no network.
"""

import argparse

import torch
from transformers import BloomConfig, BloomForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from tailrace.torch.huggingface import install


class Tokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 512, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs, **kwargs) -> None:
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", required=True, help="of the checkpoints, shared by all ranks")
    parser.add_argument("--steps", type=int, default=20, help="the last step (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints (default: %(default)s)")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = BloomForCausalLM(BloomConfig(vocab_size=512, hidden_size=64, n_layer=2, n_head=4))
    arguments = TrainingArguments(
        options.directory, max_steps=options.steps, save_steps=options.save_every, save_total_limit=3,
        per_device_train_batch_size=4, logging_steps=1, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=Tokens(), callbacks=[Losses()])
    install(trainer, files=2)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(options.directory) is not None)


if __name__ == "__main__":
    main()
