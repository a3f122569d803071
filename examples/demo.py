#!/usr/bin/env python3
"""The main job, shown: a simulation saves its state in the background, is killed in the middle of a flush,
and goes on with the same and with another number of processes, to the same end state bit for bit.

    python3 examples/demo.py --build build/mpich --mpiexec mpirun.mpich

Runs the program `particles` (examples/particles.cc) as 8 ranks on 4 "nodes" of 2, all on this machine:

    1  without checkpoints: the end state to compare with, and the time to compare with
    2  with checkpoints into K = 2 files, not disturbed
    3  killed with SIGKILL, all ranks at once, while an epoch is on its way to the shared directory
    4  the nodes' memory survived: goes on from the newest captured epoch, 8 ranks
    5  the nodes are gone too: goes on from the newest committed epoch, 8 ranks
    6  the same with 5 ranks
    7  killed like run 3, but beside an agent process, which commits the epochs after the program's death
    8  the nodes are gone as well: goes on from what the agent has committed

Runs 4 to 6 start from the same state, a copy of what the kill left. Exit status 0 when every end state is
equal to that of run 1, 1 when something is not as it should be, and then it says what. Python 3.8, nothing
else.
"""
import argparse
import filecmp
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

RANKS, RANKS_PER_NODE, OTHER_RANKS, FILES = 8, 2, 5, 2
MIB = 1024 * 1024
FILE_NAME = re.compile(r"particles\.e(\d+)\.r(\d+)\.(\d+)of(\d+)\.tailrace(\.unfinished|\.takeover)?$")
LOCK_OF_AGENTS = re.compile(r"particles\.e\d+\.r\d+\.takeover\.lock$")
LONGEST_DRAIN_S = 30


class Failed(Exception):
    """Something is not as it should be; the text is for the user."""


class Progress:
    """One line that says what goes on: rewritten on a terminal, otherwise printed when the run changes."""

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.title, self.width, self.shown_at = "", 0, 0.0

    def start(self, title):
        self.clear()
        self.title = title
        if not self.terminal:
            print(f"demo: {title}", file=sys.stderr, flush=True)

    def update(self, text):
        now = time.monotonic()
        if self.terminal and now - self.shown_at > 0.1:
            self.shown_at = now
            line = f"{self.title}: {text}"[:shutil.get_terminal_size().columns - 1]
            print("\r" + line.ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = len(line)

    def clear(self):
        if self.terminal and self.width:
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)
            self.width = 0


class Run:
    """One start of the program: its processes, and what it reports."""

    def __init__(self, demo, name, ranks, every, settings=()):
        self.name, self.ranks = name, ranks
        self.processes, self.epochs, self.times = [], [], {}
        self.step, self.start_step, self.restored = 0, None, False
        self.dump = os.path.join(demo.directory, re.sub(r"\W+", "-", name) + ".end")
        command = [*demo.mpiexec, "-n", str(ranks), demo.program, "--report", "--dump", self.dump,
                   "--particles", str(demo.arguments.particles), "--steps", str(demo.arguments.steps)]
        if every:
            command += ["--every", str(demo.arguments.every)]
        for setting in settings:
            command += ["--set", setting]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TAILRACE_")}
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_rmaps_base_oversubscribe="1", TAILRACE_LOG="error",
                           TAILRACE_RECORD_DIR=os.path.join(demo.directory, "records"))
        self.errors = open(os.path.join(demo.directory, "errors"), "w+b")
        self.launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors,
                                         stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
        self.reader = threading.Thread(target=self._read, args=(demo,), daemon=True)
        self.reader.start()

    def _read(self, demo):
        for line in self.launcher.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a launcher's own words, or a line cut off by the kill
            if "processes" in event:
                self.processes = event["processes"]
            elif "epoch" in event:
                self.epochs.append(event)
            elif "step" in event:
                self.step = event["step"]
                demo.progress.update(f"step {self.step} of {demo.arguments.steps}")
            elif "start_step" in event:
                self.step = self.start_step = event["start_step"]
                self.restored = event["restored"]
                self.times["restore_seconds"] = event["restore_seconds"]
            else:
                self.times.update(event)

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()

    def finish(self, longest=180):
        """Waits for the end, which must be a good one."""
        try:
            status = self.launcher.wait(timeout=longest)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"run \"{self.name}\" was not done after {longest} s, at step {self.step}. It said: "
                         f"{self.said() or 'nothing'}") from None
        self.reader.join()
        if status != 0 or "run_seconds" not in self.times:
            raise Failed(f"run \"{self.name}\" ended with status {status} at step {self.step}. It said: "
                         f"{self.said() or 'nothing'}")
        self.errors.close()
        return self

    def kill(self):
        """SIGKILL to every rank at once; returns when all are gone. The launcher gets a moment to clear up
        after them (Open MPI: its shared memory), as a batch system's would."""
        self.killed_at = time.monotonic()
        for process in self.processes:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            self.launcher.wait(timeout=10 if self.processes else 0)
        except subprocess.TimeoutExpired:
            os.killpg(self.launcher.pid, signal.SIGKILL)
            self.launcher.wait()
        deadline = time.monotonic() + 20
        while any(is_running(process) for process in self.processes):
            if time.monotonic() > deadline:
                raise Failed(f"ranks of run \"{self.name}\" are still there 20 s after SIGKILL")
            time.sleep(0.01)


