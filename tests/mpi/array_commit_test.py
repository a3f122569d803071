"""Random pieces of arrays, saved and restored on up to --ranks ranks.

    array_commit_test.py --program P --ranks 8 --mode multiple|funneled -- mpirun -n
"""
import argparse

import mpi_driver


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("mpiexec", nargs="+")
    arguments = parser.parse_args()
    with mpi_driver.Workspace(arguments.mpiexec) as workspace:
        workspace.run(arguments.ranks, arguments.program, workspace.directory("arrays"), arguments.mode)


mpi_driver.main(test)
