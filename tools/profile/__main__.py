"""tailrace profile -- COMMAND...: shows what a program's checkpoints do to the file system.

The tailrace command, which finds the interpreter, starts it. The exit status is the command's own.
Before the command was started it is as for the other commands: 2 wrong usage, 3 no such command, 4
it cannot be traced.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable

import results
import tracer
from strace_lines import calls_of
from watcher import Watcher

DESCRIPTION = """Run a command and show what it does to each file: opens, writes, reads, seeks (backward ones apart),
syncs, bytes, and the sizes of writes and reads. It counts saving and restoring separately. It works on any program,
with its children and threads. strace counts the calls, so a command that makes many calls runs somewhat slower."""
EPILOG = """An open file belongs to the save phase from its opening if it was created, truncated or opened only for
writing. Otherwise it belongs to the restore phase until its first write or sync, and then to the save phase. So one run
may both save and restore. A flush reads the captured parts, which counts as restoring. --dir separates the shared
directory from the node-local tier.

When the command has ended, the numbers go to standard error, and as JSON to --output. `tailrace report` draws them.

examples:
  tailrace profile -- python train.py
  tailrace profile --dir ckpt -o io.json -- mpirun -n 4 ./simulation
  tailrace report io.json"""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line. What follows the options is the command."""
    parser = argparse.ArgumentParser(
        prog="tailrace profile",
        usage="tailrace profile [--dir DIR]... [--all] [-o FILE [--force]] [--json] -- COMMAND...",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dir", action="append", default=[], metavar="DIR", dest="directories",
                        help="count only files below this directory (may be repeated)")  # fmt: skip
    parser.add_argument("--all", action="store_true", dest="everything",
                        help="also count the files of programs: libraries, Python's modules, /usr")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", help="write the numbers to this file, as JSON")
    parser.add_argument("--force", action="store_true", help="replace an earlier file")
    parser.add_argument("--json", action="store_true",
                        help="print the JSON to standard output, and the command's own to standard error")  # fmt: skip
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not options.command:
        parser.error("a command is missing: tailrace profile -- COMMAND...")
    return options


def complain(sentence: str, status: int) -> int:
    print(f"tailrace: {sentence}", file=sys.stderr)
    return status


def write(path: str, content: str) -> None:
    """Writes a file as a whole or not at all, and never through a link or file that somebody else has
    put there."""
    partial = path + ".partial"
    if os.path.lexists(partial):
        os.unlink(partial)
    with open(partial, "x", encoding="utf-8") as file:
        file.write(content)
    os.replace(partial, path)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.output and os.path.exists(options.output) and not os.path.isfile(options.output):
        return complain(f"{options.output} is not a file, and is not replaced; nothing was run", 2)
    if options.output and os.path.exists(options.output) and not options.force:
        return complain(f"{options.output} exists: replace it with --force, or choose another -o; nothing was run", 2)
    if options.output and not os.path.isdir(os.path.dirname(os.path.abspath(options.output))):
        return complain(f"{options.output} cannot be written: its directory does not exist; nothing was run", 3)
    if shutil.which(options.command[0]) is None:
        return complain(f"there is no program {options.command[0]!r} to run", 3)
    try:
        strace, seccomp = tracer.find_strace()
    except tracer.NotTraceable as error:
        return complain(str(error), 4)

    watcher = Watcher(os.getcwd())

    def take(lines: Iterable[str]) -> None:
        watcher.watch(calls_of(lines))

    began = time.time()
    status = tracer.run(strace, seccomp, options.command, take, options.json)
    about = {
        "command": options.command,
        "directories": [os.path.realpath(directory) for directory in options.directories],
        "exit_status": status,
        "began_unix_ms": int(1000 * began),
        "seconds": round(time.time() - began, 3),
        "host": os.uname().nodename,
        "strace": tracer.version(strace),
    }
    found = results.document(watcher, results.chooser(options.directories, options.everything), about)
    text = json.dumps(found, indent=1) + "\n"
    if options.json:
        sys.stdout.write(text)
    else:
        sys.stderr.write("\ntailrace profile: " + results.table(found))
    if options.output:
        try:
            write(options.output, text)
        except OSError as error:
            return complain(f"writing {error.filename}: {error.strerror}", 4)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
