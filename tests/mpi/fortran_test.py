"""Decomposed arrays of Fortran programs, restored on other numbers of ranks; and the example heat.f90, which must
end with the same bits whether it runs in one go, or is started again on another number of ranks.

fortran_test.py --heat HEAT --arrays ARRAYS... -- mpirun -n
"""

import argparse
import re

import mpi_driver

STATE = re.compile(r"after (\d+) steps the plate's bits are ([0-9A-F]{16})")


def heat(workspace, program, ranks, directory, steps, says=""):
    output = workspace.run(ranks, program, directory, steps, 64)
    match = STATE.search(output)
    if match is None or says not in output:
        raise mpi_driver.Failure(f"heat should say '{says}' and its state:\n{output}")
    return int(match[1]), match[2]


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heat", required=True)
    parser.add_argument("--arrays", nargs="+", required=True)
    parser.add_argument("mpiexec", nargs="+")
    options = parser.parse_args()
    with mpi_driver.Workspace(options.mpiexec) as workspace:
        for number, program in enumerate(options.arrays):
            directory = workspace.directory(f"arrays{number}")
            workspace.run(4, program, "save", directory)
            for ranks in (4, 3, 1):
                workspace.run(ranks, program, "restore", directory)
        whole = heat(workspace, options.heat, 2, workspace.directory("whole"), 400)
        directory = workspace.directory("parts")
        heat(workspace, options.heat, 2, directory, 200)
        parts = heat(workspace, options.heat, 3, directory, 400, says="going on from step 200")
        if parts != whole or whole[0] != 400:
            raise mpi_driver.Failure(f"in one go {whole}, in parts {parts}")


mpi_driver.main(test)
