"""Beside DCP's own reader and writer, which are the oracle: directories that both have written to, and attributes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from test_dcp import Hostile, blank, load, same, sample, save
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

import tailrace
import tailrace.torch
from tailrace.torch import StorageReader, StorageWriter, _native

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore:Detected an existing checkpoint"),
]


def save_native(state: Any, path: Path, **options: Any) -> None:
    dcp.save(state, storage_writer=FileSystemWriter(path, **options))


def load_native(state: Any, path: Path) -> Any:
    dcp.load(state, storage_reader=FileSystemReader(path))
    return state


def test_a_checkpoint_of_dcps_own_writer_is_read_as_dcp_reads_it(tmp_path: Path) -> None:
    save_native(sample(), tmp_path / "c")
    ours, theirs = load(blank(sample()), tmp_path / "c"), load_native(blank(sample()), tmp_path / "c")
    assert same(ours, theirs) and same(ours, sample())
    save_native({"w": torch.ones(2), "object": Hostile()}, tmp_path / "hostile")
    with pytest.raises(dcp.CheckpointException, match=r"'object'.*trust_pickle"):
        load({"w": torch.zeros(2), "object": None}, tmp_path / "hostile")


@pytest.mark.parametrize("killed", [False, True])
def test_a_save_over_one_of_dcps_own_writer_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    save_native(sample(1), tmp_path / "c")
    (tmp_path / "c" / "notes").write_text("mine")
    with monkeypatch.context() as patch:
        if killed:  # between the commit and the removal
            patch.setattr(_native, "remove", lambda place: None)
        save(sample(2), tmp_path / "c", files=2)
    assert same(load(blank(sample()), tmp_path / "c"), sample(2))
    if not killed:
        with pytest.raises(dcp.CheckpointException, match=r"\.metadata"):  # and not the old values
            load_native(blank(sample()), tmp_path / "c")
        left = [name for name in os.listdir(tmp_path / "c") if not name.endswith(".tailrace")]
        assert left == ["notes"]
    save_native(sample(3), tmp_path / "c")  # the other way round: the newer one counts
    assert same(load(blank(sample()), tmp_path / "c"), sample(3))
    save(sample(4), tmp_path / "c")
    assert same(load(blank(sample()), tmp_path / "c"), sample(4))


def test_overwrite_and_save_id_are_those_of_dcps_own_writer(tmp_path: Path) -> None:
    for make in (FileSystemWriter, StorageWriter):
        refusing: Any = make(tmp_path / make.__name__, overwrite=False)
        ids = {refusing.save_id}
        dcp.save(sample(1), storage_writer=refusing)
        with pytest.raises(dcp.CheckpointException, match="Checkpoint already exists"):
            dcp.save(sample(2), storage_writer=refusing)
        again: Any = make(tmp_path / make.__name__)
        metadata = dcp.save(sample(3), checkpoint_id=tmp_path / make.__name__, storage_writer=again)
        assert metadata.storage_meta.save_id == again.save_id
        ids |= {again.save_id}
        assert len(ids) == 2 and all(ids)
        assert same(load(blank(sample()), tmp_path / make.__name__), sample(3))
    with pytest.raises(dcp.CheckpointException, match="overwrite is False") as refused:
        save(sample(4), tmp_path / "FileSystemWriter", overwrite=False)
    error = refused.value.failures[0][0]
    assert isinstance(error, tailrace.Error) and error.code is tailrace.Code.ALREADY_EXISTS
    assert same(load_native(blank(sample()), tmp_path / "FileSystemWriter"), sample(3))


def test_a_load_has_the_id_that_dcps_own_reader_gives_it(tmp_path: Path) -> None:
    for make in (FileSystemWriter, StorageWriter):
        dcp.save(sample(1), storage_writer=make(tmp_path / make.__name__))
        reader = StorageReader(tmp_path / make.__name__)
        first = reader.load_id
        assert reader.read_metadata().storage_meta.load_id == first
        reader.reset()
        assert reader.read_metadata().storage_meta.load_id == reader.load_id != first


def test_the_metadata_are_of_the_version_that_dcps_own_writer_names(tmp_path: Path) -> None:
    versions = []
    for make in (FileSystemWriter, StorageWriter):
        dcp.save(sample(1), storage_writer=make(tmp_path / make.__name__))
        versions.append(getattr(StorageReader(tmp_path / make.__name__).read_metadata(), "version", None))
    assert versions[0] == versions[1]


def test_what_was_put_in_the_place_of_ours_by_dcp_is_dcps(tmp_path: Path) -> None:
    save(sample(1), tmp_path / "c")
    save_native(sample(2), tmp_path / "c")
    reader = StorageReader(tmp_path / "c")
    state = blank(sample())
    dcp.load(state, storage_reader=reader)
    assert same(state, sample(2)) and reader.is_native


def test_an_address_is_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = StorageWriter()
    for call in (
        lambda: StorageWriter("s3://bucket/run"),
        lambda: StorageReader("s3://bucket/run"),
        lambda: dcp.save({"w": torch.ones(3)}, checkpoint_id="s3://bucket/run", storage_writer=writer),
        lambda: tailrace.torch.save({"w": torch.ones(3)}, "s3://bucket/run"),
        lambda: tailrace.torch.load("s3://bucket/run"),
    ):
        with pytest.raises(tailrace.Error, match=r"object store or a server.*nothing was") as refused:
            call()
        assert isinstance(refused.value, ValueError)
    assert not StorageWriter.validate_checkpoint_id("s3://bucket/run")
    assert os.listdir(tmp_path) == []
