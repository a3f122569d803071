#!/usr/bin/env python3
"""The names that docs/stability.md promises to keep are those in kept_names.txt.

    stability_test.py --tailrace PATH             fails if a name has gone, or is not in the list
    stability_test.py --tailrace PATH --update    adds new names to the list

PATH is the tool, built from this source. What would break a program is also planted in a copy of the sources, and must
be noticed. A line of the list that goes, goes by hand.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import re
import shutil
import sys
import tempfile
import unittest
from collections.abc import Iterable

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import kept_names  # noqa: E402
from kept_names import PROJECT  # noqa: E402

LIST = HERE / "kept_names.txt"
HEADING = "# What docs/stability.md promises to keep; kept_names.py says what the lines mean.\n"
GONE = """These names of kept_names.txt are not there any more:
{lines}
Programs and scripts that use them would break. docs/stability.md says under "How something goes away" what to do:
keep the old name working until the next major version. If nothing that uses the line can break (a parameter has got a
default, or a C++ function takes more than before), put the new line in its place by hand.
"""
TOO_MUCH = """These additions break what used the name before:
{lines}
docs/stability.md: a new parameter of a Python function has a default and is given by name. In Fortran it is optional,
and a new option or argument of a command can be left out.
"""
NEW = """These names are not in kept_names.txt:
{lines}
If they are meant to stay, run
  tests/project/stability_test.py --tailrace {tailrace} --update
