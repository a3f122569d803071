"""A program that ends while its daemon threads are in calls of tailrace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import tailrace

PROGRAM = """
import sys, threading
import tailrace

begun = threading.Barrier(5)

def read(times):
    for number in range(times):
        with tailrace.read(sys.argv[1]) as checkpoint:
            assert checkpoint["u"].load()[7] == 7
        if number == 0:
            begun.wait()

for _ in range(4):
    threading.Thread(target=read, args=(1 << 30,), daemon=True).start()
begun.wait()
print("done")
"""


def test_daemon_threads_in_calls_do_not_abort_the_program(tmp_path: Path) -> None:
    with tailrace.open(shared_dir=tmp_path / "shared", local_dir=tmp_path / "local") as session:
        session.save(1, {"u": np.arange(300_000.0)})
    for _ in range(4):  # each time most threads are in a call
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "shared"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
