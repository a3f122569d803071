"""What train_bloom.py and train_deepspeed.py train: a language model of BLOOM's shape, random weights and tokens."""

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import BloomConfig, BloomForCausalLM

SMALL = {"vocab_size": 512, "hidden_size": 64, "n_layer": 2, "n_head": 4}
# About 180 million parameters, which with AdamW's state make checkpoints of about 2 GiB.
FULL = {"vocab_size": 32768, "hidden_size": 1024, "n_layer": 12, "n_head": 16}
TOKENS = 64  # per rank and step


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--directory", type=Path, required=True, help="of the checkpoints, shared by all ranks")
    parser.add_argument("--full", action="store_true", help="about 180 million parameters, and 2 GiB per checkpoint")
    parser.add_argument("--steps", type=int, default=20, help="the last step (default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=5, help="steps between checkpoints (default: %(default)s)")
    parser.add_argument("--files", type=int, default=2, help="K, of each checkpoint (default: %(default)s)")


def make_model(full: bool) -> BloomForCausalLM:
    torch.manual_seed(0)
    return BloomForCausalLM(BloomConfig(**(FULL if full else SMALL)))


def batch_of(step: int, config: BloomConfig, device: Any = "cpu") -> dict[str, torch.Tensor]:
    """The arguments of the model. They follow from step and rank, so a run that goes on sees the same ones."""
    seeds = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    tokens = torch.randint(0, config.vocab_size, (1, TOKENS), generator=seeds).to(device)
    return {"input_ids": tokens, "labels": tokens}
