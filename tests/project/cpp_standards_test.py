#!/usr/bin/env python3
"""The C++ headers serve programs in C++17 and in C++20, with each compiler, and with warnings as errors.

cpp_client.cc is compiled, linked with the library and run as each of them. Below C++17 each header says in one
sentence what it needs. --mpi-include DIR (repeated) adds the headers of the MPI interface, which are only compiled.
A compiler that is not there is left out, and named.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Werror"]


class Failure(Exception):
    pass


def said_by(command: list[str], expected_status: int = 0, **how: Any) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False, **how
    )
    if (done.returncode == 0) != (expected_status == 0):
        raise Failure("{}: status {}\n{}".format(" ".join(command), done.returncode, done.stdout))
    return done.stdout


def serves(compiler: str, standard: str, options: argparse.Namespace, mpi_flags: list[str], top: str) -> None:
    program = os.path.join(top, f"{os.path.basename(compiler)} {standard}")
    command = [compiler, "-std=" + standard, *WARNINGS, "-I", options.include]
    library = os.path.dirname(options.library)
    link = ["-o", program, options.library, "-Wl,-rpath," + library]
    said_by([*command, os.path.join(HERE, "cpp_client.cc"), *link])
    directory = program + " runs"
    os.makedirs(directory)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
    said_by([program], cwd=directory, env=environment)
    # Not taken from what the program itself says.
    if not os.listdir(os.path.join(directory, "shared")):
        raise Failure(f"{program} left nothing in its shared directory")
    if mpi_flags:
        source = os.path.join(top, "mpi.cc")
        with open(source, "w", encoding="utf-8") as f:
            f.write(
                "#include <tailrace_mpi.hpp>\n#include <tailrace_mpi_collective.hpp>\n"
                "tailrace::Session session() { return tailrace::open_mpi(MPI_COMM_WORLD); }\n"
                "void pieces(tailrace::CollectiveFile& file, const std::vector<tailrace_file_piece>& in_file,\n"
                "            const std::vector<tailrace_memory_piece>& in_memory) { file.write(in_file, in_memory); }\n"
            )
        said_by([*command, *mpi_flags, "-fsyntax-only", source])


def older_standards_get_one_sentence(
    compiler: str, options: argparse.Namespace, mpi_flags: list[str], top: str
) -> None:
    headers = ["tailrace.hpp"] + (["tailrace_mpi.hpp", "tailrace_mpi_collective.hpp"] if mpi_flags else [])
    source = os.path.join(top, "old.cc")
    for header in headers:
        with open(source, "w", encoding="utf-8") as f:
            f.write(f"#include <{header}>\n")
        command = [compiler, "-std=c++14", "-fsyntax-only", "-I", options.include, *mpi_flags, source]
        said = said_by(command, expected_status=1)
        if len(re.findall(r"error:", said)) != 1 or "needs C++17 (-std=c++17)" not in said:
            raise Failure(f"{header} below C++17 was to say one sentence:\n{said}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cxx", required=True, help="the compiler of the build")
    parser.add_argument("--library", required=True, help="libtailrace.so")
    parser.add_argument("--include", required=True)
    parser.add_argument("--mpi-include", action="append", default=[])
    options = parser.parse_args()
    mpi_flags = ["-DOMPI_SKIP_MPICXX=1", "-DMPICH_SKIP_MPICXX=1"] if options.mpi_include else []
    for directory in options.mpi_include:
        mpi_flags += ["-isystem", directory]
    compilers = [shutil.which(options.cxx) or options.cxx]
    for name in ("g++", "clang++-14"):
        found = shutil.which(name)
        if found is None:
            print(f"{name} is left out: it is not there")
        elif os.path.realpath(found) not in [os.path.realpath(compiler) for compiler in compilers]:
            compilers.append(found)
    with tempfile.TemporaryDirectory(prefix="tailrace standards ") as top:
        for compiler in compilers:
            older_standards_get_one_sentence(compiler, options, mpi_flags, top)
            for standard in ("c++17", "c++20"):
                serves(compiler, standard, options, mpi_flags, top)
                print(f"{compiler} -std={standard}: the client compiles, runs, and gets its values back")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"cpp_standards_test: {failure}")
        sys.exit(1)
