#!/usr/bin/env python3
"""Trains a small network with Lightning, and saves it in the background, one file per checkpoint.

    python examples/train_lightning.py --directory checkpoints --steps 20

Kill it, start it again: it goes on from the newest complete checkpoint, with the losses of a run without
interruption. Needs torch, lightning (or pytorch_lightning) and tailrace; no GPU, no network.
"""

import argparse
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from tailrace.torch.lightning import TailraceCheckpointIO


class Regression(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.GELU(), torch.nn.Linear(256, 1))

    def training_step(self, batch: int, index: int) -> torch.Tensor:
        # Lightning begins the data of an interrupted epoch anew; here the numbers follow from the step.
        numbers = torch.randn(8, 32, generator=torch.Generator().manual_seed(self.global_step)).to(self.device)
        loss = (self.net(numbers) - numbers.sum(dim=1, keepdim=True)).square().mean()
        print(f"step {self.global_step + 1} loss {loss.item()!r}", flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True, help="of the checkpoints")
    parser.add_argument("--steps", type=int, default=20, help="the last step (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints (default: %(default)s)")
    options = parser.parse_args()

    pl.seed_everything(0)
    data = torch.utils.data.DataLoader(range(options.steps), batch_size=None)
    keep = ModelCheckpoint(options.directory, "step-{step}", every_n_train_steps=options.save_every, save_top_k=-1,
                           auto_insert_metric_name=False)  # fmt: skip
    trainer = pl.Trainer(
        max_steps=options.steps, callbacks=[keep], plugins=[TailraceCheckpointIO(asynchronous=True)],
        default_root_dir=options.directory, logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    saved = sorted(options.directory.glob("step-*.ckpt"), key=lambda path: int(path.stem[5:]))
    trainer.fit(Regression(), data, ckpt_path=saved[-1] if saved else None)


if __name__ == "__main__":
    main()
