"""The command `tailrace` of the Python package: it becomes the program that lies beside this file.

It is a package of its own, so that the command starts without importing NumPy. The process stays the same one: signals,
exit statuses and standard streams are the program's."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def program() -> Path | None:
    """The program. In an editable install (pip install -e) it is not beside this file, which lies in the clone, but in
    the other directory of this package."""
    places = [Path(place).resolve() / "bin" / "tailrace" for place in __path__]
    return next((place for place in places if place.exists()), None)


def main() -> None:
    found = program()
    if found is None:
        sys.exit("tailrace: this package was built without the command-line tool (TAILRACE_TOOLS=OFF)")
    # Some commands are Python programs: they run with the interpreter that has this package.
    os.environ.setdefault("TAILRACE_PYTHON", sys.executable)
    os.execv(found, ["tailrace", *sys.argv[1:]])
