#!/usr/bin/env python3
"""Examples that need no launcher: a run in two halves ends like a run in one. And what the demo says at its end.

Usage: examples_test.py SINGLE HEAT OWN_FILES
"""
import argparse
import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

SINGLE, HEAT, OWN_FILES = sys.argv[1:4]


class ExamplesTest(unittest.TestCase):
    def setUp(self):
        self.fresh = tempfile.TemporaryDirectory(prefix="tailrace examples ")
        self.addCleanup(self.fresh.cleanup)

    def run_program(self, *command):
        environment = dict(os.environ, TAILRACE_LOCAL_DIR=self.fresh.name + "/local",
                           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def directory(self, name):
        return os.path.join(self.fresh.name, name)

    def test_single_goes_on(self):
        whole = self.run_program(SINGLE, self.directory("whole"), "6000000")
        first = self.run_program(SINGLE, self.directory("halves"), "3000000")
        second = self.run_program(SINGLE, self.directory("halves"), "6000000")
        self.assertRegex(whole, r"^pi is about 3\.14\d+\n$")
        self.assertNotEqual(first, whole)
        self.assertEqual(second, "going on after 3 rounds\n" + whole)
        files = os.listdir(self.directory("halves"))
        self.assertEqual(len(files), 3, files)  # keep_shared = 3

    def test_heat_goes_on(self):
        whole = self.run_program(HEAT, self.directory("whole"), "800", "64")
        self.run_program(HEAT, self.directory("halves"), "500", "64")
        second = self.run_program(HEAT, self.directory("halves"), "800", "64")
        self.assertTrue(re.search(r"bits sum up to [0-9a-f]{16}\n$", whole), whole)
        self.assertEqual(second, "going on from step 400\n" + whole)

    def test_own_files_goes_on(self):
        whole = self.run_program(OWN_FILES, self.directory("whole"), "900")
        self.run_program(OWN_FILES, self.directory("halves"), "500")
        second = self.run_program(OWN_FILES, self.directory("halves"), "900")
        self.assertRegex(whole, r"^after 900 steps the squares sum up to \d+\.\d+\n$")
        self.assertEqual(second, "going on from step 500\n" + whole)

    def test_numbers_that_are_none_are_refused(self):
        particles = os.path.join(os.path.dirname(HEAT), "particles")
        tried = [(HEAT, self.directory("x"), *words) for words in (("many",), ("-1",), ("800", "0"), ("800", "9" * 20))]
        if os.access(particles, os.X_OK):
            tried += [(particles, "--steps", "-1"), (particles, "--particles", "9" * 20), (particles, "--every", "2x")]
        for command in tried:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn("usage: ", done.stderr)
        self.assertEqual(os.listdir(self.fresh.name), [])

    def test_the_demo_that_keeps_its_files_says_how_to_look_into_them(self):
        build = os.path.dirname(os.path.dirname(SINGLE))
        if not os.access(os.path.join(build, "examples", "particles"), os.X_OK):
            self.skipTest("the demo is an MPI program")
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "demo.py")
        spec = importlib.util.spec_from_file_location("demo", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        demo = module.Demo(argparse.Namespace(build=build, mpiexec="none", dir=self.fresh.name, keep=True,
                                              particles=1000))
        self.run_program(SINGLE, demo.shared("undisturbed"), "3000000")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            demo.close()
        command = said.getvalue().splitlines()[-1].split(": ")[-1]
        self.assertRegex(self.run_program(*shlex.split(command)), r"complete +1/1")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
