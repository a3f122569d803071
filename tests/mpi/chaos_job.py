"""One job of chaos_test.py: a program of four ranks that is killed over and over, with all that
belongs to it.

Each round draws how the program runs (redundancy, nodes, threads, files), when it is hit (at an
instant, or in a phase: the files of the tiers show what is under way), what dies (the program, the
agent, both, a node with its tier), and what comes next (another start at once, beside an agent at
work or not; or an agent or `tailrace drain` finishes what was captured, and is killed while it
does). After each round:

  - No byte is wrong: the program compares all that it restores.
  - No committed epoch is lost: what a rank or `tailrace ls` has called so stays, or three newer
    ones have taken its place.
  - Nothing older comes back than what is committed, or captured on all nodes, or protected by
    nodes that are left.
  - What has its plan record on every node is committed when an agent or drain says that it is
    done.
  - Nothing waits longer than a minute without any progress. Then the stacks of all processes are
    printed.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

import mpi_driver
import tiers
import watch
from chaos_agent import Agent
from chaos_judge import Judge, newest
from chaos_round import RANKS, draw
from said import Said

AIM_S = 4  # how long to wait for a phase, before the program is hit as it is
DISAPPEARS_S = 20  # how long a killed program may take until it is gone
IN_FILES = ("capture", "protection", "flush")
# One machine plays four nodes, and each of them is what may be lost.
DOMAIN = "command:echo rank $PMI_RANK$OMPI_COMM_WORLD_RANK"


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Job:
    def __init__(self, workspace, program, tool, chance, agents):
        self.workspace, self.chance, self.agents = workspace, chance, agents
        self.program, self.tool = program, tool
        self.top = pathlib.Path(workspace.directory("job"))
        self.local, self.shared = self.top / "local", self.top / "shared"
        (self.top / "said").mkdir()
        self.watch = watch.Watch(self.progress, self.fail)
        self.judge = Judge(self)
        self.agent = Agent(workspace, tool, self.local, self.watch, self.command)
        self.process = self.round = None
        self.start_number = self.run_before = 0
        self.starting_s = 0.5  # from a launch to its restore, as last seen

    # ---- what can be seen
    def look(self):
        return tiers.look(tiers.nodes_in(self.local), self.shared)

    def said(self):
        return Said(self.top, self.start_number, RANKS)

    def progress(self):
        ended = self.process is not None and self.process.poll()
        return len(self.said().facts), self.look().names, ended

    def output(self, name="output"):
        path = pathlib.Path(self.workspace.path, name)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def fail(self, why):
        raise mpi_driver.Failure(
            f"start {self.start_number}: {why}\n--- {self.round}\n--- the program's output:\n"
            f"{self.output()[-6000:]}\n--- the agent's:\n{self.output('agent')[-3000:]}"
        )

    # ---- processes
    def start_tool(self, *words, **options):
        environment = dict(self.workspace.environment, TAILRACE_LOG="warning")
        command = [self.tool, *map(str, words)]
        return subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.DEVNULL, **options
        )

    def command(self, *words):
        """A command of the tool. Its exit status, and what it has printed."""
        path = pathlib.Path(self.workspace.path, "complaints")
        with open(path, "wb") as complaints:
            process = self.start_tool(*words, stdout=subprocess.PIPE, stderr=complaints)
        text = self.watch.end_of(process, " ".join(map(str, words)))
        return process.returncode, text + self.output("complaints")

    def launch(self, epochs=0):
        self.start_number += 1
        self.run_before = self.look().newest_run()
        drawn = self.round
        self.workspace.environment.update(
            TAILRACE_REDUNDANCY=drawn.layout.redundancy,
            TAILRACE_LOG="info",
            TAILRACE_FAILURE_DOMAIN=DOMAIN,
            TAILRACE_AGENT_CARRIES="yes" if drawn.carries else "auto",
            TAILRACE_SHARED_EVERY=str(drawn.shared_every),
            KILL_LOOP_THREADS="funneled" if drawn.funneled else "multiple",
        )
        per_node, cap = drawn.layout.ranks_per_node, 0 if epochs else drawn.cap_mib << 20
        words = self.start_number, drawn.files, drawn.leaders, per_node, cap, epochs
        with open(os.path.join(self.workspace.path, "output"), "wb") as output:
            self.process = self.workspace.start(
                RANKS, self.program, self.top, *words, stdout=output, stderr=subprocess.STDOUT
            )

    def must_live(self):
        if self.process.poll() is not None:
            self.fail(f"it ended by itself; {self.said().sentences('failed')}")

    def signal_ranks(self, number, ranks=range(RANKS)):
        pids = self.said().pids()
        for rank in set(ranks) & set(pids):
            send(pids[rank], number)

    # ---- when
    def is_open(self):
        return bool(self.said().numbers("opened"))

    def is_going(self):
        said = self.said()
        return len(said.numbers("restored") + said.numbers("fresh")) == RANKS

    def wait_for(self, condition, what, nap_s=0.004):
        self.watch.until(lambda: self.must_live() or condition(), what, nap_s)

    def wait_for_aim(self):
        """Returns when the program is to be hit. Its ranks may be stopped then."""
        begin, drawn = time.monotonic(), self.round
        if drawn.aim == "start":
            time.sleep(self.chance.uniform(0, self.starting_s))
        elif drawn.aim == "rebuild":
            opened = self.is_open
            self.wait_for(lambda: opened() or self.look().capturing, "an open session", 0.001)
        elif drawn.aim == "restore":
            self.wait_for(self.is_open, "an open session")
            time.sleep(self.chance.uniform(0, 0.05))
        else:
            self.wait_for(self.is_going, "a restore")
            self.starting_s = time.monotonic() - begin
            time.sleep(drawn.extra_s)
        if drawn.aim in IN_FILES:
            self.catch(drawn.aim)
        elif drawn.aim == "drain":
            self.wait_for(lambda: self.said().saved_by_all() > 0, "a save")
        self.must_live()

    def catch(self, phase):
        """Stops the ranks in that phase, or lets them go on after a while."""
        deadline = time.monotonic() + AIM_S
        while time.monotonic() < deadline:
            self.must_live()
            if phase in self.under_way():
                self.signal_ranks(signal.SIGSTOP)
                if phase in self.under_way():
                    return
                self.signal_ranks(signal.SIGCONT)
            time.sleep(0.0005)

    def under_way(self):
        return self.look().phases(RANKS, self.round.layout.nodes(), self.run_before)

    def phases(self):
        if self.is_going():
            return sorted(self.under_way() or {"between"})
        if self.is_open():
            return ["restore"]
        return ["rebuild"] if self.look().capturing else ["start"]

    # ---- death
    def hold_launcher(self):
        """Ranks are to live on beside dead ones, so nobody may see these die."""
        for pid in mpi_driver.descendants() - set(self.said().pids().values()) - self.agent.pids():
            send(pid, signal.SIGSTOP)

    def kill_program(self):
        """Returns the nodes that are lost with it."""
        drawn, lost = self.round, []
        all_here = len(self.said().pids()) == RANKS
        if drawn.victim == "node" and all_here:
            lost = [self.chance.randrange(drawn.layout.nodes())]
            self.hold_launcher()
            self.signal_ranks(signal.SIGKILL, drawn.layout.ranks_of(lost[0]))
            self.lose(lost)
        elif drawn.way == "one" and all_here:
            self.hold_launcher()
            victim = [self.chance.randrange(RANKS)]
            self.signal_ranks(self.chance.choice([signal.SIGKILL, signal.SIGTERM]), victim)
        elif drawn.way == "launcher":
            self.process.send_signal(signal.SIGTERM)
        if lost or drawn.way != "all":
            self.signal_ranks(signal.SIGCONT)
            time.sleep(drawn.linger_s)
        mpi_driver.kill_all_descendants(self.agent.pids())
        self.process.poll()
        return lost

    def lose(self, nodes):
        if nodes and self.agent.carries:
            self.agent.kill()  # MPI ends all agents with the one of a lost node
        for node in tiers.nodes_in(self.local):
            if int(node.name.rpartition(".node")[2]) in nodes:
                shutil.rmtree(node, ignore_errors=True)
                shutil.rmtree(node, ignore_errors=True)  # what a process has made meanwhile

    # ---- after the death
    def finish_captured(self):
        """An agent or `tailrace drain` does its work, and may be killed at it. Returns the kills,
        and how many epochs have been committed."""
        drawn, kills = self.round, []
        before, planned = self.judge.complete(), self.judge.planned_everywhere()
        if drawn.aim == "drain" and self.kill_finisher():
            kills.append((drawn.after, ["drain"]))
        if drawn.after == "agent":
            self.agent.start(drawn.agent_cap, drawn.carries)
            # A program that was killed disappears a moment before its locks and connections do.
            deadline = time.monotonic() + DISAPPEARS_S
            while True:
                status, text = self.agent.ask("drain")
                if '"busy"' not in text or time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            # Nodes that have no record of the newest epoch bring the others back to the one before
            # it. These see it in the next pass.
            if drawn.shared_every > 1:
                status, text = self.agent.ask("drain")
        else:
            self.agent.kill()
            status, text = self.command("drain", "--json", "--local-dir", self.local)
        if status not in (0, 1, 5):
            self.fail(f"{drawn.after}: {status}: {text}")
        return kills, len(planned & self.judge.check_finished(text) - before)

    def kill_finisher(self):
        """Returns whether it was hit at its work."""
        drain = None
        if self.round.after == "agent":
            self.agent.start(self.round.agent_cap, self.round.carries)
        else:
            self.agent.kill()
            nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            drain = self.start_tool("drain", "--local-dir", self.local, **nowhere)
        lives = self.agent.lives if drain is None else lambda: drain.poll() is None
        # What an agent carries has no other names than what the program flushes.
        at_work = {"flush", "drain"} if drain is None and self.agent.carries else {"drain"}
        deadline = time.monotonic() + 0.5
        while not at_work & self.under_way() and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(self.chance.choice([0, self.chance.uniform(0, 0.2)]))
        hit = bool(at_work & self.under_way()) and lives()
        if drain is None:
            self.agent.kill()
        else:
            drain.kill()
            drain.wait()
        return hit

    def lose_agent(self):
        """The program goes on without its agent."""
        self.agent.kill()
        self.signal_ranks(signal.SIGCONT)
        before = len(self.said().numbers("saved"))
        self.wait_for(
            lambda: len(self.said().numbers("saved")) > before, "a save after the agent's death"
        )

    # ---- a round
    def play(self):
        """Returns what the summary counts: kills as (what, phases), and facts."""
        drawn = self.round = draw(self.chance, self.agents)
        if self.judge.rebuilds and self.chance.random() < 0.3:
            drawn.aim = "rebuild"
        if drawn.agent:
            self.agent.start(drawn.agent_cap, drawn.carries)
        self.launch()
        self.wait_for_aim()
        kills = []
        if drawn.victim == "agent" and self.agent.lives():
            kills.append(("agent", self.phases()))
            self.lose_agent()
        if drawn.victim == "both" and self.agent.lives():
            self.agent.freeze()  # it must not see the program die
        phases = self.phases()
        lost = self.kill_program()
        if drawn.victim == "both":
            self.agent.kill()
        kills.append((drawn.victim if lost or drawn.victim == "both" else "program", phases))
        self.judge.note_layout(self.said())
        fact = {"restored": self.judge.check_restored()}
        self.judge.check_committed()
        fact["protected"] = 0 if lost else self.judge.check_kept()
        self.lose(drawn.lost)
        fact["beside"] = drawn.after == "restart" and self.agent.lives()
        more, fact["finished"] = ([], 0) if drawn.after == "restart" else self.finish_captured()
        self.judge.find_bound()
        return fact | {"kills": kills + more, "longest_s": self.watch.longest_s}

    def finish(self):
        """One more start, which ends well. Then files of whole epochs are there, and no others."""
        self.launch(epochs=2)
        self.watch.until(lambda: self.process.poll() is not None, "the end of the last start")
        status = self.process.returncode
        if status != 0 or len(self.said().numbers("closed")) != RANKS:
            self.fail(f"the last start should end well: status {status}; {self.said().facts}")
        self.judge.check_restored()
        complete = self.judge.check_committed()
        saved = self.said().saved_by_all()
        if newest(complete) < saved:
            self.fail(f"epoch {saved} was saved, and not committed when the session was closed: {complete}")
        keys = set()
        for name in tiers.names_in(self.shared):
            if (match := mpi_driver.SHARED_FILE.match(name)) is None:
                self.fail(f"{name} is left in the shared directory")
            keys.add((int(match["run"]), int(match["epoch"])))
        if keys != complete:
            self.fail(f"files of {sorted(keys)} lie there; complete are {sorted(complete)}")
        for run, epoch in complete:
            status, text = self.command("verify", self.shared, epoch, "--run", run)
            if status != 0:
                self.fail(f"epoch {epoch} of run {run} is not whole: {text}")
        self.agent.end()
