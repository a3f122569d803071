"""tailrace report RESULTS...: draws results of `tailrace bench` and `profile`, and records of
sessions.

The tailrace command, which finds the interpreter, starts it. Exit status as the command's: 0 ok, 2
wrong usage, 3 not found, 4 the system refused.
"""

from __future__ import annotations

import argparse
import os
import sys

try:
    import matplotlib
except ImportError:
    matplotlib = None

import data

MISSING = """tailrace: report draws with matplotlib, and {} does not have it. Either
  {} -m pip install matplotlib          (or the distribution's package, python3-matplotlib)
or set TAILRACE_PYTHON to an interpreter that has it."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tailrace report",
        description="Draw results of `tailrace bench`, `tune --results` and `profile -o`, and records of sessions, "
        "as one HTML page.",
        epilog="Name a record by its file, or by the shared directory of its sessions. "
        "Example: tailrace report tailrace-bench.json /scratch/run7 -o run7.html",
    )
    parser.add_argument("results", nargs="+", metavar="RESULTS", help="results (.json), records (.jsonl), directories")
    parser.add_argument("-o", "--output", default="tailrace-report.html", metavar="FILE", help="the page (%(default)s)")
    parser.add_argument("--png", metavar="DIR", help="also write every figure as DIR/NAME.png and DIR/NAME-dark.png")
    parser.add_argument("--title", default="tailrace report", help="title of the page")
    parser.add_argument(
        "--records", default=data.default_state(), metavar="DIR", help="directory of the records (%(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="replace an earlier page")
    return parser.parse_args(arguments)


def complain(sentence: str, status: int) -> int:
    print(f"tailrace: {sentence}", file=sys.stderr)
    return status


def write(path: str, content: str) -> None:
    """Writes a file as a whole or not at all, and never through a link or file that somebody else has
    put there."""
    partial = path + ".partial"
    if os.path.lexists(partial):
        os.unlink(partial)
    with open(partial, "x", encoding="utf-8", errors="backslashreplace") as file:
        file.write(content)
    os.replace(partial, path)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if matplotlib is None:
        print(MISSING.format(sys.executable, sys.executable), file=sys.stderr)
        return 4
    if not os.path.basename(options.output):
        return complain(f'--output "{options.output}" is not the name of a file', 2)
    if os.path.exists(options.output) and not os.path.isfile(options.output):
        return complain(f"{options.output} is not a file, and is not replaced", 2)
    if os.path.exists(options.output) and not options.force:
        return complain(f"{options.output} exists: replace it with --force, or choose another -o", 2)
    try:
        material = data.read(options.results, options.records)
    except data.NotReadable as error:
        return complain(str(error), 3)

    import figures
    import page
    import profile_figures
    import record_figures
    import style

    makers = [*figures.BENCH_FIGURES, *record_figures.RECORD_FIGURES, *profile_figures.PROFILE_FIGURES]

    def draw(theme: dict[str, str]) -> list[figures.Figure]:
        with matplotlib.rc_context(style.matplotlib_settings(theme)):
            return [figure for figure in (make(material, theme) for make in makers) if figure is not None]

    try:
        with matplotlib.rc_context(style.matplotlib_settings(style.STAND_IN)):
            drawn = draw(style.STAND_IN)
            if not drawn:
                return complain(
                    "there is nothing to draw yet: no run, no committed epoch, no profile in what was named", 3
                )
            write(options.output, page.page_of(drawn, material, options.title))
        for suffix, theme in (("", style.LIGHT), ("-dark", style.DARK)) if options.png else ():
            os.makedirs(options.png, exist_ok=True)
            for figure in draw(theme):
                figure.drawing.savefig(os.path.join(options.png, f"{figure.name}{suffix}.png"))
    except OSError as error:
        return complain(f"writing {error.filename}: {error.strerror}", 4)
    print(f"{len(drawn)} figures in {options.output}" + (f", and as PNG in {options.png}" if options.png else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
