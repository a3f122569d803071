"""scr_index and scr_halt, as scripts call them: commands_test.py --index PROGRAM --halt PROGRAM --tool tailrace"""

import argparse
import os
import subprocess
import tempfile
import unittest

PROGRAMS = argparse.Namespace()
INDEX = """tailrace-scr-index 1
current step 2
dataset 1 1 cached good step 1
dataset 2 1 bypass good step 2
dataset 3 2 cached good result
dataset 4 1 cached failed step 4
"""


def run(*command, **how):
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("SCR_", "TAILRACE_"))}
    plain["PATH"] = os.path.dirname(PROGRAMS.tool) + os.pathsep + plain["PATH"]
    return subprocess.run(command, capture_output=True, timeout=30, check=False, env=plain, text=True, **how)


class Prefix(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="tailrace scr ")
        self.addCleanup(directory.cleanup)
        self.top = directory.name
        os.makedirs(os.path.join(self.top, ".scr", "tailrace"))

    def index(self):
        with open(os.path.join(self.top, ".scr", "tailrace-index"), encoding="utf-8") as file:
            return file.read()


class Index(Prefix):
    def setUp(self):
        super().setUp()
        with open(os.path.join(self.top, ".scr", "tailrace-index"), "w", encoding="utf-8") as file:
            file.write(INDEX)

    def does(self, *arguments):
        done = run(PROGRAMS.index, *arguments, cwd=self.top)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_it_lists_datasets_newest_first(self):
        for arguments in ((), ("--list",), ("-l", "-p", self.top)):
            lines = self.does(*arguments).splitlines()
            self.assertEqual(lines[0].split(), ["DSET", "VALID", "FLUSHED", "CUR", "NAME"])
            self.assertEqual([line.split(maxsplit=3) for line in lines[1:]],
                             [["4", "NO", "-", "step 4"], ["3", "NO", "-", "result"], ["2", "NO", "-", "* step 2"],
                              ["1", "NO", "-", "step 1"]])

    def test_it_changes_what_the_index_says(self):
        self.does("--current", "step 1")
        self.assertEqual(self.index(), INDEX.replace("current step 2", "current step 1"))
        self.does("--drop-after=step 2")
        self.assertEqual(self.index().count("dataset"), 2)
        self.does("--drop", "step 1")
        self.assertEqual(self.index(), "tailrace-scr-index 1\ndataset 2 1 bypass good step 2\n")

    def test_what_cannot_be_changes_nothing(self):
        for arguments, why in ((("--current", "step 9"), "there is no dataset step 9"),
                               (("--current", "result"), "result is no checkpoint"),
                               (("--drop", "none"), "there is no dataset none"),
                               (("--build", "3"), "none is to be added or built"),
                               (("--add", "step 3"), "none is to be added or built"),
                               (("--prefix", "/nowhere", "--drop", "x"), "/nowhere/.scr/tailrace-index.lock")):
            done = run(PROGRAMS.index, *arguments, cwd=self.top)
            self.assertEqual(done.returncode, 1)
            self.assertIn(why, done.stderr)
        for arguments in (("--unknown",), ("word",), ("--drop",)):
            self.assertEqual(run(PROGRAMS.index, *arguments, cwd=self.top).returncode, 2)
        self.assertEqual(self.index(), INDEX)
        self.assertEqual(run(PROGRAMS.index, "--help").returncode, 0)

    def test_without_an_index_there_is_nothing(self):
        os.remove(os.path.join(self.top, ".scr", "tailrace-index"))
        self.assertEqual(len(self.does().splitlines()), 1)


class Halt(Prefix):
    def order(self):
        path = os.path.join(self.top, ".scr", "tailrace", "tailrace.halt")
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()[1]

    def test_orders_are_those_of_tailrace_halt(self):
        for arguments, order in (((), "after 1"), (("--checkpoints", "3"), "after 3"), (("-i",), "now"),
                                 (("--after", "1798885230"), "at 1798885230"), (("--list",), "at 1798885230"),
                                 (("--unset-after",), None), (("-c", "2", self.top), "after 2"), (("-r",), None)):
            done = run(PROGRAMS.halt, *arguments, cwd=self.top)
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            self.assertEqual(self.order(), order, arguments)

    def test_what_cannot_be_fails(self):
        for arguments in (("--before", "18:00"), ("--seconds", "60"), ("--after", "noon"), ("/nowhere",)):
            done = run(PROGRAMS.halt, *arguments, cwd=self.top)
            self.assertNotEqual(done.returncode, 0)
            self.assertNotEqual(done.stderr, "")
        self.assertIsNone(self.order())
        self.assertEqual(run(PROGRAMS.halt, "--unknown").returncode, 2)
        self.assertEqual(run(PROGRAMS.halt, "--help").returncode, 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--index", "--halt", "--tool"):
        parser.add_argument(name, required=True)
    parser.parse_args(namespace=PROGRAMS)
    unittest.main(argv=["commands_test.py"])
