"""veloc-backend and veloc-inspect, as scripts call them: commands_test.py --backend PROGRAM --inspect PROGRAM"""

import argparse
import glob
import os
import struct
import subprocess
import tempfile
import unittest

PROGRAMS = argparse.Namespace()


def run(*command, **environment):
    plain = {key: value for key, value in os.environ.items() if not key.startswith("VELOC_")}
    return subprocess.run(command, capture_output=True, timeout=30, check=False, env={**plain, **environment})


class Directory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="tailrace veloc ")
        self.addCleanup(directory.cleanup)
        self.top = directory.name

    def write(self, name, content):
        path = os.path.join(self.top, name)
        with open(path, "wb") as file:
            file.write(content)
        return path


class Backend(Directory):
    def test_it_writes_its_log_and_returns_each_time(self):
        config = self.write("veloc.cfg", f"scratch = /s\nmode = async\nlog_prefix = {self.top}\nmeta = /m\n".encode())
        for times in (1, 2):
            done = run(PROGRAMS.backend, config, "--disable-ec")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
            (log,) = glob.glob(os.path.join(self.top, "veloc-backend-*.log"))
            self.assertTrue(log.endswith(f"-{os.uname().nodename}-{os.getuid()}.log"))
            with open(log, encoding="utf-8") as file:
                lines = file.read().splitlines()
            self.assertEqual(len(lines), 2 * times)
            self.assertIn("meta has no effect", lines[1])

    def test_it_fails_where_the_program_would(self):
        bad = run(PROGRAMS.backend, self.write("veloc.cfg", b"scratch = /s\n"), VELOC_LOG_PREFIX=self.top)
        self.assertEqual(bad.returncode, 1)
        self.assertIn(b"mode is missing", bad.stderr)
        nowhere = run(PROGRAMS.backend, self.write("veloc.cfg", b"scratch = /s\nmode = sync\nlog_prefix = /nowhere\n"))
        self.assertEqual(nowhere.returncode, 1)
        self.assertIn(b"/nowhere/veloc-backend-", nowhere.stderr)
        unknown = run(PROGRAMS.backend, self.write("veloc.cfg", b"scratch = /s\nmode = sync\ntailrace_file = 2\n"))
        self.assertEqual(unknown.returncode, 1)
        self.assertIn(b'line 3: tailrace_file = 2: there is no key "file"', unknown.stderr)
        for arguments in ((), ("a", "b"), ("--port",)):
            self.assertEqual(run(PROGRAMS.backend, *arguments).returncode, 2)
        self.assertEqual(run(PROGRAMS.backend, "--help").returncode, 0)

    def test_it_follows_no_link(self):
        target = self.write("target", b"")
        os.symlink(target, os.path.join(self.top, f"veloc-backend-{os.uname().nodename}-{os.getuid()}.log"))
        config = self.write("veloc.cfg", f"scratch = /s\nmode = async\nlog_prefix = {self.top}\n".encode())
        self.assertEqual(run(PROGRAMS.backend, config).returncode, 1)
        self.assertEqual(os.path.getsize(target), 0)

    def test_it_writes_into_a_file_of_its_own_alone(self):
        log = os.path.join(self.top, f"veloc-backend-{os.uname().nodename}-{os.getuid()}.log")
        config = self.write("veloc.cfg", f"scratch = /s\nmode = async\nlog_prefix = {self.top}\n".encode())
        os.mkfifo(log)  # its opening would wait for a reader
        self.assertEqual(run(PROGRAMS.backend, config).returncode, 1)
        reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.assertIn(b"no regular file", run(PROGRAMS.backend, config).stderr)
        os.remove(log)
        target = self.write("target", b"")
        os.link(target, log)
        self.assertIn(b"no regular file", run(PROGRAMS.backend, config).stderr)
        self.assertEqual(os.path.getsize(target), 0)


REGIONS = {-3: b"minus three", 0: b"", 7: bytes(range(256)) * 9000}


def memory_file(regions):
    table = b"".join(struct.pack("<iQ", id, len(bytes_)) for id, bytes_ in regions.items())
    return struct.pack("<Q", len(regions)) + table + b"".join(regions.values())


class Inspect(Directory):
    def test_it_shows_and_extracts_regions(self):
        path = self.write("n-0-1.dat", memory_file(REGIONS))
        self.assertEqual(run(PROGRAMS.inspect, "--header", "--ckpt", path).stdout, b"-3 11\n0 0\n7 2304000\n")
        for id, bytes_ in REGIONS.items():
            done = run(PROGRAMS.inspect, "--ckpt", path, "--extract", str(id))
            self.assertEqual((done.returncode, done.stdout), (0, bytes_))
        beginning = run(PROGRAMS.inspect, "--extract", "7", "--size", "300", "--ckpt", path)
        self.assertEqual(beginning.stdout, REGIONS[7][:300])
        self.assertIn(b"has no id 8", run(PROGRAMS.inspect, "--extract", "8", "--ckpt", path).stderr)

    def test_it_says_that_its_output_cannot_be_written(self):
        path = self.write("n-0-1.dat", memory_file(REGIONS))
        for what in (("--header",), ("--extract", "-3"), ("--extract", "7")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([PROGRAMS.inspect, *what, "--ckpt", path], stdout=full, stderr=subprocess.PIPE,
                                      timeout=30, check=False)
            self.assertEqual((done.returncode, done.stderr), (1, b"veloc-inspect: the output cannot be written\n"))

    def test_it_refuses_what_is_no_such_file(self):
        whole = memory_file(REGIONS)
        cases = {"empty": b"", "short": whole[:-1], "long": whole + b"x", "in the table": whole[:30],
                 "order": memory_file({2: b"a", 1: b"b"}), "twice": struct.pack("<QiQiQ", 2, 1, 0, 1, 0),
                 "count": struct.pack("<Q", 1 << 63), "size": struct.pack("<QiQ", 1, 1, (1 << 64) - 1),
                 "sum": struct.pack("<QiQiQ", 2, 1, (1 << 64) - 8, 2, 8)}
        for name, content in cases.items():
            done = run(PROGRAMS.inspect, "--header", "--ckpt", self.write("f", content))
            self.assertEqual((name, done.returncode, done.stdout), (name, 1, b""))
            self.assertIn(b"holds no regions of a rank", done.stderr)
            if name in ("empty", "in the table", "count"):
                self.assertIn(b"have no room for the table", done.stderr, name)
        self.assertEqual(run(PROGRAMS.inspect, "--header", "--ckpt", "/nowhere").returncode, 1)
        for arguments in ((), ("--header",), ("--ckpt", "f"), ("--header", "--extract", "1", "--ckpt", "f"),
                          ("--extract", "x", "--ckpt", "f"), ("--size", "-1", "--header", "--ckpt", "f")):
            self.assertEqual(run(PROGRAMS.inspect, *arguments).returncode, 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--inspect", required=True)
    parser.parse_args(namespace=PROGRAMS)
    unittest.main(argv=[__file__])
