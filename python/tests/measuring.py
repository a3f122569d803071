"""How much memory conversions hold, measured in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import resource, sys, threading
import torch, tailrace.torch
from tailrace.convert import convert

if sys.argv[1] != "any":
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)

def own():  # memory that no file backs
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

for source, target, to in zip(sys.argv[2::3], sys.argv[3::3], sys.argv[4::3]):
    before = own()
    most = [0]
    over = threading.Event()
    def watch():
        while not over.wait(0.005):
            most[0] = max(most[0], own() - before)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        convert(source, target, to=to)
    finally:
        over.set()
    watcher.join()
    print(most[0] >> 10)
"""


def most_memory(steps: list[tuple[Path, Path, str]], descriptors: int | None = None) -> list[int]:
    """Converts (source, target, format), one after the other, with at most so many open descriptors. Returns the
    most memory that each has held at a time, in MiB, without mapped files."""
    # So that what is held is counted: else malloc keeps of what is freed, now more and now less.
    settings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576"}
    words = [str(word) for step in steps for word in step]
    command = [sys.executable, "-c", _PROGRAM, str(descriptors or "any"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    assert done.returncode == 0, done.stderr
    most = [int(line) for line in done.stdout.splitlines()]
    assert len(most) == len(steps), done.stdout
    return most
