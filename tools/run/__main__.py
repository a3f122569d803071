"""tailrace run -- COMMAND...: runs a program, and starts it again when it dies.

The tailrace command finds the interpreter and starts this program. The exit status is the program's
own. If the program was never started, it is as for the other commands: 2 wrong usage, 3 not found, 4
no node is healthy, or the program cannot be started.

The loop, for each attempt:
  1. Check the nodes' health, and write a host file of the healthy ones.
  2. Start agents, and the program. Pass signals on to it. End it when a node is lost and the launcher
     does not notice (watching.py).
  3. When it has ended, let the agents finish, stop them, and drain the nodes.
  4. See which epoch the program would go on from, and decide (decisions.py).
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import sys
import uuid
from collections.abc import Collection, Mapping, Sequence

import agents
import carrying
import epochs
import launchers
import placement
import set_aside
from decisions import DEATHS_BEFORE_STEP_BACK, Action, Attempt, Decision, Rules, decide, describe, exit_status
from program import Ended, Program
from scratch import Scratch
from watching import Watch

DESCRIPTION = """Run a program that saves with tailrace, and start it again when it dies: by a signal, with a status
other than 0, or because a node is lost. Before each new start, tailrace run commits the epochs that the program had
captured (tailrace drain), checks the nodes, and makes the launcher use the healthy ones. It writes one line for each
attempt to standard error: what happened, how long it ran, and from which epoch the program goes on."""
EPILOG = """The launcher in COMMAND gets the nodes by its own option: -f for MPICH's mpiexec, --hostfile for Open MPI's
mpirun, --nodes and --nodelist for Slurm's srun. COMMAND can name the places itself instead: {nodes} becomes the path
of a host file, {hosts} the hosts separated by commas, {count} their number, and {slots} the sum of their slots.

If the program has died twice from the same epoch without reaching a newer one, and no node was lost, tailrace run sets
that epoch aside. Its files go to set-aside/ in the shared directory, with a note that says how to bring them back. The
program then goes on from the epoch before it.

Each node has an agent while the program runs. With --agents carry the launcher of COMMAND starts the agents as one MPI
job, with one agent per node. If the program has called plain MPI_Init, these agents also carry its epochs while it
runs. With agent_carries = yes they do so for any program. When a node is lost, MPI ends all agents. The next start has
new ones.

SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to COMMAND. After the first three it is not started again.
If tailrace run itself is killed (SIGKILL), COMMAND goes on running, but is never started again.

