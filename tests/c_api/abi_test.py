#!/usr/bin/env python3
"""The binary interface of the C headers is the one that is kept, by libabigail: abi_test.py --cc CC [--update]

What is compared is not the library but one made here from the headers alone: each function they declare, with
an empty body, under the library's map. The library is compiled against the same headers, so a function of it
cannot differ from its declaration; and exports_test.cmake compares the names. So the result does not depend on
how the library was built (optimised, stripped, with sanitizers), nor on its MPI library: the types of MPI are
pointers to nothing known here.

--update writes what is kept anew: after an addition, or when a new soname allows more. Status 77, with the
reason, where abidw and abidiff (Debian: abigail-tools) are not installed.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
sys.path.insert(0, str(PROJECT / "scripts"))

import c_interface  # noqa: E402

SKIPPED = 77
LIBRARIES = {
    "tailrace": ("tailrace.h",),
    "tailrace_mpi": ("tailrace_mpi.h", "tailrace_mpi_collective.h"),
}
MPI = """#pragma once
typedef struct mpi_communicator* MPI_Comm;
typedef struct mpi_info* MPI_Info;
typedef struct mpi_datatype* MPI_Datatype;
typedef int MPI_Fint;
"""


def run(command: list[str], where: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=where)


def must(command: list[str], where: pathlib.Path | None = None) -> str:
    done = run(command, where)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def empty_library(library: str, include: pathlib.Path, compiler: str, directory: pathlib.Path) -> str:
    """A library with the functions of these headers and no more."""
    names = LIBRARIES[library]
    lines = [f'#include "{name}"' for name in names]
    for function in (f for h in c_interface.read_all(include) if h.name in names for f in h.functions()):
        body = "" if function.returns == "void" else "return 0;"
        lines.append(f"{function.returns} {function.name}({', '.join(function.parameters)}) {{ {body} }}")
    (directory / "mpi.h").write_text(MPI)
    (directory / f"{library}.c").write_text("\n".join(lines) + "\n")
    target = f"lib{library}.so"
    script = f"-Wl,--version-script={PROJECT / 'src' / (library + '.map')}"
    flags = ["-std=c11", "-gdwarf-4", "-O0", "-fPIC", "-shared", "-w", "-I.", f"-I{include.resolve()}"]
    must([compiler, *flags, script, f"{library}.c", "-o", target], directory)
    return str(directory / target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cc", required=True, help="the C compiler")
    parser.add_argument("--update", action="store_true", help="keep the interface as it is now")
    parser.add_argument("--include", type=pathlib.Path, default=PROJECT / "include", help="other headers")
    options = parser.parse_args()
    for tool in ("abidw", "abidiff"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed (Debian: abigail-tools)")
            return SKIPPED
    failed = False
    with tempfile.TemporaryDirectory() as top:
        for library in LIBRARIES:
            made = empty_library(library, options.include, options.cc, pathlib.Path(top))
            kept = HERE / f"{library}.abi"
            if options.update:
                plain = ["--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-architecture"]
                kept.write_text(must(["abidw", *plain, "--no-elf-needed", made]))
                continue
            compared = run(["abidiff", "--harmless", "--no-architecture", str(kept), made])
            print(f"lib{library}: {'as kept' if compared.returncode == 0 else 'not as kept'}")
            if compared.returncode != 0:
                print(compared.stdout + compared.stderr)
                failed = True
    if failed:
        print("If programs that were linked before are not harmed: tests/c_api/abi_test.py --cc cc --update")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
