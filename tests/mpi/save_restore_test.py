"""Saves on some ranks, restores on the same number and on another, and looks at the files in between.

    save_restore_test.py --program P --save-ranks 4 --restore-ranks 4,3 --ranks-per-node 2 [--funneled] -- mpirun -n
"""
import argparse
import os
import shutil

import mpi_driver


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--save-ranks", type=int, required=True)
    parser.add_argument("--restore-ranks", required=True)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--funneled", action="store_true")
    parser.add_argument("mpiexec", nargs="+")
    return parser.parse_args()


def check_directories(directory):
    """After every session: K files for each epoch, and no unfinished file in the node-local tier."""
    combinations = sorted(os.listdir(directory))
    if len(combinations) != 8:
        raise mpi_driver.Failure(f"8 sessions left {combinations}")
    for combination in combinations:
        files = int(combination[1:combination.index("l")])
        mpi_driver.check_shared_directory(os.path.join(directory, combination, "shared"), [10, 20, 30, 40], files)
        for place, _, names in os.walk(os.path.join(directory, combination, "local")):
            for name in names:
                if not name.endswith(".capture"):
                    raise mpi_driver.Failure(f"{place} holds {name}, which is no captured part")


def test():
    arguments = parse()
    mode = ["funneled"] if arguments.funneled else []
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        directory = workspace.directory("sessions ä")  # paths may hold blanks and non-ASCII characters
        workspace.run(arguments.save_ranks, arguments.program, "save", directory, arguments.ranks_per_node, *mode)
        check_directories(directory)
        for number, ranks in enumerate(map(int, arguments.restore_ranks.split(","))):
            if number > 0:  # the first restore may use the node-local tier, the others find it lost
                for combination in os.listdir(directory):
                    shutil.rmtree(os.path.join(directory, combination, "local"))
            workspace.run(ranks, arguments.program, "restore", directory, arguments.ranks_per_node, *mode)
            check_directories(directory)


mpi_driver.main(test)
