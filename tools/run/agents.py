"""Who carries the captured epochs to the shared directory when the program is gone.

`tailrace agent`, one on every node, while the program runs (carrying.py has those that are one MPI
job); and `tailrace drain` on every node after it has ended, which finds what the agents have left.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import subprocess
import time
from collections.abc import Callable, Collection, Sequence

import launchers
from serving import Serving

PATIENCE_S = 30  # for processes of the program that have not ended yet on some node
LISTENS_S = 10  # an agent says by then that it serves, or has ended
IDLE_EXIT = "1h"  # of an agent that nobody stops, because we were killed
# The program starts again once all is written, so a share that nobody begins to write is not waited for as long as
# an agent does by itself. Whoever writes one locks it first, so nothing but work is lost if its node was only late.
FOR_LOST = "10s"
LOST_S = 15  # for the answer of a node that is lost: ssh gives up connecting after 10
TERMINATED_S = 45  # an agent that gets SIGTERM ends after 30 s and what it is at
SPARE_FILES = 256  # beside one for each agent: checks, drains, listings
IN_USE = 4
SERVES = re.compile(r"agent process \d+ serves ")
SERVED_BY_ANOTHER = "another agent serves "  # what ours says then (src/agent_process/agent_process.cc)
HEARD = (0, 1)  # the agent has finished all, or leaves something to others, and ends


def drain(tool: str, launcher: str, hosts: Sequence[str], local_dirs: Sequence[str], name: str,
          time_left: launchers.TimeLeft) -> list[str]:  # fmt: skip
    """Drains all nodes at once. Returns what could not be finished, as sentences, each once."""
    began = time.monotonic()
    while True:
        sentences: list[str] = []
        in_use = False
        for local_dir in local_dirs or [""]:
            words = [tool, "drain", "--json", "--newest-first", "--for-lost", FOR_LOST]
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


def agent_words(tool: str, local_dir: str, *more: str) -> list[str]:
    place = ["--local-dir", local_dir] if local_dir else []
    return [tool, "agent", *more, "--idle-exit", IDLE_EXIT, "--for-lost", FOR_LOST, *place]


def stop_words(tool: str, local_dir: str) -> list[str]:
    return [tool, "agent", "stop", *(["--local-dir", local_dir] if local_dir else [])]


class Plain:
    """One agent. If it does not come to serve, it says why."""

    def __init__(self, host: str, local_dir: str, command: Sequence[str], say: Callable[[str], None]) -> None:
        """Raises OSError if it cannot be started."""
        self.host = host
        self.local_dir = local_dir
        self._say = say
        self._given_up = False
        self.serving = Serving(command, SERVES, self._did_not_start)
        self.process = self.serving.process  # where ssh starts it, only what holds the connection

    def give_up(self) -> None:
        """Ends it, without a word if it does not serve yet."""
        self._given_up = True
        self.process.terminate()

    def _did_not_start(self, why: str) -> None:
        if not self._given_up and SERVED_BY_ANOTHER not in why:
            self._say(did_not_start(self.host, self.local_dir, why))


def did_not_start(host: str, local_dir: str, why: str) -> str:
    agent = f"the agent for {local_dir}" if local_dir else "the agent"
    why = why.removeprefix("tailrace: ")
    return f"{agent} on node {host} did not start, and the program runs without it: {why}"


class Agents:
    """The agents of the nodes, which know nothing of each other. Where an agent serves a directory already, it is left
    alone: ours ends by itself there, without the line by which an agent says that it serves. Of any other that does
    not start, `say` hears a sentence, once, from any thread."""

    def __init__(self, tool: str, launcher: str, say: Callable[[str], None]) -> None:
        self.tool = tool
        self.launcher = launcher
        self._said: set[str] = set()
        self._tell_user = say
        self._running: list[Plain] = []

    def start(self, hosts: Sequence[str], local_dirs: Sequence[str], _time_left: launchers.TimeLeft) -> None:
        """Starts one on each node for each directory. They end when they are told to."""
        places = [os.uname().nodename] if self.launcher == "local" else list(hosts)
        _allow_files(len(places) * len(local_dirs or [""]))
        for host in places:
            for local_dir in local_dirs or [""]:
                own = agent_words(self.tool, local_dir)
                words = launchers.command_on(self.launcher, host, own)
                try:
                    self._running.append(Plain(host, local_dir, words, self._say_once))
                except OSError as error:
                    self._say_once(did_not_start(host, local_dir, f"{error.filename}: {error.strerror}"))

    def _say_once(self, sentence: str) -> None:
        """The same for all attempts together."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._tell_user(sentence)

    def stop(self, time_left: launchers.TimeLeft, lost: Collection[str] = ()) -> None:
        """Lets them finish what they have, for this long at most. Those of lost nodes are told to, and not waited
        for."""
        listening = within(LISTENS_S, time_left)
        # If it does not serve, nobody may be told to stop: another agent could hear it.
        stops = [self._tell(one, time_left) if one.serving.wait(listening) else None for one in self._running]
        for_lost = within(LOST_S, time_left)
        for one, stop in zip(self._running, stops, strict=True):
            longest = for_lost if one.host in lost else time_left
            if stop is None or end(stop, longest) not in HEARD or one.host in lost:
                # An ssh to a node without power would go on for a while. If the node is there after all, its agent
                # finishes what it has, and then ends for want of sessions.
                one.give_up()
                longest = within(TERMINATED_S, time_left)
            end(one.process, longest)
        self._running.clear()

    def _tell(self, one: Plain, time_left: launchers.TimeLeft) -> subprocess.Popen[bytes]:
        words = [*stop_words(self.tool, one.local_dir), "--grace", f"{max(1, math.ceil(time_left()))}s"]
        command = launchers.command_on(self.launcher, one.host, words)
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _allow_files(more: int) -> None:
    """Raises the limit for so many more open files, where it does not allow them. The program inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(os.listdir("/proc/self/fd")) + more + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def within(longest_s: float, time_left: launchers.TimeLeft) -> launchers.TimeLeft:
    """The time that is left, and never more than what is left of so many seconds from now."""
    deadline = time.monotonic() + longest_s
    return lambda: min(deadline - time.monotonic(), time_left())


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str], time_left: launchers.TimeLeft) -> int:
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
