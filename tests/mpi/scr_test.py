r"""Programs for SCR on ranks: killed and started again, one rank that does otherwise, other numbers of ranks.

scr_test.py --program scr_ranks --index scr_index [--halt scr_halt --tool tailrace] [--fortran scr_ranks_fortran] \
    -- mpirun -n
"""

import argparse
import os
import re
import shutil
import subprocess

import mpi_driver


class Prefixes:
    """Makes prefixes, and sets SCR's keys for the next programs."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.count = 0
        for key in [key for key in workspace.environment if key.startswith("SCR_")]:
            del workspace.environment[key]
        self.keys = []

    def new(self, **keys):
        self.count += 1
        prefix = self.workspace.directory(f"prefix-{self.count}")
        for key in self.keys:
            self.workspace.environment.pop(key, None)
        wanted = {"SCR_PREFIX": prefix, "SCR_CACHE_BASE": os.path.join(prefix, "tier"),
                  "TAILRACE_RECORD": "no", "TAILRACE_BUFFER_BYTES": "1MiB", "TAILRACE_RANKS_PER_NODE": "1", **keys}
        self.workspace.environment.update(wanted)
        self.keys = list(wanted)
        return prefix


def fails(workspace, *command):
    try:
        workspace.run(*command)
    except mpi_driver.Failure as failure:
        if "exit status" in str(failure):
            return
        raise
    raise mpi_driver.Failure("the killed program should have failed")


def says(said, *patterns):
    for pattern in patterns:
        if not re.search(pattern, said, re.M):
            raise mpi_driver.Failure(f"'{pattern}' should have been said:\n{said}")


def valid_datasets(command, prefix):
    """The names of the datasets that scr_index calls valid, newest first."""
    said = subprocess.run([command, "--prefix", prefix], capture_output=True, text=True, timeout=30, check=True).stdout
    return [line.split()[-1] for line in said.splitlines() if line.split()[1] == "YES"]


def killed_and_started_again(prefixes, program, index, ranks, level, kill_at, **keys):
    """In 20 the dataset is complete, and in -20 it does not exist yet. The nodes are other ones afterwards."""
    prefix = prefixes.new(SCR_CHECKPOINT_INTERVAL="5", **keys)
    workspace = prefixes.workspace
    fails(workspace, ranks, program, level, "run", 40, kill_at)
    shutil.rmtree(os.path.join(prefix, "tier"))
    says(workspace.run(ranks, program, level, "run", 40, 0), rf"^from {20 if kill_at > 0 else 15}$", "^to 40$")
    says(workspace.run(ranks, program, level, "run", 45, 0), "^from 40$", "^to 45$")
    expected = [f"step_{step}" for step in range(45, 0, -5)]
    if valid_datasets(index, prefix) != expected:
        raise mpi_driver.Failure(f"{valid_datasets(index, prefix)} are valid, and not {expected}")
    subprocess.run([index, "--prefix", prefix, "--drop", expected[2]], timeout=30, check=True)
    subprocess.run([index, "--prefix", prefix, "--add", expected[2]], timeout=30, check=True)
    if valid_datasets(index, prefix) != expected:
        raise mpi_driver.Failure(f"{expected[2]} was not put back: {valid_datasets(index, prefix)}")
    left = [where for where, _, names in os.walk(os.path.join(prefix, "tier")) if "part.0" in names]
    if left:
        raise mpi_driver.Failure(f"files of the program stay in {left}")


def captured_and_not_flushed(prefixes, program, ranks):
    """Of the asynchronous way a captured dataset counts: the next run finds it on the nodes."""
    prefixes.new(SCR_CHECKPOINT_INTERVAL="5", SCR_CACHE_BYPASS="0", SCR_FLUSH_ASYNC="1")
    fails(prefixes.workspace, ranks, program, "multiple", "run", 40, 20)
    says(prefixes.workspace.run(ranks, program, "multiple", "run", 40, 0), "^from 20$", "^to 40$")


def on_more_ranks_from_the_nodes(prefixes, program):
    """A cached checkpoint that is on the nodes alone comes to ranks on other nodes."""
    prefixes.new(SCR_CACHE_BYPASS="0", SCR_CHECKPOINT_INTERVAL="5", TAILRACE_SHARED_EVERY="100",
                 TAILRACE_FLUSH_AT_CLOSE="no")
    prefixes.workspace.run(2, program, "multiple", "run", 10, 0)
    prefixes.workspace.run(4, program, "multiple", "others", 2, 10)


def outputs_lie_under_their_names(prefixes, program, index, level, **keys):
    """Outputs have no part in the checkpoints' retention."""
    prefix = prefixes.new(TAILRACE_KEEP_SHARED="1", **keys)
    prefixes.workspace.run(3, program, level, "outputs", 4, 0)
    expected = ["picture_4", "step_4", "picture_3", "picture_2", "picture_1"]
    if valid_datasets(index, prefix) != expected:
        raise mpi_driver.Failure(f"{valid_datasets(index, prefix)} are valid, and not {expected}")


