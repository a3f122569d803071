"""The build of the package, for pip and other frontends (PEP 517): scikit-build-core's, and two things around it.

- While it compiles, it says how far it is ("built 37 of 109 objects"), also where there is no terminal. pip shows what
  a build prints only with -v. Without it the line goes to the terminal that pip was started from, if there is one.
- If something is missing on this machine, the last words are a sentence that names it and the command that installs
  it, and not CMake's log. Everything else that fails ends with the whole log.

How it works: while a hook of scikit-build-core runs, the descriptors of stdout and stderr are a pipe. A thread reads
the lines, counts ninja's, and keeps the rest until it is known whether the hook succeeds."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from scikit_build_core import build as wrapped

ROOT = Path(__file__).resolve().parents[2]
SECONDS_BETWEEN_LINES = 5.0

get_requires_for_build_sdist = wrapped.get_requires_for_build_sdist
get_requires_for_build_wheel = wrapped.get_requires_for_build_wheel
get_requires_for_build_editable = wrapped.get_requires_for_build_editable
build_sdist = wrapped.build_sdist


# Metadata needs no compiler, but scikit-build-core looks for CMake here already.
def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    return told(lambda: wrapped.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Any = None) -> str:
    return told(lambda: wrapped.prepare_metadata_for_build_editable(metadata_directory, config_settings))


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    return told(lambda: wrapped.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    return told(lambda: wrapped.build_editable(wheel_directory, config_settings, metadata_directory))


def told(hook: Callable[[], str]) -> str:
    """What the hook returns. If it fails, prints why, and ends the process as scikit-build-core does."""
    output = Output()
    try:
        with output:
            return hook()
    except BaseException as failure:
        sentence = what_is_missing(f"{output.text}\n{failure}")
        print(sentence if sentence else output.text, file=sys.stderr, flush=True)
        if isinstance(failure, SystemExit) or sentence:
            raise SystemExit(1) from None
        raise


# What is missing. CMake stops at the first thing that it does not find. If its log is about one of these, the others
# are looked for here, so that the sentence names all.


class Needed(NamedTuple):
    package: str  # Debian's
    name: str
    words: str  # of CMake and pkg-config when they do not find it, a regular expression
    module: str = ""  # its name for pkg-config
    header: str = ""


COMPILER = Needed(
    "g++",
    "a C++20 compiler",
    r"No CMAKE_C(XX)?_COMPILER could be found|The CMAKE_C(XX)?_COMPILER:|CMAKE_C(XX)?_COMPILER not set"
    r'|requires the language dialect "CXX20"',
)
PKG_CONFIG = Needed("pkg-config", "pkg-config", r"Could NOT find PkgConfig")
# Of scikit-build-core. pip fetches both by itself, but not with --no-build-isolation.
CMAKE = Needed("cmake", "CMake 3.22 or newer", r"Could not find CMake with version|CMake version undetermined")
NINJA_OR_MAKE = Needed("ninja-build", "Ninja or make", r"Ninja (or make )?is required to build")
PYTHON = Needed("python3-dev", "the headers of Python", r"Could NOT find Python \(missing: [^)]*(Development|INCLUDE)")
NEEDED = (
    CMAKE,
    NINJA_OR_MAKE,
    COMPILER,
    PKG_CONFIG,
    Needed("libfmt-dev", "fmt", r"Findfmt\.cmake", header="fmt/format.h"),
    Needed("libtomlplusplus-dev", "toml++", r"Findtomlplusplus\.cmake", header="toml++/toml.h"),
    Needed("nlohmann-json3-dev", "nlohmann-json", r"Findnlohmann_json\.cmake", header="nlohmann/json.hpp"),
    Needed("libisal-dev", "ISA-L", r"\blibisal\b.* not found|No package 'libisal'", module="libisal"),
    Needed("liburing-dev", "liburing", r"\bliburing\b.* not found|No package 'liburing'", module="liburing"),
    Needed("libcli11-dev", "CLI11", r"FindCLI11\.cmake", header="CLI/CLI.hpp"),
    PYTHON,
)


def what_is_missing(log: str) -> str | None:
    """A sentence about what is missing here; None if the log is of another failure."""
    if not any(re.search(needed.words, log) for needed in NEEDED):
        return None
    compiler_is_there = compiles("#include <concepts>\n")
    missing = [needed for needed in NEEDED if re.search(needed.words, log) or is_missing(needed, compiler_is_there)]
    reasons = reasons_of_packages()
    named = "; ".join(f"{needed.name} ({reasons[needed.package]})" for needed in missing)
    text = (
        f"tailrace was not built, because this machine lacks {named}.\n"
        "On Debian and Ubuntu this command installs it:\n\n"
        f"  sudo apt-get install -y --no-install-recommends {' '.join(needed.package for needed in missing)}\n"
    )
    if CMAKE in missing or NINJA_OR_MAKE in missing:
        text += "\nWithout --no-build-isolation pip fetches CMake and Ninja by itself.\n"
    if any(needed.module == "liburing" for needed in missing):
        text += "\nWithout liburing: pip install --config-settings=cmake.define.TAILRACE_IO_URING=OFF ...\n"
    return text


def is_missing(needed: Needed, compiler_is_there: bool) -> bool:
    """Also False if that cannot be known: without a compiler nothing is said of headers."""
    pkg_config = shutil.which(os.environ.get("PKG_CONFIG", "pkg-config"))
    if needed is CMAKE:
        return False  # it has written the log
    if needed is NINJA_OR_MAKE:
        return not any(map(shutil.which, ("ninja", "ninja-build", "make", "gmake"))) and find_spec("ninja") is None
    if needed is COMPILER:
        return not compiler_is_there
    if needed is PKG_CONFIG:
        return pkg_config is None
    if needed is PYTHON:
        return not Path(sysconfig.get_paths()["include"], "Python.h").exists()
    if needed.module:
        return pkg_config is not None and not succeeds([pkg_config, "--exists", needed.module])
    return compiler_is_there and not compiles(f"#include <{needed.header}>\n")


def compiles(lines: str) -> bool:
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    return succeeds([*compiler, "-x", "c++", "-std=c++20", "-fsyntax-only", "-"], lines)


def succeeds(command: list[str], lines: str = "") -> bool:
    try:
        return subprocess.run(command, input=lines, text=True, capture_output=True, check=False).returncode == 0
    except OSError:  # there is no such command
        return False


def reasons_of_packages() -> dict[str, str]:
    """What scripts/packages.txt says each package is for."""
    reasons: dict[str, str] = {}
    for line in (ROOT / "scripts" / "packages.txt").read_text().splitlines():
        if not line.startswith("#") and line.count("|") == 2:
            _, package, why = (part.strip() for part in line.split("|"))
            reasons.setdefault(package, why)
    return reasons


# How far it is.

NINJA = re.compile(r"^\[(\d+)/(\d+)\] ")
MAKE = re.compile(r"^\[ *(\d+)%\] ")


class Output:
    """While it is entered, what this process and its children print goes into `text`; of what ninja (or make) says,
    only how far it is, and that is told at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.progress = Progress()

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def __enter__(self) -> None:
        os.environ["NINJA_STATUS"] = "[%f/%t] "
        sys.stdout.flush()
        sys.stderr.flush()
        self.kept = [os.dup(1), os.dup(2)]
        self.progress.open(self.kept[1])
        reading, writing = os.pipe()
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.close(writing)
        self.reader = threading.Thread(target=self.read, args=(reading,), daemon=True)
        self.reader.start()

    def __exit__(self, *failure: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in enumerate(self.kept, 1):
            os.dup2(kept, number)
        self.reader.join(timeout=10.0)  # a server that a compiler's cache has started may keep the pipe open
        self.progress.close(failed=failure[0] is not None)
        for kept in self.kept:
            os.close(kept)

    def read(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as pipe:
            for line in pipe:
                if built := NINJA.match(line):
                    self.progress.tell(f"built {built[1]} of {built[2]} objects", built[1] == built[2])
                elif built := MAKE.match(line):
                    self.progress.tell(f"built {built[1]} % of the objects", built[1] == "100")
                else:
                    self.lines.append(line)


def shows_output(command: list[str], environment: Mapping[str, str]) -> bool:
    """Whether the program that has started this build, by its command, shows what a build prints: `python -m build`
    does, and pip and uv do if they are told to be verbose."""
    if command[1:3] == ["-m", "build"] or Path(command[0]).name == "pyproject-build":
        return True
    verbose = environment.get("PIP_VERBOSE", "").lower() not in ("", "0", "no", "off", "false")
    return verbose or any(re.fullmatch(r"-[qvU]*v[qvU]*|--verbose", word) for word in command)


def command_of_parent() -> list[str]:
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:  # there is no /proc
        words = ""
    return words.split("\0")


class Progress:
    """A line every few seconds into stderr; on a terminal to which nobody else writes the build's output, one line
    that is replaced."""

    def open(self, descriptor: int) -> None:
        self.stream = os.fdopen(os.dup(descriptor), "w")
        self.begin = time.monotonic()
        self.told_at = self.begin
        self.last = ""
        self.terminal = None
        if not self.stream.isatty() and not shows_output(command_of_parent(), os.environ):
            try:
                self.terminal = open("/dev/tty", "w")  # noqa: SIM115 closed in close()
            except OSError:
                self.terminal = None

    def tell(self, text: str, is_last: bool) -> None:
        now = time.monotonic()
        self.last = text
        if not is_last and now - self.told_at < SECONDS_BETWEEN_LINES:
            return
        self.told_at = now
        print(f"tailrace: {text} ({now - self.begin:.0f} s)", file=self.stream, flush=True)
        if self.terminal is not None:
            print(f"\r\x1b[Ktailrace: {text} ({now - self.begin:.0f} s)", end="", file=self.terminal, flush=True)

    def close(self, failed: bool) -> None:
        if self.terminal is not None:
            if self.last:
                print("\r\x1b[K", end="", file=self.terminal)
            self.terminal.close()
        if failed and self.last:
            print(f"tailrace: failed when it had {self.last}", file=self.stream, flush=True)
        self.stream.close()
