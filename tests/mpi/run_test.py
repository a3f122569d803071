"""`tailrace run` with a real MPI program (examples/heat.c), which is killed, loses a node, dies from its newest epoch,
and is asked to end. Whatever happens, the plate is in the end the same bit for bit as without an interruption.

    run_test.py --heat heat --tool tailrace -- mpirun -n

TAILRACE_SEED replays a run's choices.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import mpi_driver

STEPS, SIZE = 30000, 192  # some seconds
LONGEST_S = 120


class RunTest:
    def __init__(self, workspace, heat, tool, chance):
        self.workspace, self.heat, self.tool, self.chance = workspace, heat, tool, chance
        self.top = None
        version = subprocess.run([workspace.mpiexec[0], "--version"], capture_output=True, text=True, check=False).stdout
        self.open_mpi = "Open MPI" in version or "OpenRTE" in version
        workspace.environment.update(XDG_STATE_HOME=os.path.join(workspace.path, "state"), TAILRACE_RANKS_PER_NODE="1",
                                     TAILRACE_BANDWIDTH_CAP="4MiB", TAILRACE_BUFFER_BYTES="256KiB",
                                     TAILRACE_QUEUE_POLICY="drop_oldest")

    def fresh(self, name):
        self.top = pathlib.Path(self.workspace.directory(name))
        self.workspace.environment["TAILRACE_LOCAL_DIR"] = str(self.top / "local")

    def program(self, ranks=2, size=SIZE):
        return [*self.workspace.mpiexec, str(ranks), self.heat, str(self.top / "shared"), str(STEPS), str(size)]

    def start(self, *options, command=None):
        self.output = open(self.top / "output", "w+", encoding="utf-8")  # closed with the process
        return subprocess.Popen([self.tool, "run", *options, "--", *(command or self.program())],
                                env=self.workspace.environment, stdin=subprocess.DEVNULL, stdout=self.output,
                                stderr=subprocess.STDOUT)

    def said(self):
        return (self.top / "output").read_text(encoding="utf-8", errors="replace")

    def fail(self, why):
        raise mpi_driver.Failure(f"{self.top.name}: {why}\n{self.said()}")

    def need(self, pattern, times=1):
        found = re.findall(pattern, self.said())
        if len(found) < times:
            self.fail(f"{pattern!r} was said {len(found)} times, not {times}")
        return found

    def wait_until(self, condition, what):
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"{what} did not happen within {LONGEST_S} s")
            time.sleep(0.01)

    def end(self, process, status=0):
        try:
            ended = process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            ended = "none"
        self.output.close()
        if ended != status:
            self.fail(f"exit status {ended}, not {status}")
        left = [pid for pid in mpi_driver.descendants() if self.is_rank(pid)]
        if left:
            self.fail(f"ranks are left: {left}")

    def is_rank(self, pid):
        try:
            return os.path.samefile(f"/proc/{pid}/exe", self.heat)
        except OSError:
            return False

    def ranks(self):
        return sorted(pid for pid in mpi_driver.descendants() if self.is_rank(pid))

    def launcher(self, process):
        table = mpi_driver.parents()
        return [pid for pid, parent in table.items() if parent == process.pid]

    def epochs(self):
        return sorted({int(match[1]) for path in (self.top / "shared").glob("*.tailrace")
                       if (match := re.search(r"\.e(\d+)\.", path.name))}) if (self.top / "shared").is_dir() else []

    def sum(self):
        return self.need(r"bits sum up to (\w+)")[-1]

    def kill(self, pids, number=signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    # ---- the tests ------------------------------------------------------------------------------------

    def undisturbed(self):
        self.fresh("undisturbed")
        hosts = self.top / "hosts"
        hosts.write_text("localhost slots=2\n")
        self.end(self.start("--nodes", hosts))
        self.need(r"attempt 1: the program ended well after .* s on 1 node\b")
        return self.sum()

    def killed(self, expected):
        """A rank, all ranks or the launcher, at random instants."""
        self.fresh("killed")
        process = self.start("--restarts", "30", "--no-step-back")
        self.wait_until(self.epochs, "the first epoch")
        kills = 0
        for way in self.chance.sample(["rank", "all", "launcher", "rank", "all", "launcher"], 6):
            before = len(re.findall("attempt", self.said()))
            self.wait_until(lambda: process.poll() is not None or len(self.ranks()) == 2, "a start")
            time.sleep(self.chance.uniform(0.02, 0.6))
            if process.poll() is not None:
                break
            victims = {"rank": self.ranks()[:1], "all": self.ranks(), "launcher": self.launcher(process)}[way]
            self.kill(victims)
            kills += 1
            self.wait_until(lambda: process.poll() is not None
                            or len(re.findall("attempt", self.said())) > before, "the end of an attempt")
        self.end(process)
        if self.sum() != expected:
            self.fail(f"the bits' sum is {self.sum()}, not {expected}")
        epochs = [int(number) for number in re.findall(r"it goes on from epoch (\d+)", self.said())]
        if epochs != sorted(epochs) or not epochs or kills < 2:
            self.fail(f"{kills} kills; it went on from {epochs}")
        print(f"killed {kills} times, went on from {epochs}", flush=True)

    def loses_a_node(self, expected):
        """Its ranks are killed, and its health check fails from then on. The program goes on with half of the ranks."""
        self.fresh("lost node")
        hosts, gone, health = self.top / "hosts", self.top / "gone", self.top / "health"
        own = "localhost"
        hosts.write_text(f"{own} slots=1\n127.0.0.1 slots=1\n")
        health.write_text(f'#!/bin/sh\ntest "$1" = {own} || test ! -e "{gone}" || {{ echo "no power" >&2; exit 1; }}\n')
        health.chmod(0o755)
        command = [word if word != "2" else "{slots}" for word in self.program()]
        if self.open_mpi:  # which knows that both names are this machine, and takes no host file with both
            at = command.index(self.heat)
            command[at:at] = ["-x", "WHERE={hosts}"]
        process = self.start("--nodes", hosts, "--health", f"'{health}'", "--launcher", "local", command=command)
        self.wait_until(lambda: len(self.ranks()) == 2 and len(self.epochs()) > 1, "the first epochs")
        gone.touch()
        self.kill(self.ranks()[1:])
        self.end(process)
        self.need(r"node 127\.0\.0\.1 is left out: no power")
        self.need(r"attempt 1: .* on 2 nodes; it goes on from epoch \d+")
        self.need(r"attempt 2: the program ended well after .* on 1 node\b")
        if self.sum() != expected:
            self.fail(f"the bits' sum is {self.sum()}, not {expected}")

    def launcher_does_not_notice(self):
        """A node is gone, and what was started waits for ever."""
        self.fresh("silent node")
        hosts, gone, health = self.top / "hosts", self.top / "gone", self.top / "health"
        hosts.write_text("localhost slots=1\n127.0.0.1 slots=1\n")
        health.write_text(f'#!/bin/sh\ntest "$1" = localhost || test ! -e "{gone}" || {{ echo "no power" >&2; exit 1; }}\n')
        health.chmod(0o755)
        waits = ["sh", "-c", 'if [ {count} = 1 ]; then exit 0; fi; trap "exit 0" TERM; echo here; while :; do sleep 0.1; done']
        process = self.start("--nodes", hosts, "--health", f"'{health}'", "--launcher", "local", "--watch", "1s",
                             command=waits)
        self.wait_until(lambda: "here" in self.said(), "the start")
        time.sleep(2.5)
        if len(re.findall("attempt", self.said())):
            self.fail("it was ended although the nodes are well")
        gone.touch()
        self.end(process)
        self.need(r"node 127\.0\.0\.1 was lost while the program ran, which was ended: no power")
        self.need(r"attempt 1: the program was killed by SIGTERM after .* on 2 nodes")
        self.need(r"attempt 2: the program ended well after .* on 1 node\b")

    def dies_from_an_epoch(self, expected):
        """The program dies whenever it comes back to a certain epoch, which also lies in the node-local tier."""
        self.fresh("bad epoch")
        environment = self.workspace.environment
        process = self.start("--restarts", "0")
        self.wait_until(lambda: len(self.epochs()) > 3, "some epochs")
        self.kill(self.ranks())
        self.wait_until(lambda: process.poll() is not None, "the end")
        self.output.close()
        where = self.need(r"it would go on from epoch (\d+) \(run 1\)")
        bad = int(where[0])
        captured = list((self.top / "local").rglob(f"*.e{bad:09d}.*.capture"))
        script = self.top / "script"
        # Another size of the plate: the program opens its session, does not get what it asks for, and ends.
        right, wrong = (" ".join(f"'{word}'" for word in self.program(size=size)) for size in (SIZE, SIZE // 2))
        script.write_text(f'#!/bin/sh\nls "{self.top}/shared" "{self.top}"/local/*.node* | grep -q "e{bad:09d}.r0001" '
                          f"&& exec {wrong}\nexec {right}\n")
        script.chmod(0o755)
        # (A program that is very quick to die may do so once before its directory is known, unless it is named.)
        named = ("--dir", str(self.top / "shared"))
        self.end(self.start("--no-step-back", "--restarts", "3", *named, command=[str(script)]), status=1)
        self.need(rf"it goes on from epoch {bad} \(run 1\)", times=3)
        self.end(self.start("--restarts", "3", command=[str(script)]))
        after = self.need(rf"died 2 times from epoch {bad} \(run 1\).*is set aside.*\n((?:.*\n)*)")[0]
        older = [int(number) for number in re.findall(r"it goes on from epoch (\d+)", after)] or [0]
        if not 0 < older[0] < bad or self.sum() != expected:
            self.fail(f"it went on from {older}, and the bits' sum is {self.sum()}, not {expected}")
        # The kill may have come before anything of the epoch was written to the shared directory.
        aside = self.top / "shared" / "set-aside"
        places = {path.parent for path in self.top.rglob(f"set-aside/*.e{bad:09d}.*")}
        if not places or not all("mv -n" in (place / "HOW-TO-BRING-THEM-BACK").read_text() for place in places):
            self.fail(f"{sorted(self.top.rglob('set-aside/*'))} was set aside")
        if not captured or any(path.exists() and ".r0001." in path.name for path in captured):
            self.fail(f"captured parts of the epoch: {captured}")
        if not list(aside.glob("*.tailrace")):
            return  # it was on the nodes, and no shared file of it was complete
        subprocess.run(["sh", "-c", "mv -n set-aside/*.tailrace ."], cwd=self.top / "shared", check=True)
        verified = subprocess.run([self.tool, "verify", self.top / "shared", str(bad), "--run", "1"], check=False,
                                  env=environment)
        if verified.returncode != 0:
            self.fail("the epoch that was set aside and brought back is not whole")

    def is_asked_to_end(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.fresh(f"asked-{number.name}")  # each time with all its steps before it
            process = self.start()
            self.wait_until(lambda: len(self.ranks()) == 2 and self.epochs(), "an epoch")
            process.send_signal(number)
            process.wait(LONGEST_S)  # MPICH's mpirun ends with status 0 after SIGTERM
            self.output.close()
            if self.ranks():
                self.fail(f"ranks {self.ranks()} are left")
            self.need(r"not started again: it was asked to end; it would go on from epoch \d+")
            if len(re.findall("attempt", self.said())) != 1:
                self.fail("it was started again")

    def does_not_listen(self):
        """The time of grace ends it."""
        self.fresh("deaf")
        process = self.start("--grace", "1s", command=["sh", "-c", "trap '' TERM; echo here; while :; do sleep 1; done"])
        self.wait_until(lambda: "here" in self.said(), "the start")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.end(process, status=128 + signal.SIGKILL)
        if time.monotonic() - began < 0.9:
            self.fail("the time of grace was not given")


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heat", required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("mpiexec", nargs="+")
    arguments = parser.parse_args()
    seed = os.environ.get("TAILRACE_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"TAILRACE_SEED={seed}", flush=True)
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        job = RunTest(workspace, arguments.heat, arguments.tool, random.Random(int(seed)))
        job.does_not_listen()
        job.launcher_does_not_notice()
        expected = job.undisturbed()
        job.killed(expected)
        job.loses_a_node(expected)
        job.dies_from_an_epoch(expected)
        job.is_asked_to_end()


if __name__ == "__main__":
    mpi_driver.main(test)
