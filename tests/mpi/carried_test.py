"""Programs whose epochs agent processes carry (`tailrace agent --mpi`), and deaths of both.

    carried_test.py --program carried_mpi --loop kill_loop_mpi --tool tailrace --kills 12 -- mpirun -n

First a program that called plain MPI_Init: its saves need no other rank, and its epochs are committed and come
back bit for bit, with one agent for both nodes and with one for each. Two such jobs run side by side.

Then rounds with a program that is killed. In each round
  - the program dies: the agents commit every epoch that all ranks had saved, within a minute;
  - or an agent dies: the program goes on saving, and dies later;
  - or both die at once;
  - or the program dies, and is started again while the agents are at work;
  - or an agent dies and the program closes its session: it has committed everything then;
  - or both die, and a node is lost with all that it had captured (redundancy = partner): an agent that reaches
    nobody writes its share, too, and every epoch whose plan was on all nodes is committed.
The program's next start checks every byte, and that nothing older comes back than what was saved.

Last, thousands of saves: neither the program nor an agent grows.

TAILRACE_SEED replays a run's choices (not its instants).
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

import mpi_driver
from kill_rounds import EXTRA_LIFE_S, RANKS, KillTest

LONGEST_S = 60
MOST_GROWTH_KIB = 16 << 10
PLAN = re.compile(r"\.e(\d+)\.r\d+\.n\d+\.plan$")


def agent_pids():
    """Pids of the agents below this process."""
    found = []
    for pid in sorted(mpi_driver.descendants()):
        try:
            name = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue
        if name.endswith(b"tailrace-agent-mpi"):
            found.append(pid)
    return found


def resident_kib(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") // 1024


class Agents:
    """Agents of one MPI job, one for each node-local directory."""

    def __init__(self, workspace, tool, directories):
        self.workspace = workspace
        self.tool = tool
        self.directories = [str(directory) for directory in directories]
        self.process = None
        self.start()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        command = list(self.workspace.mpiexec)
        for number, directory in enumerate(self.directories):
            if number > 0:
                command += [":", self.workspace.mpiexec[-1]]
            command += ["1", self.tool, "agent", "--mpi", "--local-dir", directory]
        with open(os.path.join(self.workspace.path, "agents"), "ab") as output:
            self.process = subprocess.Popen(command, env=self.workspace.environment, stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        self.until(lambda: all(self.ask("status", d).returncode == 0 for d in self.directories), "agents listening")

    # A launcher may live on for a moment after its agents.
    def serve(self):
        return self.alive() and all(self.ask("status", d).returncode == 0 for d in self.directories)

    def ask(self, action, directory):
        return subprocess.run([self.tool, "agent", action, "--json", "--local-dir", directory], text=True, check=False,
                              env=self.workspace.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=2 * LONGEST_S)

    def carried(self):
        return [node for d in self.directories for node in json.loads(self.ask("status", d).stdout)["carried"]]

    def log(self):
        return pathlib.Path(self.workspace.path, "agents").read_text(errors="replace")

    def until(self, condition, what):
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            if time.monotonic() > deadline:
                raise mpi_driver.Failure(f"{what} did not happen within {LONGEST_S} s\n--- the agents:\n{self.log()}")
            time.sleep(0.02)

    def pids(self):
        """Everything of the agents' job, which kills of the program spare."""
        if not self.alive():
            return set()
        table = mpi_driver.parents()
        found = {self.process.pid}
        while True:
            more = {pid for pid, parent in table.items() if parent in found} - found
            if not more:
                return found
            found |= more

    def kill_one(self, chance):
        """MPI ends the others."""
        os.kill(chance.choice(agent_pids()), signal.SIGKILL)

    def kill_all(self):
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait_for_end(self):
        self.until(lambda: not self.alive() and not agent_pids(), "the end of the agents' job")

    def stop(self):
        for directory in self.directories:
            self.ask("stop", directory)
        self.wait_for_end()


# ---- plain MPI_Init ---------------------------------------------------------------------------------------


