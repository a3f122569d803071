#!/usr/bin/env python3
"""Every block of code in the pages is run, compiled or compared by a test, or says why not; and the tests that are
named for it take it. What must be noticed is planted in pages of the test's own."""

import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import blocks  # noqa: E402

# Reasons that would fit any block.
EMPTY_REASON = re.compile(r"(?i)^\W*(n/?a|none|no|later|not (needed|possible|run)|an? (example|fragment|snippet))\W*$")
FILE = re.compile(r"[\w/]+\.(?:py|cc|c|sh|h|hpp|f90)\b|\b(?:tests|examples|compat)/[\w/]+")


def complaints(found: list[blocks.Block], project: pathlib.Path = blocks.PROJECT) -> list[str]:
    bad = []
    for block in found:
        if not block.fate:
            bad.append(f"{block.where}: neither run by a test nor excused (tests/project/blocks.py says how)")
        elif block.fate == "not run" and (len(block.words) < 9 or EMPTY_REASON.match(block.words)):
            bad.append(f"{block.where}: the reason says nothing: {block.words!r}")
        elif block.fate == "run" and not block.words:
            bad.append(f"{block.where}: no way to run it is named")
        elif block.fate == "test" and not block.words and block.language != "python":
            bad.append(f"{block.where}: a test without a name is one of Python")
        if block.fate in ("run", "not run"):
            bad += [f"{block.where}: names {name}, which is not there" for name in FILE.findall(block.words)
                    if not is_there(name, project)]
    return bad


def is_there(name: str, project: pathlib.Path) -> bool:
    return (project / name).exists() or any(project.glob(f"*/**/{name}"))


class PagesTest(unittest.TestCase):
    def test_every_block_is_run_or_excused(self) -> None:
        found = blocks.all_blocks()
        self.assertGreater(len(found), 100)
        bad = complaints(found)
        self.assertEqual(bad, [], "\n".join(bad))
        counts = {fate: sum(block.fate == fate for block in found) for fate in ("test", "from", "run", "not run")}
        print(f"{len(found)} blocks: " + ", ".join(f"{fate}: {count}" for fate, count in counts.items()))

    def test_every_named_block_is_taken_by_the_installation_test(self) -> None:
        taken = (blocks.PROJECT / "tests/project/install_test.py").read_text(encoding="utf-8")
        named = [b for b in blocks.all_blocks() if b.fate == "test" and b.words]
        self.assertGreater(len(named), 10)
        for block in named:
            library, _, name = block.words.rpartition("/")
            self.assertIn(f'"{name}"' if library not in ("", "fortran") else f'"{block.words}"'
                          if block.words != "fortran/pkg-config.sh" else block.words, taken, block.where)

    def test_every_page_with_python_examples_is_in_their_test(self) -> None:
        tests = ("python/tests/test_docs.py", "python/tests_jax/test_example_and_page.py")
        taken = "".join((blocks.PROJECT / test).read_text(encoding="utf-8") for test in tests)
        for page in {b.page for b in blocks.all_blocks() if b.fate == "test" and not b.words}:
            self.assertIn(f'{page.removeprefix("docs/")}"', taken)


class PlantedTest(unittest.TestCase):
    def complaints_of(self, above: str, fence: str = "```sh") -> list[str]:
        return complaints(blocks.blocks_of("docs/x.md", f"text\n\n{above}\n{fence}\ntrue\n```\nmore\n"))

    def test_a_block_without_a_word_is_noticed(self) -> None:
        self.assertIn("docs/x.md:4: neither run by a test nor excused", self.complaints_of("")[0])

    def test_a_comment_that_is_no_marker_does_not_count(self) -> None:
        self.assertIn("neither run", self.complaints_of("<!-- tested elsewhere -->")[0])

    def test_a_marker_apart_from_its_block_does_not_count(self) -> None:
        self.assertIn("neither run", self.complaints_of("<!-- not run: needs a job of Slurm -->\n")[0])

    def test_an_excuse_that_says_nothing_is_noticed(self) -> None:
        for reason in ("later", "not needed", "an example"):
            self.assertIn("says nothing", self.complaints_of(f"<!-- not run: {reason} -->")[0])

    def test_an_excuse_that_names_a_test_which_is_gone_is_noticed(self) -> None:
        said = self.complaints_of("<!-- not run: gone_test.py has it -->")[0]
        self.assertIn("gone_test.py, which is not there", said)

    def test_an_excuse_of_several_lines_is_read(self) -> None:
        self.assertEqual(self.complaints_of("<!-- not run: needs a job of\nSlurm -->"), [])

    def test_an_indented_block_is_seen(self) -> None:
        self.assertEqual(len(blocks.blocks_of("x.md", "- a:\n\n  ```sh\n  true\n  ```\n")), 1)
        self.assertEqual(blocks.blocks_of("x.md", "- a:\n\n  ```sh\n  true\n  ```\n")[0].text, "true\n")


if __name__ == "__main__":
    unittest.main()
