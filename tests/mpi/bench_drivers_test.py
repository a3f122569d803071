"""Runs benchmarks/peers.py and the particle part of benchmarks/bench.py on a little data, and looks at what they say, in
which order they measure, and what they leave; never at times.

    bench_drivers_test.py --build DIR -- mpirun arguments...
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--build", required=True)
parser.add_argument("launch", nargs="+")
OPTIONS = parser.parse_args()
BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench  # noqa: E402

# Starts the ranks, but fails the second time.
FAILS_SECOND = """import os, sys
mark = {mark!r}
if os.path.exists(mark):
    sys.exit("the second run fails")
open(mark, "w").close()
os.execvp(sys.argv[1], sys.argv[1:])
"""


class DriverTest(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="tailrace bench drivers ")
        self.addCleanup(place.cleanup)
        self.top = pathlib.Path(place.name)
        self.disk, self.local, self.output = (self.top / name for name in ("disk", "local", "peers.json"))
        self.disk.mkdir()
        self.local.mkdir()

    def drive(self, script, *arguments, code=0):
        done = subprocess.run([sys.executable, "-B", BENCHMARKS / script, "--build", OPTIONS.build, *arguments],
                              capture_output=True, text=True, timeout=110, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def peers(self, *arguments, code=0):
        return self.drive("peers.py", "--directory", self.disk, "--rank-mib", "1", "--repeat", "1", "--warm-up", "1",
                          "-o", self.output, *arguments, code=code)

    def cases(self):
        return json.loads(self.output.read_text())["cases"]


class PeersTest(DriverTest):
    def test_every_strategy_has_a_sample_of_every_turn(self):
        said = self.peers("--files", "1,2", "--turns", "2", "--only", "tailrace,posix", "--variant", "record=no")
        self.assertEqual([case["files"] for case in self.cases()], [1, 2])
        for case in self.cases():
            self.assertEqual(set(case["samples"]), {"tailrace", "tailrace,record=no", "posix"})
            for name, kinds in case["samples"].items():
                self.assertEqual(len(kinds["flush"]), 2)
                self.assertEqual(len(kinds["cold"]), 2)
                self.assertEqual(len(kinds.get("slowest by mean", [])), 2 if name == "tailrace" else 0)
        self.assertEqual(said.count("tailrace: slowest leader / mean of leaders"), 2)
        # Into a file or a job's log a line for each turn and case, while it goes on.
        for number, step in enumerate(f"turn {turn} of 2, K = {files}, " for turn in (1, 2) for files in (1, 2)):
            self.assertIn(f"{number + 1} of 4 done: {step}", said)
        self.assertEqual(said.count(" left\n"), 3)
        self.assertEqual(list(self.disk.iterdir()), [])

    def test_samples_outlive_a_failure(self):
        script = self.top / "launch.py"
        script.write_text(FAILS_SECOND.format(mark=str(self.top / "mark")))
        launch = shlex.join([sys.executable, str(script), *OPTIONS.launch, "2"])
        said = self.peers("--files", "1", "--turns", "2", "--only", "posix", "--launch", launch, code=1)
        self.assertIn("the second run fails", said)
        self.assertIn("K = 1, sizes", said)
        self.assertEqual([len(case["samples"]["posix"]["flush"]) for case in self.cases()], [1])

    def test_a_file_that_cannot_be_written_is_told_first(self):
        self.output = self.top / "no" / "file"
        said = self.peers("--launch", "false", code=1)
        self.assertIn("peers: ", said)
        self.assertIn("No such file", said)


class ParticlesTest(DriverTest):
    def test_each_way_is_measured_in_each_place(self):
        with open(os.path.join(OPTIONS.build, "benchmarks", "bench.json"), encoding="utf-8") as file:
            program = json.load(file)["particles_program"]
        # One rank: this is about orders. (Two ranks of MPICH 4.0 over UCX can wait for each other in MPI_Finalize when
        # the machine is busy.)
        computing = bench.Computing([*OPTIONS.launch, "1", program], 5000, 1, 0.01, {"files": 1, "ranks_per_node": 1})
        for turn in range(2):
            computing.repeat(self.local, self.disk, None, turn)
        ways = list(bench.ADDED)
        self.assertEqual([list(line["ways"]) for line in computing.rounds],
                         [ways[first:] + ways[:first] for first in range(4)])
        for line in computing.rounds:
            self.assertGreater(line["bytes"], 0)
            for way in line["ways"].values():
                self.assertGreaterEqual(way["seconds"], way["saving"])
        self.assertEqual([*self.disk.iterdir(), *self.local.iterdir()], [])
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            computing.print()
        self.assertEqual(said.getvalue().count("  added "), 3, said.getvalue())
        for name in ways[1:]:
            self.assertIn(f"{name}: blocked", said.getvalue())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
