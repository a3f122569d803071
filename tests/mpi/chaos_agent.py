"""The agent of chaos_job.py's nodes: one process, or an MPI job of one process that carries epochs
while the program lives (`tailrace agent --mpi`)."""

import contextlib
import os
import signal
import subprocess

import mpi_driver


class Agent:
    """command(*words): runs a command of the tool, and returns its status and output."""

    def __init__(self, workspace, tool, local, watch, command):
        self.workspace, self.tool, self.local = workspace, tool, local
        self.watch, self.command = watch, command
        self.process = None
        self.carries = False

    def lives(self):
        return self.process is not None and self.process.poll() is None

    def start(self, cap, carries):
        """If one lives already, it stays as it is."""
        if self.lives():
            return
        self.carries = carries
        words = [self.tool, "agent", *(["--mpi"] if carries else []), "--local-dir", self.local]
        launcher = [*self.workspace.mpiexec, "1"] if carries else []
        settings = {"TAILRACE_BANDWIDTH_CAP": cap, "TAILRACE_BUFFERS": "4"}
        with open(os.path.join(self.workspace.path, "agent"), "wb") as output:
            self.process = subprocess.Popen(
                [*launcher, *words],
                env=self.workspace.environment | settings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.watch.until(lambda: self.ask("status")[0] in (0, 1), "an agent listening")
        except Exception as failure:
            with open(os.path.join(self.workspace.path, "agent"), errors="replace") as output:
                said = output.read()
            raise type(failure)(
                f"{failure}\n--- agent status: {self.ask('status')}\n--- the agent said:\n{said}"
            ) from None

    def ask(self, action):
        return self.command("agent", action, "--json", "--local-dir", self.local)

    def pids(self):
        """Its processes; with MPI also the launcher's."""
        if not self.lives():
            return set()
        table = mpi_driver.parents()
        found, more = set(), {self.process.pid}
        while more:
            found |= more
            more = {pid for pid, parent in table.items() if parent in found} - found
        return found

    def freeze(self):
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def kill(self):
        left = self.pids()
        while left:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()  # a dead one whose threads are still ending is no zombie yet
            mpi_driver.reap()
            left &= set(mpi_driver.parents())

    def end(self):
        """As its user would end it."""
        if not self.lives():
            return
        if self.carries:
            self.ask("stop")
        else:
            self.process.send_signal(signal.SIGTERM)
        self.watch.until(lambda: not self.lives(), "the end of an agent told to end")
