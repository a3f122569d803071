"""Ranks write their own files, are killed in between, and get the files of the last epoch back.

    files_test.py --program P --ranks 4 --restore-ranks 4,3 [--funneled] -- mpirun -n
"""
import argparse
import os
import shutil
import time

import mpi_driver


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--restore-ranks", required=True)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--funneled", action="store_true")
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


def file_sets(directory):
    """The directories with the program's files that are in the node-local tier."""
    return [os.path.join(place, name) for place, names, _ in os.walk(os.path.join(directory, "local"))
            for name in names if name.endswith(".files")]


def wait_until_ready(process, directory, ranks):
    deadline = time.monotonic() + 100
    while not all(os.path.exists(os.path.join(directory, f"ready.{rank}")) for rank in range(ranks)):
        if process.poll() is not None:
            raise mpi_driver.Failure(f"the program has ended by itself, with {process.returncode}")
        if time.monotonic() > deadline:
            raise mpi_driver.Failure("not all ranks came to their last files in 100 s")
        time.sleep(0.01)


def test():
    arguments = parse()
    mode = ["funneled"] if arguments.funneled else []
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        directory = workspace.directory("files ä")
        process = workspace.start(arguments.ranks, arguments.program, "save", directory, arguments.ranks_per_node, *mode)
        wait_until_ready(process, directory, arguments.ranks)
        mpi_driver.kill_all_descendants()
        left = file_sets(directory)
        if len(left) != arguments.ranks:
            raise mpi_driver.Failure(f"{arguments.ranks} ranks were killed while they wrote files, and left {left}")
        for number, ranks in enumerate(map(int, arguments.restore_ranks.split(","))):
            if number > 0:  # the first restore may use the node-local tier, the others find it lost
                shutil.rmtree(os.path.join(directory, "local"))
            workspace.run(ranks, arguments.program, "restore", directory, arguments.ranks_per_node, *mode)
            if file_sets(directory):
                raise mpi_driver.Failure(f"a session has left {file_sets(directory)}")
        mpi_driver.check_shared_directory(os.path.join(directory, "shared"), [1, 2, 3], 2)


mpi_driver.main(test)
