"""Runs a program that writes collective files, on some ranks, in a fresh directory.

    collective_test.py --program P --ranks 4 [--funneled] -- mpirun -n
"""
import argparse

import mpi_driver


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--funneled", action="store_true")
    parser.add_argument("mpiexec", nargs="+")
    arguments = parser.parse_args()
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        workspace.run(arguments.ranks, arguments.program, workspace.directory("files"),
                      *(["funneled"] if arguments.funneled else []))


mpi_driver.main(test)
