"""Kills an MPI program of 4 nodes while its epochs are on their way, and lets the nodes finish them with `tailrace
drain`: each on its own, one after the other or all at once; or by one command where all tiers are visible.

    drain_test.py --program kill_loop_mpi --tool tailrace --kills 12 -- mpirun -n

What every node had a plan record for must be committed afterwards, or be superseded by a newer epoch that is. Every
node but the last one has to say that it waits, and for whom. The program's next start, on machines without any
captured part, checks every byte. In every fourth round a node is lost with all that it had captured, and the node that
keeps its copy writes its share.

TAILRACE_SEED replays a run's choices.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import time

import mpi_driver

NODES = 4
RECORD = re.compile(r"\.e(\d+)\.r(\d+)\.n(\d+)\.plan$")
LONGEST_S = 60


class DrainTest:
    def __init__(self, workspace, program, tool, chance):
        self.workspace, self.program, self.tool, self.chance = workspace, program, tool, chance
        self.directory = pathlib.Path(workspace.directory("job"))
        self.start_number = 0
        self.finished = 0  # epochs that drains have committed
        self.waited = 0    # drains that had to wait for others
        self.written = []  # what drains have said of epochs in this round
        self.for_lost = 0  # rounds in which a drain has written the share of a lost node

    def launch(self, epochs=0, cap=1 << 20, files=None):
        self.start_number += 1
        (self.directory / "said").mkdir(exist_ok=True)
        files, leaders = files or self.chance.choice([1, 2, 3, 6]), self.chance.choice([1, 2])
        with open(os.path.join(self.workspace.path, "output"), "wb") as output:
            return self.workspace.start(NODES, self.program, self.directory, self.start_number, files, leaders, 1, cap,
                                        epochs, stdout=output, stderr=subprocess.STDOUT)

    def said(self):
        text = [path.read_text() for path in (self.directory / "said").glob(f"{self.start_number}.*")]
        return [line.split(" ", 2) for line in "".join(text).splitlines()]

    def fail(self, why):
        output = pathlib.Path(self.workspace.path, "output").read_text(errors="replace")
        raise mpi_driver.Failure(f"start {self.start_number}: {why}\n{self.said()}\n{output}")

    def wait_until(self, condition, what):
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"{what} did not happen within {LONGEST_S} s")
            time.sleep(0.005)

    def records(self, machine):
        found = [RECORD.search(path.name) for path in machine.rglob("*.plan")]
        return {(int(match[1]), int(match[2])) for match in found if match}

    def everywhere(self):
        """The epochs whose plan every node has just now."""
        nodes = [self.records(node) for node in (self.directory / "local").iterdir()]
        return set.intersection(*nodes) if len(nodes) == NODES else set()

    def machines(self):
        """What lies on this one machine is moved onto four."""
        machines = []
        for node in sorted((self.directory / "local").iterdir()):
            machine = self.directory / f"machine {node.name[-1]}"
            machine.mkdir()
            node.rename(machine / node.name)
            machines.append(machine)
        if len(machines) != NODES:
            self.fail(f"{len(machines)} nodes' directories are there")
        return machines

    def start_drain(self, machine, *arguments):
        environment = dict(self.workspace.environment, TAILRACE_LOCAL_DIR=str(machine))
        return subprocess.Popen([self.tool, "drain", "--json", *arguments], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def result(self, drain):
        text, complaints = drain.communicate(timeout=LONGEST_S)
        if drain.returncode not in (0, 5):
            self.fail(f"a drain's exit status is {drain.returncode}: {text}{complaints}")
        epochs = json.loads(text)["epochs"]
        waiting = [epoch for epoch in epochs if epoch["state"] == "waiting"]
        if (drain.returncode == 5) != bool(waiting) or not all(epoch["waiting_for"] for epoch in waiting):
            self.fail(f"a drain's exit status is {drain.returncode}, but it says {text}")
        self.finished += sum(epoch["state"] == "committed" and epoch["written_bytes"] > 0 for epoch in epochs)
        self.waited += drain.returncode == 5
        self.written += epochs
        return {(epoch["epoch"], epoch["run"]): epoch for epoch in epochs}

    def drain_all(self, machines, together, arguments=("--wait", "1s")):
        self.chance.shuffle(machines)
        if together:
            for drain in [self.start_drain(machine, *arguments) for machine in machines]:
                self.result(drain)
        else:
            for machine in machines:
                self.result(self.start_drain(machine))
        return [self.result(self.start_drain(machine)) for machine in machines]

    def committed(self):
        text = subprocess.run([self.tool, "ls", "--json", self.directory / "shared"], check=True, text=True,
                              env=self.workspace.environment, stdout=subprocess.PIPE).stdout
        return {(epoch["epoch"], epoch["run"]) for epoch in json.loads(text)["epochs"] if epoch["state"] == "complete"}

    def round(self, number):
        # A kill between two messages may leave a node of another group without the plan of the node it copies.
        lose = number % 4 == 3
        process = self.launch(files=1 if lose else None)
        self.written = []
        enough = self.chance.choice([1, 2, 2, 3])
        self.wait_until(lambda: sum(line[0] == "saved" for line in self.said()) >= NODES * enough, "saving")
        if number % 4 == 0:
            time.sleep(self.chance.uniform(0, 1.5))
        else:
            self.wait_until(self.everywhere, "a plan on every node")
            time.sleep(self.chance.uniform(0, 0.1))
        mpi_driver.kill_all_descendants()
        process.poll()
        if lose:
            machines = self.machines()
            everywhere = set.intersection(*map(self.records, machines))
            shutil.rmtree(machines.pop(self.chance.randrange(NODES)))
            last = self.drain_all(machines, together=True, arguments=["--for-lost", "0s", "--wait", "3s"])
            self.for_lost += any(epoch.get("written_for") for epoch in self.written)
        elif number % 3 == 0:
            machines = [self.directory / "local"]
            everywhere = set.intersection(*map(self.records, machines[0].iterdir()))
            last = self.result(self.start_drain(machines[0]))
        else:
            machines = self.machines()
            everywhere = set.intersection(*map(self.records, machines))
            last = self.drain_all(machines, together=number % 3 == 1)
        committed = self.committed()
        newest = max(committed, default=(0, 0))
        lost = {key for key in everywhere - committed if key > newest}
        if lost:
            self.fail(f"{sorted(lost)} had a plan record on every node and were not committed: {last}")
        left = [key for machine in machines for key in self.records(machine) if key in everywhere]
        if left:
            self.fail(f"plan records of {sorted(left)} are left")
        for machine in machines:
            shutil.rmtree(machine)
        if committed:
            self.check(newest[0])

    def check(self, epoch):
        process = self.launch(epochs=1, cap=0)
        try:
            status = process.wait(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            status = "none"
        restored = [int(line[1]) for line in self.said() if line[0] == "restored"]
        if status != 0 or restored != [epoch] * NODES:
            self.fail(f"exit status {status}, restored {restored}, not epoch {epoch}")
        shutil.rmtree(self.directory / "local")
        strays = [path.name for path in (self.directory / "shared").iterdir()
                  if not mpi_driver.SHARED_FILE.match(path.name)]
        if strays:
            self.fail(f"{strays} are left in the shared directory")


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("mpiexec", nargs="+")
    arguments = parser.parse_args()
    seed = os.environ.get("TAILRACE_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"TAILRACE_SEED={seed}", flush=True)
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        workspace.environment["TAILRACE_REDUNDANCY"] = "partner"
        job = DrainTest(workspace, arguments.program, arguments.tool, random.Random(int(seed)))
        for number in range(arguments.kills):
            job.round(number)
        print(f"{arguments.kills} kills; drains committed {job.finished} epochs, and waited {job.waited} times; "
              f"{job.for_lost} times one wrote the share of a lost node", flush=True)
        if job.finished < arguments.kills or job.waited < arguments.kills // 2 or job.for_lost < arguments.kills // 8:
            raise mpi_driver.Failure("that is too little to have tested anything")


mpi_driver.main(test)
