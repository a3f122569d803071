"""Runs `tailrace bench` as a user does and looks at counts, bytes and what it leaves; never at times.
bench_cli_test.py TAILRACE [unittest options]
"""

import csv
import json
import os
import pathlib
import pty
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TAILRACE = sys.argv[1]
SMALL = {"--processes": "2", "--size": "1MiB", "--buffer": "256KiB", "--buffers": "4"}


class BenchTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tailrace bench Größe "))
        self.addCleanup(shutil.rmtree, self.root)
        self.target = self.root / "the disk"
        self.prefix = self.root / "results"

    def command(self, *arguments):
        defaults = [word for pair in SMALL.items() if pair[0] not in arguments for word in pair]
        return [TAILRACE, "bench", self.target, "--local-dir", self.root / "local", "-o", self.prefix, *defaults,
                *map(str, arguments)]

    def run_bench(self, *arguments, code=0):
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def results(self):
        return json.loads(self.prefix.with_suffix(".json").read_text())

    def assert_clean(self):
        left = [path for top in (self.target, self.root / "local") for path in top.rglob("*")]
        self.assertEqual(left, [])

    def test_a_grid_is_run_interleaved_and_its_results_are_counted(self):
        done = self.run_bench("--writers", "1,2", "--placement", "append,contiguous,interleaved", "--files", "1,2",
                              "--repeat", 2)
        results = self.results()
        self.assertTrue(results["complete"])
        self.assertEqual(len(results["cases"]), 12)
        self.assertEqual([(run["repetition"], run["case"]) for run in results["runs"]],
                         [(repetition, case) for repetition in range(2) for case in range(12)])
        for run in results["runs"]:
            self.assertTrue(1.6 * 2**20 <= run["received_bytes"] <= 2.4 * 2**20, run)
            self.assertTrue(1.6 * 2**20 <= run["local_bytes"] <= 2.4 * 2**20, run)
            self.assertGreater(run["bytes_per_second"], 0)
        self.assertTrue(all(case["durable"] for case in results["cases"]))
        for key in ("host", "kernel", "file_system", "tailrace", "threads", "processors"):
            self.assertTrue(results["machine"][key], key)
        with open(self.prefix.with_suffix(".csv"), newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 24)
        self.assertEqual([int(row["received_bytes"]) for row in rows],
                         [run["received_bytes"] for run in results["runs"]])
        for key in ("kernel", "processor", "tailrace", "threads", "directory"):
            self.assertEqual({row[key] for row in rows}, {results["machine"][key]})
        self.assertIn("durable: it syncs", done.stderr)
        steps = [line for line in done.stderr.splitlines() if line.startswith("bench: repetition ")]
        self.assertEqual([line.split(", ")[0].split()[2:] for line in steps],
                         [[str(repetition), "of", "2"] for repetition in (1, 2) for _ in range(12)])
        self.assertIn(" left", steps[0])
        self.assertIn("100 % of ", steps[-1])
        self.assertIn("DIRTY MiB", done.stdout)
        self.assertIn("placement=interleaved files=2 writers=2", done.stdout)
        self.assert_clean()

    def test_without_syncs_it_says_what_is_measured(self):
        done = self.run_bench("--no-sync", "--repeat", 1)
        self.assertIn("memory", done.stderr)
        self.assertIn("without syncs", done.stdout)
        self.assertFalse(self.results()["cases"][0]["durable"])
        self.assert_clean()

    def test_earlier_results_are_not_lost_by_accident(self):
        self.run_bench("--repeat", 1)
        before = self.prefix.with_suffix(".json").read_bytes()
        done = self.run_bench("--repeat", 1, code=2)
        self.assertIn("--resume", done.stderr)
        self.assertEqual(self.prefix.with_suffix(".json").read_bytes(), before)
        self.run_bench("--repeat", 1, "--force")

    def test_resume_makes_the_missing_runs_only(self):
        self.run_bench("--writers", "1,2", "--repeat", 2)
        results = self.results()
        kept = results["runs"][:3]
        results["runs"] = kept
        self.prefix.with_suffix(".json").write_text(json.dumps(results))
        self.run_bench("--writers", "1,2", "--repeat", 2, "--resume")
        again = self.results()
        self.assertEqual(again["runs"][:3], kept)
        self.assertEqual(len(again["runs"]), 4)
        self.assertTrue(again["complete"])
        done = self.run_bench("--writers", "1,4", "--repeat", 2, "--resume", code=2)
        self.assertIn("other settings", done.stderr)

    def test_resume_does_not_mix_machines(self):
        self.run_bench("--repeat", 1)
        for key in ("host", "directory", "local_directory", "file_system", "local_file_system", "tailrace"):
            results = self.results()
            results["machine"][key] = "another"
            other = json.dumps(results)
            self.prefix.with_suffix(".json").write_text(other)
            self.assertIn('"another" is now', self.run_bench("--repeat", 1, "--resume", code=2).stderr)
            self.assertEqual(self.prefix.with_suffix(".json").read_text(), other)
            self.run_bench("--repeat", 1, "--force")

    def test_the_bar_ends_at_its_end_where_a_configuration_is_refused(self):
        if not os.path.isdir("/dev/shm"):
            self.skipTest("there is no /dev/shm, a file system without direct I/O")
        self.target = pathlib.Path(tempfile.mkdtemp(prefix="tailrace-bench-test", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.target)
        ours, theirs = pty.openpty()
        with subprocess.Popen(self.command("--direct", "on,off", "--engine", "posix", "--repeat", 2), stderr=theirs,
                              stdout=subprocess.DEVNULL) as process:
            os.close(theirs)
            drawn = b""
            try:
                while data := os.read(ours, 65536):
                    drawn += data
            except OSError:  # Linux says so when the other end is closed
                pass
            finally:
                os.close(ours)
        self.assertEqual(process.returncode, 0, drawn)
        lines = [line for line in drawn.decode().split("\r") if line.startswith("bench [")]
        self.assertIn("100 %", lines[-1])

    def test_ctrl_c_cleans_up_and_resume_finishes(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            options = ["--repeat", 500]
            with subprocess.Popen(self.command(*options), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  text=True) as process:
                try:
                    deadline = time.monotonic() + 60
                    while time.monotonic() < deadline and not self.prefix.with_suffix(".csv").exists():
                        time.sleep(0.01)
                    process.send_signal(number)
                    said = process.communicate(timeout=60)[1]
                finally:
                    process.kill()
            self.assertEqual(process.returncode, 130, said)
            self.assertIn("--resume", said)
            self.assert_clean()
            results = self.results()
            self.assertFalse(results["complete"])
            self.assertGreater(len(results["runs"]), 0)
            for suffix in (".json", ".csv"):
                self.prefix.with_suffix(suffix).unlink()

    def test_interrupted_before_the_first_result_it_promises_none(self):
        earlier = self.prefix.with_suffix(".json")
        earlier.write_text("earlier", encoding="utf-8")
        with subprocess.Popen(self.command("--size", "128MiB", "--repeat", 500, "--force"), stderr=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, text=True) as process:
            try:
                while process.poll() is None and not (self.target.exists() and any(self.target.iterdir())):
                    time.sleep(0.001)
                process.send_signal(signal.SIGINT)
                said = process.communicate(timeout=60)[1]
            finally:
                process.kill()
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("before the first result", said)
        self.assertNotIn("--resume", said)
        self.assertEqual(earlier.read_text(encoding="utf-8"), "earlier")
        self.assert_clean()

    def test_without_a_terminal_it_goes_on_where_that_was_wanted(self):
        with subprocess.Popen(self.command("--repeat", 50), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
            while process.poll() is None and not self.prefix.with_suffix(".csv").exists():
                time.sleep(0.01)
            process.send_signal(signal.SIGHUP)
            process.wait(timeout=120)
        self.assertEqual(process.returncode, 0, "as under nohup")

    def test_more_writers_than_the_system_has_threads_for_are_refused(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, 8 << 20))
            resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

        if subprocess.run([TAILRACE, "--version"], preexec_fn=limit, capture_output=True, check=False).returncode:
            self.skipTest("a sanitizer's program does not start in so little memory")
        done = subprocess.run(self.command("--writers", "1,1024", "--repeat", 1), preexec_fn=limit, capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("1024 threads are needed, but the system gives", done.stderr)
        self.assertFalse(self.prefix.with_suffix(".json").exists(), "that is known before the first run")
        self.assert_clean()
        # 16 small stacks would fit, but not those that OpenMP is told to give.
        done = subprocess.run(self.command("--writers", "16", "--repeat", 1), preexec_fn=limit, capture_output=True,
                              env={**os.environ, "OMP_STACKSIZE": "1G"}, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("OMP_STACKSIZE", done.stderr)
        self.assert_clean()

    def test_results_that_cannot_be_kept_are_noticed_before_a_run(self):
        self.prefix.with_suffix(".csv").mkdir()
        self.assertIn("directory, not a file", self.run_bench("--repeat", 1, code=2).stderr)
        self.assertFalse(self.target.exists(), "nothing was begun")
        for name in ("", f"{self.root}/"):
            self.prefix = name
            self.assertIn("--output", self.run_bench("--repeat", 1, code=2).stderr)

    def test_what_a_killed_benchmark_left_is_removed_by_the_next(self):
        with subprocess.Popen(self.command("--repeat", 500), stderr=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not self.prefix.with_suffix(".csv").exists():
                time.sleep(0.01)
            process.kill()
        self.assertTrue(list(self.target.iterdir()), "a killed one cannot clean up")
        self.run_bench("--repeat", 1, "--force")
        self.assert_clean()

    def test_it_refuses_to_fill_a_disk(self):
        done = self.run_bench("--no-local", "--size", "512GiB", "--followers", 512, code=4)
        self.assertIn("free there", done.stderr)
        self.assert_clean()

    def test_what_the_system_cannot_do_is_said_and_the_rest_is_measured(self):
        if not os.path.isdir("/dev/shm"):
            self.skipTest("there is no /dev/shm, a file system without direct I/O")
        self.target = pathlib.Path(tempfile.mkdtemp(prefix="tailrace-bench-test", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.target)
        done = self.run_bench("--direct", "on,off", "--engine", "posix", "--repeat", 2)
        results = self.results()
        self.assertEqual([run["case"] for run in results["runs"]], [1, 1])
        self.assertIn("direct I/O", results["cases"][0]["refused"])
        self.assertTrue(results["complete"])
        self.assertIn("direct=on", done.stdout)

    def test_wrong_usage_says_what_is_right(self):
        for arguments, part in (
            (["--writers", "4,0"], "--writers: '0' is not a whole number from 1 to 1024"),
            (["--seed", "x"], "--seed: 'x' is not a whole number from 0 to "),
            (["--processes", "many"], "--processes: 'many' is not a whole number from 1 to 4096"),
            (["--placement", "random"], '--placement: placement "random" is not known: use one of append'),
            (["--buffer", "1000"], "tailrace: --buffer: a buffer of 1000 bytes: it must be a multiple of 256KiB"),
            (["--repeat", "0"], "--repeat: '0' is not a whole number from 1 to 1000"),
            (["--size", "1"], "--size: processes of 1 bytes: 4KiB to 1TiB"),
            (["--size", "much"], 'tailrace: --size: "much"'),
        ):
            self.assertIn(part, self.run_bench(*arguments, code=2).stderr)
        self.assertFalse(self.prefix.with_suffix(".json").exists())


class TuneTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tailrace tune Größe "))
        self.addCleanup(shutil.rmtree, self.root)
        self.toml = self.root / "found.toml"

    def run_tune(self, *arguments, code=0):
        done = subprocess.run([TAILRACE, "tune", self.root / "disk", "--local-dir", self.root / "local",
                               "-o", self.toml, "--processes", "2", "--size", "1MiB", *arguments],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        left = [path for top in ("disk", "local") for path in (self.root / top).rglob("*")]
        self.assertEqual(left, [])
        return done

    def test_what_would_be_written_is_looked_at_first(self):
        kept = self.root / "kept.csv"
        kept.write_text("mine", encoding="utf-8")
        self.assertIn("kept.csv exists", self.run_tune("--results", self.root / "kept", code=2).stderr)
        self.assertEqual(kept.read_text(encoding="utf-8"), "mine")
        self.assertIn("does not exist", self.run_tune("--results", self.root / "no" / "r", code=3).stderr)
        self.assertFalse((self.root / "disk").exists(), "nothing was begun")
        self.assertFalse(self.toml.exists())

    def test_it_writes_what_it_chose_and_why(self):
        prefix = self.root / "runs"
        done = self.run_tune("--time", "3s", "--json", "--results", str(prefix))
        choice = json.loads(done.stdout)
        text = self.toml.read_text()
        for key in ("writers", "buffers", "queue_depth", "io_engine", "direct_io"):
            self.assertIn(f"\n{key} = {json.dumps(choice[key])}\n", text)
        for sentence in choice["explanation"]:
            self.assertIn(f"# {sentence}", text)
        runs = json.loads(prefix.with_suffix(".json").read_text())["runs"]
        self.assertEqual(len(runs), sum(len(one["bytes_per_second"]) for one in choice["tried"]))
        cases = json.loads(prefix.with_suffix(".json").read_text())["cases"]
        self.assertTrue(all(case["fit_chunks"] for case in cases), "as the library cuts")
        self.assertTrue(prefix.with_suffix(".csv").exists())
        before = self.toml.read_bytes()
        self.assertIn("--force", self.run_tune("--time", "1s", code=2).stderr)
        self.assertEqual(self.toml.read_bytes(), before)
        self.assertIn("Chosen: ", self.run_tune("--time", "1s", "--force").stdout)

    def test_what_it_found_is_told_where_the_file_cannot_be_written(self):
        place = self.root / "place"
        place.mkdir()
        with subprocess.Popen([TAILRACE, "tune", self.root / "disk", "--local-dir", self.root / "local", "-o",
                               place / "found.toml", "--time", "3s", "--processes", "2", "--size", "1MiB"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                while process.poll() is None and not any((self.root / "disk").rglob("*.unfinished")):
                    time.sleep(0.001)
                place.rmdir()  # the file's place was looked at before
                told, said = process.communicate(timeout=60)
            finally:
                process.kill()
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("found.toml", said)
        self.assertIn("Chosen: ", told)
        self.assertNotIn("Written to", told)

    def test_memory_is_kept_and_nothing_unsynced_is_called_durable(self):
        done = self.run_tune("--time", "1s", "--memory", "32MiB", "--most-writers", "2", "--no-sync", "--json")
        choice = json.loads(done.stdout)
        self.assertLessEqual(choice["buffers"] * choice["buffer_bytes"], 32 * 2**20)
        self.assertLessEqual(choice["writers"], 2)
        self.assertNotIn("durable", done.stderr + self.toml.read_text())
        self.assertIn("without syncs", self.toml.read_text())

    def test_ctrl_c_cleans_up_and_writes_nothing(self):
        (self.root / "disk").mkdir()
        with subprocess.Popen([TAILRACE, "tune", self.root / "disk", "--local-dir", self.root / "local", "-o",
                               self.toml, "--time", "10min", "--processes", "2", "--size", "16MiB"],
                              stderr=subprocess.PIPE, text=True) as process:
            try:
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline and not any((self.root / "disk").rglob("*.unfinished")):
                    time.sleep(0.01)
                process.send_signal(signal.SIGINT)
                said = process.communicate(timeout=60)[1]
            finally:
                process.kill()
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("interrupted", said)
        self.assertFalse(self.toml.exists())
        self.assertEqual(list((self.root / "disk").iterdir()), [])

    def test_wrong_usage_says_what_is_right(self):
        self.assertIn("--time: 'long' is not a length of time", self.run_tune("--time", "long", code=2).stderr)
        self.assertIn("--results", self.run_tune("--results", "", code=2).stderr)
        self.assertIn("--memory", self.run_tune("--memory", "lots", code=2).stderr)
        self.assertIn("--memory takes 1 MiB or more, not 1000KiB", self.run_tune("--memory", "1000KiB", code=2).stderr)
        self.assertIn("--time takes 1s or more, not 0s", self.run_tune("--time", "0s", code=2).stderr)
        self.assertIn("--most-writers: '0' is not a whole number from 1 to 1024",
                      self.run_tune("--most-writers", "0", code=2).stderr)
        self.toml = ""
        self.assertIn('--output ""', self.run_tune(code=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[1:])
