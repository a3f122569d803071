"""libtailrace_mpi in a process of another MPI library says so, once; with its own library it says nothing."""
import os
import subprocess
import sys


def loaded(library, **environment):
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", load, library], env={**os.environ, **environment}, text=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return run.returncode, [line for line in run.stdout.splitlines() if line.startswith("tailrace:")]


def main():
    library, other = sys.argv[1:]
    own = loaded(library)
    assert own == (0, []), own
    status, lines = loaded(library, LD_PRELOAD=other)
    assert status == 0 and len(lines) == 1, (status, lines)
    assert "cannot work" in lines[0] and "runs with \"" in lines[0] and "\\n" not in lines[0], lines
    print(lines[0])


main()
