"""Runs a command under strace, and passes on the lines that strace writes meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from watcher import TRACED


class NotTraceable(Exception):
    """The command cannot be traced. The sentence says why, and what to do."""


MISSING = """strace is not installed: `tailrace profile` sees a program's calls through it. It is the package `strace` \
in every distribution (apt-get install strace, dnf install strace); nothing was run"""
REFUSED = """the system does not let strace trace a program ({}). In a container, start it with \
--cap-add=SYS_PTRACE; elsewhere see /proc/sys/kernel/yama/ptrace_scope, which must be below 3; a program that \
is traced or debugged already cannot be traced again. Nothing was run"""


def options(seccomp: bool) -> list[str]:
    """strace's options: trace children, name descriptors, show no contents, and only the calls in
    TRACED."""
    # The filter lets all other calls run at full speed, without a stop.
    light = ["--seccomp-bpf"] if seccomp else []
    traced = ",".join("?" + name for name in TRACED)
    quiet = ["-q", "-s", "0", "-e", "signal=none"]
    return ["-f", *light, "-y", *quiet, "-e", "abbrev=!io_submit", "-e", f"trace={traced}"]


def find_strace() -> tuple[str, bool]:
    """strace, and whether it and the kernel can filter calls (--seccomp-bpf). Raises NotTraceable."""
    strace = shutil.which("strace")
    if strace is None:
        raise NotTraceable(MISSING)
    complaint = ""
    for seccomp in (True, False):
        trial = [strace, *options(seccomp), "-o", os.devnull, "true"]
        tried = subprocess.run(trial, capture_output=True, text=True, check=False, errors="replace")
        if tried.returncode == 0 and "seccomp" not in tried.stderr:
            return strace, seccomp
        complaint = tried.stderr
    said = [line.removeprefix("strace: ").removeprefix(strace + ": ") for line in complaint.splitlines()]
    raise NotTraceable(REFUSED.format(said[0] if said else "it ended without a word"))


def version(strace: str) -> str:
    said = subprocess.run([strace, "--version"], capture_output=True, text=True, check=False).stdout
    return said.split("\n", 1)[0].rpartition(" ")[2]


def run(strace: str, seccomp: bool, command: list[str], take: Callable[[Iterable[str]], None], own_stdout: bool) -> int:
    """Runs `command` and hands the lines to `take`. Returns the exit status as a shell does: 128 + N
    for signal N.

    own_stdout: standard output is ours, and the command's goes to standard error.
    """
    source, target = os.pipe()
    # A terminal's Ctrl-C ends the command. Then its numbers are reported.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ThreadPoolExecutor(1) as reader:
            # strace opens the pipe by its name here, so the command inherits no descriptor of it.
            traced = subprocess.Popen(
                [strace, *options(seccomp), "-o", f"/proc/{os.getpid()}/fd/{target}", "--", *command],
                stdout=2 if own_stdout else None,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
            done = reader.submit(read, source, take)
            status = traced.wait()
            os.close(target)
            done.result()
    finally:
        signal.signal(signal.SIGINT, before)
    return 128 - status if status < 0 else status


def read(source: int, take: Callable[[Iterable[str]], None]) -> None:
    """Passes all lines to `take`. Reads to the end whatever happens, because otherwise strace, and
    with it the command, would wait for ever."""
    with open(source, encoding="utf-8", errors="replace") as lines:
        try:
            take(lines)
        finally:
            for _ in lines:
                pass
