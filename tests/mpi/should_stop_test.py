"""A signal at one rank, at a random time, stops all ranks at the same step; so does `tailrace halt`'s file.

    should_stop_test.py --program P --ranks 4 --mode multiple|funneled --rounds N -- mpirun -n

Prints the seed of each round; TAILRACE_SEED replays its rank, signal and waiting time.
"""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time

import mpi_driver


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


def pids(directory, ranks):
    """Of all ranks, when each has opened its session."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            texts = [open(os.path.join(directory, f"pid.{rank}"), encoding="ascii").read() for rank in range(ranks)]
        except FileNotFoundError:
            texts = []
        if texts and all(text.endswith("\n") for text in texts):
            return [int(text) for text in texts]
        time.sleep(0.01)
    raise mpi_driver.Failure("not all ranks have opened a session in 60 s")


def halt(directory):
    """As `tailrace halt --now` writes it."""
    path = os.path.join(directory, "shared", "tailrace.halt")
    with open(os.open(path + ".new", os.O_WRONLY | os.O_CREAT, 0o644), "w", encoding="ascii") as file:
        file.write("tailrace halt 1\nnow\nid 1\nby anna@login\n")
    os.rename(path + ".new", path)


def play(workspace, arguments, seed):
    dice = random.Random(seed)
    ranks = arguments.ranks
    directory = workspace.directory(f"round {seed}")
    workspace.environment["TAILRACE_SEED"] = str(seed)
    asked, by = dice.randrange(ranks), dice.choice([signal.SIGUSR1, signal.SIGTERM, None])
    print(f"TAILRACE_SEED={seed}: {by.name if by else 'halt file'}, rank {asked}", flush=True)
    process = workspace.start(ranks, arguments.program, directory, arguments.mode, 20000, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
    found = pids(directory, ranks)
    time.sleep(dice.random() ** 3)
    if by is None:
        halt(directory)
    else:
        os.kill(found[asked], by)
    said, _ = process.communicate(timeout=90)
    sys.stdout.write(said)
    expected = f"signal {by.name[3:]} at rank {asked}" if by else "halted by anna@login"
    if process.returncode != 0 or not re.search(rf"all stop at call \d+: {expected}\n", said):
        raise mpi_driver.Failure(f"exit status {process.returncode}, and not 'all stop at call N: {expected}'")
    if os.path.exists(os.path.join(directory, "shared", "tailrace.halt")):
        raise mpi_driver.Failure("the halt file is still there")


def test():
    arguments = parse()
    given = os.environ.get("TAILRACE_SEED")
    seeds = [int(given)] if given else [random.randrange(1 << 31) for _ in range(arguments.rounds)]
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        for seed in seeds:
            play(workspace, arguments, seed)


mpi_driver.main(test)
