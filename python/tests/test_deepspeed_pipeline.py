"""A pipeline of DeepSpeed's, which has files of its own for each layer, on two stages beside DeepSpeed's own engine."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import torch
import torch.distributed as dist

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # DeepSpeed's own
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule

    from tailrace.torch.deepspeed import export, install

WIDTH, LAYERS = 8, 4
LAYER_FILES = [f"layer_{layer:02d}-model_states.pt" for layer in range(LAYERS)]


def make_engine(seed: int) -> Any:
    os.environ.update(RANK=str(dist.get_rank()), LOCAL_RANK=str(dist.get_rank()), WORLD_SIZE=str(dist.get_world_size()))
    deepspeed.ops.__compatible_ops__ = {}  # its operations would be compiled first
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    torch.manual_seed(seed)
    layers = [LayerSpec(torch.nn.Linear, WIDTH, WIDTH) for _ in range(LAYERS)]
    model = PipelineModule(layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss, partition_method="uniform")
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def batches(step: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(step)
    while True:
        yield torch.rand(2, WIDTH, generator=generator), torch.rand(2, WIDTH, generator=generator)


def train(engine: Any, steps: range) -> list[float]:
    return [float(engine.train_batch(data_iter=batches(step))) for step in steps]


def save_and_go_on(place: str) -> None:
    engine = make_engine(seed=1)
    train(engine, range(2))
    engine.save_checkpoint(f"{place}/theirs")
    saving = install(engine, files=2)
    engine.save_checkpoint(f"{place}/ours", client_state={"seen": 4})
    saving.wait()
    expected = train(engine, range(2, 4))
    for name in ("theirs", "ours"):
        other = make_engine(seed=2)
        install(other)
        path, client_state = other.load_checkpoint(f"{place}/{name}")
        assert path is not None and client_state.get("seen") == (4 if name == "ours" else None)
        assert train(other, range(2, 4)) == expected, name


def test_a_pipeline_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    distributed.run(2, save_and_go_on, str(tmp_path))
    export(tmp_path / "ours" / "global_step2", tmp_path / "exported")
    assert sorted(path.name for path in (tmp_path / "exported").glob("layer*")) == LAYER_FILES
    for layer in LAYER_FILES:
        theirs, ours = (torch.load(tmp_path / place / layer) for place in ("theirs/global_step2", "exported"))
        assert theirs.keys() == ours.keys() and all(torch.equal(theirs[name], ours[name]) for name in theirs)