def is_running(process):
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def epochs_in(directory):
    """The epochs of a shared directory, from the names alone: finished ones, and ones begun."""
    finished, begun = {}, {}
    for name in os.listdir(directory) if os.path.isdir(directory) else []:
        match = FILE_NAME.match(name)
        if LOCK_OF_AGENTS.match(name):
            continue
        if not match:
            raise Failed(f"{os.path.join(directory, name)} is no file of this run")
        epoch, _, part, count, unfinished = match.groups()
        (begun if unfinished else finished).setdefault(int(epoch), set()).add((int(part), int(count)))
    committed = {epoch for epoch, parts in finished.items() if len(parts) == FILES}
    return committed, set(begun)


def in_words(epochs):
    return ("epoch " if len(epochs) == 1 else "epochs ") + " and ".join(map(str, epochs))


def aligned(lines):
    """The first column to the left, the others to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join([line[0].ljust(widths[0])] +
                      [text.rjust(width) for text, width in zip(line[1:], widths[1:])]) for line in lines]


def files_and_bytes(directory):
    sizes = [entry.stat().st_blocks * 512 for entry in os.scandir(directory)]
    return len(sizes), sum(sizes)


class Demo:
    def __init__(self, arguments):
        self.arguments = arguments
        self.program = find_program(arguments.build)
        self.mpiexec = shlex.split(arguments.mpiexec) if arguments.mpiexec else find_mpiexec(arguments.build)
        self.progress = Progress()
        self.tool = os.path.abspath(os.path.join(arguments.build, "tools", "tailrace"))
        # A slow cap on what leaders and the agent write makes a flush last about a second.
        self.cap = max(256 * 1024, arguments.particles * 38 // FILES)
        self.started = []  # runs that may still be going
        self.agent = None
        self.deaths = []   # rows of the table of kills
        self.rows = []
        self.directory = tempfile.mkdtemp(prefix="tailrace-demo-", dir=arguments.dir)
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else self.directory
        self.local_base = tempfile.mkdtemp(prefix="tailrace-demo-", dir=memory)

    def settings(self, name):
        return [f"shared_dir={self.shared(name)}", f"local_dir={self.local(name)}", "name=particles",
                f"files={FILES}", f"ranks_per_node={RANKS_PER_NODE}", "buffer_bytes=1MiB", "buffers=8"]

    def shared(self, name):
        return os.path.join(self.directory, name)

    def local(self, name):
        return os.path.join(self.local_base, name)

    def start(self, name, ranks, every=True, settings=()):
        run = Run(self, name, ranks, every, settings)
        self.started.append(run)
        return run

    def close(self):
        self.progress.clear()
        for run in self.started:
            if run.launcher.poll() is None:
                run.kill()
        if self.agent and self.agent.poll() is None:
            self.agent.kill()
            self.agent.wait()
        shutil.rmtree(self.local_base, ignore_errors=True)
        if self.arguments.keep:
            print(f"kept: {self.directory}")
            if os.path.isdir(saved := self.shared("undisturbed")):
                print(f"To look into the checkpoints: {shlex.join([self.tool, 'ls', saved])}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- the runs -----------------------------------------------------------------------------------

    def run_undisturbed(self):
        self.progress.start(f"run 1, {RANKS} ranks without checkpoints")
        plain = self.start("without checkpoints", RANKS, every=False).finish()
        self.row(plain)
        self.progress.start(f"run 2, {RANKS} ranks with checkpoints into {FILES} files")
        saved = self.start("with checkpoints", RANKS, settings=self.settings("undisturbed")).finish()
        committed, begun = epochs_in(self.shared("undisturbed"))
        expected = set(range(self.arguments.every, self.arguments.steps + 1, self.arguments.every))
        if committed != expected or begun:
            raise Failed(f"epochs {sorted(expected)} were saved, but {self.shared('undisturbed')} holds "
                         f"{sorted(committed)} and unfinished {sorted(begun)}")
        self.row(saved, self.shared("undisturbed"))
        self.compare(plain, saved)
        return plain, saved

    def run_until_killed(self, number, how, start_agent=None):
        """Kills in the middle of a flush. Returns the run, the name of its directories, the epoch that was
        committed before, and those that were on their way."""
        for attempt in range(3):
            name = f"killed-{number}-{attempt}"
            self.progress.start(f"run {number}, to be killed in the middle of a flush{how}")
            if start_agent:
                start_agent(name)
            run = self.start(name, RANKS,
                             settings=[*self.settings(name), f"bandwidth_cap={self.cap}", "queue_epochs=3"])
            deadline = time.monotonic() + 120
            while run.launcher.poll() is None and time.monotonic() < deadline:
                committed, begun = epochs_in(self.shared(name))
                if committed and any(epoch > max(committed) for epoch in begun):
                    time.sleep(0.25)  # well into the flush
                    break
                time.sleep(0.005)
            run.kill()
            committed, begun = epochs_in(self.shared(name))
            in_flight = sorted(epoch for epoch in begun if committed and epoch > max(committed))
            if in_flight:
                self.progress.clear()
                print(f"run {number} killed at step {run.step}{how}: epoch {max(committed)} is committed, "
                      f"{in_words(in_flight)} on the way", flush=True)
                return run, name, max(committed), in_flight
        raise Failed("no flush was under way at any of three kills; the machine may be too slow or too fast for "
                     f"{self.arguments.particles} particles")

    def start_agent(self, name):
        """One process serves the node-local tiers of all four nodes, because they are on this machine."""
        if self.agent:
            self.agent.kill()
            self.agent.wait()
        command = [self.tool, "agent", "--local-dir", self.local(name)]
        self.agent = subprocess.Popen(command, env=self.agent_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 20
        while self.ask_agent(name) not in (0, 1):
            if time.monotonic() > deadline or self.agent.poll() is not None:
                raise Failed(f"the agent does not listen: {shlex.join(command)}")
            time.sleep(0.02)

    def agent_environment(self):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TAILRACE_")}
        return environment | {"TAILRACE_BANDWIDTH_CAP": str(self.cap)}

    def ask_agent(self, name):
        """The exit status of `tailrace agent status`: 0 if no epoch is left, 1 if some is."""
        command = [self.tool, "agent", "status", "--local-dir", self.local(name)]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=self.agent_environment(), check=False).returncode

    def wait_for_agent(self, run, name, in_flight):
        """Until it has committed what was on its way when the program died, and has ended. Returns the seconds
        from the death to the commit."""
        self.progress.start("the program is dead; its agent goes on")
        while not epochs_in(self.shared(name))[0].issuperset(in_flight):
            if time.monotonic() - run.killed_at > LONGEST_DRAIN_S:
                raise Failed(f"the agent has not committed {in_words(in_flight)} after {LONGEST_DRAIN_S} s")
            time.sleep(0.005)
        seconds = time.monotonic() - run.killed_at
        self.progress.clear()
        print(f"{seconds:.2f} s after the death the agent has committed {in_words(in_flight)}", flush=True)
        # It has the epoch's files named before it has cleared the nodes of what the program left.
        while self.ask_agent(name) != 0 and time.monotonic() - run.killed_at < LONGEST_DRAIN_S:
            time.sleep(0.02)
        self.agent.terminate()
        if self.agent.wait(timeout=LONGEST_DRAIN_S) != 0:
            raise Failed(f"the agent ended with status {self.agent.returncode}")
        return seconds

    def run_again(self, number, title, ranks, directory, plain):
        self.progress.start(f"run {number}, {title}")
        run = self.start(title, ranks, settings=self.settings(directory)).finish()
        if not run.restored:
            raise Failed(f"run {number} found nothing to restore in {self.shared(directory)}")
        self.row(run, self.shared(directory))
        self.compare(plain, run)
        return run

    def compare(self, plain, run):
        if not filecmp.cmp(plain.dump, run.dump, shallow=False):
            raise Failed(f"the end state of run \"{run.name}\" differs: {first_difference(plain.dump, run.dump)}")

    def row(self, run, directory=None):
        """What the table says of a run."""
        row = {"run": run.name, "ranks": run.ranks, "from": run.start_step if run.restored else "start",
               "seconds": run.times["run_seconds"]}
        if directory:
            row["files"], row["bytes"] = files_and_bytes(directory)
            row["epochs"] = len(run.epochs)
            row["blocked"] = sum(epoch["blocked_seconds"] for epoch in run.epochs)
            row["flush"] = sum(epoch["flush_seconds"] for epoch in run.epochs)
            flushed = sum(epoch["bytes"] for epoch in run.epochs if epoch["flush_seconds"] > 0)
            row["rate"] = flushed / row["flush"] / MIB if row["flush"] > 0 else 0.0
        self.rows.append(row)

    def table(self):
        self.progress.clear()
        head = ("run", "ranks", "from step", "epochs", "files kept", "MiB kept", "blocked s", "flush s", "MiB/s",
                "run s", "blocked %")
        lines = [head]
        for row in self.rows:
            if "epochs" in row:
                lines.append((row["run"], str(row["ranks"]), str(row["from"]), str(row["epochs"]),
                              str(row["files"]), f"{row['bytes'] / MIB:.1f}", f"{row['blocked']:.3f}",
                              f"{row['flush']:.2f}", f"{row['rate']:.0f}", f"{row['seconds']:.2f}",
                              f"{100 * row['blocked'] / row['seconds']:.1f}"))
            else:
                lines.append((row["run"], str(row["ranks"]), str(row["from"]), "-", "-", "-", "-", "-", "-",
                              f"{row['seconds']:.2f}", "-"))
        print("", *aligned(lines), "", *aligned(self.deaths), sep="\n")

    def lose_the_program(self, plain):
        """Runs 3 to 6."""
        _, killed, committed, in_flight = self.run_until_killed(3, "")
        # The node-local tier belongs to the paths it was made for: run 4 gets the originals, and copies of the
        # shared directory find no node-local tier, as if the nodes were lost.
        for copy in ("nodes-lost", "fewer-ranks"):
            shutil.copytree(self.shared(killed), self.shared(copy))
        with_memory = self.run_again(4, "again, memory kept", RANKS, killed, plain)
        same = self.run_again(5, "again, nodes lost", RANKS, "nodes-lost", plain)
        other = self.run_again(6, f"again, {OTHER_RANKS} ranks", OTHER_RANKS, "fewer-ranks", plain)
        if with_memory.start_step < committed or same.start_step < committed:
            raise Failed(f"epoch {committed} was committed before the kill, but runs 4 and 5 went on from "
                         f"{with_memory.start_step} and {same.start_step}")
        if same.start_step != other.start_step:
            raise Failed(f"{RANKS} ranks went on from epoch {same.start_step}, {OTHER_RANKS} ranks from epoch "
                         f"{other.start_step} of the same directory")
        self.deaths.append(("run 3, no agent", str(committed), str(in_flight[0]), "-", "-", str(same.start_step)))

    def lose_the_program_beside_an_agent(self, plain):
        """Runs 7 and 8."""
        run, killed, committed, in_flight = self.run_until_killed(7, ", beside an agent", self.start_agent)
        seconds = self.wait_for_agent(run, killed, in_flight)
        shutil.copytree(self.shared(killed), self.shared("after-agent"))
        again = self.run_again(8, "again, nodes lost, agent", RANKS, "after-agent", plain)
        if again.start_step < in_flight[-1]:
            raise Failed(f"the agent committed {in_words(in_flight)}, but run 8 went on from {again.start_step}")
        self.deaths.append(("run 7, an agent", str(committed), str(in_flight[0]), str(in_flight[-1]),
                            f"{seconds:.2f}", str(again.start_step)))

    def run(self):
        plain, saved = self.run_undisturbed()
        self.deaths = [("killed", "committed before", "on its way", "committed by the agent", "s after the death",
                        "nodes lost: from")]
        self.lose_the_program(plain)
        self.lose_the_program_beside_an_agent(plain)
        self.table()
        longer = 100 * (saved.times["run_seconds"] / plain.times["run_seconds"] - 1)
        blocked = sum(epoch["blocked_seconds"] for epoch in saved.epochs)
        compared = f"{longer:.1f} % longer than" if longer > 0 else "no longer than"
        print(f"\nThe run with {len(saved.epochs)} checkpoints took {compared} the run without. The program itself "
              f"stood still for {100 * blocked / saved.times['run_seconds']:.1f} %\nof it; what flushing takes from "
              f"{RANKS} ranks that share {os.cpu_count()} processors comes on top. At its end it waited "
              f"{saved.times['wait_seconds']:.2f} s for the last flush.")
        print("All end states are equal bit for bit.")


def first_difference(path_a, path_b):
    with open(path_a, "rb") as a, open(path_b, "rb") as b:
        at = 0
        while True:
            piece_a, piece_b = a.read(MIB), b.read(MIB)
            if piece_a != piece_b:
                for i, (x, y) in enumerate(zip(piece_a, piece_b)):
                    if x != y:
                        return f"byte {at + i} is {x} in {path_a} and {y} in {path_b}"
                return f"{path_a} and {path_b} have different lengths"
            if not piece_a:
                return "no difference"
            at += len(piece_a)


def find_program(build):
    path = os.path.abspath(os.path.join(build, "examples", "particles"))
    if not os.access(path, os.X_OK):
        raise Failed(f"{path} is not there: build the project with MPI first (make demo does)")
    return path


def find_mpiexec(build):
    """The launcher of the MPI library that the build found."""
    try:
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
            for line in cache:
                if line.startswith("MPIEXEC_EXECUTABLE:"):
                    return [line.split("=", 1)[1].strip()]
    except OSError:
        pass
    return ["mpiexec"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, metavar="DIR", help="the build directory")
    parser.add_argument("--mpiexec", metavar="COMMAND",
                        help="the MPI launcher, with options if need be (default: the build's)")
    parser.add_argument("--dir", metavar="DIR", help="where to put the demo's files (default: TMPDIR)")
    parser.add_argument("--keep", action="store_true", help="keep them")
    parser.add_argument("--particles", type=int, default=400000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    arguments = parser.parse_args()

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + number))
    demo = None
    try:
        demo = Demo(arguments)
        demo.run()
    except Failed as failure:
        if demo:
            demo.progress.clear()
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if demo:
            demo.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
