"""Runs functions in several processes of jax.distributed on this machine, each with devices of its own.

    run(2, 2, function, "argument")       2 processes of 2 devices each

`function` is one of a test module's, and its arguments are strings. A failure in any process fails the test, with its
output.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 300
KILLED = -signal.SIGKILL


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def run(processes: int, devices: int, function: Callable[..., None], *arguments: str, ends: int = 0) -> None:
    """`ends`: the exit code of every process."""
    port = free_port()
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    }
    name = f"{function.__module__}:{function.__name__}"
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(port), str(processes), str(rank), name, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        outputs = [process.communicate(timeout=PATIENCE_SECONDS)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    codes = [process.returncode for process in started]
    assert codes == [ends] * processes, f"{name} ended with {codes}:\n" + "\n".join(outputs)


def _main(port: str, processes: str, rank: str, name: str, *arguments: Any) -> None:
    import jax

    if int(processes) > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{port}", int(processes), int(rank))
    module, _, function = name.partition(":")
    getattr(importlib.import_module(module), function)(*arguments)
    if int(processes) > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    _main(*sys.argv[1:])
