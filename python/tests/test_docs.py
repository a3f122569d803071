"""The examples of the pages run as they stand there, one after another in a fresh directory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def examples(page: str) -> list[str]:
    text = (PROJECT / ("" if page == "README.md" else "docs") / page).read_text()
    return re.findall(r"^<!-- test -->\n```python\n(.*?)^```$", text, re.M | re.S)


@pytest.mark.parametrize("page", ["README.md", "files.md", "python.md", "pytorch.md", "when.md"])
def test_the_examples_of_the_page_run(page: str, tmp_path: Path) -> None:
    blocks = examples(page)
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, block + done.stdout + done.stderr
