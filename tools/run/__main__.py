"""tailrace run -- COMMAND...: runs a program, and starts it again when it dies.

The tailrace command, which finds the interpreter, starts it. The exit status is the program's own.
Before the program was started it is as for the other commands: 2 wrong usage, 3 not found, 4 no node
is well, or the program cannot be started.

The loop, for each attempt:
  1. Check the nodes' health, and write a host file of those that are well.
  2. Start agents, and the program. Signals are passed on to it. It is ended when a node is lost
     and the launcher does not notice (watching.py).
  3. When it has ended, stop the agents and drain the nodes.
  4. See which epoch the program would go on from, and decide (decisions.py).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time

import agents
import epochs
import launchers
import placement
import set_aside
from decisions import DEATHS_BEFORE_STEP_BACK, Action, Attempt, Decision, Rules, decide, describe, exit_status
from program import Ended, Program
from watching import Watch

DESCRIPTION = """Run a program that saves with tailrace, and start it again when it dies: by a signal, with a status
other than 0, or because a node is lost. Before each new start, the epochs that the program had captured are
committed (tailrace drain), the nodes are checked, and the launcher is told to use those that are well. Each attempt
gets a line on standard error: what happened, how long it ran, and from which epoch the program goes on."""
EPILOG = """The launcher in COMMAND is told by its own option: MPICH's mpiexec by -f, Open MPI's mpirun by --hostfile,
Slurm's srun by --nodes and --nodelist. Or COMMAND says itself where: {nodes} becomes the path of a host file,
{hosts} the hosts with commas, {count} their number, {slots} the sum of their slots.

When the program has died twice from the same epoch without reaching a newer one, and no node was lost, that epoch is
set aside: its files go to set-aside/ in the shared directory, with a note how to bring them back. The program then
goes on from the epoch before it.

SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to COMMAND. After the first three it is not started again.

