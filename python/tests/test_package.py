"""The package as it is installed: typed, with stubs that say what the extension has, and without torch."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import tailrace

SOURCE = Path(__file__).parents[1] / "tailrace"


def test_the_stubs_are_those_of_the_extension(tmp_path: Path) -> None:
    made = tmp_path / "_core.pyi"
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "tailrace._core", "-o", made], check=True)
    assert made.read_text() == (SOURCE / "_core.pyi").read_text(), (
        "python/tailrace/_core.pyi is out of date: python -m nanobind.stubgen -m tailrace._core -o it"
    )


def test_the_versions_agree() -> None:
    assert tailrace.__version__ == importlib.metadata.version("tailrace")


def test_types_and_stubs_are_installed() -> None:
    installed = Path(tailrace.__file__).parent
    assert installed != SOURCE
    assert (installed / "py.typed").exists() and (installed / "_core.pyi").exists()


def test_the_codes_are_those_of_the_c_interface() -> None:
    header = (SOURCE.parents[1] / "include" / "tailrace_status.h").read_text()
    codes = {name: int(number) for name, number in re.findall(r"TAILRACE_(\w+) = (\d+)", header) if name != "OK"}
    assert {code.name: code.value for code in tailrace.Code} == codes


def test_importing_it_does_not_import_torch() -> None:
    code = "import sys, tailrace; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
