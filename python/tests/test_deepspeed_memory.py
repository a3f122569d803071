"""What loads through the DeepSpeed engine hold in memory beside the state, and what damage leaves as it was."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
from measuring import printed
from test_deepspeed import make_engine, same_bits, tensors_of, train

import tailrace

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # DeepSpeed's own
    from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointCommitInfo

    from tailrace.torch import _segments
    from tailrace.torch.deepspeed import TailraceCheckpointEngine, install

MOST_MIB = 64
MODEL, OPTIMIZER = "mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"

# DeepSpeed trains and saves a model of 64 MiB of parameters, with an optimizer state of 192 MiB. Another process loads
# it into an engine that has as much, and trains on.
TRAIN = """
import hashlib, os, sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
torch.set_num_threads(1)
place, stage, do = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", GLOO_SOCKET_IFNAME="lo")
dist.init_process_group("gloo", init_method=f"file://{place}/store-{do}", rank=0, world_size=1)
import deepspeed
from tailrace.torch.deepspeed import install
deepspeed.ops.__compatible_ops__ = {}
torch.manual_seed(1)
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(16)])
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": stage, "memory_efficient_linear": False, "sub_group_size": 4 << 20},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
})
install(engine, asynchronous=False)

def step():
    loss = engine(torch.ones(1, 1024)).square().mean()
    engine.backward(loss)
    engine.step()
    return float(loss.detach())

