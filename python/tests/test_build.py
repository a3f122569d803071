"""What `pip install .` runs (python/backend): it says how far it is, and names what is missing on the machine."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "python" / "backend"))

import tailrace_build  # noqa: E402


def build(tmp_path: Path, hook: str = "build_wheel", **environment: str) -> subprocess.CompletedProcess[str]:
    """A build of the real sources, in a build directory of its own."""
    code = f"import tailrace_build as b; b.{hook}({str(tmp_path)!r}, {{'build-dir': {str(tmp_path / 'build')!r}}})"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python" / "backend"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_libraries_that_are_missing_are_named_in_a_sentence(tmp_path: Path) -> None:
    done = build(tmp_path, PKG_CONFIG_LIBDIR=str(tmp_path), PKG_CONFIG_PATH="")
    assert done.returncode == 1
    assert "lacks ISA-L (CRC32C at memory speed); liburing (the io_uring engine).\n" in done.stderr, done.stderr
    assert "apt-get install -y --no-install-recommends libisal-dev liburing-dev\n" in done.stderr
    assert "cmake.define.TAILRACE_IO_URING=OFF" in done.stderr
    assert "CMake Error" not in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_a_compiler_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-compiler")
    done = build(tmp_path, CC=missing, CXX=missing)
    assert done.returncode == 1
    assert "lacks a C++20 compiler (C++20 compiler).\n" in done.stderr, done.stderr
    assert "apt-get install -y --no-install-recommends g++\n" in done.stderr


def test_a_missing_cmake_is_named(tmp_path: Path) -> None:
    """PATH has every program but CMake, as where pip is told not to fetch it (--no-build-isolation)."""
    for directory in os.environ["PATH"].split(":"):
        for program in Path(directory).glob("*") if directory else ():
            if not program.name.startswith("cmake") and not (tmp_path / program.name).is_symlink():
                (tmp_path / program.name).symlink_to(program)
    done = build(tmp_path, "prepare_metadata_for_build_wheel", PATH=str(tmp_path))  # what pip calls first
    assert done.returncode == 1
    assert "lacks CMake 3.22 or newer (configures the build).\n" in done.stderr, done.stderr
    assert "apt-get install -y --no-install-recommends cmake\n" in done.stderr
    assert "Without --no-build-isolation pip fetches" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_dependency_of_the_build_is_known_to_it() -> None:
    """A package that the build needs, and that nobody names, would be found missing by CMake's log alone."""
    listed = [line.split("|") for line in (ROOT / "scripts" / "packages.txt").read_text().splitlines() if "|" in line]
    packages = {package.strip() for purpose, package, _ in listed if purpose.strip() == "build"}
    assert packages == {needed.package for needed in tailrace_build.NEEDED} - {"python3-dev"}


def test_another_failure_is_told_whole(capfd: pytest.CaptureFixture[str]) -> None:
    def hook() -> str:
        os.write(1, b"FAILED: src/x.o\nx.cc:1: error: nothing fits\n")
        raise ValueError("a failure")

    with pytest.raises(ValueError, match="a failure"):
        tailrace_build.told(hook)
    assert "FAILED: src/x.o\nx.cc:1: error: nothing fits\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            b"-- Found fmt\n[1/109] Building CXX object a.o\n[37/109] Building CXX object b.o\n",
            "built 37 of 109 objects",
        ),
        (b"[ 12%] Building CXX object a.o\n[ 34%] Building CXX object b.o\n", "built 34 % of the objects"),
    ],
)
def test_it_says_how_far_it_is_where_there_is_no_terminal(
    lines: bytes, said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailrace_build, "SECONDS_BETWEEN_LINES", 0.0)

    def hook() -> str:
        os.write(1, lines)
        return "tailrace.whl"

    assert tailrace_build.told(hook) == "tailrace.whl"
    told = capfd.readouterr()
    assert f"tailrace: {said} (" in told.err
    assert told.out == "" and "Building" not in told.err


def test_lines_are_apart(capfd: pytest.CaptureFixture[str]) -> None:
    def hook() -> str:
        os.write(1, b"".join(b"[%d/500] Building\n" % number for number in range(1, 501)))
        return ""

    tailrace_build.told(hook)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) < 250 and lines[-1].startswith("tailrace: built 500 of 500 objects")


# Stands in for pip: runs the build with its output in a pipe, and shows that only with -v.
PIP = """
import os, subprocess, sys
done = subprocess.run([sys.executable, os.environ["BUILD"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
if "-v" in sys.argv:
    os.write(1, done.stdout)
sys.exit(done.returncode)
"""
BUILD = """
import os
import tailrace_build

def hook():
    os.write(1, b"[9/9] Linking\\n")
    return ""

tailrace_build.told(hook)
"""


@pytest.mark.parametrize("options", [[], ["-v"]])
def test_a_terminal_gets_each_line_once(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "pip").write_text(PIP)
    (tmp_path / "build.py").write_text(BUILD)
    environment = {"PYTHONPATH": str(ROOT / "python" / "backend"), "BUILD": str(tmp_path / "build.py")}
    ours, theirs = pty.openpty()
    command = ["setsid", "--ctty", "--wait", sys.executable, str(tmp_path / "pip"), "install", *options, "."]
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdin=theirs, stdout=theirs, stderr=theirs, check=False
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the end of what a terminal has got
        while part := os.read(ours, 4096):
            said += part
    os.close(ours)
    assert done.returncode == 0, said
    assert said.count(b"tailrace: built 9 of 9 objects") == 1, said


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/usr/bin/python3 /usr/bin/pip install .", False),
        ("/usr/bin/python3 /usr/bin/pip install -v .", True),
        ("/usr/bin/python3 -m pip install -Uvv .", True),
        ("/usr/bin/python3 -m pip --verbose install .", True),
        ("/usr/bin/python3 -m pip install -e ./verbose-v", False),
        ("/usr/bin/python3 -m build --wheel", True),
        ("/usr/bin/uv pip install .", False),
    ],
)
def test_who_shows_what_a_build_prints(command: str, shown: bool) -> None:
    assert tailrace_build.shows_output(command.split(), {}) is shown
    assert tailrace_build.shows_output(command.split(), {"PIP_VERBOSE": "1"})


def test_the_command_of_an_editable_install_finds_its_program(tmp_path: Path) -> None:
    """The sources of the package stay where they are, and what is built goes into another directory. Here a script
    stands in for the program."""
    shutil.copytree(ROOT / "python" / "tailrace_command", tmp_path / "python" / "tailrace_command")
    (tmp_path / "tool").write_text('#!/bin/sh\necho "$@"\nexit 5\n')
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(tailrace NONE)\n"
        "install(PROGRAMS tool DESTINATION tailrace_command/bin RENAME tailrace)\n"
    )
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "scikit_build_core.build"\n'
        '[project]\nname = "tailrace"\nversion = "1"\n'
        '[tool.scikit-build]\nwheel.packages = ["python/tailrace_command"]\n'
    )
    place = tmp_path / "site"
    place.mkdir()
    code = f"import scikit_build_core.build as b; b.build_editable({str(place)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = place.glob("*.whl")
    shutil.unpack_archive(wheel, place, "zip")
    (place / "tailrace_command" / "bin" / "tailrace").chmod(0o755)  # as pip does
    code = f"import site; site.addsitedir({str(place)!r}); import tailrace_command as c; print(c.__file__); c.main()"
    command = [sys.executable, "-u", "-c", code, "ls", "here"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path}/python/tailrace_command/__init__.py\nls here\n", done.stderr
    assert done.returncode == 5