def run_with_plain_init(workspace, program, tool, two_agents):
    job = workspace.directory(f"plain{int(two_agents)}")
    directories = [os.path.join(job, "local")] + ([os.path.join(job, "local2")] if two_agents else [])
    agents = Agents(workspace, tool, directories)
    second = directories[1:]
    said = workspace.run(4, program, job, "apart", 4, *second, spared=agents.pids())
    if "below MPI_THREAD_MULTIPLE" in said or "blocked at most" not in said:
        raise mpi_driver.Failure("the session did not use the agents")
    mpi_driver.check_shared_directory(os.path.join(job, "shared"), [2, 3, 4], 1)
    workspace.run(4, program, job, "restore", 4, *second, spared=agents.pids())
    agents.until(lambda: not agents.carried(), "the end of the carried session")
    agents.stop()


def two_jobs(workspace, program, tool):
    jobs = [workspace.directory(name) for name in ("left", "right")]
    local = workspace.directory("both")
    agents = Agents(workspace, tool, [local])
    processes = [workspace.start(2, program, job, "apart", 3, local, local) for job in jobs]
    for process in processes:
        if process.wait(timeout=100) != 0:
            raise mpi_driver.Failure(f"a job beside another one ended with {process.returncode}")
    for job in jobs:
        mpi_driver.check_shared_directory(os.path.join(job, "shared"), [1, 2, 3], 1)
    agents.stop()


