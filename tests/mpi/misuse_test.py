"""Runs one mode of misuse_mpi on some ranks, in a fresh directory; some modes twice in the same one.

    misuse_test.py --program P --mode differ --ranks 4 -- mpirun -n
"""
import argparse

import mpi_driver


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("mpiexec", nargs="+")
    arguments = parser.parse_args()
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        directory = workspace.directory("sessions")
        for _ in range(arguments.times):
            workspace.run(arguments.ranks, arguments.program, arguments.mode, directory)


mpi_driver.main(test)
