"""Kills an MPI program of 4 nodes, their agent process, or both, at random instants, over and over.

    agent_test.py --program kill_loop_mpi --tool tailrace --kills 60 -- mpirun -n

Each round starts the program, and the agent if none lives. Then it kills
  - the program: the agent has to commit, within a minute, every epoch that all nodes had a plan record for;
  - the agent: the program goes on and commits another epoch, is killed later, and a new agent does the same;
  - both at once: a new agent does the same;
  - the program, and starts it again while the agent is still at work: the session opens all the same.
In some rounds one of the four nodes is lost with its tier. Then what was committed stays, and nothing hangs.

The program's next start checks every byte, and that nothing older comes back than what was committed, or what the
node-local tiers hold. TAILRACE_SEED replays a run's choices (not its instants).
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
from kill_test import EXTRA_LIFE_S, RANKS, KillTest

RECORD = re.compile(r"\.e(\d+)\.r(\d+)\.n(\d+)\.plan$")
LONGEST_S = 60
SHARE_OF_LOST_NODES = 0.15


class AgentTest(KillTest):
    def __init__(self, workspace, program, tool, chance):
        super().__init__(workspace, program, chance)
        self.tool = tool
        self.local = pathlib.Path(self.directory, "local")
        self.agent = None
        self.finished = 0  # epochs that were committed after their program's death
        self.took_over = 0  # starts of the program while an agent was at work

    # ---- the agent
    def start_agent(self):
        if self.agent is not None and self.agent.poll() is None:
            return
        cap = self.chance.choice(["0", "0", "2MiB"])
        environment = dict(self.workspace.environment, TAILRACE_BANDWIDTH_CAP=cap, TAILRACE_BUFFERS="4")
        with open(os.path.join(self.workspace.path, "agent"), "ab") as output:
            self.agent = subprocess.Popen([self.tool, "agent", "--local-dir", self.local], env=environment,
                                          stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        self.until(lambda: self.ask("status").returncode == 0, "the agent listening")

    def ask(self, action):
        return subprocess.run([self.tool, "agent", action, "--json", "--local-dir", self.local], text=True, check=False,
                              env=self.workspace.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=LONGEST_S)

    def kill_agent(self):
        self.agent.kill()
        self.agent.wait()

    def until(self, condition, what):
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            if time.monotonic() > deadline:
                log = pathlib.Path(self.workspace.path, "agent").read_text(errors="replace")
                self.fail(f"{what} did not happen within {LONGEST_S} s\n--- the agent:\n{log}")
            time.sleep(0.01)

    # ---- what lies there
    def planned_everywhere(self):
        nodes = [node for node in self.local.glob("*.node*") if node.is_dir()]
        keys = [{(int(m[1]), int(m[2])) for m in map(RECORD.search, os.listdir(node)) if m} for node in nodes]
        return set.intersection(*keys) if len(keys) == RANKS else set()

    def complete(self):
        text = subprocess.run([self.tool, "ls", "--json", os.path.join(self.directory, "shared")], check=True, text=True,
                              env=self.workspace.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        return {(epoch["epoch"], epoch["run"]) for epoch in json.loads(text)["epochs"] if epoch["state"] == "complete"}

    def lose_a_node(self):
        nodes = sorted(self.local.glob("*.node*"))
        if len(nodes) < RANKS or self.chance.random() >= SHARE_OF_LOST_NODES:
            return False
        shutil.rmtree(self.chance.choice(nodes))
        self.captured = 0
        return True

    # ---- a round
    def launch(self, epochs=0):
        self.start_number += 1
        files, leaders = self.chance.choice([1, 2, 3, 6]), self.chance.choice([1, 2])
        cap = 0 if epochs else self.chance.choice([1, 4, 16]) << 20
        with open(os.path.join(self.workspace.path, "output"), "wb") as output:
            return self.workspace.start(RANKS, self.program, self.directory, self.start_number, files, leaders, 1, cap,
                                        epochs, stdout=output, stderr=subprocess.STDOUT)

    def kill_program(self, process):
        spared = {self.agent.pid} if self.agent.poll() is None else set()
        mpi_driver.kill_all_descendants(spared)
        process.poll()

    def round(self):
        self.start_agent()
        process = self.launch()
        alive = self.wait_until_going(process) and self.sleep(process, self.chance.uniform(0, 2 * EXTRA_LIFE_S))
        if not alive:
            self.fail(f"it ended by itself; {self.said().sentences('failed')}")
        way = self.chance.choice(["program", "program", "agent", "both", "restart"])
        if way == "agent":
            self.kill_agent()
            before = len(self.said().numbers("saved"))
            self.until(lambda: len(self.said().numbers("saved")) > before, "a save after the agent's death")
        if way == "both":
            self.agent.send_signal(signal.SIGSTOP)  # it must not see the program die
        planned = self.planned_everywhere()
        self.kill_program(process)
        if way == "both":
            self.kill_agent()
        self.judge()
        lost = self.lose_a_node()
        if way == "restart":
            # The next round's start finds the agent at work.
            self.took_over += 1
            return
        self.start_agent()
        answer = self.ask("drain")
        if answer.returncode not in (0, 1):
            self.fail(f"agent drain: {answer.returncode}: {answer.stderr}")
        if lost:
            return
        complete = self.complete()
        newest = max(complete, default=(0, 0))
        missing = {key for key in self.planned_everywhere() if key > newest}
        if missing:
            self.fail(f"{missing} have a plan record on every node and were not committed: {answer.stdout}")
        self.finished += len(planned & complete)
        self.committed = max(self.committed, newest[0])

    def end_agent(self):
        self.start_agent()
        self.agent.send_signal(signal.SIGTERM)
        self.until(lambda: self.agent.poll() is not None, "the end of an agent that was told to end")


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
        job = AgentTest(workspace, arguments.program, arguments.tool, random.Random(int(seed)))
        begin = time.monotonic()
        for kills in range(1, arguments.kills + 1):
            job.round()
            if kills % 10 == 0:
                print(f"{kills} rounds; {job.finished} epochs committed after their program's death, {job.took_over} starts "
                      f"beside an agent at work, {job.restores} restores, all right; {time.monotonic() - begin:.0f} s",
                      flush=True)
        job.finish()
        job.end_agent()
        if job.finished < arguments.kills // 6 or job.took_over == 0:
            raise mpi_driver.Failure("that is too little to have tested anything")


if __name__ == "__main__":
    mpi_driver.main(test)
