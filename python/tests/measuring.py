"""How much memory a program holds at a time, measured in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Before a program: most(work) calls it, and returns the most memory in MiB that the process had meanwhile above what it
# had before. That is memory that no file backs; the kernel can drop the pages of a mapped file at any time.
_MOST = """
import threading

def own():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

def most(work):
    before = own()
    held = [0]
    over = threading.Event()
    def watch():
        while not over.wait(0.005):
            held[0] = max(held[0], own() - before)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        over.set()
    watcher.join()
    return held[0] >> 10
"""

_CONVERSIONS = """
import resource, sys
import torch, tailrace.torch
from tailrace.convert import convert

if sys.argv[1] != "any":
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)

for source, target, to in zip(sys.argv[2::3], sys.argv[3::3], sys.argv[4::3]):
    print(most(lambda: convert(source, target, to=to)))
"""


def printed(program: str, words: list[str]) -> list[str]:
    """The lines that a program prints. It may call most()."""
    # So that what is held is counted: else malloc keeps of what is freed, now more and now less.
    settings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576"}
    command = [sys.executable, "-c", _MOST + program, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def most_memory(steps: list[tuple[Path, Path, str]], descriptors: int | None = None) -> list[int]:
    """Converts (source, target, format), one after the other, with at most so many open descriptors. Returns the
    most memory that each has held at a time, in MiB, without mapped files."""
    lines = printed(_CONVERSIONS, [str(descriptors or "any"), *(str(word) for step in steps for word in step)])
    assert len(lines) == len(steps), lines
    return [int(line) for line in lines]