def outputs_of_a_killed_run_are_completed(prefixes, program, index):
    """The next run finishes them, also if it has no outputs itself."""
    keys = {"SCR_CHECKPOINT_INTERVAL": "5", "SCR_CACHE_BYPASS": "0", "SCR_FLUSH_ASYNC": "1"}
    prefix = prefixes.new(**keys, TAILRACE_BANDWIDTH_CAP="1KiB")
    fails(prefixes.workspace, 3, program, "multiple", "outputs", 1, 1)
    prefixes.new(**keys, SCR_PREFIX=prefix, SCR_CACHE_BASE=os.path.join(prefix, "tier"))
    prefixes.workspace.run(3, program, "multiple", "run", 3, 0)
    expected = ["picture_1", "step_1"]
    if valid_datasets(index, prefix) != expected:
        raise mpi_driver.Failure(f"{valid_datasets(index, prefix)} are valid, and not {expected}")
    written = os.path.join(prefix, ".scr", "tailrace", "scr.outputs", "scr.files", "e000000002", "step_101")
    if sorted(os.listdir(written)) != ["rank_0", "rank_1", "rank_2"]:
        raise mpi_driver.Failure(f"{written} has {os.listdir(written)}")


def stops_when_asked(prefixes, program, options):
    """scr_halt finds `tailrace` in PATH, because here it does not lie beside it."""
    prefix = prefixes.new(SCR_CHECKPOINT_INTERVAL="5")
    prefixes.workspace.run(2, program, "multiple", "run", 5, 0)
    path = os.pathsep.join((os.path.dirname(options.tool), os.environ["PATH"]))
    subprocess.run([options.halt, "--immediate", prefix], env={**os.environ, "PATH": path}, timeout=30, check=True)
    prefixes.new(SCR_PREFIX=prefix)
    prefixes.workspace.run(2, program, "multiple", "halted")
    if valid_datasets(options.index, prefix) != ["step_7", "step_5"]:
        raise mpi_driver.Failure(f"{valid_datasets(options.index, prefix)} are valid, and not step_7 and step_5")


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--halt")
    parser.add_argument("--tool")
    parser.add_argument("--fortran")
    parser.add_argument("mpiexec", nargs="+")
    options = parser.parse_args()
    program = options.program
    with mpi_driver.Workspace(options.mpiexec) as workspace:
        prefixes = Prefixes(workspace)
        for bypass in ("1", "0"):
            for ranks, level, kill_at in ((1, "multiple", 20), (4, "multiple", 20), (4, "single", -20)):
                killed_and_started_again(prefixes, program, options.index, ranks, level, kill_at,
                                         SCR_CACHE_BYPASS=bypass)
            for level in ("multiple", "single"):
                prefixes.new(SCR_CACHE_BYPASS=bypass)
                says(workspace.run(3, program, level, "odd"), "SCR_Complete_output: another rank has failed",
                     'the name is "step_4" here and "step_5" on rank 0', "not below the prefix")
                prefixes.new(SCR_CACHE_BYPASS=bypass)
                said = workspace.run(3, program, level, "shared", bypass)
                if bypass == "0":
                    says(said, "ranks 0 and 1 have both routed all/data; .* set SCR_CACHE_BYPASS=1")
                prefixes.new(SCR_CACHE_BYPASS=bypass, SCR_CHECKPOINT_INTERVAL="5")
                workspace.run(3, program, level, "run", 5, 0)
                workspace.run(2, program, level, "others", 3, 5)
                workspace.run(4, program, level, "others", 2, 6)
                outputs_lie_under_their_names(prefixes, program, options.index, level, SCR_CACHE_BYPASS=bypass)
        killed_and_started_again(prefixes, program, options.index, 4, "multiple", 20, SCR_CACHE_BYPASS="0",
                                 SCR_COPY_TYPE="PARTNER")
        captured_and_not_flushed(prefixes, program, 4)
        outputs_of_a_killed_run_are_completed(prefixes, program, options.index)
        on_more_ranks_from_the_nodes(prefixes, program)
        if options.halt:
            stops_when_asked(prefixes, program, options)
        for level in ("multiple", "single"):
            prefix = prefixes.new(SCR_CACHE_BYPASS="0", SCR_FLUSH_ASYNC="1")
            says(workspace.run(2, program, level, "calls"), "call SCR_Init first", "it was called already",
                 "has no effect after SCR_Init", "flag is NULL")
            directory = os.path.join(prefix, ".scr", "tailrace")
            mpi_driver.check_shared_directory(directory, [3, 4], 1, ["scr.outputs"])
            mpi_driver.check_shared_directory(os.path.join(directory, "scr.outputs"), [2], 1, ["scr.files"])
        prefixes.new()
        says(workspace.run(2, program, "multiple", "refused"), "another rank cannot use its configuration",
             'SCR_CACHE_BYPASS is "0" here and "1" on rank 0', "SCR_CACHE_BYPASS = perhaps: write 1 or 0")
        if options.fortran:
            for bypass in ("1", "0"):
                os.chdir(prefixes.new(SCR_CACHE_BYPASS=bypass))  # names are relative there
                says(workspace.run(2, options.fortran), "^from 0$", "^to 6$")
                says(workspace.run(2, options.fortran), "^from 6$", "^to 12$")
            os.chdir("/")


mpi_driver.main(test)
