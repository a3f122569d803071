"""`tailrace ls`: what it says of epochs that a copy of the directory leaves behind.   ls_local_test.py TAILRACE MAKE_EPOCH
"""

import fcntl
import json
import os
import shutil
import socket
import sys
import unittest

from cli_support import CommandTest, make, run, run_json


def fnv(text):  # of docs/records.md's file names
    value = 14695981039346656037
    for byte in os.fsencode(text):
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


def fnv32(text):  # of the names of version 1.0's directories
    value = 2166136261
    for byte in os.fsencode(text):
        value = (value ^ byte) * 16777619 % 2**32
    return value


class NodeLocalTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.local = self.root / "local"
        os.environ["XDG_STATE_HOME"] = str(self.root / "state")  # nobody else's records
        os.environ["TAILRACE_LOCAL_DIR"] = str(self.root / "nothing here")
        self.addCleanup(os.environ.pop, "TAILRACE_LOCAL_DIR")
        make(self.dir, epoch=10)

    def capture(self, epoch, directory="job-1234.node0000", **keys):
        keys = {"shared_dir": self.dir, **keys}
        make(self.local / directory, epoch=epoch, captured=1, **keys)

    def session_line(self, **keys):
        return {"record": "session", "job": "built", "host": "node7", "settings": {"local_dir": str(self.local)}, **keys}

    def newer(self, *more, directory=None):
        return run_json("ls", directory or self.dir, *more)["node_local"]

    def test_a_newer_epoch_of_this_node_is_named(self):
        self.capture(20)
        epoch, = self.newer("--local-dir", self.local)
        self.assertEqual((epoch["job"], epoch["epoch"], epoch["run"], epoch["ranks_here"], epoch["ranks"]),
                         ("built", 20, 1, 3, 3))
        self.assertEqual(epoch["directories"], [str(self.local / "job-1234.node0000")])
        said = run("ls", self.dir, "--local-dir", self.local).stdout
        self.assertIn("note: epoch 20 of run 1 of job built is newer and lies only on nodes (here: 3 of 3 ranks); a "
                      "session on the same nodes finds it\n", said)
        self.assertEqual(self.newer(), [])
        os.environ["TAILRACE_LOCAL_DIR"] = str(self.local)  # as the program that saved it
        self.assertEqual(len(self.newer()), 1)

    def test_what_a_process_has_locked_is_in_use(self):
        self.capture(20)
        directory = os.open(self.local / "job-1234.node0000", os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, directory)
        fcntl.flock(directory, fcntl.LOCK_EX)
        self.assertEqual([epoch["in_use"] for epoch in self.newer("--local-dir", self.local)], [True])
        self.assertIn("(here: 3 of 3 ranks); a session or an agent is at work on them, and may bring it here\n",
                      run("ls", self.dir, "--local-dir", self.local).stdout)
        fcntl.flock(directory, fcntl.LOCK_UN)
        self.assertEqual([epoch["in_use"] for epoch in self.newer("--local-dir", self.local)], [False])

    def test_parts_on_several_nodes_of_this_machine_count_together(self):
        self.capture(20)
        shutil.move(self.local / "job-1234.node0000", self.local / "job-1234.node0001")
        (self.local / "job-1234.node0000").mkdir()
        moved = sorted((self.local / "job-1234.node0001").iterdir())[0]
        shutil.move(moved, self.local / "job-1234.node0000")
        epoch, = self.newer("--local-dir", self.local)
        self.assertEqual((epoch["ranks_here"], len(epoch["directories"])), (3, 2))

    def test_what_is_here_or_older_or_elsewheres_is_not_named(self):
        self.capture(10)
        self.capture(9)
        self.capture(30, "other-1.node0000", shared_dir=self.root, uid=77)
        self.assertEqual(self.newer("--local-dir", self.local), [])
        self.assertNotIn("note:", run("ls", self.dir, "--local-dir", self.local).stdout)

    def test_what_version_1_0_captured_belongs_to_the_directory_of_its_name(self):
        name = f"built-{fnv32(self.dir.resolve()):08x}.node0000"
        self.capture(20, name, shared_dir="")
        self.capture(30, "built-12345678.node0000", shared_dir="", uid=77)
        self.assertEqual([epoch["directories"] for epoch in self.newer("--local-dir", self.local)],
                         [[str(self.local / name)]])

    def test_an_epoch_that_did_not_become_complete_here_is_named(self):
        make(self.dir, epoch=20, unfinished=1)
        self.capture(20)
        self.assertEqual([epoch["epoch"] for epoch in self.newer("--local-dir", self.local)], [20])

    def test_what_was_captured_for_the_place_before_a_move_is_named(self):
        self.capture(20)
        moved = self.root / "moved"
        shutil.move(self.dir, moved)
        epoch, = self.newer("--local-dir", self.local, directory=moved)
        self.assertEqual((epoch["epoch"], epoch["captured_for"]), (20, str(self.dir)))
        said = run("ls", moved, "--local-dir", self.local).stdout
        self.assertIn(f"; it belongs to {self.dir}: to restore it, put the", said)

    def test_a_link_to_the_directory_is_the_directory(self):
        self.capture(20)
        (self.root / "link").symlink_to(self.dir)
        self.assertEqual(len(self.newer("--local-dir", self.local, directory=self.root / "link")), 1)

    def test_a_tier_and_a_file_have_no_notes(self):
        self.capture(20)
        for place in (self.local / "job-1234.node0000", self.files(10)[0]):
            self.assertEqual(self.newer("--local-dir", self.local, directory=place), [])

    def test_what_nodes_keep_for_each_other_is_said(self):
        self.capture(20)
        self.capture(30, objects=2)
        # What another run kept of the same epoch is another epoch's.
        self.capture(20, "other-1.node0000", shared_dir=self.root, uid=77, objects=1)
        alone, kept = self.newer("--local-dir", self.local)
        self.assertEqual((alone["epoch"], alone["protection"]), (20, []))
        self.assertEqual((kept["epoch"], kept["protection"]),
                         (30, [{"redundancy": "partner", "losses_survived": 1, "nodes": [0, 1, 2], "keepers_here": [0, 1]}]))
        text = ("protected by partner in the set of nodes 0 to 2, which survives the loss of 1 node; here lies the "
                "data that nodes 0 and 1 keep")
        said = run("ls", self.dir, "--local-dir", self.local).stdout
        self.assertEqual(said.count("protected by"), 1)
        self.assertIn("(here: 3 of 3 ranks, protected by partner); a session", said)

        tier = self.local / "job-1234.node0000"
        lines = run("ls", tier).stdout.splitlines()
        self.assertIn("captured, protected", next(line for line in lines if line.split()[0] == "30"))
        self.assertNotIn("protected", next(line for line in lines if line.split()[0] == "20"))
        self.assertIn(f"      {text}", lines)
        self.assertEqual([epoch["protection"] for epoch in run_json("ls", tier)["epochs"]],
                         [[], kept["protection"]])
        # A head that is cut off says nothing.
        for path in tier.glob("*.protect"):
            path.write_bytes(path.read_bytes()[:4000])
        self.assertNotIn("protected", run("ls", tier).stdout)

    def test_records_tell_of_other_nodes_and_of_other_tiers(self):
        records = self.root / "state" / "tailrace"
        records.mkdir(parents=True)
        lines = [self.session_line(run=3),
                 {"record": "epoch", "epoch": 90, "run": 3, "state": "kept_local"},  # before the directory was made anew
                 self.session_line(run=1),
                 {"record": "epoch", "epoch": 20, "run": 1, "state": "kept_local"},
                 {"record": "epoch", "epoch": 25, "run": 1, "state": "kept_local"},  # node7 may have removed it
                 {"record": "epoch", "epoch": 30, "run": 1, "state": "kept_local"},
                 {"record": "epoch", "epoch": 40, "run": 1, "state": "failed"}]
        text = "\n".join(map(json.dumps, lines)) + '\n{"record": "epo'
        record = records / f"built-{fnv(self.dir):016x}.jsonl"
        record.write_text(text)
        self.capture(20)
        here, there = self.newer()
        self.assertEqual((here["epoch"], here["ranks_here"]), (20, 3))
        self.assertEqual((there["epoch"], there["ranks_here"], there["host"]), (30, 0, "node7"))
        said = run("ls", self.dir).stdout
        self.assertIn("epoch 30 of run 1 of job built is newer and lies only on nodes, those of a job that began on "
                      "node7; to bring it here, run `tailrace drain --local-dir " + str(self.local) + "` on them\n", said)
        self.assertLess(max(map(len, said.splitlines())), 300)
        # Of this node the tier tells, where 30 is not any more.
        record.write_text(text.replace("node7", socket.gethostname()))
        self.assertEqual([epoch["epoch"] for epoch in self.newer()], [20])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
