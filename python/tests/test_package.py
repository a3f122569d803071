"""The package as it is installed: typed, with stubs that say what the extension has, and without torch."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import pickle
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

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


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """What the script `tailrace` in an environment does: it calls the entry point."""
    return subprocess.run(
        [sys.executable, "-m", "tailrace_command", *arguments], capture_output=True, text=True, check=False, **options
    )


def test_the_entry_point_is_the_command() -> None:
    entries = importlib.metadata.distribution("tailrace").entry_points
    assert [(entry.name, entry.value) for entry in entries] == [("tailrace", "tailrace_command:main")]
    assert tailrace.__version__ in command("--version").stdout


def test_the_module_is_the_command_too() -> None:
    asked = subprocess.run([sys.executable, "-m", "tailrace", "--version"], capture_output=True, text=True, check=False)
    assert asked.stdout == command("--version").stdout != "", asked.stderr


def test_names_that_a_newcomer_tries_say_what_is_meant() -> None:
    for name, meant in {"save": "tailrace.open", "load": "tailrace.read", "nothing": "$"}.items():
        with pytest.raises(AttributeError, match=f"^module 'tailrace' has no attribute '{name}'.*{meant}"):
            getattr(tailrace, name)
    program = "import tailrace; assert not hasattr(tailrace, 'torch'); tailrace.jax"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "module 'tailrace' has no attribute 'jax': import tailrace.jax loads that part" in ended.stderr
    program = "import tailrace; tailrace.oppen"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Did you mean: 'open'?" in ended.stderr


def test_the_command_looks_into_what_python_has_saved(tmp_path: Path) -> None:
    with tailrace.open(shared_dir=tmp_path / "shared", local_dir=tmp_path / "local") as session:
        session.save(1200, {"u": 1.0})
    listed = command("ls", str(tmp_path / "shared"))
    assert listed.returncode == 0 and "1200" in listed.stdout, listed.stderr
    assert command("verify", str(tmp_path / "shared")).returncode == 0
    missing = command("ls", str(tmp_path / "missing"))
    assert missing.returncode == 3 and "missing" in missing.stderr


def test_the_command_finds_its_python_programs_and_this_interpreter(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TAILRACE_PYTHON"}
    environment["PATH"] = str(tmp_path)  # no python3 there
    done = command("convert", "--help", env=environment)
    assert done.returncode == 0 and "safetensors" in done.stdout, done.stderr


def test_the_command_is_the_same_process(tmp_path: Path) -> None:
    """So a signal to the process that a script has started reaches the tool."""
    agent = [sys.executable, "-m", "tailrace_command", "agent", "--local-dir", str(tmp_path)]
    with subprocess.Popen(agent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        try:
            program = Path(f"/proc/{started.pid}/exe")
            until = time.monotonic() + 60
            while program.readlink().parts[-3:] != ("tailrace_command", "bin", "tailrace"):
                assert started.poll() is None and time.monotonic() < until, program.readlink()
                time.sleep(0.02)
        finally:
            started.terminate()


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


def test_an_error_is_pythons_own_of_its_kind_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        tailrace.read(tmp_path / "missing")
    assert isinstance(missing.value, tailrace.Error) and missing.value.code is tailrace.Code.NOT_FOUND
    assert missing.value.errno == errno.ENOENT and missing.value.filename == str(tmp_path / "missing")
    monkeypatch.chdir(tmp_path)
    os.mkdir("empty")
    for name in ("missing", "empty"):  # also where the sentence has nothing that looks like a path
        with pytest.raises(FileNotFoundError) as missing:
            tailrace.read(name)
        assert missing.value.filename == missing.value.path == name
    with pytest.raises(ValueError, match="nothing was read"):
        tailrace.read("")
    for code, sentence, kind, number in (
        (tailrace.Code.IO_ERROR, "opening '/a/b': Permission denied; nothing was read", PermissionError, errno.EACCES),
        (tailrace.Code.IO_ERROR, "reading '/a/b': Input/output error", OSError, None),
        (tailrace.Code.NO_SPACE, "writing '/a/b': No space left", OSError, errno.ENOSPC),
        (tailrace.Code.ALREADY_EXISTS, "'/a/b' is there", FileExistsError, errno.EEXIST),
        (tailrace.Code.OUT_OF_MEMORY, "no memory for 5 bytes", MemoryError, None),
        (tailrace.Code.TIMEOUT, "waiting for '/a/b'", TimeoutError, errno.ETIMEDOUT),
        (tailrace.Code.INVALID_ARGUMENT, "a number is needed", ValueError, None),
    ):
        for error in (tailrace.Error(code, sentence), pickle.loads(pickle.dumps(tailrace.Error(code, sentence)))):
            assert isinstance(error, kind) and isinstance(error, tailrace.Error), kind
            assert str(error) == sentence and error.code is code and getattr(error, "errno", None) == number
            if isinstance(error, OSError):
                assert error.filename == "/a/b" == error.path
    corrupt = tailrace.Error(tailrace.Code.CORRUPT, "x")
    assert type(corrupt) is tailrace.Error and not isinstance(corrupt, (OSError, ValueError))


def test_what_may_not_be_read_is_a_permission_error(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything: that a refusal is a PermissionError is tested by its sentence only")
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "f").chmod(0)
    with pytest.raises(PermissionError):
        tailrace.read(tmp_path / "f")


@pytest.mark.parametrize("address", ["s3://bucket/run", "gs://b", "file:///tmp/x", Path("s3://bucket/run")])
def test_an_address_is_no_path(address: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: tailrace.open(shared_dir=address, local_dir=tmp_path / "local"),
        lambda: tailrace.read(address),
    ):
        with pytest.raises(ValueError, match="object store or a server"):
            call()
    assert os.listdir(tmp_path) == []
