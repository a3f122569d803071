"""Runs kinds.f90: it must find nothing wrong, and what it has saved has C's order of dimensions in the files.

kinds_test.py --program KINDS --tool TAILRACE
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run(command, text=True, capture_output=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--tool", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tailrace-fortran-") as place:
        top = pathlib.Path(place)
        shared = str(top / "shared")
        status, said, complaints = run(options.program, shared)
        assert status == 0 and "wrong" not in said, f"status {status}\n{said}{complaints}"

        # Fortran's grid(1:4, 1:3) is 3 rows of 4 in C's order, the first index the fastest.
        status, said, complaints = run(options.tool, "extract", shared, "10", "--array", "inner", "--output", str(top / "inner.npy"))
        assert status == 0, complaints
        content = (top / "inner.npy").read_bytes()
        assert b"(3, 4)" in content, content[:128]
        values = struct.unpack("<12d", content[-96:])
        assert values == tuple(float(1 + i + 6 * j) for j in (1, 2, 3) for i in (1, 2, 3, 4)), values
        status, said, complaints = run(options.tool, "show", "--json", shared, "10")
        assert status == 0 and json.loads(said), complaints

        # Without stat= a failure ends the program, and says why.
        status, said, complaints = run(options.program, str(top / "other"), "stop")
        assert status == 1, f"status {status}"
        assert "tailrace: " in complaints and "what is not there" in complaints, complaints


if __name__ == "__main__":
    sys.exit(main())
