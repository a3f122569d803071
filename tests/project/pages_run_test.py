#!/usr/bin/env python3
"""Compiles or compares the blocks of the pages that `<!-- run: HOW -->` and `<!-- from FILE -->` mark.

    pages_run_test.py --source DIR --cc CC [--mpicc CC]

HOW is one of
    c; PARAMETERS     compiled as the body of a C function with these parameters
    keys of DIR       every key is one that the sources in DIR know
    names of FILE     what is called or used is in FILE, or lies in this directory
    paths             the directories of a layout are there
    python            compiled, and what it imports from tailrace is there

Besides, the tool knows all options of `tailrace` that blocks of shell use, also in blocks that cannot be run.
"""

import argparse
import ast
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import blocks  # noqa: E402

# What blocks of C use besides their parameters and tailrace.
PRELUDE = """#include <stdint.h>
#include <stddef.h>
#include <tailrace.h>
void check(int code);
void compute(void* state);
int write_fields(const char* path);
void read_fields(const char* path);
extern char path[TAILRACE_MAX_PATH_BYTES];
enum { NX = 100, NY = 100 };
"""
MPI_PRELUDE = "#include <mpi.h>\n#include <tailrace_mpi.h>\n#include <tailrace_mpi_collective.h>\n"
COMMANDS = ("agent", "bench", "config", "convert", "drain", "extract", "halt", "ls", "profile", "prune", "report",
            "run", "show", "tune", "verify")
NO_NAMES = {"if", "break", "call", "use", "include", "int", "while"}


class Failure(Exception):
    pass


def run(command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                          stdin=subprocess.DEVNULL, check=False, **how)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def compile_c(found, options, scratch):
    """All blocks of C at once, which is quick; messages name the page and its line."""
    text = PRELUDE + (MPI_PRELUDE if options.mpicc else "")
    for number, block in enumerate(found):
        parameters = block.words.partition("; ")[2] or "void"
        if "MPI_" in block.text + parameters and not options.mpicc:
            print(f"skipped: {block.where}: this build has no MPI")
            continue
        text += f"void block{number}({parameters});\nvoid block{number}({parameters}) {{\n"
        text += f'#line {block.line + 1} "{block.page}"\n{block.text}}}\n'
    source = scratch / "blocks.c"
    source.write_text(text, encoding="utf-8")
    run([options.mpicc or options.cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable",
         "-Wno-unused-but-set-variable", "-Wno-unused-parameter", "-Wno-unused-but-set-parameter", "-fsyntax-only",
         "-I", str(options.source / "include"), str(source)])


def compare_keys(block, directory):
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(directory.glob("*.cc")))
    keys = re.findall(r"^(\w+) *=", block.text, re.M)
    gone = [key for key in keys if f'"{key}"' not in text and f":{key}\"" not in text]
    if not keys or gone:
        raise Failure(f"{block.where}: {directory.name} knows no key {gone or 'at all'}")


def compare_names(block, place):
    included = re.findall(r'(?i)include "([^"]+)"', block.text)
    if place.is_dir():
        if not included or not all((place / name).is_file() for name in included):
            raise Failure(f"{block.where}: not in {place}: {included}")
        return
    text = place.read_text(encoding="utf-8").lower()
    patterns = (r"(\w+)\(", r"(?i)^use (\w+)", r"^([A-Z]\w+) \w+[;(]")
    names = {name.lower() for pattern in patterns for name in re.findall(pattern, block.text, re.M)} - NO_NAMES
    names -= {name.lower() for name in re.findall(r"^(?!CALL )[A-Z]\w+ (\w+)[;(]", block.text, re.M)}  # variables
    gone = sorted(name for name in names if not re.search(rf"\b{name}\b", text))
    if not names or gone:
        raise Failure(f"{block.where}: {place.name} has no {gone or 'name at all'}")


def compare_lines(block, source):
    program = [line.strip() for line in source.read_text(encoding="utf-8").split("\n")]
    lines = [line.strip() for line in block.text.strip().split("\n")]
    if not any(program[at:at + len(lines)] == lines for at in range(len(program))):
        raise Failure(f"{block.where}: this is not in {source.name}:\n{block.text}")


