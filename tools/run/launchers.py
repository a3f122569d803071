"""Runs short commands on nodes: health checks, drains, agents.

ssh, srun (in a Slurm job), or local: this machine only, once, whatever the nodes are called.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

MOST_AT_ONCE = 32
POLL_S = 0.5
# A node that loses power says no goodbye: without the last two, an ssh to it would live on for hours.
SSH_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3")

TimeLeft = Callable[[], float]  # seconds; may become less at any time, when the user asks for an end


def unlimited() -> float:
    return math.inf


@dataclass(frozen=True)
class Done:
    """How a command ended. status: None if it did not end in time or could not be started."""

    status: int | None
    output: str
    complaints: str


def choose(asked: str, hosts: Sequence[str]) -> str:
    """The launcher to use: the one that the user asked for, or else what the surroundings offer."""
    if asked != "auto":
        return asked
    if os.environ.get("SLURM_JOB_ID") and shutil.which("srun"):
        return "srun"
    own = {"localhost", os.uname().nodename}
    return "ssh" if any(host not in own for host in hosts) else "local"


def command_on(launcher: str, host: str, words: Sequence[str]) -> list[str]:
    """The words as a command on that host, in this directory and with this environment."""
    if launcher == "local":
        return list(words)
    if launcher == "srun":
        return ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}", *words]
    settings = [f"{key}={value}" for key, value in os.environ.items() if key.startswith(("TAILRACE_", "XDG_STATE_"))]
    line = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(['env', *settings, *words])}"
    return ["ssh", *(word for option in SSH_OPTIONS for word in ("-o", option)), host, line]


def run(words: Sequence[str], timeout_s: float, time_left: TimeLeft = unlimited) -> Done:
    """In a session of its own, so that Ctrl-C reaches it only through us."""
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return Done(None, "", f"{words[0]}: {error.strerror}")
    with process:
        while True:
            left = min(began + timeout_s - time.monotonic(), time_left())
            try:
                output, complaints = process.communicate(timeout=max(0.0, min(POLL_S, left)))
                return Done(process.returncode, output, complaints)
            except subprocess.TimeoutExpired:
                if left > 0:
                    continue
                os.killpg(process.pid, signal.SIGKILL)  # it may have children that hold the pipes
                return Done(None, "", f"it did not end within {time.monotonic() - began:.0f} s")


def everywhere(
    launcher: str, hosts: Sequence[str], words: Sequence[str], timeout_s: float, time_left: TimeLeft = unlimited
) -> dict[str, Done]:
    """Runs it on all hosts at once. With `local`, once, under the name of this machine."""
    places = [os.uname().nodename] if launcher == "local" else list(hosts)
    with ThreadPoolExecutor(min(MOST_AT_ONCE, max(1, len(places)))) as pool:
        ended = pool.map(lambda host: run(command_on(launcher, host, words), timeout_s, time_left), places)
        return dict(zip(places, ended, strict=True))


def sick(
    launcher: str, hosts: Sequence[str], health: str, time_left: TimeLeft = unlimited, timeout_s: float = 60
) -> dict[str, str]:
    """The hosts on which the program must not run, and why. `health`: a command that gets the host's name
    as its last argument, and succeeds if the host is well. Empty: a host is well if it runs commands."""

    def why(host: str) -> str:
        if health:
            done = run([*shlex.split(health), host], timeout_s, time_left)
        elif launcher == "local":
            return ""
        else:
            done = run(command_on(launcher, host, ["true"]), timeout_s, time_left)
        if done.status == 0:
            return ""
        said = done.complaints.strip().splitlines()[-1:]
        return said[0] if said else f"the check ended with status {done.status}"

    with ThreadPoolExecutor(min(MOST_AT_ONCE, max(1, len(hosts)))) as pool:
        return {host: reason for host, reason in zip(hosts, pool.map(why, hosts), strict=True) if reason}