def soak(workspace, program, tool, saves):
    job = workspace.directory("soak")
    agents = Agents(workspace, tool, [os.path.join(job, "local")])
    workspace_start = workspace.start(2, program, job, "session", saves)
    pid = agent_pids()[0]
    sizes = []
    while workspace_start.poll() is None:
        sizes.append(resident_kib(pid))
        time.sleep(0.05)
    if workspace_start.returncode != 0:
        raise mpi_driver.Failure(f"{saves} saves: exit status {workspace_start.returncode}")
    early, late = max(sizes[: len(sizes) // 4 + 1]), max(sizes[len(sizes) // 2:])
    print(f"{saves} saves: the agent had at most {early} KiB in the first quarter, {late} KiB in the second half")
    if late > early + MOST_GROWTH_KIB:
        raise mpi_driver.Failure(f"the agent has grown: {early} KiB, then {late} KiB")
    agents.stop()


# ---- kills ------------------------------------------------------------------------------------------------


class CarriedKills(KillTest):
    def __init__(self, workspace, program, tool, chance):
        super().__init__(workspace, program, chance)
        self.tool = tool
        self.agents = Agents(workspace, tool, [os.path.join(self.directory, "local")])
        self.for_lost = 0  # rounds in which a share was written for a lost node
        self.finished = 0  # rounds in which agents committed after the program's death
        self.environment = dict(workspace.environment, TAILRACE_AGENT_CARRIES="yes", TAILRACE_AGENT="required")

    def launch(self, epochs=0, protected=False):
        self.start_number += 1
        files = 1 if protected else self.chance.choice([1, 2])
        ranks_per_node = 1 if protected else self.chance.choice([1, 2, 4])
        cap = 0 if epochs else 1 << 20 if protected else self.chance.choice([1, 4, 16]) << 20
        self.environment["TAILRACE_REDUNDANCY"] = "partner" if protected else "none"
        command = [*self.workspace.mpiexec, str(RANKS), self.program, self.directory, str(self.start_number), str(files),
                   "1", str(ranks_per_node), str(cap), str(epochs)]
        with open(os.path.join(self.workspace.path, "output"), "wb") as output:
            return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL, start_new_session=True,
                                    stdout=output, stderr=subprocess.STDOUT)

    def fail(self, why):
        super().fail(f"{why}\n--- the agents:\n{self.agents.log()[-5000:]}\n---")

    def newest_complete(self):
        text = subprocess.run([self.tool, "ls", "--json", os.path.join(self.directory, "shared")], check=False, text=True,
                              env=self.workspace.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        epochs = json.loads(text).get("epochs", []) if text else []
        return max((epoch["epoch"] for epoch in epochs if epoch["state"] == "complete"), default=0)

    def kill_program(self, process):
        mpi_driver.kill_all_descendants(self.agents.pids())
        process.poll()

    def saved_more(self, process):
        before = len(self.said().numbers("saved"))
        self.agents.until(lambda: len(self.said().numbers("saved")) > before + RANKS, "a save after an agent's death")
        if process.poll() is not None:
            self.fail(f"it ended by itself; {self.said().sentences('failed')}")

    def round(self, way):
        if not self.agents.serve():
            self.agents.wait_for_end()
            self.agents.start()
        process = self.launch(epochs=12 if way == "close" else 0, protected=way == "node")
        if not (self.wait_until_going(process) and
                self.sleep(process, self.chance.uniform(0, 0.1 if way == "close" else 2 * EXTRA_LIFE_S))):
            self.fail(f"{way}: it ended by itself; {self.said().sentences('failed')}")
        if way in ("agent", "close"):
            self.agents.kill_one(self.chance)
        if way == "agent":
            self.saved_more(process)
        if way == "node":
            self.agents.until(self.planned, "a plan on every node")
        if way in ("both", "node"):
            self.agents.kill_all()
        if way == "close":
            self.end_well(process)
        self.kill_program(process)
        self.judge()
        print(f"{way}: saved by all {self.said().saved_by_all()}, committed before {self.newest_complete()}", flush=True)
        if way == "program":
            saved = self.said().saved_by_all()
            self.agents.until(lambda: self.newest_complete() >= saved, f"the commit of epoch {saved}")
            self.agents.until(lambda: not self.agents.carried(), "the end of the carried session")
            self.finished += 1

        if way == "node":
            self.lose_a_node()

    def nodes(self):
        return sorted(pathlib.Path(self.directory, "local").glob("*.node*"))

    def planned(self):
        """The epochs of this start whose plan every node has. Those of an earlier one may be unprotected."""
        first = min(self.said().numbers("saved"), default=None)
        plans = [{int(match[1]) for path in node.glob("*.plan") if (match := PLAN.search(path.name))}
                 for node in self.nodes()]
        on_all = set.intersection(*plans) if len(plans) == RANKS else set()
        return {epoch for epoch in on_all if first is not None and epoch >= first}

    def lose_a_node(self):
        self.agents.wait_for_end()
        planned = self.planned()
        shutil.rmtree(self.chance.choice(self.nodes()))
        self.captured = 0
        with open(os.path.join(self.workspace.path, "agents"), "ab") as output:
            agent = subprocess.Popen([self.tool, "agent", "--for-lost", "0s", "--local-dir", self.agents.directories[0]],
                                     env=self.workspace.environment, stdin=subprocess.DEVNULL, stdout=output,
                                     stderr=subprocess.STDOUT)
        # None if all were committed before the kill.
        newest = max(planned, default=0)
        self.agents.until(lambda: self.newest_complete() >= newest, f"the commit of {sorted(planned)}")
        self.committed = self.newest_complete()
        self.for_lost += bool(planned)
        self.agents.ask("stop", self.agents.directories[0])
        # 1: an epoch is left whose plan some nodes do not have.
        if agent.wait(timeout=LONGEST_S) not in (0, 1):
            self.fail(f"the agent's exit status is {agent.returncode}")

    def end_well(self, process):
        try:
            status = process.wait(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            status = f"none after {LONGEST_S} s"
        if status != 0:
            self.fail(f"after an agent's death the program should end well: {status}; {self.said().facts}")
        saved = self.said().saved_by_all()
        if self.newest_complete() != saved:
            self.fail(f"epoch {saved} was saved and the session closed, but {self.newest_complete()} is the newest")


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--loop", required=True)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--saves", type=int, default=2000)
    parser.add_argument("mpiexec", nargs="+")
    arguments = parser.parse_args()
    seed = os.environ.get("TAILRACE_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"TAILRACE_SEED={seed}", flush=True)
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        for two_agents in (False, True):
            run_with_plain_init(workspace, arguments.program, arguments.tool, two_agents)
        two_jobs(workspace, arguments.program, arguments.tool)
        job = CarriedKills(workspace, arguments.loop, arguments.tool, random.Random(int(seed)))
        ways = ["program", "close", "both", "node", "agent", "restart", "program"]
        for kill in range(arguments.kills):
            job.round(ways[kill % len(ways)])
        job.agents.wait_for_end() if not job.agents.alive() else None
        if not job.agents.alive():
            job.agents.start()
        job.finish()
        job.agents.stop()
        soak(workspace, arguments.program, arguments.tool, arguments.saves)


if __name__ == "__main__":
    mpi_driver.main(test)
