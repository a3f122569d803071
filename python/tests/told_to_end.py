"""A program that is told to end while its processes are at work. The tests of tailrace.jax use it, too."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil


def ended_at_work(
    command: Sequence[Any], is_at_work: Callable[[], Any], *, limit_s: float = 120
) -> tuple[int, list[psutil.Process], list[psutil.Process]]:
    """Sends SIGTERM to a program as soon as is_at_work() says so. Returns its exit code, the processes that it had
    started, and those of them that lived on. The latter are killed. A program that has not ended `limit_s` seconds
    after the signal is killed with all its processes, and an AssertionError says so."""
    with subprocess.Popen(command) as started:
        while not is_at_work():
            assert started.poll() is None
            time.sleep(0.05)
        family = psutil.Process(started.pid).children(recursive=True)
        started.terminate()
        try:
            code = started.wait(limit_s)
        except subprocess.TimeoutExpired:
            for process in (started, *family):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            raise AssertionError(f"the program has not ended {limit_s} seconds after SIGTERM") from None
    _, left = psutil.wait_procs(family, timeout=20)
    for process in left:
        process.kill()
    return code, family, left
