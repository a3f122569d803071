"""What conftest.py keeps apart: tests from each other, and from the user's surroundings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = """
import os, signal

def test_first():
    signal.signal(signal.SIGTERM, lambda *_: None)
    assert os.environ["TAILRACE_SEED"] == "7"
    assert "TAILRACE_FILES" not in os.environ

def test_second():
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""


def test_no_handler_is_left_and_a_seed_is_kept(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_two.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path]
    environment = {**os.environ, "TAILRACE_SEED": "7", "TAILRACE_FILES": "3"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
