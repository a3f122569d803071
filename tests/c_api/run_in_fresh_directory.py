#!/usr/bin/env python3
"""Runs a program with a fresh, empty directory as its argument, and removes the directory afterwards."""
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory(prefix="tailrace c11 ") as directory:
    sys.exit(subprocess.run([*sys.argv[1:], directory], timeout=50).returncode)
