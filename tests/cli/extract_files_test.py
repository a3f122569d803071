"""`tailrace extract --files`: the program's files come out under their names, whole or not at all.

extract_files_test.py TAILRACE MAKE_EPOCH [unittest options]
"""

import os
import stat
import subprocess
import sys
import unittest

from cli_support import TAILRACE, CommandTest, find_bytes, flip, make, run, run_json


def contents(directory):
    """Each file below the directory: its text and its rights."""
    found = {}
    for place, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(place, name)
            with open(path, encoding="utf-8") as file:
                found[os.path.relpath(path, directory)] = (
                    file.read(),
                    stat.S_IMODE(os.lstat(path).st_mode),
                )
    return found


def read_by_the_page(directory, rank, region):
    """By a reader that was written from docs/format.md alone."""
    reader = os.path.join(os.path.dirname(__file__), "..", "format", "read_by_spec.py")
    job = run_json("ls", directory)["epochs"][0]["job"]
    command = [sys.executable, reader, directory, job, "3", "1", str(rank), region]
    return subprocess.run(command, capture_output=True, check=True).stdout


class ExtractFilesTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.out = self.root / "aus gabe"

    def extract(self, *more, code=0):
        return run("extract", self.dir, 3, "--files", "-o", self.out, *more, code=code)

    def test_names_of_one_rank_each_come_out_as_they_are(self):
        make(self.dir, epoch=3, own_files="unique")
        said = self.extract().stdout
        self.assertIn("4 files of epoch 3 of run 1", said)
        self.assertNotIn("a directory for each rank", said)
        expected = {f"out/{r}.txt": (f"out/{r}.txt of rank {r}", 0o640) for r in range(3)}
        self.assertEqual(contents(self.out), {**expected, "run": ("", 0o755)})
        self.assertEqual(sorted(p.name for p in self.root.iterdir()), sorted([self.dir.name, self.out.name]))

    def test_a_name_of_several_ranks_comes_out_in_a_directory_for_each(self):
        for kind, names in (("same", ["state"] * 3), ("nested", ["a", "a/1", "a/2"])):
            self.dir = self.root / kind
            self.out = self.root / f"{kind} out"
            make(self.dir, epoch=3, own_files=kind)
            self.assertIn("a directory for each rank", self.extract().stdout)
            self.assertEqual(
                contents(self.out),
                {f"rank{r:05}/{names[r]}": (f"{names[r]} of rank {r}", 0o640) for r in range(3)},
            )

    def test_one_rank_and_a_directory_for_each_on_request(self):
        make(self.dir, epoch=3, own_files="same")
        self.extract("--rank", 2)
        self.assertEqual(contents(self.out), {"state": ("state of rank 2", 0o640)})
        self.out = self.root / "by rank"
        about = run_json("extract", self.dir, 3, "--files", "--by-rank", "--rank", 1, "-o", self.out)
        self.assertEqual(contents(self.out), {"rank00001/state": ("state of rank 1", 0o640)})
        self.assertEqual(
            about["files"], [{"rank": 1, "name": "state", "path": "rank00001/state", "bytes": 15}]
        )

    def test_files_as_they_were_are_read_from_there(self):
        make(self.dir, epoch=3, own_files="original")
        (files,) = self.dir.glob("*.files/e000000003")
        self.assertFalse([p for p in self.dir.iterdir() if p.is_file() and b"txt of rank" in p.read_bytes()])
        run("verify", self.dir)
        self.assertEqual(read_by_the_page(self.dir, 1, "file/out/1.txt"), b"out/1.txt of rank 1")
        self.extract()
        expected = {f"out/{r}.txt": (f"out/{r}.txt of rank {r}", 0o640) for r in range(3)}
        self.assertEqual(contents(self.out), {**expected, "run": ("", 0o755)})
        self.out = self.root / "again"
        flip(files / "out/1.txt", 3)
        before = sorted(self.root.iterdir())
        self.assertIn(f"{files}/out/1.txt", self.extract(code=1).stderr)
        self.assertIn("1.txt", run("verify", self.dir, code=1).stdout)
        (files / "out/1.txt").unlink()
        self.assertIn("1.txt", self.extract(code=1).stderr)
        self.assertEqual(sorted(self.root.iterdir()), before)

    def test_captured_parts_and_a_single_file_have_them_too(self):
        make(self.dir, epoch=3, own_files="unique", files=1)
        run("extract", next(self.dir.iterdir()), "newest", "--files", "-o", self.out)
        self.assertEqual(len(contents(self.out)), 4)

    def test_what_is_there_is_left_as_it_is(self):
        make(self.dir, epoch=3, own_files="unique")
        self.out.mkdir()
        (self.out / "mine").write_text("precious")
        self.assertIn("exists already", self.extract(code=2).stderr)
        self.assertEqual(os.listdir(self.out), ["mine"])
        link = self.root / "link"
        link.symlink_to(self.root / "nowhere")
        run("extract", self.dir, 3, "--files", "-o", link, code=2)
        self.assertFalse((self.root / "nowhere").exists())

    def test_what_a_killed_run_left_is_named(self):
        """The shell's process number is that of the tool, which takes its place."""
        make(self.dir, epoch=3, own_files="unique")
        script = 'mkdir "$1.partial.$$" && exec "$2" extract "$3" 3 --files -o "$1"'
        done = subprocess.run(["sh", "-c", script, "sh", self.out, TAILRACE, self.dir], capture_output=True,
                              text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"aus gabe\.partial\.\d+' exists: .* remove it")
        self.assertFalse(self.out.exists())
        self.extract()

    def test_a_name_that_leads_outside_is_damage(self):
        make(self.dir, epoch=3, own_files="hostile")
        before = sorted(self.root.iterdir())
        self.assertIn('component ".."', self.extract(code=1).stderr)
        self.assertEqual(sorted(self.root.iterdir()), before)

    def test_damage_leaves_nothing(self):
        make(self.dir, epoch=3, own_files="unique")
        flip(*find_bytes(self.dir, b"out/2.txt of rank 2"))
        before = sorted(self.root.iterdir())
        self.extract(code=1)
        self.assertEqual(sorted(self.root.iterdir()), before)
        self.extract("--rank", 0)

    def test_an_epoch_without_files_has_none(self):
        make(self.dir, epoch=3)
        self.assertIn("has no files of the program", self.extract(code=3).stderr)
        make(self.dir, epoch=4, own_files="unique")
        run("extract", self.dir, 4, "--files", "--rank", 7, "-o", self.out, code=3)
        self.assertFalse(self.out.exists())

    def test_ls_counts_outputs_and_files_as_they_were(self):
        make(self.dir, epoch=3)
        job = run_json("ls", self.dir)["epochs"][0]["job"]
        outputs, files = self.dir / f"{job}.outputs", self.dir / f"{job}.files"
        for epoch in (1, 2):
            make(outputs, epoch=epoch, own_files="unique")
        for name in ("e000000003", "e000000004.r0001.unfinished", "notes"):
            (files / name).mkdir(parents=True)
        (self.dir / "other").mkdir()
        listed = run_json("ls", self.dir)
        self.assertEqual([epoch["epoch"] for epoch in listed["epochs"]], [3])
        self.assertEqual(listed["outputs"], [{"job": job, "directory": str(outputs), "epochs": [1, 2]}])
        self.assertEqual(
            listed["original_files"],
            [{"job": job, "directory": str(files), "epochs": [3], "unfinished": 1}],
        )
        said = run("ls", self.dir).stdout
        self.assertIn("2 epochs of outputs", said)
        self.assertIn("those of 1 epoch have no final name", said)
        self.assertEqual(len(run_json("ls", outputs)["epochs"]), 2)

    def test_wrong_usage(self):
        make(self.dir, epoch=3, own_files="unique")
        for more in (["--array", "density"], ["--region", "particles"], ["--box", "1:2"], ["--force"]):
            self.extract(*more, code=2)
        run("extract", self.dir, 3, "--by-rank", "--array", "density", "-o", self.out, code=2)
        run("extract", self.dir, 3, "--files", "-o", "", code=2)
        run("extract", self.dir, 3, "--files", "-o", self.root / "none" / "out", code=4)
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
