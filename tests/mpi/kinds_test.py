"""The example kinds.cc ends with the same sum whether it runs in one go or goes on with other numbers of ranks, also
after a kill; and docs/start.md shows it as it is.

kinds_test.py --program KINDS --source kinds.cc --page start.md -- mpirun -n
"""

import argparse
import re

import mpi_driver

END = re.compile(r"after (\d+) steps and \d+ hops the sum is ([0-9a-f]{16})")


def run(workspace, program, ranks, directory, steps, says=""):
    output = workspace.run(ranks, program, directory, steps)
    match = END.search(output)
    if match is None or says not in output:
        raise mpi_driver.Failure(f"kinds should say '{says}' and its sum:\n{output}")
    return int(match[1]), match[2]


def check_page(page, source):
    with open(source, encoding="utf-8") as f:
        program = [line.strip() for line in f]
    with open(page, encoding="utf-8") as f:
        blocks = re.findall(r"^<!-- from kinds.cc -->\n```cpp\n(.*?)^```$", f.read(), re.M | re.S)
    if not blocks:
        raise mpi_driver.Failure(f"{page} shows nothing of kinds.cc")
    for block in blocks:
        lines = [line.strip() for line in block.splitlines()]
        if not any(program[at : at + len(lines)] == lines for at in range(len(program))):
            raise mpi_driver.Failure(f"{page} shows what is not in kinds.cc:\n{block}")


def test():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--page", required=True)
    parser.add_argument("mpiexec", nargs="+")
    options = parser.parse_args()
    check_page(options.page, options.source)
    with mpi_driver.Workspace(options.mpiexec) as workspace:
        whole = run(workspace, options.program, 2, workspace.directory("whole"), 700)
        directory = workspace.directory("parts")
        run(workspace, options.program, 3, directory, 250)
        run(workspace, options.program, 5, directory, 450, says="going on from step 200")
        parts = run(workspace, options.program, 1, directory, 700, says="going on from step 400")
        if parts != whole or whole[0] != 700:
            raise mpi_driver.Failure(f"in one go {whole}, in parts {parts}")


mpi_driver.main(test)