"""
tailrace = ""  # set by the command line


def kept() -> set[str]:
    return {line for line in LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#")}


def breaks(line: str, before: set[str]) -> bool:
    """Whether a new line breaks what a program does with a function or a command that was there before."""
    parameter = re.match(r"((python|fortran) .*)\((.*)\)$", line)
    if parameter is not None:
        may_come = r"\w+=|\*.*" if parameter[2] == "python" else r"\d+: \w+="
        return f"{parameter[1]}()" in before - {line} and re.fullmatch(may_come, parameter[3]) is None
    required = re.match(r"(tool \w+) .* REQUIRED$", line)
    return required is not None and required[1] in before


def complaints(before: set[str], now: set[str]) -> list[str]:
    new = now - before
    too_much = {line for line in new if breaks(line, before)}
    said = ((GONE, before - now), (TOO_MUCH, too_much), (NEW, new - too_much))
    return [text.format(lines=listed(lines), tailrace=tailrace) for text, lines in said if lines]


def listed(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in sorted(lines))


def update() -> int:
    before, now = kept(), kept_names.all_names(PROJECT, tailrace)
    wrong = [text for text in complaints(before, now) if not text.startswith(NEW[:20])]
    if wrong:
        print("\n".join(wrong) + "Nothing was written.")
        return 1
    LIST.write_text(HEADING + "".join(f"{line}\n" for line in sorted(now)), encoding="utf-8")
    print(f"{len(now - before)} added, {len(now)} in all")
    return 0


class TheProject(unittest.TestCase):
    def test_keeps_its_names(self) -> None:
        said = complaints(kept(), kept_names.all_names(PROJECT, tailrace))
        self.assertFalse(said, "\n" + "\n".join(said))

    def test_has_names_of_every_kind(self) -> None:
        kinds = {"c++", "cmake", "fortran", "header", "json", "pkg-config", "python", "setting", "tool"}
        self.assertEqual({line.split()[0] for line in kept()}, kinds)


# Where the names of a kind are written.
SOURCES = {
    "python": ("python/tailrace",),
    "c++": ("include",),
    "fortran": ("fortran",),
    "cmake": ("cmake",),
    "json": ("tools",),
    "setting": (),
    "tool": ("tools", "python/tailrace"),
}


@functools.cache
def names_now(kind: str) -> set[str]:
    return kept_names.names_of(kind, PROJECT, tailrace)


class AChange(unittest.TestCase):
    """Each planted change, and what is said of it."""

    def setUp(self) -> None:
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tailrace names "))
        self.addCleanup(shutil.rmtree, self.root)

    def said_of(self, path: str, old: str, new: str, kind: str = "") -> str:
        """The complaints when the file has `new` in place of `old`."""
        kind = kind or next(each for each, sources in SOURCES.items() if path.startswith(sources))
        text = self.copied(kind, path).read_text(encoding="utf-8")
        self.assertIn(old, text, path)
        (self.root / path).write_text(text.replace(old, new), encoding="utf-8")
        return self.said(kind, tailrace)

    def said_of_tool(self, kind: str, old: str, new: str) -> str:
        """The complaints when the tool says `new` in place of `old`."""
        tool = self.copied(kind, "tailrace")
        tool.write_text(f"#!/bin/sh\n'{tailrace}' \"$@\" | sed 's/{old}/{new}/'\n")
        tool.chmod(0o755)
        return self.said(kind, str(tool))

    def copied(self, kind: str, path: str) -> pathlib.Path:
        for source in SOURCES[kind]:
            if not (self.root / source).exists():
                shutil.copytree(PROJECT / source, self.root / source, ignore=shutil.ignore_patterns("__pycache__"))
        return self.root / path

    def said(self, kind: str, tool: str) -> str:
        return "\n".join(complaints(names_now(kind), kept_names.names_of(kind, self.root, tool)))

    def assert_gone(self, said: str, *lines: str) -> None:
        self.assertIn(GONE.partition("{lines}")[0] + listed(lines), said)

    def assert_refused(self, said: str, *lines: str) -> None:
        self.assertIn(TOO_MUCH.partition("{lines}")[0] + listed(lines), said)

    def assert_new(self, said: str, *lines: str) -> None:
        """These lines, and no other complaint."""
        self.assertEqual(said, NEW.format(lines=listed(lines), tailrace=tailrace))

    def test_a_name_of_python_that_goes(self) -> None:
        said = self.said_of("python/tailrace/__init__.py", '    "State",\n', "")
        self.assertIn("  python tailrace.State\n", said)
        self.assertIn("How something goes away", said)

    def test_a_method_that_goes(self) -> None:
        said = self.said_of("python/tailrace/_session.py", "def should_stop(", "def _should_stop(")
        self.assert_gone(said, "python tailrace.Session.should_stop()")

    def test_a_member_of_what_a_method_returns(self) -> None:
        said = self.said_of("python/tailrace/_files.py", "def names(", "def all_names(")
        self.assert_gone(said, "python RestoredFiles.names()", "python RestoredFiles.names(1: rank=)")

    def test_a_renamed_parameter(self) -> None:
        said = self.said_of("python/tailrace/torch/_file.py", "weights_only: bool", "safe: bool")
        self.assert_gone(said, "python tailrace.torch.load(weights_only=)")

    def test_parameters_that_lose_their_defaults(self) -> None:
        old, new = "step: int | None = None, timeout: float | None = None", "step: int | None, timeout: float | None"
        said = self.said_of("python/tailrace/_session.py", old, new)
        self.assert_gone(said, "python tailrace.Session.wait(1: step=)", "python tailrace.Session.wait(2: timeout=)")

    def test_parameters_in_another_order(self) -> None:
        said = self.said_of(
            "python/tailrace/_session.py", "def save(self, step: int, tree: Any", "def save(self, tree: Any, step: int"
        )
        self.assert_gone(said, "python tailrace.Session.save(1: step)", "python tailrace.Session.save(2: tree)")

    def test_a_parameter_that_is_no_longer_given_by_place(self) -> None:
        said = self.said_of(
            "python/tailrace/_session.py", "step: int | None = None, timeout", "step: int | None = None, *, timeout"
        )
        self.assert_gone(said, "python tailrace.Session.wait(2: timeout=)")

    def test_a_field_of_a_dataclass(self) -> None:
        said = self.said_of("python/tailrace/_marks.py", "    halo: int |", "    ghosts: int |")
        self.assert_gone(said, "python tailrace.Shard(halo=)", "python tailrace.Shard.halo")

    def test_a_code_with_another_number(self) -> None:
        self.assert_gone(
            self.said_of("python/tailrace/_errors.py", "BUSY = 8", "BUSY = 18"), "python tailrace.Code.BUSY = 8"
        )

    def test_a_new_parameter_that_must_be_given(self) -> None:
        said = self.said_of("python/tailrace/_session.py", "tree: Any, *, pickle", "tree: Any, why: str, *, pickle")
        self.assert_refused(said, "python tailrace.Session.save(3: why)")

    def test_a_new_parameter_by_place(self) -> None:
        said = self.said_of(
            "python/tailrace/_session.py", "tree: Any, *, pickle", 'tree: Any, why: str = "", *, pickle'
        )
        self.assert_refused(said, "python tailrace.Session.save(3: why=)")

    def test_a_new_parameter_by_name(self) -> None:
        said = self.said_of(
            "python/tailrace/_session.py", "tree: Any, *, pickle", 'tree: Any, *, why: str = "", pickle'
        )
        self.assert_new(said, "python tailrace.Session.save(why=)")

    def test_a_new_method(self) -> None:
        said = self.said_of(
            "python/tailrace/_session.py",
            "    def should_stop(",
            "    def ask(self, why: str) -> None: ...\n\n    def should_stop(",
        )
        self.assert_new(said, "python tailrace.Session.ask()", "python tailrace.Session.ask(1: why)")

    def test_a_function_of_cpp(self) -> None:
        said = self.said_of("include/tailrace.hpp", "void wait_all()", "void wait_for_all()")
        self.assert_gone(said, "c++ tailrace::Session: void wait_all()")

    def test_a_default_in_cpp(self) -> None:
        said = self.said_of("include/tailrace.hpp", "uint64_t epoch, bool whole = true", "uint64_t epoch, bool whole")
        self.assert_gone(said, "c++ tailrace::Session: void save_files(uint64_t epoch, bool whole = true)")

    def test_an_argument_of_fortran(self) -> None:
        said = self.said_of("fortran/tailrace.F90", "seconds", "longest")
        self.assertIn("  fortran tailrace_session%wait(2: seconds=)\n", said)

    def test_an_argument_of_fortran_that_must_be_given(self) -> None:
        said = self.said_of(
            "fortran/tailrace.F90", "logical, intent(in), optional :: whole", "logical, intent(in) :: whole"
        )
        self.assert_gone(said, "fortran tailrace_session%files_save(2: whole=)")

    def test_a_binding_and_a_component_of_fortran(self) -> None:
        said = self.said_of("fortran/tailrace.F90", "procedure :: rank_count", "procedure :: ranks => rank_count")
        self.assert_gone(said, "fortran tailrace_session%rank_count()")
        said = self.said_of("fortran/tailrace.F90", "integer :: run = 0", "integer :: session = 0")
        self.assertIn("  fortran tailrace_epoch%run\n", said)

    def test_a_component_and_a_target_of_cmake(self) -> None:
        said = self.said_of("cmake/tailraceConfig.cmake.in", '"scr" IN_LIST', '"SCR" IN_LIST')
        self.assert_gone(said, "cmake find_package(tailrace COMPONENTS scr)")
        said = self.said_of("cmake/TailraceInstall.cmake", "EXPORT_NAME veloc ", "EXPORT_NAME client ")
        self.assertIn("  cmake tailrace::veloc\n", said)

    def test_a_file_of_pkg_config_and_a_header(self) -> None:
        said = self.said_of(
            "cmake/TailraceInstall.cmake", "tailrace_pkg_config tailrace_scr", "tailrace_pkg_config scr"
        )
        self.assert_gone(said, "pkg-config tailrace_scr")
        said = self.said_of("cmake/TailraceInstall.cmake", " include/tailrace_mpi.hpp", "")
        self.assertIn("  header tailrace_mpi.hpp\n", said)

    def test_a_setting(self) -> None:
        said = self.said_of_tool("setting", '"name": "mtbf"', '"name": "time_between_failures"')
        self.assertIn("  setting mtbf (TAILRACE_MTBF)\n", said)

    def test_a_value_of_a_setting(self) -> None:
        self.assert_gone(self.said_of_tool("setting", "drop_oldest", "drop"), "setting queue_policy: drop_oldest")

    def test_a_command(self) -> None:
        self.assertIn("  tool prune\n", self.said_of_tool("tool", "^  prune  ", "  ls  "))

    def test_an_option(self) -> None:
        self.assert_gone(
            self.said_of_tool("tool", "--older-than TEXT", "--older TEXT"), "tool prune --older-than VALUE"
        )

    def test_an_option_that_takes_no_value_any_more(self) -> None:
        self.assert_gone(self.said_of_tool("tool", "--keep UINT", "--keep"), "tool prune --keep VALUE")

    def test_a_new_option_that_must_be_given(self) -> None:
        said = self.said_of_tool("tool", "^  --older-than TEXT.*", "&\\n  --why TEXT REQUIRED   the reason")
        self.assert_refused(said, "tool prune --why VALUE REQUIRED")

    def test_an_option_of_a_command_in_python(self) -> None:
        self.assert_gone(
            self.said_of("tools/run/__main__.py", '"--restarts"', '"--tries"', "tool"), "tool run --restarts VALUE"
        )

    def test_an_exit_status(self) -> None:
        self.assert_gone(
            self.said_of("tools/command.h", "exit_waiting = 5,", "exit_waiting = 6,", "tool"),
            "tool exit status 5: waiting",
        )

    def test_a_member_of_json(self) -> None:
        said = self.said_of("tools/command_ls.cc", '"age_seconds"', '"age"')
        self.assert_gone(said, "json ls: age_seconds")
        said = self.said_of("tools/command_verify.cc", '"read_bytes"', '"bytes"')
        self.assertIn("  json verify: read_bytes\n", said)

    def test_a_member_of_json_in_python(self) -> None:
        self.assert_gone(
            self.said_of("tools/profile/tally.py", '"backward_seeks"', '"backward"'), "json profile: backward_seeks"
        )

    def test_a_new_file_that_makes_json_must_be_told(self) -> None:
        self.copied("json", "tools/more.cc").write_text("nlohmann::ordered_json json;\n")
        with self.assertRaisesRegex(kept_names.Unknown, "more.cc makes JSON: whose"):
            self.said("json", tailrace)


def main() -> int:
    global tailrace
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tailrace", required=True)
    parser.add_argument("--update", action="store_true")
    options, rest = parser.parse_known_args()
    tailrace = str(pathlib.Path(options.tailrace).resolve())
    if options.update:
        return update()
    unittest.main(argv=[sys.argv[0], *rest])
    return 0


if __name__ == "__main__":
    sys.exit(main())
