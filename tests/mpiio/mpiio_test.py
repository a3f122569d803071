"""Runs an MPI-IO program with libtailrace_mpiio.so and without; the files must be the same, byte by byte.

    mpiio_test.py --program P --library libtailrace_mpiio.so --ranks 4 -- mpirun -n

A program that is linked with the library runs the second time with TAILRACE_MPIIO=off.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile



def run(arguments, path, preload, switch):
    environment = dict(os.environ, TAILRACE_MPIIO_STATISTICS="1", TAILRACE_MPIIO=switch)
    command = arguments.mpiexec + [str(arguments.ranks)]
    if preload:
        command += ["env", "LD_PRELOAD=" + arguments.library]
    done = subprocess.run(command + [arguments.program, path], env=environment, timeout=100, check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        sys.exit("status %d%s:\n%s" % (done.returncode, " with the library" if preload else "", output))
    with open(path, "rb") as file:
        return file.read(), output


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--calls", default="", help="the collective calls that the library has to take; default: some")
    parser.add_argument("--says", default="", help="endings of the lines of statistics, separated by |, in this order")
    parser.add_argument("mpiexec", nargs="+")
    arguments = parser.parse_args()
    linked = "linked" in os.path.basename(arguments.program)
    with tempfile.TemporaryDirectory() as directory:
        with_it, said = run(arguments, os.path.join(directory, "with"), not linked, "on")
        without, silent = run(arguments, os.path.join(directory, "without"), False, "off")
        line = re.search(r"tailrace: \S*with: (\d+) calls? \(", said)
        if not line or int(line[1]) == 0 or (arguments.calls and line[1] != arguments.calls):
            sys.exit("the library did not take the program's %s collective calls:\n%s" % (arguments.calls, said))
        endings = arguments.says.split("|") if arguments.says else []
        lines = re.findall(r"tailrace: \S*with: .*", said)
        if endings and (len(lines) != len(endings) or any(not a.endswith(b) for a, b in zip(lines, endings))):
            sys.exit("these lines do not end with %s:\n%s" % (endings, "\n".join(lines)))
        if linked and "is left to the MPI library: TAILRACE_MPIIO is off" not in silent:
            sys.exit("the library does not say why it does nothing:\n" + silent)
        if not linked and "tailrace:" in silent:
            sys.exit("the library is there in the run without it:\n" + silent)
        if with_it != without:
            first = next((i for i, (a, b) in enumerate(zip(with_it, without)) if a != b),
                         min(len(with_it), len(without)))
            sys.exit("the files differ from byte %d on (%d and %d bytes)" % (first, len(with_it), len(without)))
        print("%s calls, %d bytes, as without the library" % (line[1], len(with_it)))


main()