def digest():
    found = hashlib.blake2b()
    for state in (engine.module.state_dict(), engine.optimizer.state_dict()):
        for leaf in torch.utils._pytree.tree_leaves(state):
            if isinstance(leaf, torch.Tensor):
                found.update(leaf.detach().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()

if do == "save":
    step()
    engine.save_checkpoint(place)
else:
    step()  # the optimizer makes its state in the first one
    print(most(lambda: engine.load_checkpoint(place)))
with open("/proc/self/maps") as maps:
    print(sum(line.rstrip().endswith(".tailrace") for line in maps))
print(digest())
print(step())
engine.destroy()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("stage", [1, 3])
def test_a_load_by_deepspeed_holds_at_most_64_mib_beside_the_state(stage: int, tmp_path: Path) -> None:
    saved = printed(TRAIN, [str(tmp_path), str(stage), "save"])[-3:]
    loaded = printed(TRAIN, [str(tmp_path), str(stage), "load"])
    size = sum(file.stat().st_size for file in tmp_path.glob("*/*.tailrace"))
    assert size > 190 << 20
    assert loaded[-3:] == saved  # no file is mapped any more; the same state, and the same loss
    assert int(loaded[-4]) <= MOST_MIB, loaded


# The engine's calls, into a state that is there: 384 MiB in one tensor and in many.
CALLS = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from tailrace.torch.deepspeed import TailraceCheckpointEngine

states = {"flat": torch.zeros(64 << 20), "many": {str(n): torch.zeros(1 << 20) for n in range(32)}}
engine = TailraceCheckpointEngine()

def load():
    for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        loaded = engine.load(sys.argv[1] + "/step/" + name, map_location="cpu")
        if "flat" in loaded:
            states["flat"].copy_(loaded["flat"])
        for number, tensor in loaded.get("many", {}).items():
            states["many"][number].copy_(tensor)
    del loaded, tensor
    engine.end_reading()

print(most(load))
print(int(states["flat"].max()), [int(tensor.min()) for tensor in states["many"].values()] == list(range(1, 33)))
"""


def test_loads_by_hand_hold_at_most_64_mib_beside_the_state(tmp_path: Path) -> None:
    many = {str(n): torch.full((1 << 20,), n + 1.0) for n in range(32)}
    save(tmp_path, {"flat": torch.full((64 << 20,), 9.0)}, {"many": many})
    most, values = printed(CALLS, [str(tmp_path)])[-2:]  # DeepSpeed prints before
    assert values == "9 True"
    assert int(most) <= MOST_MIB


def save(place: Path, model: Any, optimizer: Any, files: int = 1) -> Path:
    """Returns one of its files."""
    engine = TailraceCheckpointEngine(files=files)
    info = CheckpointCommitInfo("step", str(place), True)
    engine.create(info)
    engine.save(model, str(place / "step" / MODEL))
    engine.save(optimizer, str(place / "step" / OPTIMIZER))
    engine.commit(info)
    return min((place / "step").iterdir())


def mapped_files() -> list[str]:
    with open("/proc/self/maps") as file:
        return [line.split()[-1] for line in file if line.rstrip().endswith(".tailrace")]


def test_what_is_still_in_use_after_the_load_does_not_need_the_files(tmp_path: Path) -> None:
    sizes = [3, 4096, 70_000, 9 << 20, 1]
    file = save(tmp_path, {"n": [torch.full((n,), n % 251, dtype=torch.uint8) for n in sizes]}, {"m": torch.ones(5)})
    engine = TailraceCheckpointEngine()
    paths = [tmp_path / "step" / name for name in (MODEL, OPTIMIZER)]
    first, unused = (engine.load(str(path)) for path in paths)
    again = engine.load(str(paths[0]))
    first["n"][3][5] = 77  # never gets into the file, nor into another load's tensors, and stays
    assert again["n"][3][5] == (9 << 20) % 251
    held = [first["n"][1], first["n"][3], first["n"][4]]
    assert str(file) in mapped_files()
    addresses = [tensor.data_ptr() for tensor in held]
    view = held[1][1 << 20 :]
    del first, unused, again
    engine.end_reading()
    assert str(file) not in mapped_files()
    os.truncate(file, 0)  # a mapping would end this process
    assert [tensor.data_ptr() for tensor in held] == addresses
    assert [sorted(set(tensor.tolist())) for tensor in held] == [[4096 % 251], [77, (9 << 20) % 251], [1]]
    view[0] = 78
    assert held[1][1 << 20] == 78 and held[1][5] == 77


def test_what_lies_in_two_files_is_read(tmp_path: Path) -> None:
    flat = torch.arange(5 << 20, dtype=torch.float32)
    save(tmp_path, {"a": torch.arange(10)}, {"flat": flat}, files=2)
    assert len(list((tmp_path / "step").iterdir())) == 2
    engine = TailraceCheckpointEngine()
    loaded = engine.load(str(tmp_path / "step" / OPTIMIZER))
    assert torch.equal(loaded["flat"], flat)
    engine.end_reading()
    assert torch.equal(loaded["flat"], flat)


def test_a_checkpoint_that_is_replaced_meanwhile_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, {"a": torch.arange(1000)}, {})
    reader = _segments.Reader(str(tmp_path / "step"))
    save(tmp_path, {"a": torch.arange(1000) + 1}, {})
    loaded = reader.load(MODEL, mapped=True)
    assert torch.equal(loaded["a"], torch.arange(1000))  # from the files that it opened
    assert not reader._given  # it was not mapped
    reader.close()


def damage_what_rank_1_saved(place: str) -> None:
    """One byte of the optimizer's state of rank 1. DeepSpeed loads the model before it."""
    engine = make_engine(2)
    install(engine, asynchronous=False)
    train(engine, range(2))
    engine.save_checkpoint(place)
    if dist.get_rank() == 0:
        segment = "zero_pp_rank_1_mp_rank_00_optim_states.pt"
        with _segments.Reader(f"{place}/global_step2") as reader:
            assert reader.owners[segment] == 1
            nbytes, place_of_it = max(
                (nbytes, found or ("", 0))
                for (name, nbytes, _), found in zip(reader._reader.regions(1), reader._reader.places(1), strict=True)
                if name.startswith(segment)
            )
        with open(place_of_it[0], "r+b") as file:
            file.seek(place_of_it[1] + nbytes // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
    dist.barrier()
    train(engine, range(2, 3))
    before = [tensor.detach().clone() for tensor in tensors_of(engine)]
    with pytest.raises(tailrace.Error, match=f"checksum mismatch in '{place}/global_step2/") as caught:
        engine.load_checkpoint(place)
    assert caught.value.code == tailrace.Code.CORRUPT
    assert all(same_bits(*pair) for pair in zip(tensors_of(engine), before, strict=True))
    assert engine.global_steps == 3
    engine.load_checkpoint(place, load_optimizer_states=False)  # needs no optimizer states
    assert engine.global_steps == 2
    engine.destroy()


@pytest.mark.filterwarnings("ignore")
def test_damage_at_one_rank_leaves_all_ranks_as_they_were(tmp_path: Path) -> None:
    distributed.run(2, damage_what_rank_1_saved, str(tmp_path))