examples:
  tailrace run -- mpiexec -n 16 ./simulation
  tailrace run --nodes hosts --health ./check -- mpirun -n {slots} ./simulation
  tailrace run --agents carry -- srun -n 64 ./simulation
  tailrace run --restarts 20 -- srun -n 64 ./simulation        in a job with `#SBATCH --no-kill`"""
# Options whose value is a text. None may be empty: that is most often a variable of a script that is not set.
TEXTS = ("nodes", "health", "agents_launcher", "dir", "local_dir", "name")
MOST_RESTARTS = 999_999
INTERRUPTED = 130
DRAIN_S = 3600
LEAVE_S = 10
WATCH_S = 60


def seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9})(s|min|m|h|d|)", text, re.ASCII)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time, such as 90s or 5min")
    return float(match[1]) * {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}[match[2]]


def count(text: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII) or int(text) > MOST_RESTARTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {MOST_RESTARTS}")
    return int(text)


def filled(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("'' is empty: leave it out, or give it a value")
    return text


def words(text: str) -> str:
    """The text, if a shell can split it into words."""
    filled(text)
    try:
        shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be split into words: {error}") from error
    return text


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
    add("--restarts", type=count, default=10, metavar="N", help="start it again at most N times (default: 10)")
    add("--nodes", type=filled, metavar="FILE",
        help="host file of MPICH or Open MPI (default: the nodes of the Slurm job; elsewhere the command starts as it "
        "is)")  # fmt: skip
    add("--health", type=words, metavar="COMMAND",
        help="run this command before each start, with a host's name as its last argument, and leave the host out if "
        "it fails (default: leave out hosts that run no commands)")  # fmt: skip
    add("--watch", type=seconds, metavar="TIME",
        help="check the nodes this often while the program runs, and end the program when a node fails twice (default: "
        "60s; 0, which means never, if Slurm does so)")  # fmt: skip
    add("--launcher", default="auto", choices=["auto", "ssh", "srun", "local"],
        help="the way to run commands on nodes; local: run all of them on this machine")  # fmt: skip
    add("--agents", default="plain", choices=["plain", "carry", "none"],
        help="plain (default): agents finish the epochs that a program leaves when it dies; carry: the agents are one "
        "MPI job, and can also carry epochs while the program runs; none: no agents")  # fmt: skip
    add("--agents-launcher", type=words, metavar="WORDS",
        help="the command that starts the MPI job of --agents carry, if COMMAND's own launcher cannot, with {nodes}, "
        "{hosts} and {count} as in COMMAND: 'mpiexec -f {nodes} -ppn 1 -n {count}'")  # fmt: skip
    add("--dir", type=filled, metavar="DIR",
        help="the program's shared directory (default: from the settings, or the records of its sessions)")  # fmt: skip
    add("--local-dir", type=filled, metavar="DIR", help="the node-local tier, if the program sets it")
    add("--name", type=filled, metavar="JOB", help="the job's name, if the shared directory holds several jobs")
    add("--no-step-back", action="store_true", help="never set an epoch aside; only --restarts ends the attempts")
    add("--grace", type=seconds, default=60.0, metavar="TIME",
        help="how long the program and the drain may take after SIGTERM, SIGINT or SIGHUP (default: 60s)")  # fmt: skip
    add("--tailrace", default="tailrace", help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in TEXTS:
        setattr(options, name, getattr(options, name) or "")
    options.command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not options.command:
        parser.error("a program is missing: tailrace run -- COMMAND...")
    if options.agents_launcher and options.agents != "carry":
        parser.error("--agents-launcher is for --agents carry")
    return options


def say(sentence: str) -> None:
    sys.stderr.write(f"tailrace run: {sentence}\n")  # one call: threads say things, too
    sys.stderr.flush()


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

    def __init__(self, options: argparse.Namespace, nodes: list[placement.Node], scratch: Scratch) -> None:
        self.options = options
        self.tool: str = options.tailrace
        self.nodes = nodes
        self.family = placement.family_of(options.command[0])
        self.launcher = launchers.choose(options.launcher, [node.host for node in nodes])
        self.scratch = scratch.path
        self.program = Program(options.grace, [scratch.lock] if scratch.lock >= 0 else [])
        self.agents = self.make_agents()
        self.place: epochs.Place | None = None
        self.attempts: list[Attempt] = []
        self.sick: dict[str, str] = {}
        self.headline = ""

    def make_agents(self) -> agents.Agents | carrying.CarryingAgents | None:
        if self.options.agents == "none":
            return None
        if self.options.agents == "plain":
            return agents.Agents(self.tool, self.launcher, say)
        return carrying.CarryingAgents(self.tool, self.launcher, self.agents_command, say)

    def agents_command(self, hosts: Sequence[str], agent: Sequence[str]) -> list[str]:
        """What starts an agent on each of them, as one MPI job."""
        nodes = [placement.Node(host, 1) for host in hosts]
        file = os.path.join(self.scratch, f"agents-{len(self.attempts) + 1}")
        if own := shlex.split(self.options.agents_launcher):
            family = placement.family_of(own[0])
            launcher = placement.place(own, family, nodes, "", file)
        else:
            family = self.family
            nodes = [] if self.launcher == "local" else nodes
            launcher = placement.one_per_node(self.options.command, family, nodes, file, os.environ)
        with open(file, "w", encoding="utf-8") as out:
            out.write(placement.host_file(nodes, family))
        return [*launcher, *agent]

    def run(self) -> int:
        try:
            return self.attempts_until_the_end()
        finally:
            if self.agents is not None:
                self.agents.stop(self.program.at_most(LEAVE_S))  # whatever was raised, none is left behind

    def attempts_until_the_end(self) -> int:
        rules = Rules(self.options.restarts, not self.options.no_step_back)
        if directory := self.options.dir or epochs.directory_in_settings(os.environ):
            self.place = epochs.Place(os.path.abspath(directory), self.options.name, self.own_local_dirs())
        well = self.healthy()
        survey = self.survey(well)
        while True:
            if self.program.asked_to_end:  # since the program has ended, or before it was started
                again = " again" if self.attempts else ""
                say(f"not started{again}: it was asked to end")
                return exit_status(self.attempts[-1].status if self.attempts else -self.program.asked_by)
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
        sick = launchers.sick(self.launcher, hosts, self.options.health, self.program.unless_asked_to_end())
        if self.program.asked_to_end:  # checks that were cut short say nothing of their nodes
            return []
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
            return epochs.Survey(why_unknown="the program's shared directory is not known, so name it with --dir")
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
        if self.agents is not None:
            self.agents.start(hosts, self.local_dirs(), self.program.unless_asked_to_end())
        os.environ[placement.STARTED_BY] = f"tailrace run {uuid.uuid4()}"  # of this attempt
        known = set(epochs.sessions_in_records(epochs.record_directory(os.environ)))
        ended, lost = self.run_program(command, hosts)
        self.stop_agents(ended, hosts, lost)
        self.learn_place(os.environ[placement.STARTED_BY])
        well, after = nodes, survey
        # MPICH's mpiexec ends with status 0 after SIGTERM, whatever its ranks did.
        if ended.status != 0 or self.program.asked_to_end:
            well = nodes if self.program.asked_to_end else self.healthy()
            self.drain(well)
            after = self.survey(well)
        on = f" on {len(nodes)} node{'s' if len(nodes) > 1 else ''}" if nodes else ""
        number = len(self.attempts) + 1
        sessions = self.sessions(known)
        status, how = self.outcome(ended, sessions or [])
        self.headline = f"attempt {number}: the program {how} after {ended.seconds:.1f} s{on}"
        before = survey.newest
        if survey.why_unknown and after.newest and not any(one.run == after.newest.run for one in sessions or []):
            before = after.newest  # it was there before, because no session of this attempt has saved it
        attempt = Attempt(
            status=status,
            seconds=ended.seconds,
            before=before,
            after=after.newest,
            lost=tuple(node.host for node in nodes if node not in well or node.host in lost),
            asked_to_end=self.program.asked_to_end,
            opened=sessions is None or bool(sessions),
            known=not after.why_unknown and (not survey.why_unknown or sessions is not None),
        )
        return attempt, after, well

    def outcome(self, ended: Ended, sessions: Sequence[epochs.Session]) -> tuple[int, str]:
        """The status of an attempt with these sessions, and what is said of it. MPICH's mpiexec ends with 0 after a
        signal, whether its ranks ended well or were killed by it. That they have closed their session tells."""
        unsure = ended.status == 0 and self.program.asked_to_end and self.family == "mpich"
        if not unsure or (sessions and all(session.closed for session in sessions)):
            return ended.status, describe(ended.status)
        name = signal.Signals(self.program.asked_by).name
        return -self.program.asked_by, f"was ended by {name} (mpiexec does not say how, and its session was not closed)"

    def stop_agents(self, ended: Ended, hosts: Sequence[str], lost: Mapping[str, str]) -> None:
        """None waits for an agent whose node is lost. Those of one MPI job would, so they are ended."""
        if self.agents is None:
            return
        if isinstance(self.agents, carrying.CarryingAgents) and ended.status != 0 and not self.program.asked_to_end:
            lost = lost or launchers.sick(self.launcher, hosts, self.options.health)
            if lost:
                self.agents.abandon()
        self.agents.stop(self.program.at_most(DRAIN_S), lost)

    def learn_place(self, started_by: str) -> None:
        """From the sessions of the attempt, as far as the user has not said it. Other programs keep records there, too,
        so only those count that say what has started them."""
        records = epochs.sessions_in_records(epochs.record_directory(os.environ))
        found = [session for session in records if session.started_by == started_by]
        if not found:
            return
        place = found[-1].place
        if self.place and os.path.realpath(self.place.directory) != os.path.realpath(place.directory):
            return
        if self.place is None:
            say(f"the program saves in {place.directory}")
        self.place = epochs.Place(
            place.directory, self.options.name or place.job, self.own_local_dirs() or place.local_dirs
        )

    def sessions(self, known: Collection[epochs.Session]) -> list[epochs.Session] | None:
        """Those of an attempt. None: nobody keeps records of them."""
        if self.place is None:
            return None
        return epochs.new_sessions_on(epochs.record_directory(os.environ), self.place, known)

    def local_dirs(self) -> tuple[str, ...]:
        """Empty: the one of tailrace's settings."""
        return self.place.local_dirs if self.place else self.own_local_dirs()

    def own_local_dirs(self) -> tuple[str, ...]:
        return (self.options.local_dir,) if self.options.local_dir else ()

    def drain(self, nodes: list[placement.Node]) -> None:
        time_left = self.program.at_most(DRAIN_S)
        if time_left() < 1:
            say("no time is left to drain the nodes: `tailrace drain` on each node, or the next session, finishes "
                "what the program had captured")  # fmt: skip
            return
        place = self.place or epochs.Place("", self.options.name, self.local_dirs())
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
            where = f"it {goes_on} from {survey.newest}"
            if not survey.in_shared:
                where += ", which lies on the nodes"
            if survey.given_back:
                where += "; what lost nodes had captured of it comes back from the others"
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
            _, name = set_aside.shared_files(directory, job, epoch.number, epoch.run)
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
        aside = os.path.join(directory if survey.in_shared else "the nodes' directories", name)
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
    if not nodes and options.health:
        return complain("--health: the nodes are not known; name them with --nodes FILE", 2)
    if not nodes and (places := placement.places_in(options.command)):
        return complain(f"{', '.join(places)} in the command: the nodes are not known; name them with --nodes FILE", 2)
    if options.agents == "carry" and not options.agents_launcher and not placement.family_of(options.command[0]):
        return complain(
            f"--agents carry: {options.command[0]} is no launcher of MPICH, Open MPI or Slurm: name the one for the "
            "agents with --agents-launcher",
            2,
        )
    try:
        with Scratch() as scratch:
            return Runner(options, nodes, scratch).run()
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), 4)


def end_quietly_when_interrupted() -> None:
    """Until there is a program to end. The tailrace command has blocked the signal, because Python answers it with a
    traceback while it starts."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda _number, _frame: sys.exit(INTERRUPTED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


if __name__ == "__main__":
    end_quietly_when_interrupted()
    sys.exit(main(sys.argv[1:]))
