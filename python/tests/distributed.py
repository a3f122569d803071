"""Runs a function on several ranks: processes with a gloo group of their own, over a file and the loopback.

The ranks of run() are forked from a server that has loaded PyTorch, since to load it takes longer than most tests. Such
a process ends without taking its interpreter down; those of exit_codes(), which are for how ranks end, are new ones.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

PATIENCE_SECONDS = 300
# What the server has loaded.
LOADED = ["torch", "torch.distributed.checkpoint", "torch.distributed.fsdp"]

# What makes DCP's planner cache its plans: nothing in PyTorch 2.5.
PLAN_CACHING = {"enable_plan_caching": True}
if not PLAN_CACHING.keys() <= inspect.signature(DefaultSavePlanner).parameters.keys():
    PLAN_CACHING = {}


def _rank(
    rank: int,
    world: int,
    meeting: str,
    environment: dict[str, str],
    function: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    os.environ.clear()  # it was that of the server
    os.environ.update(environment, GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    try:
        function(*arguments)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _lone_rank(*arguments: Any) -> None:
    rank, world, meeting, function, rest = arguments
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    function(*rest)


def exit_codes(world: int, function: Callable[..., None], *arguments: Any) -> list[int | None]:
    """As run, where ranks may end on their own and without a word: how each process ended, None when it did not."""
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        meeting = str(Path(place) / "meeting")
        ranks = [
            context.Process(target=_lone_rank, args=(rank, world, meeting, function, arguments))
            for rank in range(world)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(PATIENCE_SECONDS)
        codes = [process.exitcode for process in ranks]
        for process in ranks:
            process.kill()
        return codes


def run(world: int, function: Callable[..., None], *arguments: Any) -> None:
    """A failure on any rank is raised here, with its trace."""
    mp.get_context("forkserver").set_forkserver_preload(LOADED)
    with tempfile.TemporaryDirectory() as place:
        given = (world, str(Path(place) / "meeting"), dict(os.environ), function, arguments)
        mp.start_processes(_rank, given, nprocs=world, start_method="forkserver")
