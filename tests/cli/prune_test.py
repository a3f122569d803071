"""`tailrace prune`: what it removes, and what it never does.   prune_test.py TAILRACE MAKE_EPOCH [unittest options]
"""

import fcntl
import os
import socket
import sys
import unittest

from cli_support import CommandTest, flip, make, particles, run, run_json


class PruneTest(CommandTest):
    def left(self):
        return [(e["epoch"], e["run"]) for e in run_json("ls", self.dir)["epochs"]]

    def test_nothing_goes_without_yes(self):
        for epoch in range(1, 6):
            make(self.dir, epoch=epoch)
        before = sorted(self.dir.iterdir())
        self.assertIn("Not a directory", run("prune", before[0], "--keep", 2, code=2).stderr)
        text = run("prune", self.dir, "--keep", 2).stdout
        self.assertIn("would remove 3 of 5 epochs, 6 files", text)
        self.assertIn("--yes", text)
        self.assertEqual(sorted(self.dir.iterdir()), before)
        plan = run_json("prune", self.dir, "--keep", 2)
        self.assertFalse(plan["removed"])
        self.assertEqual([e["epoch"] for e in plan["epochs"]], [1, 2, 3])
        self.assertEqual([e["epoch"] for e in plan["kept"]], [4, 5])
        self.assertIn("removed 3", run("prune", self.dir, "--keep", 2, "--yes").stdout)
        self.assertEqual(self.left(), [(4, 1), (5, 1)])
        self.assertIn("nothing to remove", run("prune", self.dir, "--keep", 2, "--yes").stdout)

    def test_what_cannot_be_restored_pushes_nothing_out(self):
        make(self.dir, epoch=1)
        make(self.dir, epoch=2, gap=1)
        pruned = run("prune", self.dir, "--keep", 1, "--yes")
        self.assertIn("nothing to remove", pruned.stdout)
        self.assertIn("not counted: epoch 2 of run 1: elements [10:12, 0:10] of array 'density'", pruned.stderr)
        make(self.dir, epoch=3)
        self.assertIn("removed 2", run("prune", self.dir, "--keep", 1, "--yes").stdout)
        self.assertEqual(self.left(), [(3, 1)])

    def test_damaged_data_push_nothing_out(self):
        for epoch in (1, 2, 3):
            make(self.dir, epoch=epoch)
        for epoch in (2, 3):
            path = next(self.dir.glob(f"*.e00000000{epoch}.r0001.1of2.tailrace"))
            flip(path, path.read_bytes().find(particles(0)) + 100)
        pruned = run("prune", self.dir, "--keep", 1, "--yes")
        self.assertIn("nothing to remove", pruned.stdout)
        for epoch in (2, 3):
            self.assertIn(f"epoch {epoch} of run 1 is damaged and not counted", pruned.stderr)
        make(self.dir, epoch=4)
        run("prune", self.dir, "--keep", 1, "--yes")
        self.assertEqual(self.left(), [(4, 1)])
        self.assertIn("ok", run("verify", self.dir).stdout)

    def test_what_is_left_of_an_old_epoch_goes(self):
        for epoch in (1, 2, 3):
            make(self.dir, epoch=epoch)
        for epoch in (1, 3):
            next(self.dir.glob(f"*.e00000000{epoch}.r0001.1of2.tailrace")).unlink()
        plan = run_json("prune", self.dir, "--keep", 1)
        self.assertEqual([(e["epoch"], e["why"]) for e in plan["epochs"]], [(1, "incomplete, older than what is kept")])
        self.assertIn("removed 1", run("prune", self.dir, "--keep", 1, "--yes").stdout)
        self.assertEqual(self.left(), [(2, 1), (3, 1)])

    def test_the_newest_complete_epoch_stays_whatever_its_age(self):
        make(self.dir, epoch=1, age=10 * 86400)
        make(self.dir, epoch=2, age=9 * 86400)
        make(self.dir, epoch=3, unfinished=1)
        run("prune", self.dir, "--older-than", "7d", "--yes")
        self.assertEqual(self.left(), [(2, 1), (3, 1)])

    def test_age_and_count_must_both_match(self):
        for epoch, age in ((1, 900), (2, 800), (3, 10), (4, 0)):
            make(self.dir, epoch=epoch, age=age)
        run("prune", self.dir, "--keep", 1, "--older-than", "10min", "--yes")
        self.assertEqual(self.left(), [(3, 1), (4, 1)])

    def test_replaced_attempts_go_first(self):
        make(self.dir, epoch=1, run=1)
        make(self.dir, epoch=1, run=2)
        make(self.dir, epoch=2, run=2)
        plan = run_json("prune", self.dir, "--keep", 5)
        self.assertEqual([(e["epoch"], e["run"], e["why"]) for e in plan["epochs"]],
                         [(1, 1, "replaced by a later run")])

    def test_leftovers_go_only_when_asked_for_and_damage_never(self):
        make(self.dir, epoch=1)
        make(self.dir, epoch=2, unfinished=1)
        make(self.dir, epoch=3)
        flip(self.files(3)[0], 20)
        (self.dir / "notes.txt").write_text("mine")
        make(self.dir, epoch=9, captured=1)
        run("prune", self.dir, "--keep", 1, "--yes")
        self.assertEqual(self.left(), [(1, 1), (2, 1), (3, 1), (9, 1)])
        run("prune", self.dir, "--leftovers", "--yes")
        self.assertEqual(self.left(), [(1, 1), (3, 1), (9, 1)])
        self.assertTrue((self.dir / "notes.txt").exists())

    def test_a_session_s_directory_is_left_alone(self):
        make(self.dir, epoch=1)
        make(self.dir, epoch=2)
        held = os.open(self.dir, os.O_RDONLY)
        self.addCleanup(os.close, held)
        fcntl.flock(held, fcntl.LOCK_EX)
        refused = run("prune", self.dir, "--keep", 1, "--yes", code=4)
        self.assertIn(f"process {os.getpid()} on {socket.gethostname()} holds it", refused.stderr)
        self.assertEqual(len(self.left()), 2)
        self.assertIn("session", run("prune", self.dir, "--keep", 1).stderr)
        fcntl.flock(held, fcntl.LOCK_UN)
        run("prune", self.dir, "--keep", 1, "--yes")
        self.assertEqual(self.left(), [(2, 1)])

    def test_other_jobs_stay(self):
        for job in ("a", "b"):
            make(self.dir, job=job, epoch=1)
            make(self.dir, job=job, epoch=2)
        run("prune", self.dir, "--keep", 1, "--yes", code=2)
        run("prune", self.dir, "--keep", 1, "--yes", "--job", "a")
        self.assertEqual([(e["job"], e["epoch"]) for e in run_json("ls", self.dir)["epochs"]],
                         [("a", 2), ("b", 1), ("b", 2)])

    def test_wrong_usage(self):
        make(self.dir)
        for arguments in ([], ["--keep", 0], ["--keep", -1], ["--keep", "x"], ["--older-than", "7"], ["--yes"]):
            run("prune", self.dir, *arguments, code=2)
        run("prune", self.root / "none", "--keep", 1, code=3)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
