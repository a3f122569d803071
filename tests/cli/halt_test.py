"""`tailrace halt`: what it writes and says, and that a program obeys it.

    halt_test.py TAILRACE MAKE_EPOCH SINGLE [unittest options]
"""

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from cli_support import CommandTest, make, run, run_json

SINGLE = sys.argv[3]


class HaltTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.dir.mkdir()
        self.file = self.dir / "tailrace.halt"

    def test_an_order_is_written_shown_replaced_and_cancelled(self):
        self.assertIn("there is no order to halt", run("halt", self.dir).stdout)
        self.assertIsNone(run_json("halt", self.dir)["halt"])
        said = run("halt", self.dir, "--now").stdout
        self.assertIn("to stop now. No session uses the directory now", said)
        self.assertRegex(self.file.read_text(), r"\Atailrace halt 1\nnow\nid [0-9a-f]{16}\nby \S+@\S+\n\Z")
        self.assertEqual(self.file.stat().st_mode & 0o022, 0)
        run("halt", self.dir, "--after", 3)
        self.assertEqual(run_json("halt", self.dir)["halt"]["after_saves"], 3)
        said = run_json("halt", self.dir, "--at", "2026-11-24T18:00Z")
        self.assertEqual((said["halt"]["at_unix"], said["in_use"]), (1795543200, False))
        self.assertIn("is to stop at 2026-11-24T18:00:00Z (asked by ", run("halt", self.dir).stdout)
        self.assertIn("cancelled", run("halt", self.dir, "--cancel").stdout)
        self.assertFalse(self.file.exists())
        self.assertIn("there is no order", run("halt", self.dir, "--cancel").stdout)
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_conditions_are_added_and_taken_out(self):
        run("halt", self.dir, "--after", 10, "--before", "2026-11-24T18:00Z")
        text = self.file.read_text()
        self.assertIn("\nafter 10\nbefore 1795543200\nid ", text)
        run("halt", self.dir, "--add", "--stop-before", "90s")
        self.assertEqual(self.file.read_text(), text.replace("\nid ", "\nstop_before 90\nid "), "saves count on")
        self.assertIn("to stop after 10 saves or before 2026-11-24T18:00:00Z, with 90s for the last save",
                      run("halt", self.dir).stdout)
        run("halt", self.dir, "--add", "--after", 3)
        self.assertEqual(run_json("halt", self.dir)["halt"]["after_saves"], 3)
        self.assertNotEqual(self.file.read_text().split("id ")[1], text.split("id ")[1], "saves count anew")
        run("halt", self.dir, "--without", "after,before")
        self.assertIn("to stop 90s before the end of the job", run("halt", self.dir).stdout)
        self.assertIn("cancelled", run("halt", self.dir, "--without", "stop-before").stdout)
        self.assertFalse(self.file.exists())
        self.assertIn("no order", run("halt", self.dir, "--without", "now").stdout)
        run("halt", self.dir, "--add", "--at", "2026-11-24T18:00Z")
        self.assertEqual(run_json("halt", self.dir)["halt"]["at_unix"], 1795543200)

    def test_a_drain_is_no_session(self):
        held = os.open(self.dir, os.O_RDONLY)
        self.addCleanup(os.close, held)
        for kind, in_use in ((fcntl.LOCK_SH, False), (fcntl.LOCK_EX, True)):
            fcntl.flock(held, kind)
            self.assertEqual(run_json("halt", self.dir, "--now")["in_use"], in_use)

    def test_ls_and_show_mention_it(self):
        make(self.dir, epoch=1)
        self.assertIsNone(run_json("ls", self.dir)["halt"])
        run("halt", self.dir, "--after", 1)
        self.assertIn("note: a session that asks should_stop is to stop after 1 save (asked by", run("ls", self.dir).stdout)
        self.assertEqual(run_json("ls", self.dir)["halt"]["after_saves"], 1)
        self.assertIn("is to stop after 1 save", run("show", self.dir).stderr)
        self.assertEqual([e["epoch"] for e in run_json("ls", self.dir)["epochs"]], [1])
        self.assertEqual(run_json("ls", self.dir)["leftovers"], [], "it is no epoch's file")
        self.assertIn("ok", run("verify", self.dir).stdout)
        self.file.write_text("something else")
        self.assertIn("not obeyed", run("ls", self.dir).stdout)
        self.assertIn("no halt file", run_json("ls", self.dir)["halt"]["why_not_obeyed"])

    def test_a_link_is_replaced_and_not_followed(self):
        victim = self.root / "victim"
        victim.write_text("precious")
        self.file.symlink_to(victim)
        self.assertIn("symbolic link", run("ls", self.dir).stdout)
        run("halt", self.dir, "--now")
        self.assertEqual(victim.read_text(), "precious")
        self.assertFalse(self.file.is_symlink())

    def test_wrong_usage(self):
        for arguments in (("--now", "--after", 1), ("--at", "soon"), ("--after", -1), ("--after", "x"),
                          ("--after", "99999999999999999999"), ("--cancel", "--now"), ("--at", ""),
                          ("--cancel", "--add"), ("--before", "soon"), ("--stop-before", "10"),
                          ("--without", "all")):
            with self.subTest(arguments):
                said = run("halt", self.dir, *arguments, code=2).stderr
                if arguments[0] == "--after":
                    self.assertIn(f"--after: '{arguments[1]}' is not a whole number from 0 to 999999999999999", said)
                if arguments[0] == "--at":
                    self.assertRegex(said, '--at.* (18:00|is empty)')
        run("halt", self.root / "missing", "--now", code=3)
        self.assertEqual(list(self.dir.iterdir()), [])

    # ---- a program that obeys ----------------------------------------------------------------------------

    def start(self, **environment):
        program = subprocess.Popen(
            [SINGLE, os.fspath(self.dir), "1000000000000"], stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, TAILRACE_LOCAL_DIR=os.fspath(self.root / "local"), TAILRACE_RECORD="no", **environment))
        self.addCleanup(program.kill)
        deadline = time.monotonic() + 60
        while not list(self.dir.glob("*.tailrace")):
            self.assertLess(time.monotonic(), deadline, "no epoch was written")
            time.sleep(0.02)
        return program

    def ended(self, program):
        text, _ = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 0, text)
        rounds = int(re.search(r"stopping after (\d+) rounds: ", text)[1])
        newest = max(epoch["epoch"] for epoch in run_json("ls", self.dir)["epochs"])
        self.assertEqual(newest, rounds, "the last state was saved")
        return text

    def test_a_running_program_saves_and_stops(self):
        program = self.start()
        self.assertIn("A session uses the directory", run("halt", self.dir, "--now").stdout)
        self.assertIn(": halted by ", self.ended(program))
        self.assertFalse(self.file.exists(), "it was obeyed")

    def test_it_stops_before_a_time_and_leaves_room_for_a_save(self):
        run("halt", self.dir, "--before", str(int(time.time()) + 62))
        self.assertIn(" before 20", self.ended(self.start()))
        run("halt", self.dir, "--stop-before", "1000s")
        self.assertRegex(self.ended(self.start(SLURM_JOB_END_TIME=str(int(time.time()) + 999))),
                         "the job ends in 1[67] min")
        self.assertTrue(self.file.exists(), "it changes a setting, so it stays")

    def test_an_order_holds_for_the_next_session(self):
        run("halt", self.dir, "--after", 2)
        self.assertIn("after 2 saves", self.ended(self.start()))

    def test_a_signal_stops_it_too(self):
        program = self.start()
        program.send_signal(signal.SIGTERM)
        self.assertIn("signal TERM at rank 0", self.ended(program))

    def test_so_does_the_end_of_a_batch_job(self):
        program = self.start(SLURM_JOB_END_TIME=str(int(time.time()) + 62))
        self.assertIn("the job ends in", self.ended(program))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
