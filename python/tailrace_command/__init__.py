"""The command `tailrace` of the Python package: it becomes the program that lies beside this file.

It is a package of its own, so that the command starts without importing NumPy. The process stays the same one: signals,
exit statuses and standard streams are the program's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "bin" / "tailrace"


def main() -> None:
    if not PROGRAM.exists():
        sys.exit("tailrace: this package was built without the command-line tool (TAILRACE_TOOLS=OFF)")
    # Some commands are Python programs: they run with the interpreter that has this package.
    os.environ.setdefault("TAILRACE_PYTHON", sys.executable)
    os.execv(PROGRAM, ["tailrace", *sys.argv[1:]])
