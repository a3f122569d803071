"""What the adapters for Hugging Face's Trainer and Accelerate share."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from tailrace._errors import Code, Error


def refuse_sharded(what: str, *, deepspeed: bool, fsdp: bool) -> None:
    """Raises Error (unsupported) if another framework holds the model's parts, and says what to use
    instead."""
    for sharded, instead in (
        (deepspeed, "install tailrace.torch.deepspeed in its engine"),
        (fsdp, "use tailrace.torch.StorageWriter with torch.distributed.checkpoint"),
    ):
        if sharded:
            raise Error(
                Code.UNSUPPORTED,
                f"this {what}'s model is sharded by another framework: {instead}; nothing was changed",
            )


def random_states() -> dict[str, Any]:
    """The states of all random generators of this process."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_states(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["cpu"])
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
