"""Runs a program on some ranks (two) with an empty directory as its argument; it goes afterwards.

    in_directory.py --program PATH [--ranks N] -- mpirun arguments...
"""

import argparse
import subprocess
import sys
import tempfile


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--ranks", default="2")
    parser.add_argument("launch", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tailrace mpi ") as top:
        return subprocess.run([*options.launch, options.ranks, options.program, top], timeout=100, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
