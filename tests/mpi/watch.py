"""Waits with a bound: nothing may go on for a minute without any progress. Otherwise the stacks of
all processes below this one are printed, and the test fails."""

import os
import shutil
import subprocess
import time

import mpi_driver

LONGEST_S = 60  # without progress
MOST_S = 6 * 60  # even with progress


class Watch:
    def __init__(self, progress, fail):
        self.progress, self.fail = (
            progress,
            fail,
        )  # progress(): anything that changes while things move
        self.longest_s = 0.0  # that nothing moved, until now

    def until(self, condition, what, nap_s=0.004):
        begin = moved = time.monotonic()
        seen = None
        while not condition():
            time.sleep(nap_s)
            now = time.monotonic()
            if (state := self.progress()) != seen:
                seen, moved = state, now
            self.longest_s = max(self.longest_s, now - moved)
            if now - moved > LONGEST_S or now - begin > MOST_S:
                print(stacks(), flush=True)
                self.fail(
                    f"{what} did not happen in {now - begin:.0f} s; "
                    f"nothing moved for {now - moved:.0f} s"
                )

    def end_of(self, process, what):
        """What a process has printed. Its output must be short: it is read at its end."""
        self.until(lambda: process.poll() is not None, f"the end of `{what}`", nap_s=0.002)
        text, _ = process.communicate()
        return text


def stacks():
    said = []
    for pid in sorted(mpi_driver.descendants()):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                said.append(f"--- process {pid}: {file.read().replace(chr(0), ' ')}")
        except OSError:
            continue
        said.append(with_debugger(pid) if shutil.which("gdb") else from_kernel(pid))
    return "\n".join(said)


def with_debugger(pid):
    try:
        return subprocess.run(
            ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace 24"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired:
        return from_kernel(pid)


def from_kernel(pid):
    said = []
    for thread in (
        sorted(os.listdir(f"/proc/{pid}/task")) if os.path.isdir(f"/proc/{pid}/task") else []
    ):
        for name in ("comm", "wchan", "syscall", "stack"):
            try:
                with open(
                    f"/proc/{pid}/task/{thread}/{name}", encoding="utf-8", errors="replace"
                ) as file:
                    said.append(f"thread {thread} {name}: {file.read().strip()}")
            except OSError:
                pass
    return "\n".join(said)
