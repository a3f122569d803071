"""tailrace.read of what other parts of the package save, and of what no one here can understand."""

from __future__ import annotations

from pathlib import Path

import distributed
import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import tailrace
from tailrace.torch import StorageWriter


def save_replicated(place: str) -> None:
    state = {name: torch.full((50, 3), float(number)) for number, name in enumerate("abcd")}
    state |= {f"scalar{number}": torch.tensor(float(number)) for number in range(4)}  # in no boxes
    state["sharded"] = distribute_tensor(torch.arange(30.0), init_device_mesh("cpu", (2,)), [Shard(0)])
    state[f"own{dist.get_rank()}"] = torch.full((4,), 10.0 + dist.get_rank())
    dcp.save(state, checkpoint_id=place, storage_writer=StorageWriter(files=2))


def test_what_dcp_saved_on_any_rank_is_there(tmp_path: Path) -> None:
    distributed.run(2, save_replicated, str(tmp_path))
    with tailrace.read(tmp_path) as checkpoint:
        for view in (checkpoint, checkpoint.at_rank(1)):
            for number, name in enumerate("abcd"):
                assert view[name].shape == (50, 3) and (view[name].load() == number).all(), name
            for number in range(4):
                assert view[f"scalar{number}"].load().tobytes() == np.float32(number).tobytes()
            assert (view["own0"][:] == 10).all() and (view["own1"][1:3] == 11).all()
            assert view["sharded"][7:20].tolist() == list(range(7, 20))
        of_one = [{name for name, _, _ in checkpoint._reader.regions(rank)} & set("abcd") for rank in range(2)]
        assert all(of_one) and not of_one[0] & of_one[1]  # or the test would prove nothing
