"""Programs for VELOC on ranks: killed and started again, versions that a rank drops, configurations that differ.

veloc_test.py --program veloc_ranks --cpp veloc_ranks_cpp -- mpirun -n
"""

import argparse
import os
import re
import shutil
import struct

import mpi_driver

MAPPED = "max_versions = 2\nscratch_versions = 1\n"


def config(workspace, name, more=""):
    top = workspace.directory(name)
    path = os.path.join(top, "veloc.cfg")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"scratch = {top}/scratch\npersistent = {top}/persistent\n{more}"
                   "tailrace_ranks_per_node = 1\ntailrace_record = no\ntailrace_buffer_bytes = 1MiB\n")
    return path


def killed_and_started_again(workspace, program, ranks, level, mode):
    path = config(workspace, f"{level}-{mode}-{ranks}", MAPPED + f"mode = {mode}\n")
    try:
        # With mode sync every rank has captured 20 and none has ended it: then it counts as saved.
        workspace.run(ranks, program, level, "run", path, 40, 20 if mode == "async" else -20)
        raise mpi_driver.Failure("the killed program should have failed")
    except mpi_driver.Failure as failure:
        if "exit status" not in str(failure):
            raise
    if mode == "async":  # the nodes are other ones
        shutil.rmtree(os.path.join(os.path.dirname(path), "scratch"))
    said = workspace.run(ranks, program, level, "run", path, 40, 0)
    if not re.search(r"^from 20$", said, re.M) or not re.search(r"^to 40$", said, re.M):
        raise mpi_driver.Failure(f"it should have gone on from 20:\n{said}")
    mpi_driver.check_shared_directory(os.path.join(os.path.dirname(path), "persistent", "list"), [35, 40], 1)


def files_killed_and_started_again(workspace, program, ranks, level, kill_at, begins_at):
    path = config(workspace, f"files-{level}-{ranks}-{kill_at}", MAPPED + "mode = async\n")
    top = os.path.dirname(path)
    try:
        workspace.run(ranks, program, level, "files", path, 40, kill_at)
        raise mpi_driver.Failure("the killed program should have failed")
    except mpi_driver.Failure as failure:
        if "exit status" not in str(failure):
            raise
    if kill_at > 0:  # the nodes are other ones
        shutil.rmtree(os.path.join(top, "scratch"))
    said = workspace.run(ranks, program, level, "files", path, 40, 0)
    if not re.search(rf"^from {begins_at}$", said, re.M) or not re.search(r"^to 40$", said, re.M):
        raise mpi_driver.Failure(f"it should have gone on from {begins_at}:\n{said}")
    mpi_driver.check_shared_directory(os.path.join(top, "persistent", "list"), [35, 40], 1)
    left = [where for where, _, names in os.walk(os.path.join(top, "scratch")) if "veloc" in names]
    if left:
        raise mpi_driver.Failure(f"files of the program stay in {left}")


def part_of_veloc(rank, step):
    """The file of a rank as VELOC writes it, with what veloc_ranks has at that step."""
    values = [step * 1000003 + rank * 7919 + i for i in range(1000 * (rank + 1) + 37 * step)]
    regions = {0: struct.pack("<i", step), 1: struct.pack(f"<{len(values)}i", *values)}
    table = b"".join(struct.pack("<iQ", id, len(content)) for id, content in regions.items())
    return struct.pack("<Q", len(regions)) + table + b"".join(regions.values())


def taken_over_from_veloc(workspace, program):
    """Of VELOC's versions 15 is the newest that is whole: 25 lacks a rank, and of 20 one rank's file is cut."""
    for aggregated in (False, True):
        path = config(workspace, f"import-{aggregated}", "mode = async\n")
        top = os.path.dirname(path)
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"tailrace_import = {top}\n")
        files = {f"list-{rank}-{step}.dat": part_of_veloc(rank, step) for rank in (0, 1) for step in (10, 15, 20)}
        files["list-0-25.dat"] = part_of_veloc(0, 25)
        files["list-1-20.dat"] = files["list-1-20.dat"][:-1]
        if aggregated:
            files["list-agg-15.dat"] = files.pop("list-0-15.dat") + files.pop("list-1-15.dat")
        for name, content in files.items():
            with open(os.path.join(top, name), "wb") as file:
                file.write(content)
        said = workspace.run(2, program, "multiple", "run", path, 30, 0)
        if not re.search(r"^from 15$", said, re.M) or "version 15 of list was taken over" not in said:
            raise mpi_driver.Failure(f"it should have gone on from VELOC's 15:\n{said}")


