#!/usr/bin/env python3
"""The manual pages of the C interface say what its headers say, and have every function once.

What would make them disagree is planted in copies of the headers, and must be noticed.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
PROJECT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = sorted((PROJECT / "docs" / "man").glob("*.3"))
sys.path.insert(0, str(PROJECT / "scripts"))

import c_interface  # noqa: E402
import manual_pages  # noqa: E402


def pages_with(old: str, new: str) -> dict[str, str]:
    """The pages of headers where `old`, which tailrace.h has once, is replaced by `new`."""
    texts = {name: (PROJECT / "include" / name).read_text(encoding="utf-8") for name in c_interface.HEADERS}
    if texts["tailrace.h"].count(old) != 1:
        raise AssertionError(f"tailrace.h has {texts['tailrace.h'].count(old)} times: {old}")
    texts["tailrace.h"] = texts["tailrace.h"].replace(old, new)
    return manual_pages.make_pages([c_interface.read(name, text) for name, text in texts.items()])


def pages_with_more(text: str) -> dict[str, str]:
    """The pages when there is more among the readers."""
    return pages_with("#define TAILRACE_VERIFY", text + "\n\n#define TAILRACE_VERIFY")


class PagesTest(unittest.TestCase):
    def test_pages_say_what_the_headers_say(self) -> None:
        pages = manual_pages.make_pages(c_interface.read_all(PROJECT / "include"))
        self.assertEqual([path.name for path in PAGES], sorted(pages), "run scripts/manual_pages.py")
        for path in PAGES:
            said = path.read_text(encoding="utf-8")
            self.assertEqual(said, pages[path.name], f"{path.name}: run scripts/manual_pages.py")

    def test_every_function_is_in_exactly_one_page(self) -> None:
        declared: list[str] = []
        for path in sorted((PROJECT / "include").glob("*.h")):
            # Not by c_interface: what that does not see would be missing on both sides.
            declared += re.findall(r"^TAILRACE_API\s[^;(]*?(tailrace_\w+)\(", path.read_text(encoding="utf-8"), re.M)
        self.assertGreater(len(declared), 50)
        listed: list[str] = []
        prototypes: list[str] = []
        for path in PAGES:
            text = path.read_text(encoding="utf-8")
            listed += re.findall(r"^\.Nm (tailrace_\w+)", text, re.M)
            prototypes += re.findall(r"^\.Fo (tailrace_\w+)", text, re.M)
        self.assertEqual(sorted(prototypes), sorted(declared))
        self.assertEqual(sorted(name for name in listed if name in declared), sorted(declared))
        self.assertEqual(len(listed), len(set(listed)), "a name leads to two pages")

    def test_mandoc_has_no_warnings(self) -> None:
        self.without_warnings("mandoc", "-Tlint", "-Wwarning")

    def test_groff_has_no_warnings(self) -> None:
        self.without_warnings("groff", "-mdoc", "-ww", "-Tascii", "-z")

    def without_warnings(self, *command: str) -> None:
        self.assertGreater(len(PAGES), 5)
        if shutil.which(command[0]) is None:
            print(f"skipped: {command[0]} is not installed, the pages are not checked by it")
            self.skipTest(f"no {command[0]}")
        for path in PAGES:
            done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), path.name)


class HeadersTest(unittest.TestCase):
    """What the pages are made from, with something planted."""

    def test_a_changed_comment_changes_its_page(self) -> None:
        pages = pages_with("Never blocks. */\n", "Never blocks, nor does it fail. */\n")
        self.assertIn("nor does it fail", pages["tailrace_saving.3"])

    def test_a_new_function_is_in_its_groups_page(self) -> None:
        pages = pages_with_more("/* Doubts. */\nTAILRACE_API int tailrace_doubt(void);")
        self.assertIn(".Fo tailrace_doubt\n", pages["tailrace_readers.3"])

    def test_a_function_without_words_is_refused(self) -> None:
        with self.assertRaisesRegex(manual_pages.Wrong, "tailrace_doubt: no comment says what it does"):
            pages_with_more("TAILRACE_API int tailrace_doubt(void);")

    def test_words_behind_a_function_are_refused(self) -> None:
        with self.assertRaisesRegex(c_interface.Unknown, "the words of a function stand before it"):
            pages_with("tailrace_version(void);", "tailrace_version(void); /* 1 */")

    def test_a_group_without_a_page_is_refused(self) -> None:
        with self.assertRaisesRegex(manual_pages.Wrong, '"drawing" is in 0 pages'):
            pages_with("/* ---- readers ---", "/* ---- drawing ---")

    def test_what_is_not_understood_is_refused(self) -> None:
        with self.assertRaisesRegex(c_interface.Unknown, "not a declaration that is known: union u"):
            pages_with_more("union u { int i; };")


if __name__ == "__main__":
    unittest.main()
