"""Files that have got their names, and whose names cannot be made durable: the error does not say that older files are
intact."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tailrace
import tailrace.torch
from tailrace import Code
from tailrace._errors import code_of_writing
from tailrace.convert import convert
from tailrace.torch import _durable, huggingface


def of_others(path: Path, value: int) -> None:
    _durable.replace(str(path), lambda file: torch.save({"w": value}, file))


def of_ours(path: Path, value: int) -> None:
    tailrace.torch.save({"w": value}, path)


def converted(path: Path, value: int) -> None:
    source = path.parent.with_name("source.pt")
    torch.save({"w": value}, source)
    convert(source, path, to="torch", replace=True)


def of_a_trainer(path: Path, value: int) -> None:
    huggingface._clear(str(path.parent))  # as each save does
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.mkdir(parents=True)
    (unfinished / "trainer_state.json").touch()
    torch.save({"w": value}, unfinished / "state")
    huggingface._take_its_name(str(unfinished), str(path))


@pytest.mark.parametrize("save", [of_others, of_ours, converted, of_a_trainer])
def test_a_name_that_may_not_be_durable_is_not_called_a_failure_before_it(
    save: Callable[[Path, int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d" / "checkpoint-1"
    path.parent.mkdir()
    save(path, 1)
    fsync = os.fsync

    def fail(file: int) -> Any:
        if os.readlink(f"/proc/self/fd/{file}") == str(path.parent):
            raise OSError(5, "the test's own failure")
        return fsync(file)

    with monkeypatch.context() as patch, pytest.raises(tailrace.Error, match="may not be durable") as caught:
        patch.setattr(os, "fsync", fail)
        save(path, 2)
    assert "the test's own failure" in str(caught.value) and caught.value.intact is None
    assert caught.value.code is tailrace.Code.IO_ERROR and caught.value.path == str(path)
    assert tailrace.torch.load(path / "state" if path.is_dir() else path)["w"] == 2
    save(path, 3)
    assert os.listdir(path.parent) == ["checkpoint-1"]


def test_an_errno_has_the_code_that_it_has_in_the_core() -> None:
    source = (Path(__file__).parents[2] / "src" / "base" / "status.cc").read_text()
    begin = source.index("Code code_of_errno(int error)")
    table = source[begin : source.index("default:", begin)]
    cases = re.findall(r"((?:case E[A-Z]+:\s*)+)return Code::([a-z_]+);", table)
    core = {getattr(errno, name): Code[code.upper()] for names, code in cases for name in re.findall("E[A-Z]+", names)}
    assert core[errno.EFBIG] is Code.NO_SPACE and len(core) == table.count("case ")
    for number, name in errno.errorcode.items():
        assert code_of_writing(OSError(number, "")) is core.get(number, Code.IO_ERROR), name
    assert code_of_writing(OSError("no number")) is Code.IO_ERROR
