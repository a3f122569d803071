"""What the tests of the tailrace command have in common: epochs to look at, and the command as a user runs it. The
test programs are started as   TEST TAILRACE MAKE_EPOCH [unittest options]
"""

import ast
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

TAILRACE, MAKE_EPOCH = sys.argv[1:3]


def run(*arguments, code=0, **options):
    """Runs the command, checks its exit status and that stdout is what a script may parse."""
    environment = dict(os.environ, **options.pop("env", {}))
    done = subprocess.run([TAILRACE, *map(str, arguments)], capture_output=True, text=True,
                          errors="surrogateescape", env=environment, timeout=120, **options)
    shown = f"tailrace {' '.join(map(str, arguments))}\nstdout: {done.stdout}\nstderr: {done.stderr}"
    assert done.returncode == code, f"exit status {done.returncode}, not {code}: {shown}"
    assert code == 0 or done.stderr or done.stdout, f"failed without a word: {shown}"
    return done


def run_json(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout)


def make(directory, **keys):
    subprocess.run([MAKE_EPOCH, os.fspath(directory), *(f"{key}={value}" for key, value in keys.items())],
                   check=True, timeout=60)


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def find_bytes(directory, needle):
    """The file of the directory that holds `needle`, and where."""
    for path in sorted(directory.iterdir()):
        at = path.read_bytes().find(needle)
        if at >= 0:
            return path, at
    raise AssertionError("not found")


def particles(rank):
    return bytes((rank * 31 + i * (7 + 2 * rank)) & 0xFF for i in range(1000 + 100 * rank))


def read_npy(path):
    """(type, shape, data) of a .npy file, by NumPy's description of the format."""
    raw = path.read_bytes()
    assert raw[:8] == b"\x93NUMPY\x01\x00", raw[:8]
    length = struct.unpack("<H", raw[8:10])[0]
    assert (10 + length) % 64 == 0
    about = ast.literal_eval(raw[10:10 + length].decode("latin1"))
    assert not about["fortran_order"]
    return about["descr"], about["shape"], raw[10 + length:]


class CommandTest(unittest.TestCase):
    def setUp(self):
        # A path that has to be quoted and encoded everywhere.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tailrace cli Größe "))
        self.addCleanup(shutil.rmtree, self.root)
        self.dir = self.root / "ein Verzeichnis\u2211"

    def files(self, epoch, run=1):
        return sorted(self.dir.glob(f"*.e{epoch:09d}.r{run:04d}.*"))