examples:
  tailrace run -- mpiexec -n 16 ./simulation
  tailrace run --nodes hosts --health ./check -- mpirun -n {slots} ./simulation
  tailrace run --restarts 20 -- srun -n 64 ./simulation        in a job with `#SBATCH --no-kill`"""
DRAIN_S = 3600
LEAVE_S = 10
WATCH_S = 60


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9})(s|min|m|h|d|)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time, such as 90s or 5min")
    return float(match[1]) * {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}[match[2]]


def count(text: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number")
    return int(text)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line. What follows the options is the program."""
    parser = argparse.ArgumentParser(
        prog="tailrace run",
        usage="tailrace run [options] -- COMMAND...",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--restarts", type=count, default=10, metavar="N", help="start it again N times at most (default: 10)")
    add("--nodes", default="", metavar="FILE",
        help="host file of MPICH or Open MPI (default: the nodes of the Slurm job, or this machine)")  # fmt: skip
    add("--health", default="", metavar="COMMAND",
        help="is run with a host's name as its last argument before each start, and leaves the host out if it fails "
        "(default: whether the host runs commands)")  # fmt: skip
    add("--watch", type=seconds, metavar="TIME",
        help="check the nodes this often while the program runs, and end it when one fails twice (default: 60s; "
        "0, which is never, where Slurm does it)")  # fmt: skip
    add("--launcher", default="auto", choices=["auto", "ssh", "srun", "local"],
        help="how commands are run on nodes; local: all on this machine")  # fmt: skip
    add("--dir", default="", metavar="DIR",
        help="the program's shared directory (default: from the settings, or the records of its sessions)")  # fmt: skip
    add("--local-dir", default="", metavar="DIR", help="the node-local tier, if the program sets it")
    add("--name", default="", metavar="JOB", help="the job's name, if the shared directory holds several jobs")
    add("--no-step-back", action="store_true", help="never set an epoch aside, and only stop at --restarts")
    add("--grace", type=seconds, default=60.0, metavar="TIME",
        help="how long the program and the drain may take after SIGTERM, SIGINT or SIGHUP (default: 60s)")  # fmt: skip
    add("--tailrace", default="tailrace", help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not options.command:
        parser.error("a program is missing: tailrace run -- COMMAND...")
    return options


def say(sentence: str) -> None:
    print(f"tailrace run: {sentence}", file=sys.stderr, flush=True)


def complain(sentence: str, status: int) -> int:
    say(sentence)
    return status


def nodes_of_job() -> list[placement.Node]:
    """Those of the Slurm job that this is; otherwise this machine."""
    names = os.environ.get("SLURM_JOB_NODELIST")
    if names and shutil.which("scontrol"):
        done = launchers.run(["scontrol", "show", "hostnames", names], 60)
        if done.status == 0 and done.output.split():
            hosts = done.output.split()
            slots = placement.counts(os.environ.get("SLURM_TASKS_PER_NODE", ""))
            return [
                placement.Node(host, slots[i] if len(slots) == len(hosts) else None) for i, host in enumerate(hosts)
            ]
    return []


class Runner:
    """One call of tailrace run."""

    def __init__(self, options: argparse.Namespace, nodes: list[placement.Node], scratch: str) -> None:
        self.options = options
        self.tool: str = options.tailrace
        self.nodes = nodes
        self.family = placement.family_of(options.command[0])
        self.launcher = launchers.choose(options.launcher, [node.host for node in nodes])
        self.scratch = scratch
        self.program = Program(options.grace)
        self.agents = agents.Agents(self.tool, self.launcher)
        self.place: epochs.Place | None = None
        self.attempts: list[Attempt] = []
        self.sick: dict[str, str] = {}
        self.headline = ""

    def run(self) -> int:
        try:
            return self.attempts_until_the_end()
        finally:
            self.agents.stop(self.program.at_most(LEAVE_S))  # whatever was raised, none is left behind

    def attempts_until_the_end(self) -> int:
        rules = Rules(self.options.restarts, not self.options.no_step_back)
        if directory := self.options.dir or epochs.directory_in_settings(os.environ):
            local = (self.options.local_dir,) if self.options.local_dir else ()
            self.place = epochs.Place(os.path.abspath(directory), self.options.name, local)
        well = self.healthy()
        survey = self.survey(well)
        while True:
            if self.attempts and self.program.asked_to_end:  # since the program has ended
                say("not started again: it was asked to end")
                return exit_status(self.attempts[-1].status)
            if self.nodes and not well:
                return complain("no node is well; the program is not started", 4)
            attempt, survey, well = self.attempt(well, survey)
            self.attempts.append(attempt)
            left = len(well) if self.nodes else 1
            decision = decide(self.attempts, rules, nodes_left=left, older_exists=survey.older_exists)
            if decision.action is Action.STEP_BACK:
                survey, decision = self.step_back(survey, well)
            self.report(survey, decision)
            if decision.action is Action.END:
                return exit_status(attempt.status)

    def healthy(self) -> list[placement.Node]:
        """The nodes that are well. Says what has changed."""
        hosts = [node.host for node in self.nodes]
        sick = launchers.sick(self.launcher, hosts, self.options.health)
        for host in hosts:
            if host in sick and host not in self.sick:
                say(f"node {host} is left out: {sick[host]}")
            if host in self.sick and host not in sick:
                say(f"node {host} is well again")
        self.sick = sick
        return [node for node in self.nodes if node.host not in sick]

    def watch(self, hosts: list[str]) -> Watch | None:
        """The check of nodes while the program runs. Slurm ends a step that has lost a node."""
        every_s = self.options.watch
        if every_s is None:
            every_s = 0.0 if self.launcher == "srun" and not self.options.health else WATCH_S
        if every_s == 0 or not hosts or (self.launcher == "local" and not self.options.health):
            return None
        return Watch(lambda: launchers.sick(self.launcher, hosts, self.options.health), every_s)

    def run_program(self, command: list[str], hosts: list[str]) -> tuple[Ended, dict[str, str]]:
        """Returns also the nodes for which it was ended."""
        watch = self.watch(hosts)
        if watch is None:
            return self.program.run(command), {}
        watch.start()
        ended = self.program.run(command, watch.lost)
        watch.stop()
        for host, why in watch.lost().items():
            say(f"node {host} was lost while the program ran, which was ended: {why}")
        return ended, watch.lost()

    def survey(self, nodes: list[placement.Node]) -> epochs.Survey:
        if self.place is None:
            return epochs.Survey(why_unknown="the program's shared directory is not known")
        return epochs.survey(self.tool, self.launcher, [node.host for node in nodes], self.place)

    def attempt(
        self, nodes: list[placement.Node], survey: epochs.Survey
    ) -> tuple[Attempt, epochs.Survey, list[placement.Node]]:
        """Steps 1 to 3, and what is there afterwards."""
        hosts = [node.host for node in nodes]
        file = os.path.join(self.scratch, f"hosts-{len(self.attempts) + 1}")
        with open(file, "w", encoding="utf-8") as out:
            out.write(placement.host_file(nodes, self.family))
        command = list(self.options.command)
        if nodes:
            command = placement.place(command, self.family, nodes, self.options.nodes, file)
        self.agents.start(hosts, self.place.local_dirs if self.place else [])
        began = time.time()
        ended, lost = self.run_program(command, hosts)
        self.agents.stop(self.program.at_most(DRAIN_S))
        self.learn_place(began)
        well, after = nodes, survey
        # MPICH's mpiexec ends with status 0 after SIGTERM, whatever its ranks did.
        if ended.status != 0 or self.program.asked_to_end:
            well = nodes if self.program.asked_to_end else self.healthy()
            self.drain(well)
            after = self.survey(well)
        on = f" on {len(nodes)} node{'s' if len(nodes) > 1 else ''}" if nodes else ""
        number = len(self.attempts) + 1
        self.headline = f"attempt {number}: the program {describe(ended.status)} after {ended.seconds:.1f} s{on}"
        sessions = self.sessions(began)
        before = survey.newest
        if survey.why_unknown and after.newest and not any(one.run == after.newest.run for one in sessions or []):
            before = after.newest  # it was there before, because no session of this attempt has saved it
        attempt = Attempt(
            status=ended.status,
            seconds=ended.seconds,
            before=before,
            after=after.newest,
            lost=tuple(node.host for node in nodes if node not in well or node.host in lost),
            asked_to_end=self.program.asked_to_end,
            opened=sessions is None or bool(sessions),
            known=not after.why_unknown and (not survey.why_unknown or sessions is not None),
        )
        return attempt, after, well

    def learn_place(self, began: float) -> None:
        """From the sessions of the attempt, as far as the user has not said it."""
        found = epochs.sessions_in_records(epochs.record_directory(os.environ), began)
        if not found:
            return
        place = found[-1].place
        if self.place and os.path.realpath(self.place.directory) != os.path.realpath(place.directory):
            return
        own = (self.options.local_dir,) if self.options.local_dir else ()
        self.place = epochs.Place(place.directory, self.options.name or place.job, own or place.local_dirs)

    def sessions(self, began: float) -> list[epochs.Session] | None:
        """Those of an attempt. None: nobody keeps records of them."""
        if self.place is None:
            return None
        return epochs.sessions_on(epochs.record_directory(os.environ), self.place, began)

    def drain(self, nodes: list[placement.Node]) -> None:
        time_left = self.program.at_most(DRAIN_S)
        if time_left() < 1:
            say("no time is left to drain the nodes: `tailrace drain` on each node, or the next session, finishes "
                "what the program had captured")  # fmt: skip
            return
        place = self.place or epochs.Place("", self.options.name, ())
        hosts = [node.host for node in nodes]
        for sentence in agents.drain(self.tool, self.launcher, hosts, place.local_dirs, place.job, time_left):
            say(f"not drained: {sentence}")

    def report(self, survey: epochs.Survey, decision: Decision) -> None:
        """The line of the last attempt."""
        attempt = self.attempts[-1]
        if attempt.status == 0 and not attempt.asked_to_end:
            say(self.headline)
            return
        ends = decision.action is Action.END
        goes_on = "would go on" if ends else "goes on"
        if survey.why_unknown:
            where = f"from which epoch it {goes_on} is not known: {survey.why_unknown}"
        elif survey.newest is None:
            where = "there is no epoch" if ends else "it begins anew, because there is no epoch"
        else:
            where = f"it {goes_on} from {survey.newest}{'' if survey.in_shared else ', which lies on the nodes'}"
        for epoch, nodes in survey.waiting.items():
            where += f"; {epoch} waits for {', '.join(nodes)}"
        why = decision.why or ("it was asked to end" if attempt.asked_to_end else "")
        say(f"{self.headline}; {f'not started again: {why}; ' if ends else ''}{where}")

    def step_back(self, survey: epochs.Survey, nodes: list[placement.Node]) -> tuple[epochs.Survey, Decision]:
        """Sets the newest epoch aside. Returns what is there now. If that failed, the decision is to end."""
        assert survey.newest is not None and self.place is not None
        epoch, directory, job = survey.newest, self.place.directory, survey.job
        hosts = [node.host for node in nodes]
        try:
            set_aside.shared_files(directory, job, epoch.number, epoch.run)
        except OSError as error:
            why = f"{epoch} cannot be set aside: {error.filename}: {error.strerror}"
            return survey, Decision(Action.END, why)
        local_dirs = self.place.local_dirs or agents.local_directories(self.tool, self.launcher, hosts)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "set_aside.py")
        how = "remove" if survey.in_shared else "move"
        words = [sys.executable, "-B", script, *local_dirs, "--", directory, job, str(epoch.number), str(epoch.run)]
        for host, done in launchers.everywhere(self.launcher, hosts, [*words, how], DRAIN_S).items():
            if done.status != 0:
                say(f"{host}: captured parts of {epoch} may be left: {done.complaints.strip()}")
        now = self.survey(nodes)
        if now.newest == epoch:
            return now, Decision(Action.END, f"{epoch} cannot be set aside completely")
        aside = os.path.join(directory if survey.in_shared else "the nodes' directories", set_aside.NAME)
        say(
            f"the program died {DEATHS_BEFORE_STEP_BACK} times from {epoch} without reaching a newer one, so that "
            f"epoch is set aside: its files are in {aside}, with a note how to bring them back"
        )
        return now, Decision(Action.STEP_BACK)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if shutil.which(options.command[0]) is None:
        return complain(f"there is no program {options.command[0]!r} to run", 3)
    try:
        nodes = placement.read_nodes(options.nodes) if options.nodes else nodes_of_job()
    except OSError as error:
        return complain(f"--nodes {options.nodes}: {error.strerror}", 3)
    except ValueError as error:
        return complain(f"--nodes {options.nodes}: {error}", 2)
    scratch = tempfile.mkdtemp(prefix="tailrace-run-")
    try:
        return Runner(options, nodes, scratch).run()
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), 4)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
