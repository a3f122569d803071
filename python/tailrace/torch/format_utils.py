"""dcp_to_torch_save and torch_save_to_dcp, as torch.distributed.checkpoint.format_utils has them, for
checkpoints of tailrace.

Each works on one rank alone and holds the whole state in memory. `tailrace convert` needs memory for
the largest tensor only.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.checkpoint.state_dict_saver import save

from tailrace import _arguments
from tailrace.torch import _durable
from tailrace.torch._reader import StorageReader
from tailrace.torch._writer import StorageWriter


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str], *, trust_pickle: bool = False
) -> None:
    """Makes a file of torch.save of a checkpoint of StorageWriter, or of DCP's own writer.

    The file gets its name when it is complete and synced.
    trust_pickle: as in StorageReader.
    """
    target = _arguments.path(torch_save_path, "torch_save_path", "nothing was saved")
    state: dict[str, Any] = {}
    _load_state_dict(
        state,
        storage_reader=StorageReader(dcp_checkpoint_dir, trust_pickle=trust_pickle),
        planner=_EmptyStateDictLoadPlanner(),  # type: ignore[no-untyped-call]
        no_dist=True,
    )
    _durable.replace(target, lambda file: torch.save(state, file))


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike[str],
    dcp_checkpoint_dir: str | os.PathLike[str],
    *,
    files: int = 1,
    weights_only: bool = True,
) -> None:
    """Makes a checkpoint in `files` files of a file of torch.save. Any number of ranks can load it.

    weights_only: as in torch.load. False unpickles what is in the file, which can run any code.
    """
    source = _arguments.path(torch_save_path, "torch_save_path", "nothing was saved")
    state = torch.load(source, map_location="cpu", weights_only=weights_only, mmap=True)
    save(state, storage_writer=StorageWriter.alone(dcp_checkpoint_dir, files=files), no_dist=True)
