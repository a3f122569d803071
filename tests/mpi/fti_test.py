r"""Programs for FTI on ranks: killed and started again, with lost nodes, and one rank that does otherwise.

fti_test.py --program fti_ranks [--fortran fti_ranks_fortran] -- mpirun -n
"""

import argparse
import glob
import os
import re
import shutil

import mpi_driver


class Runs:
    """Makes directories with a configuration file, in which programs are started more than once."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.count = 0

    def new(self, advanced="", **basic):
        """Each rank is a node, and four protect each other, unless a key says otherwise."""
        self.count += 1
        self.directory = self.workspace.directory(f"run-{self.count}")
        self.config = os.path.join(self.directory, "config.fti")
        keys = {"ckpt_dir": self.directory + "/local", "glbl_dir": self.directory + "/global",
                "node_size": 1, "group_size": 4, **basic}
        with open(self.config, "w", encoding="utf-8") as file:
            file.write("[Basic]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
                       + "[Advanced]\nlocal_test = 1\n" + advanced
                       + "[tailrace]\nrecord = no\nbuffer_bytes = 1MiB\n")

    def expect(self, ranks, command, *patterns):
        said = self.workspace.run(ranks, *command)
        self.says(said, patterns)
        return said

    @staticmethod
    def says(said, patterns):
        for pattern in patterns:
            if not re.search(pattern, said, re.M):
                raise mpi_driver.Failure(f"'{pattern}' should have been said:\n{said}")

    def fails(self, ranks, command, *patterns):
        try:
            self.workspace.run(ranks, *command)
        except mpi_driver.Failure as failure:
            if not re.search(r"exit status \d", str(failure)):
                raise
        else:
            raise mpi_driver.Failure("the program should have failed")
        with open(os.path.join(self.workspace.path, "output"), encoding="utf-8", errors="replace") as output:
            self.says(output.read(), patterns)

    def configured(self, line):
        with open(self.config, encoding="utf-8") as file:
            if line + "\n" not in file.read():
                raise mpi_driver.Failure(f"{self.config} should have the line {line}")

    def lose(self, *nodes):
        """Removes what these nodes have kept."""
        for node in nodes:
            lost = glob.glob(f"{self.directory}/local/*/tailrace/*.node{node:04}")
            if not lost:
                raise mpi_driver.Failure(f"node {node} has kept nothing")
            for directory in lost:
                shutil.rmtree(directory)


def run_of(program, runs, level, checkpoint_level, steps, kill_at=0):
    return [program, level, "run", runs.config, checkpoint_level, steps, kill_at]


def killed_and_started_again(runs, program, ranks, level, checkpoint_level, lost=(), goes_on=20, **keys):
    """The last checkpoint before the kill is that of step 20."""
    runs.new(**keys)
    runs.fails(ranks, run_of(program, runs, level, checkpoint_level, 40, 23), "^status 0, from 0$")
    runs.configured("failure = 1")
    runs.lose(*lost)
    runs.expect(ranks, run_of(program, runs, level, checkpoint_level, 40), f"^status 1, from {goes_on}$", "^to 40$")
    runs.configured("failure = 0")
    left = os.listdir(runs.directory + "/local") + os.listdir(runs.directory + "/global")
    if left:
        raise mpi_driver.Failure(f"FTI_Finalize should have removed {left}")
    runs.expect(ranks, run_of(program, runs, level, checkpoint_level, 1), "^status 0, from 0$")


def kept_at_the_end(runs, program, checkpoint_level):
    runs.new(keep_last_ckpt=1)
    runs.expect(2, run_of(program, runs, "multiple", checkpoint_level, 20), "^to 20$")
    runs.configured("failure = 2")
    if os.listdir(runs.directory + "/local"):
        raise mpi_driver.Failure("what is kept lies in the shared directory alone")
    runs.expect(2, run_of(program, runs, "multiple", checkpoint_level, 30), "^status 2, from 20$", "^to 30$")
    runs.fails(3, run_of(program, runs, "multiple", checkpoint_level, 40),
               "it was saved by 2 ranks, and these are 3; start 2", "no checkpoint of run")
    runs.expect(2, run_of(program, runs, "multiple", checkpoint_level, 30), "^status 2, from 30$")


def taken_by_snapshot(runs, program, level):
    """The program ends without FTI_Finalize, so the next start is a restart."""
    runs.new(advanced="fast_forward = 10\n", ckpt_l1=1)
    runs.expect(2, [program, level, "snapshots", runs.config], "^status 0, from 0$")
    runs.expect(2, [program, level, "snapshots", runs.config], "^status 1, going on$")


def something_is_in_the_way(runs, program):
    """What stands where a directory or file of the library should be is named, and nothing of it is touched."""
    def refused(*patterns, **basic):
        runs.new(**basic)
        runs.fails(2, run_of(program, runs, "multiple", 1, 10), *patterns)

    precious = os.path.join(runs.workspace.directory("outside"), "precious")
    with open(precious, "w", encoding="utf-8") as file:
        file.write("1")
    for key in ("ckpt_dir", "glbl_dir"):
        refused(f"{key} = {precious}/below: {precious} is a file and no directory", **{key: precious + "/below"})
        refused(f"{key} = .*/d+ has .* too long", **{key: runs.directory + "/" + "d" * 300})
        refused(f"{key} = .*/d has .* too long", **{key: runs.directory + "/d" * 2100})
        link = runs.directory + "/link"
        os.symlink("/nowhere/at/all", link)
        refused(f"{key} = {link}: {link} is a symbolic link that leads nowhere", **{key: link})
    runs.new(meta_dir=precious)
    runs.expect(2, run_of(program, runs, "multiple", 1, 10), "^to 10$")
    runs.new()
    os.makedirs(runs.config + ".new/below")
    runs.fails(2, run_of(program, runs, "multiple", 1, 10),
               r"config.fti.new: a directory stands where this file should be; move it away")

    outside = os.path.dirname(precious)
    for top in ("local", "global"):
        for below in ("", "/tailrace", "/tailrace/l1"):
            if top + below == "local/tailrace/l1":
                continue
            runs.new()
            runs.fails(2, run_of(program, runs, "multiple", 1, 40, 23))
            run, = os.listdir(f"{runs.directory}/{top}")
            place = f"{runs.directory}/{top}/{run}{below}"
            os.rename(place, runs.directory + "/moved")
            os.symlink(outside, place)
            runs.fails(2, run_of(program, runs, "multiple", 1, 40), f"{place} is a symbolic link, and a directory",
                       "nothing was changed. Mend what is said above")
            if os.listdir(outside) != ["precious"]:
                raise mpi_driver.Failure(f"{place} was followed: {os.listdir(outside)}")
            os.remove(place)
            shutil.copy(precious, place)
            runs.fails(2, run_of(program, runs, "multiple", 1, 40), f"{place} is a file, and a directory .*; move it away")
            os.remove(place)
            os.rename(runs.directory + "/moved", place)
            runs.expect(2, run_of(program, runs, "multiple", 1, 40), "^status 1, from 20$", "^to 40$")


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--fortran")
    parser.add_argument("mpiexec", nargs="+")
    options = parser.parse_args()
    program = options.program
    with mpi_driver.Workspace(options.mpiexec) as workspace:
        runs = Runs(workspace)
        for level in ("multiple", "single"):
            for checkpoint_level in range(5) if level == "multiple" else (0,):
                killed_and_started_again(runs, program, 4, level, checkpoint_level)
            killed_and_started_again(runs, program, 1, level, 0)
            # What each level survives. Of level 1 the first checkpoint alone lies in the shared directory.
            killed_and_started_again(runs, program, 4, level, 1, lost=(1,), goes_on=5)
            killed_and_started_again(runs, program, 4, level, 2, lost=(1,))
            killed_and_started_again(runs, program, 4, level, 3, lost=(1, 2))
            killed_and_started_again(runs, program, 4, level, 4, lost=(0, 1, 2, 3))
            runs.new()
            runs.expect(3, [program, level, "odd", runs.config], "id 0 has 12 bytes here and 8 bytes in the checkpoint")
            runs.new()
            said = runs.expect(2, [program, level, "calls", runs.config], "call FTI_Init first", "it was called already",
                               "FTI_SendFile: tailrace does not have this call", "no configuration file was named",
                               "the communicator is MPI_COMM_NULL", "type is NULL")
            if said.count("FTI_SendFile") != 2:
                raise mpi_driver.Failure(f"each rank should say once that FTI_SendFile is missing:\n{said}")
        runs.new()
        with open(runs.config, "a", encoding="utf-8") as file:
            file.write("files = many\n")
        runs.expect(2, [program, "multiple", "refused", runs.config], "config.fti, line 11: files = many: ")
        killed_and_started_again(runs, program, 4, "multiple", 4, inline_l4=0)
        for checkpoint_level in (0, 1, 4):
            kept_at_the_end(runs, program, checkpoint_level)
        taken_by_snapshot(runs, program, "multiple")
        something_is_in_the_way(runs, program)
        if options.fortran:
            runs.new()
            for status, to in ((0, 5), (1, 10)):
                runs.expect(2, [options.fortran, runs.config, to], f"^ *status +{status} *$", f"^ *to +{to} *$",
                            "id 6: an array with gaps", "FTI_SetAttribute: tailrace does not have this call")


mpi_driver.main(test)
