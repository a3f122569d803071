"""gloo's threads of our groups end with torch.distributed, and before Python does.

One that is left then ends the process when it asks for the GIL (_groups.py has the reason). It asks at a moment that
no test can choose, so these tests count threads.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import distributed
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import tailrace
from tailrace.torch import StorageWriter, _groups, _segments

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the library's own
    from tailrace.torch import megatron

kept: list[Any] = []  # as a program's globals are


EXITING = 4  # a flag of the kernel's, in the 9th word of a thread's stat


def threads_of_groups(open: Any = open, numbers: Any = os.listdir, exiting: int = EXITING) -> int:
    """The threads that let go of tensors. It works without modules, too.

    A thread that has been joined may still be listed: it ends in the kernel, or has ended by the time it is looked at.
    """
    count = 0
    for number in numbers("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{number}/stat", "rb") as file:
                name, words = file.read().split(b" (", 1)[1].rsplit(b") ", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        count += name == b"pt_gloo_runloop" and not int(words.split()[6]) & exiting
    return count


def save_and_keep(place: str) -> Any:
    """Saves in every way that has a group of its own. What has saved is kept."""
    writer = StorageWriter(f"{place}/dcp")
    dcp.save({f"w{dist.get_rank()}": torch.ones(3)}, storage_writer=writer)
    segments = _segments.Writer("test", files=1, name="test", threads=1, buffer_bytes=1 << 20, pickle=False)
    segments.open(f"{place}/segments", lambda: None)
    segments.add(f"s{dist.get_rank()}", lambda: {"w": torch.ones(3)})
    segments.start()
    segments.wait()
    strategy = megatron.register()
    os.makedirs(f"{place}/megatron", exist_ok=True)
    state = {"w": megatron.ShardedTensor.from_rank_offsets("w", torch.ones(2), (0, dist.get_rank(), 2))}
    strategy.save(state, Path(place, "megatron"))
    with tailrace.open(shared_dir=f"{place}/session", local_dir=f"{place}/local", comm=dist.group.WORLD) as session:
        session.save(1, {"w": torch.ones(3)})
    kept.extend((writer, segments, strategy, session))
    return segments


def end_with_torch_distributed(place: str) -> None:
    segments = save_and_keep(place)
    assert threads_of_groups() > 0
    dist.destroy_process_group()
    assert threads_of_groups() == 0
    with pytest.raises(tailrace.Error, match="has called destroy_process_group") as caught:
        segments.open(f"{place}/again", lambda: None)
        segments.start()
    assert caught.value.code is tailrace.Code.FAILED_STATE


def test_the_threads_end_when_the_program_destroys_its_groups(tmp_path: Path) -> None:
    assert distributed.exit_codes(2, end_with_torch_distributed, str(tmp_path)) == [0, 0]


def make_a_writer_on_one_rank(place: str) -> None:
    told = Path(place, "told")
    if dist.get_rank() == 1:
        while not told.exists():  # rank 0 has given up hope
            time.sleep(0.01)
        StorageWriter()
        return
    showwarning = warnings.showwarning
    warnings.simplefilter("always")
    _groups._PATIENT_SECONDS = 0.1

    def tell(message: Any, *args: Any) -> None:
        showwarning(message, *args)
        told.with_suffix(".new").write_text(str(message))
        told.with_suffix(".new").rename(told)

    warnings.showwarning = tell
    StorageWriter()


def test_a_rank_that_makes_a_writer_alone_says_what_it_waits_for(tmp_path: Path) -> None:
    assert distributed.exit_codes(2, make_a_writer_on_one_rank, str(tmp_path)) == [0, 0]
    assert "waited 0.1 s for others of 2 ranks" in (tmp_path / "told").read_text()


class Last:
    """In sys.last, it is removed when other threads get no further in Python, and before all modules."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __del__(self, open: Any = open, threads_of_groups: Any = threads_of_groups) -> None:
        with open(self.path, "wb") as file:
            file.write(b"%d" % threads_of_groups())


def end_before_python(place: str) -> None:
    save_and_keep(place)
    of_program = dist.group.WORLD._get_backend(torch.device("cpu")).options._threads
    assert threads_of_groups() > of_program
    Path(place, f"expected-{dist.get_rank()}").write_text(f"{of_program}")
    sys.last = Last(f"{place}/found-{dist.get_rank()}")


def fork_and_end() -> None:
    writer = StorageWriter()
    child = os.fork()
    if child == 0:
        atexit._run_exitfuncs()  # as a forked program ends, which has the groups without their threads
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    del writer


def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have() -> None:
    assert distributed.exit_codes(2, fork_and_end) == [0, 0]


def test_the_threads_end_before_python_if_the_program_destroys_nothing(tmp_path: Path) -> None:
    assert distributed.exit_codes(2, end_before_python, str(tmp_path)) == [0, 0]
    for rank in range(2):
        assert (tmp_path / f"found-{rank}").read_text() == (tmp_path / f"expected-{rank}").read_text()