def compare_paths(block, project):
    top = project
    for line in block.text.split("\n"):
        match = re.match(r"(?P<top>\w+)/ |  (?P<inner>\w+) {2,}", line)
        if match is None:
            continue
        if match["top"]:
            top = project / match["top"]
        path = top if match["top"] else top / match["inner"]
        if not path.is_dir():
            raise Failure(f"{block.where}: there is no {path.relative_to(project)}")


def compile_python(block, project):
    tree = ast.parse(block.text)
    compile(tree, block.where, "exec")
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tailrace"):
            continue
        base = project / "python" / pathlib.Path(*node.module.split("."))
        path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        defined = set()
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(each, (ast.FunctionDef, ast.ClassDef)):
                defined.add(each.name)
            elif isinstance(each, ast.ImportFrom):
                defined |= {alias.asname or alias.name for alias in each.names}
            elif isinstance(each, ast.Assign):
                defined |= {ast.unparse(target) for target in each.targets}
        for alias in node.names:
            if alias.name not in defined:
                raise Failure(f"{block.where}: {node.module} has no {alias.name}")


def take(block, project):
    way = block.words
    if block.fate == "from":
        compare_lines(block, project / "examples" / block.words)
    elif way.startswith("keys of "):
        compare_keys(block, project / way.removeprefix("keys of "))
    elif way.startswith("names of "):
        compare_names(block, project / way.removeprefix("names of "))
    elif way == "paths":
        compare_paths(block, project)
    elif way == "python":
        compile_python(block, project)
    else:
        raise Failure(f"{block.where}: there is no way to run it that is called {way!r}")


def is_c(block):
    return block.fate == "run" and re.match(r"c(?:;|$)", block.words)


def commands_of(text):
    """The subcommands of tailrace in a block of shell, and their options."""
    for line in text.replace("\\\n", " ").split("\n"):
        for part in re.split(r"&&|[|;&]", line):
            words = shlex.split(part, comments=True) if part.count("'") % 2 == 0 and part.count('"') % 2 == 0 else []
            for at, word in enumerate(words):
                if word == "tailrace" and words[at + 1:] and words[at + 1] in COMMANDS:
                    rest = words[at + 2:]
                    rest = rest[:rest.index("--")] if "--" in rest else rest
                    yield words[at + 1], [w.split("=")[0] for w in rest if re.match(r"-\w|--\w", w)]


def sources_of(command, project):
    """Where the options of a subcommand are declared, as one text: in C++, or in Python."""
    inside = [project / "python" / "tailrace" / "convert"] if command == "convert" else [project / "tools" / command]
    paths = [path for directory in inside for path in sorted(directory.glob("*.py"))]
    paths += sorted((project / "tools").glob(f"command_{command}.cc"))
    paths += sorted((project / "tools" / ("bench" if command == "tune" else command)).glob("*.cc"))  # tune runs bench's
    return "".join(path.read_text(encoding="utf-8") for path in paths)


def check_options(found, project):
    """Returns how many subcommands the pages use."""
    sources = {}
    for block in found:
        if block.language != "sh":
            continue
        for command, used in commands_of(block.text):
            text = sources.setdefault(command, sources_of(command, project))
            gone = [option for option in used if not re.search(rf'["(,]{option}[",)]', text)]
            if gone:
                raise Failure(f"{block.where}: tailrace {command} has no option {gone}")
    if len(sources) < 8:
        raise Failure(f"the pages use only {sorted(sources)} of the tool")
    return len(sources)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--source", "--cc"):
        parser.add_argument(name, required=True)
    parser.add_argument("--mpicc")
    options = parser.parse_args()
    options.source = pathlib.Path(options.source)
    found = blocks.all_blocks(options.source)
    chosen = [block for block in found if block.fate in ("run", "from")]
    if len(chosen) < 30:
        raise Failure(f"only {len(chosen)} blocks are marked")
    failures = []
    with tempfile.TemporaryDirectory(prefix="tailrace pages ") as top:
        try:
            compile_c([block for block in chosen if is_c(block)], options, pathlib.Path(top))
        except Failure as failure:
            failures.append(str(failure))
    for block in (block for block in chosen if not is_c(block)):
        try:
            take(block, options.source)
        except (Failure, SyntaxError, OSError) as failure:
            failures.append(f"{block.where}: {failure}")
    if failures:
        raise Failure("\n".join(failures))
    commands = check_options(found, options.source)
    print(f"{len(chosen)} blocks compiled or compared; {commands} subcommands have the options that pages use")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"pages_run_test: {failure}")
        sys.exit(1)
