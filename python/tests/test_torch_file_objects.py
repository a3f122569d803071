"""tailrace.torch.save and load with file objects, and with what is no file."""

from __future__ import annotations

import errno
import io
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import tailrace
import tailrace.torch


@pytest.mark.parametrize("bytes_at_once", [1, 1000])
def test_a_raw_file_object_gets_every_byte(bytes_at_once: int) -> None:
    class Raw(io.RawIOBase):
        def __init__(self) -> None:
            self.content = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, given: Any) -> int:
            self.content += bytes(given[:bytes_at_once])
            return min(bytes_at_once, len(given))

    raw = Raw()
    tailrace.torch.save({"w": torch.arange(100.0)}, raw)
    assert torch.equal(tailrace.torch.load(io.BytesIO(raw.content))["w"], torch.arange(100.0))


def test_a_file_object_that_takes_no_more_is_named() -> None:
    no_space = pytest.raises(tailrace.Error, match="writing to the file object: No space left on device")
    with open("/dev/full", "wb", buffering=0) as full, no_space as caught:
        tailrace.torch.save({"w": torch.ones(3)}, full)
    assert caught.value.code == tailrace.Code.NO_SPACE
    read, write = os.pipe()
    os.set_blocking(write, False)
    no_more = pytest.raises(tailrace.Error, match="takes no more without waiting")
    with open(read, "rb"), open(write, "wb", buffering=0) as pipe, no_more as caught:
        tailrace.torch.save({"w": torch.ones(1 << 20)}, pipe)
    assert caught.value.code == tailrace.Code.BUSY


@pytest.mark.parametrize("buffering", [0, -1])
def test_a_file_object_that_has_no_more_yet_is_not_taken_for_one_that_has_ended(buffering: int) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    no_more = pytest.raises(tailrace.Error, match="has no more without waiting; nothing was loaded")
    with open(write, "wb", buffering=0) as source, open(read, "rb", buffering=buffering) as pipe, no_more as caught:
        source.write(b"the beginning")
        tailrace.torch.load(pipe)
    assert caught.value.code == tailrace.Code.BUSY


def test_what_fails_is_blamed_the_file_object_or_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = (OSError(errno.EIO, "the test's own failure"), io.UnsupportedOperation("the test's own failure"))
    for failure in failures:  # the second has no strerror

        class Failing(io.BytesIO):
            def read(self, *_: Any) -> bytes:
                raise failure  # noqa: B023

            def write(self, _: Any) -> int:
                raise failure  # noqa: B023

        with pytest.raises(tailrace.Error, match=r"^reading from the file object: the test's own failure; ") as caught:
            tailrace.torch.load(Failing())
        assert caught.value.code is tailrace.Code.IO_ERROR and caught.value.intact == "nothing was loaded"
        with pytest.raises(tailrace.Error, match=r"^writing to the file object: the test's own failure; "):
            tailrace.torch.save({"w": 1}, Failing())

    made = io.BytesIO()
    tailrace.torch.save({"w": torch.ones(1 << 18)}, made)
    made.seek(0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(tailrace.Error, match=r"^copying a state in '/.*': File too large; nothing was loaded$"):
            tailrace.torch.load(made)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    for call, intact in (
        (lambda: tailrace.torch.load(made), "nothing was loaded"),
        (lambda: tailrace.torch.save({"w": 1}, io.BytesIO()), "nothing was saved"),
    ):
        with pytest.raises(tailrace.Error, match=r"^copying a state in '/.*not there': No such file") as caught:
            call()
        assert caught.value.intact == intact


def test_what_a_map_location_raises_is_not_blamed_on_temporary_files() -> None:
    def fail(*_: Any) -> Any:
        raise OSError(errno.EIO, "the test's own failure")

    made = io.BytesIO()
    tailrace.torch.save({"w": torch.ones(3)}, made)
    made.seek(0)
    with pytest.raises(OSError, match="the test's own failure") as caught:
        tailrace.torch.load(made, map_location=fail)
    assert not isinstance(caught.value, tailrace.Error)


def test_a_name_that_does_not_fit_is_told_as_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tailrace.torch.save({"w": 1}, tmp_path / "state")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    no_space = pytest.raises(tailrace.Error, match=r"giving '.*' its name: No space")
    with monkeypatch.context() as patch, no_space as caught:
        patch.setattr(os, "replace", full)
        tailrace.torch.save({"w": 2}, tmp_path / "state")
    assert caught.value.code is tailrace.Code.NO_SPACE and caught.value.intact == "what was there is intact"
    assert tailrace.torch.load(tmp_path / "state") == {"w": 1}


def test_a_file_object_of_text_is_refused(tmp_path: Path) -> None:
    for target in (io.StringIO(), (tmp_path / "text").open("w")):
        with target, pytest.raises(tailrace.Error, match=r"takes text: open it in binary; nothing was saved"):
            tailrace.torch.save({"w": 1}, target)  # type: ignore[arg-type]
    for source in (io.StringIO("x"), (tmp_path / "text").open(), (tmp_path / "other").open("wb")):
        with source, pytest.raises(tailrace.Error, match=r"(has text|cannot be read).*; nothing was loaded"):
            tailrace.torch.load(source)  # type: ignore[arg-type]


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    keeps_it_open = os.open(tmp_path / "pipe", os.O_RDWR)  # so that a load that waits for a writer ends, and fails
    os.write(keeps_it_open, b"PK\3\4")
    try:
        with pytest.raises(tailrace.Error, match="is a device, pipe or socket"):
            tailrace.torch.load(tmp_path / "pipe")
        assert os.read(keeps_it_open, 4) == b"PK\3\4"
    finally:
        os.close(keeps_it_open)


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(tailrace.Error, match="working directory has been removed; nothing was saved") as caught:
        tailrace.torch.save({"w": 1}, "state")
    assert caught.value.code == tailrace.Code.NOT_FOUND
    tailrace.torch.save({"w": 1}, tmp_path / "state")
