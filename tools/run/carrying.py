"""Agents that carry epochs while the program lives: one MPI job for each node-local directory, with an agent on each
node (`tailrace agent --mpi`).

They are of use only together. If one dies, MPI ends the others, and the program goes on without them.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence

import agents
import launchers
from serving import Serving

SERVE_S = 60  # all agents serve by then, or are ended
FAREWELL_S = 40  # between the answers of agents that were told to end, and the end of their job
# What every agent says once all of them listen.
SERVES = re.compile(r"agent process \d+ serves .*, as agent \d+ of (\d+)")


class Job(Serving):
    """The agents of one node-local directory."""

    def __init__(self, command: Sequence[str], local_dir: str) -> None:
        super().__init__(command, SERVES)
        self.local_dir = local_dir

    def wait_until_they_serve(self, wanted: int, time_left: launchers.TimeLeft) -> str:
        """Returns why they do not; empty if they do."""
        began = time.monotonic()
        self.wait(agents.within(SERVE_S, time_left))
        if not self.served:
            waited = time.monotonic() - began
            return ("they have ended" if self.over else f"they do not serve after {waited:.0f} s") + self._complaint()
        if int(self.served[1]) != wanted:
            return (
                f"the launcher started jobs of {self.served[1]} instead of one of {wanted}: is it of the MPI library "
                "that tailrace was built with?"
            )
        return ""

    def _complaint(self) -> str:
        said = self.last_words()
        return f": {said}" if said else ""

    def how_they_ended(self) -> str:
        return f"status {self.process.returncode}" + self._complaint()

    def kill(self) -> None:
        """Also what a launcher leaves in its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class CarryingAgents:
    """`command_for` gives the command that starts the words on each of the hosts, as one MPI job. Where that job does
    not come to serve, each node gets a plain agent, because a program without any would be worse off."""

    def __init__(
        self,
        tool: str,
        launcher: str,
        command_for: Callable[[Sequence[str], Sequence[str]], list[str]],
        say: Callable[[str], None],
    ) -> None:
        self.tool = tool
        self.launcher = launcher
        self._command_for = command_for
        self._say = say
        self._plain = agents.Agents(tool, launcher, say)
        self._jobs: list[Job] = []
        self._hosts: list[str] = []

    def start(self, hosts: Sequence[str], local_dirs: Sequence[str], time_left: launchers.TimeLeft) -> None:
        """Returns once they serve."""
        own = [os.uname().nodename]
        self._hosts = own if self.launcher == "local" else list(hosts) or own
        for local_dir in local_dirs or [""]:
            try:
                job = Job(self._command_for(self._hosts, agents.agent_words(self.tool, local_dir, "--mpi")), local_dir)
            except OSError as error:
                why = f"{error.filename}: {error.strerror}"
            else:
                self._jobs.append(job)
                why = job.wait_until_they_serve(len(self._hosts), time_left)
            if why:
                self._say(f"no agents carry epochs, and each node gets a plain one: {why}")
                self.abandon()
                self._plain.start(hosts, local_dirs, time_left)
                return

    def stop(self, time_left: launchers.TimeLeft, lost: Collection[str] = ()) -> None:
        """Lets them finish what they carry, for this long at most."""
        told: list[subprocess.Popen[bytes]] = []
        grace = f"{max(1, math.ceil(time_left()))}s"
        for job in self._jobs:
            if job.process.poll() is not None:
                self._say(f"the agents had ended while the program ran ({job.how_they_ended()})")
                continue
            for host in self._hosts:
                words = [*agents.stop_words(self.tool, job.local_dir), "--grace", grace]
                command = launchers.command_on(self.launcher, host, words)
                told.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for stop in told:
            agents.end(stop, time_left)
        farewell = agents.within(FAREWELL_S, time_left)
        for job in self._jobs:
            agents.end(job.process, farewell)
        self.abandon()
        self._plain.stop(time_left, lost)

    def abandon(self) -> None:
        """Ends them at once. Nothing is lost: what they leave, the next drain or session finds."""
        for job in self._jobs:
            job.kill()
        self._jobs.clear()
