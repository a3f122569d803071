"""Runs the tailrace command as a user does, on epochs written by make_epoch, and looks at what it prints,
what it writes, and how it exits.   cli_test.py TAILRACE MAKE_EPOCH [unittest options]
"""

import json
import os
import pathlib
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

from cli_support import (MAKE_EPOCH, TAILRACE, CommandTest, find_bytes, flip, make, particles, read_npy, run,
                         run_json)


class UsageTest(CommandTest):
    def test_a_mistyped_command_is_named_with_the_nearest(self):
        done = run("lst", self.dir, code=2)
        self.assertIn("no command 'lst'; the nearest is 'ls'", done.stderr)

    def test_a_command_that_is_near_none_gets_no_suggestion(self):
        done = run("diff", self.dir, code=2)
        self.assertEqual("tailrace: there is no command 'diff'. tailrace --help lists all\n", done.stderr)

    def test_help_is_a_command_too(self):
        for command in ([], ["ls"], ["agent"]):
            with self.subTest(command):
                self.assertEqual(run(*command, "--help").stdout, run("help", *command).stdout)
        self.assertIn("no command 'lst'", run("help", "lst", code=2).stderr)

    def test_a_wrong_argument_is_named_with_the_help_that_lists_the_right_ones(self):
        for arguments, sentence in (
                (["ls", "--jason", "."], "there is no option '--jason'; the nearest is '--json'. tailrace ls --help"),
                (["ls", "--banana=3", "."], "there is no option '--banana'. tailrace ls --help"),
                (["ls", "here", "there"], "The following argument was not expected: there. tailrace ls --help"),
                (["extract", "."], "EPOCH is required. tailrace extract --help"),
                ([], "A subcommand is required. tailrace --help")):
            with self.subTest(arguments):
                self.assertEqual(f"tailrace: {sentence} lists all\n", run(*arguments, code=2).stderr)

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full here")
    def test_output_that_is_lost_is_no_success(self):
        make(self.dir, epoch=1)
        for command in (["ls", self.dir], ["ls", self.dir, "--json"], ["show", self.dir], ["config"], ["--version"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([TAILRACE, *map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 4, (command, done.stderr))
            self.assertIn("standard output", done.stderr)


class LsTest(CommandTest):
    def test_complete_incomplete_and_replaced_epochs_are_told_apart(self):
        make(self.dir, epoch=10, run=1, age=400)
        make(self.dir, epoch=10, run=2, age=300, uid=7)
        make(self.dir, epoch=11, run=2, uid=7, unfinished=1)
        make(self.dir, epoch=12, run=2, uid=7)
        self.files(12, 2)[0].unlink()
        epochs = run_json("ls", self.dir)["epochs"]
        self.assertEqual([(e["epoch"], e["run"], e["state"], e["replaced"]) for e in epochs],
                         [(10, 1, "complete", True), (10, 2, "complete", False), (11, 2, "incomplete", False),
                          (12, 2, "incomplete", False)])
        self.assertEqual(epochs[0]["ranks"], 3)
        self.assertEqual(len(epochs[0]["files"]), 2)
        self.assertTrue(all(pathlib.Path(f).exists() for f in epochs[0]["files"]))
        self.assertTrue(390 <= epochs[0]["age_seconds"] <= 500)
        self.assertIn("missing", epochs[3]["why"])
        text = run("ls", self.dir).stdout
        self.assertRegex(text, r"10 +1 +complete, replaced +2/2 +3 ")
        self.assertRegex(text, r"12 +2 +incomplete +1/2 +- ")

    def test_what_a_later_run_left_behind_is_marked_and_not_the_newest(self):
        for epoch, run_number in ((10, 1), (20, 1), (90, 1), (30, 2), (40, 2)):
            make(self.dir, epoch=epoch, run=run_number, uid=run_number)
        epochs = run_json("ls", self.dir)["epochs"]
        self.assertEqual([e["epoch"] for e in epochs if e["left_behind"]], [90])
        self.assertRegex(run("ls", self.dir).stdout, r"90 +1 +complete, left behind +2/2")
        self.assertEqual(run_json("show", self.dir, "newest")["epoch"], 40)
        self.assertEqual(run_json("show", self.dir, "90")["epoch"], 90)

    def test_holes_are_not_on_disk(self):
        make(self.dir, epoch=1)
        os.truncate(self.files(1)[0], 1 << 30)
        epoch = run_json("ls", self.dir)["epochs"][0]
        self.assertGreater(epoch["file_bytes"], 1 << 30)
        self.assertLess(epoch["disk_bytes"], 1 << 20)
        self.assertIn("KiB", run("ls", self.dir).stdout)

    def test_a_clock_that_was_ahead_makes_no_epoch_old(self):
        make(self.dir, epoch=1, age=-86400)
        make(self.dir, epoch=2, age=-90000)
        self.assertEqual([e["age_seconds"] for e in run_json("ls", self.dir)["epochs"]], [0, 0])
        run("prune", self.dir, "--older-than", "1s", "--yes")
        self.assertEqual(len(run_json("ls", self.dir)["epochs"]), 2)

    def test_damaged_foreign_and_swapped_files_are_damaged(self):
        for epoch in (1, 2, 3, 4):
            make(self.dir, epoch=epoch)
        flip(self.files(1)[0], 20)                               # header
        self.files(2)[1].write_bytes(os.urandom(10000))          # foreign
        first, second = self.files(3)                            # swapped
        first.rename(self.root / "x")
        second.rename(first)
        (self.root / "x").rename(second)
        epochs = run_json("ls", self.dir)["epochs"]
        self.assertEqual([e["state"] for e in epochs], ["damaged"] * 3 + ["complete"])
        for epoch in epochs[:3]:
            self.assertTrue(any(f in epoch["why"] for f in map(os.fspath, self.files(epoch["epoch"]))), epoch)

    def test_captured_parts_are_listed_with_what_is_left_over(self):
        make(self.dir, epoch=5, captured=1)
        self.files(5)[1].unlink()
        part = self.files(5)[0]
        part.with_name(part.name + ".unfinished").write_bytes(b"x")
        listed = run_json("ls", self.dir)
        self.assertEqual([(e["state"], len(e["files"]), e["ranks"]) for e in listed["epochs"]],
                         [("captured", 2, 3)])
        self.assertEqual(len(listed["leftovers"]), 1)
        self.assertRegex(run("ls", self.dir).stdout, r"captured +2/3")

    def test_nothing_there(self):
        self.dir.mkdir()
        (self.dir / "notes.txt").write_text("not ours")
        listed = run("ls", self.dir)
        self.assertEqual((listed.stdout, listed.stderr), ("", f"tailrace: no epochs in {self.dir}\n"))
        (self.dir / "notes.txt").unlink()
        self.assertTrue(run("ls", self.dir).stderr.endswith(f"no epochs in {self.dir}: it is empty\n"))
        make(self.dir / "node", job="a", captured=1)
        self.assertIn(f"such as {self.dir}/node\n", run("ls", self.dir).stderr)
        for command in (["show", self.dir], ["verify", self.dir], ["prune", self.dir, "--keep", 1],
                        ["extract", self.dir, "newest", "--files", "-o", self.root / "out"]):
            self.assertEqual(run(*command, code=3).stderr, f"tailrace: there is no epoch in '{self.dir}'; directories in "
                             f"it are not searched, such as {self.dir}/node\n", command)
        self.assertIn("no epochs of job b in", run("ls", self.dir / "node", "--job", "b").stderr)
        self.assertEqual(run("ls", self.dir / "node").stderr, "")
        self.assertEqual(run_json("ls", self.dir)["epochs"], [])
        self.assertIn("none", run("ls", self.root / "none", code=3).stderr)

    def test_only_one_job(self):
        make(self.dir, job="a")
        make(self.dir, job="b")
        self.assertEqual(len(run_json("ls", self.dir)["epochs"]), 2)
        self.assertEqual([e["job"] for e in run_json("ls", self.dir, "--job", "b")["epochs"]], ["b"])


class ShowTest(CommandTest):
    def test_an_epoch_has_arrays_and_regions(self):
        make(self.dir, epoch=7, ranks=3)
        shown = run_json("show", self.dir, 7)
        self.assertEqual(shown["arrays"][0],
                         {"name": "density", "type": "int32", "shape": [12, 10], "complete": True,
                          "may_have_gaps": False, "may_overlap": False, "is_list": False, "fault": None})
        regions = {r["name"]: r for r in shown["regions"]}
        self.assertEqual(regions["particles"],
                         {"name": "particles", "ranks": 3, "bytes": 3300, "least_bytes": 1000, "most_bytes": 1200})
        text = run("show", self.dir).stdout
        self.assertIn("density", text)
        self.assertIn("12 x 10", text)

    def test_what_is_declared_of_an_array_is_told(self):
        make(self.dir, epoch=7, ranks=3, overlap=1)
        array = run_json("show", self.dir, 7)["arrays"][0]
        self.assertEqual((array["may_have_gaps"], array["may_overlap"]), (False, True))
        regions = {r["name"]: r for r in run_json("show", self.dir, 7, "--rank", 1)["rank"]["regions"]}
        self.assertEqual((regions["density"]["may_have_gaps"], regions["density"]["may_overlap"]), (False, True))
        self.assertIs(regions["half"]["may_overlap"], False)
        self.assertRegex(run("show", self.dir, 7).stdout, r"density .* yes +overlap\n")
        self.assertRegex(run("show", self.dir, 7, "--rank", 1).stdout, r"density .* 4 x 10 +overlap\n")

    def test_a_rank_has_its_pieces(self):
        make(self.dir, epoch=7, ranks=3)
        regions = {r["name"]: r for r in run_json("show", self.dir, "newest", "--rank", 2)["rank"]["regions"]}
        self.assertEqual(regions["density"]["offset"], [8, 0])
        self.assertEqual(regions["density"]["local_shape"], [4, 10])
        self.assertIn("rank 3", run("show", self.dir, 7, "--rank", 3, code=3).stderr)

    def test_names_cannot_spoil_the_terminal_or_the_json(self):
        make(self.dir, epoch=7)
        text = run("show", self.dir).stdout
        self.assertIn("spoil\\x1b[31m\\x0a\\xff", text)
        self.assertNotIn("\x1b", text)
        run_json("show", self.dir)

    def test_incomplete_arrays_say_so(self):
        make(self.dir, gap=1)
        self.assertFalse(run_json("show", self.dir)["arrays"][0]["complete"])

    def test_newest_passes_over_what_is_not_complete_and_says_so(self):
        make(self.dir, epoch=1)
        make(self.dir, epoch=2, unfinished=1)
        done = run("show", self.dir, "newest", "--json")
        self.assertEqual(json.loads(done.stdout)["epoch"], 1)
        self.assertIn("passing over epoch 2", done.stderr)
        self.assertIn("has not committed", run("show", self.dir, 2, code=1).stderr)

    def test_a_shared_file_speaks_for_itself(self):
        make(self.dir, epoch=7, leaders=2, ranks=4)
        shown = run_json("show", self.files(7)[1])
        self.assertEqual((shown["file"], shown["file_count"], shown["leaders"], shown["complete"]), (2, 2, 2, True))
        self.assertEqual([s["rank"] for s in shown["streams"]], [2, 3])
        self.assertTrue(all(s["bytes_here"] == s["stream_bytes"] for s in shown["streams"]))
        self.assertIn("shared file 2 of 2", run("show", self.files(7)[1]).stdout)

    def test_a_file_with_an_epoch_or_a_rank_stands_for_its_epoch(self):
        make(self.dir, epoch=6, ranks=4)
        make(self.dir, epoch=7, leaders=2, ranks=4)
        file = self.files(7)[1]
        for epoch in ("newest", 7):
            shown = run_json("show", file, epoch)
            self.assertEqual((shown["epoch"], shown["arrays"][0]["name"]), (7, "density"))
        self.assertEqual(run_json("show", file, "--rank", 1)["rank"]["rank"], 1)
        self.assertIn("there is no epoch 6", run("show", file, 6, code=3).stderr)
        self.assertEqual(run("show", file, "newest").stderr, "")
        self.assertIn(f"what the epoch holds: tailrace show {file} newest\n", run("show", file).stdout)

    def test_a_shared_file_without_slot_is_not_complete(self):
        make(self.dir, epoch=7, unfinished=1)
        self.assertFalse(run_json("show", self.files(7)[1], code=1)["complete"])
        self.assertIn("not complete", run("show", self.files(7)[1], code=1).stdout)

    def test_a_captured_part_speaks_for_itself(self):
        make(self.dir, epoch=7, captured=1)
        shown = run_json("show", self.files(7)[1])
        self.assertEqual(shown["rank"]["rank"], 1)
        self.assertEqual(run_json("show", self.files(7)[1], "--rank", 1)["rank"]["rank"], 1)
        flip(self.files(7)[1], 4096 + 40)
        self.assertIn("checksum", run("show", self.files(7)[1], code=1).stderr)

    def test_other_files_and_missing_ones(self):
        self.dir.mkdir()
        (self.dir / "x").write_bytes(os.urandom(9000))
        self.assertIn("it is damaged, or tailrace has not written it", run("show", self.dir / "x", code=1).stderr)
        (self.dir / "x").write_bytes(b"")
        run("show", self.dir / "x", code=1)
        run("show", self.dir / "y", code=3)
        run("show", self.dir, code=3)


class VerifyTest(CommandTest):
    def test_sound_epochs_pass_whatever_their_layout(self):
        make(self.dir, epoch=1, files=1)
        make(self.dir, epoch=2, files=5, ranks=2)
        make(self.dir, epoch=3, files=2, leaders=3, ranks=7)
        make(self.dir, epoch=4, checksums=0)
        report = run_json("verify", self.dir)
        self.assertTrue(report["ok"])
        self.assertEqual([e["has_checksums"] for e in report["epochs"]], [True, True, True, False])
        text = run("verify", self.dir).stdout
        self.assertIn("epoch 3 of run 1: ok, 7 ranks", text)
        self.assertIn("without checksums", text)
        self.assertEqual(run("verify", self.dir).stderr, "")

    def test_arrays_that_cannot_be_restored_fail(self):
        make(self.dir, epoch=1)
        make(self.dir, epoch=2, gap=1)
        make(self.dir, epoch=3, shapes=1)
        text = run("verify", self.dir, code=1).stdout
        self.assertIn("epoch 1 of run 1: ok", text)
        self.assertIn("epoch 2 of run 1: cannot be restored\n  elements [10:12, 0:10] of array 'density' (int32 "
                      "[12, 10]) are in no rank's piece: the nearest is [8:10, 0:10] of rank 2", text)
        self.assertIn("epoch 3 of run 1: cannot be restored\n  array 'density' cannot be put together: rank 0 saves "
                      "[0:4, 0:10] of int32 [12, 10], and rank 2 saves [8:12, 0:10] of int32 [13, 10]", text)
        self.assertEqual([e["ok"] for e in run_json("verify", self.dir, code=1)["epochs"]], [True, False, False])
        self.assertIn("no: array 'density' cannot be put together", run("show", self.dir, 3).stdout)

    def test_a_flipped_byte_is_named(self):
        make(self.dir, epoch=1)
        make(self.dir, epoch=2)
        path, at = find_bytes(self.dir, particles(2))
        flip(path, at + 500)
        text = run("verify", self.dir, code=1).stdout
        self.assertIn("epoch 2 of run 1: ok", text)
        self.assertIn("epoch 1 of run 1: damaged", text)
        self.assertIn(f"checksum mismatch in '{path}' at offset {at}", text)
        self.assertIn("region 'particles' of rank 2", text)
        report = run_json("verify", self.dir, code=1)
        self.assertEqual([e["ok"] for e in report["epochs"]], [False, True])
        run("verify", self.dir, 2)
        run("verify", self.dir, 1, code=1)
        run("verify", self.dir, 3, code=3)

    def test_every_damaged_rank_is_named(self):
        make(self.dir, epoch=1, files=1)
        for rank in (0, 2):
            path, at = find_bytes(self.dir, particles(rank))
            flip(path, at)
        problems = run_json("verify", self.dir, code=1)["epochs"][0]["problems"]
        self.assertTrue(any("rank 0" in p for p in problems) and any("rank 2" in p for p in problems), problems)

    def test_no_flipped_bit_in_what_counts_goes_unseen(self):
        make(self.dir, epoch=1, files=1, ranks=1)
        path = self.files(1)[0]
        good = path.read_bytes()
        at = good.find(particles(0))
        for offset in (0, 9, 100, 4096 + 8, 4096 + 60, 2 * 4096 + 10, at, at + 999):
            flip(path, offset)
            run("verify", self.dir, code=1)
            path.write_bytes(good)
        run("verify", self.dir)

    def test_truncated_missing_swapped_and_foreign_files(self):
        for epoch in (1, 2, 3, 4, 5):
            make(self.dir, epoch=epoch, uid=epoch)
        with open(self.files(1)[0], "r+b") as file:
            file.truncate(os.path.getsize(self.files(1)[0]) - 5000)
        with open(self.files(2)[1], "r+b") as file:
            file.truncate(100)
        self.files(3)[0].unlink()
        shutil.copy(self.files(5)[1], self.files(4)[1])
        report = run_json("verify", self.dir, code=1)
        self.assertEqual([e["ok"] for e in report["epochs"]], [False, False, False, False, True])
        for epoch in report["epochs"][:4]:
            self.assertTrue(any(str(self.dir) in problem for problem in epoch["problems"]), epoch)
        self.assertIn("incomplete", run("verify", self.dir, 3, code=1).stdout)

    def test_captured_parts_are_verified_too(self):
        make(self.dir, epoch=1, captured=1)
        run("verify", self.dir)
        path, at = find_bytes(self.dir, particles(1))
        flip(path, at)
        self.assertIn("rank 1", run("verify", self.dir, code=1).stdout)

    def test_one_of_its_files_names_an_epoch_and_a_file_alone_may_be_called_anything(self):
        make(self.dir, epoch=1, files=1)
        make(self.dir, epoch=2, files=2)
        report = run_json("verify", self.files(2)[1])
        self.assertEqual([(e["epoch"], e["ok"]) for e in report["epochs"]], [(2, True)])
        self.assertEqual(run_json("ls", self.files(2)[1], "--job", "another")["epochs"], [])
        own_name = self.root / "model.tailrace"
        self.files(1)[0].rename(own_name)
        self.assertIn("epoch 1 of run 1: ok", run("verify", own_name).stdout)
        self.assertEqual(run_json("ls", own_name)["epochs"][0]["files"], [str(own_name)])
        at = own_name.read_bytes().find(particles(1))
        flip(own_name, at)
        self.assertIn(f"'{own_name}' at offset {at}", run("verify", own_name, code=1).stdout)
        run("verify", own_name, 2, code=3)
        own_name.write_bytes(b"text")
        self.assertIn(str(own_name), run("verify", own_name, code=1).stderr)
        for command in (["verify"], ["ls"], ["show"], ["extract", 1, "--array", "density", "-o", self.root / "x"]):
            failure = run_json(command[0], own_name, *command[1:], code=1)
            self.assertFalse(failure["ok"])
            self.assertIn(str(own_name), failure["error"])
        os.mkfifo(self.root / "pipe")
        self.assertIn("not a file", run("verify", self.root / "pipe", code=2).stderr)

    def test_a_copy_under_another_name_is_not_taken_for_the_epoch_beside_it(self):
        make(self.dir, epoch=2, files=2)
        copy = self.dir / "copy.tailrace"
        shutil.copy(self.files(2)[0], copy)
        flip(copy, find_bytes(self.dir, particles(0))[1])
        self.assertIn(f"the name it was written with, {self.files(2)[0].name}", run("verify", copy, code=3).stderr)

    def test_a_captured_part_is_verified_by_itself(self):
        make(self.dir, epoch=3, captured=1)
        part = self.files(3)[1]
        self.assertIn("ok, 3 ranks, ", run("verify", part).stdout)
        self.assertIn("1 of 3 ranks are captured here", run("verify", part).stdout)
        self.assertEqual(run_json("ls", part)["epochs"][0]["files"], [str(part)])
        flip(part, part.read_bytes().find(particles(1)))
        self.assertIn("region 'particles' of rank 1", run("verify", part, code=1).stdout)
        flip(part, 100)
        self.assertIn("captured part's header's checksum", run("verify", part, code=1).stderr)

    def test_several_jobs_need_a_name(self):
        make(self.dir, job="a")
        make(self.dir, job="b")
        self.assertIn("--job", run("verify", self.dir, code=2).stderr)
        run("verify", self.dir, "--job", "a")
        run("verify", self.dir, "--job", "c", code=3)

    def test_a_terminal_sees_progress_and_a_file_does_not(self):
        make(self.dir, epoch=1, megabytes=40)
        master, slave = pty.openpty()
        seen = bytearray()

        def drain():
            try:
                while data := os.read(master, 4096):
                    seen.extend(data)
            except OSError:
                pass  # the last holder of the other end has gone

        reader = threading.Thread(target=drain)
        reader.start()
        done = subprocess.run([TAILRACE, "verify", self.dir], stdout=subprocess.PIPE, stderr=slave, timeout=60)
        os.close(slave)
        reader.join()
        os.close(master)
        self.assertEqual(done.returncode, 0)
        self.assertRegex(seen.decode(), r"epoch 1 of run 1 \[#*\.*\] +\d+ % of 120\.?\d* MiB, \d+ MiB/s")
        self.assertTrue(seen.endswith(b"\r\x1b[K"), seen[-60:])


class ExtractTest(CommandTest):
    def test_a_region_comes_out_as_its_bytes(self):
        make(self.dir, epoch=3)
        output = self.root / "aus gabe.bin"
        self.assertIn("particles", run("extract", self.dir, 3, "--rank", 2, "--region", "particles", "-o", output).stdout)
        self.assertEqual(output.read_bytes(), particles(2))
        run("extract", self.dir, 3, "--rank", 0, "--region", "empty", "-o", self.root / "empty")
        self.assertEqual((self.root / "empty").read_bytes(), b"")

    def test_an_array_comes_out_as_npy(self):
        make(self.dir, epoch=3, ranks=4, files=3)
        output = self.root / "density.npy"
        run("extract", self.dir, "newest", "--array", "density", "-o", output)
        kind, shape, data = read_npy(output)
        self.assertEqual((kind, shape), ("<i4", (16, 10)))
        self.assertEqual(struct.unpack("<160i", data), tuple(range(160)))

    def test_a_box_comes_out_as_npy(self):
        make(self.dir, epoch=3, ranks=4, leaders=2)
        output = self.root / "box.npy"
        about = run_json("extract", self.dir, 3, "--array", "density", "--box", "3:11,7", "-o", output)
        self.assertEqual(about["shape"], [8, 1])
        kind, shape, data = read_npy(output)
        self.assertEqual(shape, (8, 1))
        self.assertEqual(struct.unpack("<8i", data), tuple(row * 10 + 7 for row in range(3, 11)))
        run("extract", self.dir, 3, "--array", "density", "--box", "5:5,:", "-o", output, "--force")
        self.assertEqual(read_npy(output)[1:], ((0, 10), b""))

    def test_bfloat16_comes_out_as_its_bits_with_a_note(self):
        make(self.dir, epoch=3)
        output = self.root / "half.npy"
        text = run("extract", self.dir, 3, "--array", "half", "-o", output).stdout
        self.assertIn("bfloat16", text)
        kind, shape, data = read_npy(output)
        self.assertEqual((kind, shape), ("<u2", (3,)))
        self.assertEqual(struct.unpack("<3H", data), (0x3F80, 0x3F81, 0x3F82))

    def test_an_existing_file_is_kept(self):
        make(self.dir, epoch=3)
        output = self.root / "x"
        output.write_text("precious")
        arguments = ["extract", self.dir, 3, "--rank", 0, "--region", "particles", "-o", output]
        self.assertIn("--force", run(*arguments, code=2).stderr)
        self.assertEqual(output.read_text(), "precious")
        run(*arguments, "--force")
        self.assertEqual(output.read_bytes(), particles(0))

    def test_nothing_is_written_through_what_others_have_put_there(self):
        make(self.dir, epoch=3)
        victim, output = self.root / "victim", self.root / "x.npy"
        extract = ["extract", self.dir, 3, "--array", "density", "-o"]
        for planted in ("link", "file", "pipe"):
            partial = self.root / "x.npy.partial"
            if planted == "link":
                victim.write_text("mine")
                partial.symlink_to(victim)
            elif planted == "file":
                partial.write_text("theirs")
                partial.chmod(0o666)
            else:
                os.mkfifo(partial)
            theirs = partial.lstat()
            run(*extract, output, "--force")
            self.assertTrue(output.is_file() and not output.is_symlink(), planted)
            self.assertNotEqual((output.stat().st_ino, output.stat().st_mode), (theirs.st_ino, theirs.st_mode))
            self.assertEqual(victim.read_text(), "mine")
        os.mkfifo(self.root / "pipe")
        self.assertIn("only files are replaced", run(*extract, self.root / "pipe", "--force", code=2).stderr)
        self.assertTrue((self.root / "pipe").is_fifo())

    def test_damage_leaves_no_output(self):
        make(self.dir, epoch=3)
        path, at = find_bytes(self.dir, particles(1))
        flip(path, at)
        before = sorted(self.root.iterdir())
        run("extract", self.dir, 3, "--rank", 1, "--region", "particles", "-o", self.root / "x", code=1)
        self.assertEqual(sorted(self.root.iterdir()), before)
        run("extract", self.dir, 3, "--rank", 0, "--region", "particles", "-o", self.root / "x")

    def test_elements_nobody_saved_are_an_error(self):
        make(self.dir, gap=1)
        self.assertIn("[10:12, 0:10]", run("extract", self.dir, 1, "--array", "density", "-o", self.root / "x", code=1).stderr)
        run("extract", self.dir, 1, "--array", "density", "--box", ":10,:", "-o", self.root / "x")

    def test_wrong_names_get_the_nearest_right_one(self):
        make(self.dir, epoch=3)
        to = ["-o", self.root / "x"]
        self.assertIn("'density'", run("extract", self.dir, 3, "--array", "densty", *to, code=3).stderr)
        self.assertIn("'particles'",
                      run("extract", self.dir, 3, "--rank", 1, "--region", "particels", *to, code=3).stderr)
        self.assertIn("with --rank R --region particles",
                      run("extract", self.dir, 3, "--array", "particles", *to, code=3).stderr)
        run("extract", self.dir, 3, "--rank", 9, "--region", "particles", *to, code=3)
        run("extract", self.dir, 4, "--rank", 0, "--region", "particles", *to, code=3)

    def test_wrong_usage(self):
        make(self.dir, epoch=3)
        to = ["-o", self.root / "x"]
        for arguments in (to, ["--array", "density"], ["--region", "particles", *to],
                          ["--array", "density", "--rank", 0, *to],
                          ["--array", "density", "--region", "particles", *to],
                          ["--rank", 0, "--region", "particles", "--box", "1:2", *to],
                          ["--array", "density", "--box", "1:2", *to],
                          ["--array", "density", "--box", "0:99,:", *to]):
            run("extract", self.dir, 3, *arguments, code=2)
        run("extract", self.dir, 3, "--rank", -1, "--region", "particles", *to, code=2)
        run("extract", self.dir, 3, "--run", -1, "--array", "density", *to, code=2)
        run("extract", self.dir, -3, "--array", "density", *to, code=2)
        run("extract", self.dir, "three", "--array", "density", *to, code=2)
        run("extract", self.dir, 3, "--array", "density", "-o", self.root / "none" / "x", code=4)
        name = f"{self.root}/"
        self.assertIn("the name of a file", run("extract", self.dir, 3, "--array", "density", "-o", name, code=2).stderr)

    def test_the_last_run_of_an_epoch_counts_unless_another_is_named(self):
        make(self.dir, epoch=3, run=1, ranks=2)
        make(self.dir, epoch=3, run=2, ranks=4)
        for arguments, rows in (([], 16), (["--run", 1], 8)):
            run("extract", self.dir, 3, *arguments, "--array", "density", "-o", self.root / "x", "--force")
            self.assertEqual(read_npy(self.root / "x")[1], (rows, 10))


class ConfigTest(unittest.TestCase):
    def test_every_key_has_default_and_help(self):
        keys = run_json("config")["keys"]
        names = [key["name"] for key in keys]
        for name in ("shared_dir", "local_dir", "files", "buffer_bytes", "ranks_per_node", "queue_policy"):
            self.assertIn(name, names)
        text = run("config").stdout
        for key in keys:
            self.assertTrue(key["help"] and key["type"], key)
            self.assertRegex(text, rf"(?m)^(# )?{key['name']} = ")
            self.assertIn(key["help"], text)
            self.assertEqual(key["environment"], "TAILRACE_" + key["name"].upper())

    def test_the_text_is_a_line_of_comment_or_a_setting(self):
        for line in run("config").stdout.splitlines():
            self.assertRegex(line, r'^(#.*|[a-z_]+ = ("[^"]*"|\d+)|)$')


    def test_the_text_loads_as_it_is_and_changes_nothing(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(run("config").stdout)
            file.flush()
            subprocess.run([MAKE_EPOCH, file.name, "load=1"], check=True, timeout=60)


class ProgramTest(unittest.TestCase):
    def test_version_and_help(self):
        self.assertRegex(run("--version").stdout, r"^tailrace \d+\.\d+\.\d+\n$")
        text = run("--help").stdout
        for command in ("ls", "show", "verify", "extract", "prune", "config"):
            self.assertRegex(text, rf"(?m)^ +{command} ")
            self.assertIn("--json", run(command, "--help").stdout)
        self.assertIn("Exit status", text)

    def test_a_wrong_value_is_named_with_its_option_and_what_is_allowed(self):
        number = "is not a whole number from 0 to 4294967295"
        for arguments, sentence in (
                (["show", ".", "--rank", "x"], f"--rank: 'x' {number}"),
                (["show", ".", "--run", "4294967296"], f"--run: '4294967296' {number}"),
                (["verify", ".", "--run", "-1"], f"--run: '-1' {number}"),
                (["extract", ".", "1", "--rank", "0x1", "-o", "x"], f"--rank: '0x1' {number}"),
                (["extract", ".", "1", "--array", "a", "-o", ""], '--output "" is empty: give it a value (File to write'),
                (["prune", ".", "--keep", "x"], "--keep: 'x' is not a whole number from 1 to 4294967295"),
                (["prune", ".", "--keep", "0"], "--keep: '0' is not a whole number from 1 to 4294967295"),
                (["prune", ".", "--keep", "1", "--older-than", ""],
                 '--older-than "" is empty: leave it out, or give it a value (Remove only older epochs: 90s'),
                (["prune", ".", "--older-than", "7"], "--older-than: '7' is not a length of time: give a number and"),
                (["ls", "--local-dir", "", "."], '--local-dir "" is empty'),
                (["show", ".", ""], "EPOCH \"\" is empty: leave it out, or give it a value (Epoch number, or 'newest'"),
                (["show", ".", "x"], "EPOCH: 'x' is not an epoch: give its number, or 'newest'"),
                (["drain", "--forget", "", "--yes"], '--forget "" is empty'),
                (["drain", "--wait", ""], '--wait "" is empty'),
                (["agent", "--for-lost", "x"], "--for-lost: 'x' is not a length of time: give a number and a unit"),
                (["agent", "start"], "not in {run,status,drain,stop}"),
                (["halt", ".", "--after", "x"], "--after: 'x' is not a whole number from 0 to 999999999999999"),
                (["halt", ".", "--at", ""], '--at "" is empty: leave it out, or give it a value (Stop at this time: 18:00')):
            self.assertIn(sentence, run(*arguments, code=2).stderr)

    def test_an_interrupt_waits_until_run_can_take_it(self):
        with tempfile.TemporaryDirectory() as top:
            python = pathlib.Path(top, "python")
            python.write_text("#!/bin/sh\nexec grep SigBlk /proc/self/status\n")
            python.chmod(0o755)
            for command, blocked in (("run", 1 << (signal.SIGINT - 1)), ("report", 0)):
                said = run(command, env={"TAILRACE_PYTHON": str(python)}).stdout
                self.assertEqual(int(said.split()[1], 16), blocked, command)

    def test_wrong_usage_is_2(self):
        for arguments in ([], ["nonsense"], ["ls"], ["ls", "--nonsense", "x"], ["ls", "a", "b"]):
            run(*arguments, code=2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
