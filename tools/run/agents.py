"""Who carries the captured epochs to the shared directory when the program is gone.

`tailrace agent`, one on every node, while the program runs; and `tailrace drain` on every node after
it has ended, which finds what the agents have left.
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import time
from collections.abc import Sequence

import launchers

PATIENCE_S = 30  # for processes of the program that have not ended yet on some node
LISTENS_S = 10  # an agent says by then that it listens, or has ended
IDLE_EXIT = "1h"  # of an agent that nobody stops, because we were killed
IN_USE = 4
NOT_FOUND = 3  # no agent listens


def drain(tool: str, launcher: str, hosts: Sequence[str], local_dirs: Sequence[str], name: str,
          time_left: launchers.TimeLeft) -> list[str]:  # fmt: skip
    """Drains all nodes at once. Returns what could not be finished, as sentences, each once."""
    began = time.monotonic()
    while True:
        sentences: list[str] = []
        in_use = False
        for local_dir in local_dirs or [""]:
            words = [tool, "drain", "--json", "--newest-first"]
            words += ["--local-dir", local_dir] if local_dir else []
            words += ["--name", name] if name else []
            for host, done in launchers.everywhere(launcher, hosts, words, math.inf, time_left).items():
                in_use = in_use or done.status == IN_USE
                sentences += _complaints(host, done)
        if not in_use or time.monotonic() - began > PATIENCE_S or time_left() <= 0:
            return list(dict.fromkeys(sentences))
        time.sleep(0.5)


def local_directories(tool: str, launcher: str, hosts: Sequence[str]) -> tuple[str, ...]:
    """The node-local tiers as the settings on the nodes say."""
    found = set()
    for done in launchers.everywhere(launcher, hosts, [tool, "drain", "--dry-run", "--json"], 60).values():
        try:
            found.add(str(json.loads(done.output)["local_dir"]))
        except (ValueError, KeyError):
            continue
    return tuple(sorted(found))


def _complaints(host: str, done: launchers.Done) -> list[str]:
    try:
        epochs = json.loads(done.output)["epochs"]
        return [
            f"{host}: epoch {epoch['epoch']}: {epoch['state']}: {epoch['why']}"
            for epoch in epochs
            if epoch["state"] in ("failed", "in_use")
        ]
    except (ValueError, KeyError, TypeError):
        said = done.complaints.strip().splitlines()[-1:]
        return [f"{host}: {said[0] if said else f'tailrace drain ended with status {done.status}'}"]


class Agents:
    """The agents of the nodes. Where an agent serves a directory already, it is left alone: ours ends by itself there,
    without the line by which an agent says that it listens."""

    def __init__(self, tool: str, launcher: str) -> None:
        self.tool = tool
        self.launcher = launcher
        self._running: list[tuple[subprocess.Popen[bytes], list[str]]] = []

    def start(self, hosts: Sequence[str], local_dirs: Sequence[str]) -> None:
        """Starts one on each node for each directory. They end when they are told to."""
        places = [os.uname().nodename] if self.launcher == "local" else list(hosts)
        for host in places:
            for local_dir in local_dirs or [""]:
                place = ["--local-dir", local_dir] if local_dir else []
                own = [self.tool, "agent", "--idle-exit", IDLE_EXIT, *place]
                words = launchers.command_on(self.launcher, host, own)
                agent = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                stop = launchers.command_on(self.launcher, host, [self.tool, "agent", "stop", *place])
                self._running.append((agent, stop))

    def stop(self, time_left: launchers.TimeLeft) -> None:
        """Lets them finish what they have, for this long at most."""
        listen_deadline = time.monotonic() + min(LISTENS_S, time_left())
        grace = f"{max(1, math.ceil(time_left()))}s"
        stops = [
            subprocess.Popen([*words, "--grace", grace], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if _listens(agent, listen_deadline)
            else None
            for agent, words in self._running
        ]
        for (agent, _), stop in zip(self._running, stops, strict=True):
            if stop is None or _end(stop, time_left) == NOT_FOUND:
                agent.terminate()
            _end(agent, time_left)
            if agent.stdout:
                agent.stdout.close()
        self._running.clear()


def _listens(agent: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether it has said so by then. If it has not, nobody may be told to stop: another agent could hear it."""
    assert agent.stdout is not None
    ready, _, _ = select.select([agent.stdout], [], [], max(0.0, deadline - time.monotonic()))
    return bool(ready) and bool(os.read(agent.stdout.fileno(), 1))


def _end(process: subprocess.Popen[bytes], time_left: launchers.TimeLeft) -> int:
    """Waits for that long, and no longer."""
    while True:
        left = time_left()
        try:
            return process.wait(max(0.1, min(launchers.POLL_S, left)))
        except subprocess.TimeoutExpired:
            if left > 0:
                continue
            process.kill()  # whatever an agent was at, the next drain or session goes on with it
            return process.wait()