def other_numbers_of_ranks(workspace, program):
    """A version is none for a rank that has saved nothing of it; what too few ranks leave out is said."""
    path = config(workspace, "others", MAPPED + "mode = sync\n")
    workspace.run(2, program, "multiple", "run", path, 20, 0)
    for ranks, begins_at, sentence in ((3, 0, "was saved by 2 ranks, and this program has 3; it is restored"),
                                       (1, 20, "was saved by 3 ranks, and this program has 1; what the others")):
        said = workspace.run(ranks, program, "multiple", "run", path, 20 if begins_at == 0 else 40, 0)
        if not re.search(rf"^from {begins_at}$", said, re.M) or sentence not in said:
            raise mpi_driver.Failure(f"on {ranks} ranks it should go on from {begins_at} and say '{sentence}':\n{said}")


def damage_file_of_rank_1(path):
    """In the files of all ranks; on the nodes nothing is left."""
    top = os.path.dirname(path)
    shutil.rmtree(os.path.join(top, "scratch"))
    directory = os.path.join(top, "persistent", "file")
    for name in os.listdir(directory):
        if name.endswith(".tailrace"):
            with open(os.path.join(directory, name), "r+b") as file:
                content = file.read()
                file.seek(0)
                file.write(content.replace(b"what rank 1 says", b"what rank 1 lies"))


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--cpp", required=True)
    parser.add_argument("mpiexec", nargs="+")
    options = parser.parse_args()
    with mpi_driver.Workspace(options.mpiexec) as workspace:
        for key in [key for key in workspace.environment if key.startswith("VELOC_")]:
            del workspace.environment[key]
        for ranks, level, mode in ((2, "multiple", "async"), (4, "multiple", "sync"), (4, "single", "async")):
            killed_and_started_again(workspace, options.program, ranks, level, mode)
        # A file that was routed and is not saved does not exist.
        for ranks, level, kill_at, begins_at in ((2, "multiple", 20, 20), (4, "multiple", -20, 15),
                                                 (4, "single", 20, 20)):
            files_killed_and_started_again(workspace, options.program, ranks, level, kill_at, begins_at)
        for level in ("multiple", "single"):
            for scenario in ("drop", "drop_files"):
                path = config(workspace, f"{scenario}-{level}", "mode = async\n")
                said = workspace.run(3, options.program, level, scenario, path)
                if "the program has dropped it" not in said:
                    raise mpi_driver.Failure(f"nobody says why version 2 is lost:\n{said}")
            bad = config(workspace, f"bad-{level}")
            said = workspace.run(2, options.program, level, "refused", path, bad)
            for sentence in ("mode is missing", "another rank cannot use its configuration", "call VELOC_Init first",
                             'persistent is "" here', 'mode is "async" here and "sync" on rank 0',
                             "another rank has another configuration"):
                if sentence not in said:
                    raise mpi_driver.Failure(f"'{sentence}' should have been said:\n{said}")
        taken_over_from_veloc(workspace, options.program)
        other_numbers_of_ranks(workspace, options.program)
        for level in ("multiple", "single"):
            path = config(workspace, f"cpp-{level}", "mode = async\n")
            workspace.run(2, options.cpp, level, "save", path)
            workspace.run(3, options.cpp, level, "others", path)
            damage_file_of_rank_1(path)
            workspace.run(1, options.cpp, level, "damaged", path)
        workspace.run(1, options.cpp, "multiple", "save", config(workspace, "cpp-alone", "mode = async\n"))


mpi_driver.main(test)
