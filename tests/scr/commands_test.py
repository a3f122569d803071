"""scr_index, scr_halt and scr_print, as scripts call them:

commands_test.py --index PROGRAM --halt PROGRAM --print PROGRAM --tool tailrace
"""

import argparse
import os
import struct
import subprocess
import tempfile
import unittest
import zlib

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
                               (("--build", "3"), "dataset 3 is not in "),
                               (("--build", "three"), "three is no id of a dataset"),
                               (("--build", "0"), "0 is no id"),
                               (("--add", "step 3"), "no complete dataset in "),
                               (("--prefix", "/nowhere", "--drop", "x"), "there is no directory /nowhere")):
            done = run(PROGRAMS.index, *arguments, cwd=self.top)
            self.assertEqual(done.returncode, 1)
            self.assertIn(why, done.stderr)
        for arguments in (("--unknown",), ("word",), ("--drop",)):
            self.assertEqual(run(PROGRAMS.index, *arguments, cwd=self.top).returncode, 1)
        self.assertEqual(self.index(), INDEX)
        self.assertEqual(run(PROGRAMS.index, "--help").returncode, 0)

    def test_a_directory_in_the_place_of_a_file_is_named(self):
        for name in ("tailrace-index.lock", "tailrace-index.new"):
            path = os.path.join(self.top, ".scr", name)
            if os.path.exists(path):
                os.remove(path)
            os.makedirs(path)
            done = run(PROGRAMS.index, "--drop", "step 1", cwd=self.top)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f".scr/{name}: a directory stands where this file should be; move it away", done.stderr)
            os.rmdir(path)
        os.remove(os.path.join(self.top, ".scr", "tailrace-index.lock"))
        os.symlink("/nowhere", os.path.join(self.top, ".scr", "tailrace-index.lock"))
        done = run(PROGRAMS.index, "--drop", "step 1", cwd=self.top)
        self.assertIn("it is a symbolic link, which is not followed", done.stderr)
        self.assertEqual(self.index(), INDEX)

    def test_without_an_index_there_is_nothing(self):
        os.remove(os.path.join(self.top, ".scr", "tailrace-index"))
        self.assertEqual(len(self.does().splitlines()), 1)


class Halt(Prefix):
    def order(self):
        path = os.path.join(self.top, ".scr", "tailrace", "tailrace.halt")
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return [line for line in file.read().splitlines()[1:] if not line.startswith(("id ", "by "))]

    def test_orders_are_those_of_tailrace_halt(self):
        after, before = "1798885230", "1798889999"
        for arguments, order in (
                ((), ["after 1"]), (("--checkpoints", "3"), ["after 3"]), (("-i",), ["now", "after 3"]),
                (("--unset-reason", "--after", after), ["after 3", f"at {after}"]),
                (("--list",), ["after 3", f"at {after}"]),
                (("--list", "-i"), ["after 3", f"at {after}"]),
                (("-b", before, "-s", "600", "--unset-checkpoints"),
                 [f"at {after}", f"before {before}", "stop_before 600"]),
                (("--unset-after", "--unset-seconds"), [f"before {before}"]), (("--unset-before",), None),
                (("-c", "2", self.top), ["after 2"]), (("-r",), None), (("--remove",), None)):
            done = run(PROGRAMS.halt, *arguments, cwd=self.top)
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            self.assertEqual(self.order(), order, arguments)

    def test_what_cannot_be_fails(self):
        for arguments in (("--before", "noon"), ("--seconds", "soon"), ("--after", "noon"), ("/nowhere",), ("--all",),
                          ("-u", "anna"), ("--every",)):
            done = run(PROGRAMS.halt, *arguments, cwd=self.top)
            self.assertNotEqual(done.returncode, 0)
            self.assertNotEqual(done.stderr, "")
            self.assertNotIn("usage", done.stderr)
        self.assertIsNone(self.order())
        self.assertEqual(run(PROGRAMS.halt, "--unknown").returncode, 2)
        self.assertEqual(run(PROGRAMS.halt, "--help").returncode, 0)


def kvtree(tree, flags=1):
    """A file as SCR writes it; `tree` is a dictionary of dictionaries."""
    def packed(tree):
        return struct.pack(">I", len(tree)) + b"".join(
            key.encode() + b"\0" + packed(below) for key, below in tree.items())
    data = packed(tree)
    size = 20 + len(data) + 4 * (flags & 1)
    head = struct.pack(">IHHQI", 0x951FC3F5, 1, 1, size, flags) + data
    return head + (struct.pack(">I", zlib.crc32(head)) if flags & 1 else b"")


class Print(Prefix):
    TREE = {"DSET": {"6": {"COMPLETE": {"1": {}}, "DIR": {"a": {}, "b\n": {}}}}, "CURRENT": {"ckpt.6": {}}, "NONE": {}}

    def does(self, content, *arguments, code=0):
        path = os.path.join(self.top, "file.scr")
        with open(path, "wb") as file:
            file.write(content)
        done = run(PROGRAMS.print, *arguments, path)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn("usage", done.stderr)
        return done.stderr if code else done.stdout

    def test_it_prints_files_of_scrs(self):
        values = ["  CURRENT = ckpt.6", "  DSET", "    6", "      COMPLETE = 1", "      DIR", "        a",
                  "        b\\x0a", "  NONE"]
        for flags in (0, 1):
            self.assertEqual(self.does(kvtree(self.TREE, flags)).splitlines(), values)
        self.assertEqual(self.does(kvtree(self.TREE), "--mode", "tree").splitlines()[:3],
                         ["  CURRENT", "    ckpt.6", "  DSET"])
        self.assertEqual(self.does(kvtree({})), "")

    def test_it_prints_the_index(self):
        lines = self.does(INDEX.encode(), "-m", "keyval").splitlines()
        self.assertEqual(lines[:7], ["  CURRENT = step 2", "  DSET", "    1", "      BYPASS = 0", "      CKPT = 1",
                                     "      NAME = step 1", "      OUTPUT = 0"])
        self.assertIn("      FAILED = 1", lines)

    def test_files_that_are_damaged_are_refused(self):
        whole = kvtree(self.TREE)
        self.assertIn("checksum", self.does(whole[:30] + b"X" + whole[31:], code=1))
        for length in range(4, len(whole)):
            self.assertIn("file.scr: ", self.does(whole[:length], code=1)) if length % 7 == 0 else None
        bare = kvtree(self.TREE, 0)
        self.assertIn("no room", self.does(bare[:20] + b"\xff" * 4 + bare[24:], code=1))
        deep = {}
        for _ in range(100):
            deep = {"k": deep}
        self.assertIn("deeper", self.does(kvtree(deep), code=1))
        self.assertIn("should have", self.does(bare + b"more", code=1))
        self.assertIn("tailrace show", self.does(b"text", code=1))

    def test_wrong_usage(self):
        for arguments in ((), ("a", "b"), ("--mode", "xml", "a"), ("--unknown", "a")):
            done = run(PROGRAMS.print, *arguments)
            self.assertEqual((done.returncode, "usage" in done.stderr), (1, True))
        self.assertEqual(run(PROGRAMS.print, "--help").returncode, 0)
        self.assertIn("/nowhere/file", run(PROGRAMS.print, "/nowhere/file").stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--index", "--halt", "--print", "--tool"):
        parser.add_argument(name, required=True)
    parser.parse_args(namespace=PROGRAMS)
    unittest.main(argv=["commands_test.py"])
