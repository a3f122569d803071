"""tailrace.read of what other parts of the package save, and of what no one here can understand."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import tailrace
import tailrace.torch
from tailrace import _checkpoint, _restore, _tree
from tailrace.torch import StorageWriter, _segments


def save_replicated(place: str) -> None:
    state = {name: torch.full((50, 3), float(number)) for number, name in enumerate("abcd")}
    state |= {f"scalar{number}": torch.tensor(float(number)) for number in range(4)}  # in no boxes
    state["sharded"] = distribute_tensor(torch.arange(30.0), init_device_mesh("cpu", (2,)), [Shard(0)])
    state[f"own{dist.get_rank()}"] = torch.full((4,), 10.0 + dist.get_rank())
    dcp.save(state, checkpoint_id=place, storage_writer=StorageWriter(files=2))


def test_what_dcp_saved_on_any_rank_is_there(tmp_path: Path) -> None:
    distributed.run(2, save_replicated, str(tmp_path))
    with tailrace.read(tmp_path) as checkpoint:
        for view in (checkpoint, checkpoint.at_rank(1)):
            for number, name in enumerate("abcd"):
                assert view[name].shape == (50, 3) and (view[name].load() == number).all(), name
            for number in range(4):
                assert view[f"scalar{number}"].load().tobytes() == np.float32(number).tobytes()
            assert (view["own0"][:] == 10).all() and (view["own1"][1:3] == 11).all()
            assert view["sharded"][7:20].tolist() == list(range(7, 20))
            assert set(view) == {*"abcd", *(f"scalar{number}" for number in range(4)), "own0", "own1", "sharded"}
            with pytest.raises(tailrace.Error, match="StorageReader loads it"):
                view.tree()
        of_one = [{name for name, _, _ in checkpoint._reader.regions(rank)} & set("abcd") for rank in range(2)]
        assert all(of_one) and not of_one[0] & of_one[1]  # or the test would prove nothing


def test_a_newest_epoch_that_is_damaged_is_passed_over_aloud(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    with tailrace.open(shared_dir=shared, local_dir=tmp_path / "local", files=2) as session:
        for step in (1, 2):
            session.save(step, {"u": np.arange(3.0)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tailrace.read(shared) as checkpoint:
            assert (checkpoint.step, checkpoint.passed_over) == (2, "")
    next(shared.glob("*e000000002*.2of2.tailrace")).unlink()
    with pytest.warns(RuntimeWarning, match="epoch 1 is opened in place .* epoch 2 of run 1: .* is missing") as told:
        checkpoint = tailrace.read(shared)
    assert told[0].filename == __file__
    with checkpoint:
        assert checkpoint.step == 1 and "epoch 2 of run 1" in checkpoint.passed_over
    with pytest.raises(tailrace.Error, match=r"2of2\.tailrace is missing"):
        tailrace.read(shared, step=2)
    shutil.rmtree(tmp_path / "local")
    with tailrace.open(shared_dir=shared, local_dir=tmp_path / "local", files=2) as session:
        with pytest.warns(RuntimeWarning, match="epoch 2 of run 1"):
            assert session.read().step == 1
        state = {"u": np.zeros(3)}
        with pytest.warns(RuntimeWarning, match="epoch 2 of run 1"):
            assert session.restore_latest(state) == 1
        assert state["u"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "dtype", "code"),
    [
        ("numpy", "float3_of_nobody", tailrace.Code.UNSUPPORTED),
        ("torch", "float3_of_nobody", tailrace.Code.UNSUPPORTED),
        ("torch", "load", tailrace.Code.UNSUPPORTED),
        ("numpy", "|O", tailrace.Code.UNSUPPORTED),
        ("numpy", [["a"]], tailrace.Code.UNSUPPORTED),
        ("numpy", 5, tailrace.Code.CORRUPT),
        ("numpy", {"a": [1]}, tailrace.Code.CORRUPT),
        ("nobody's", "uint16", tailrace.Code.CORRUPT),
        ([], "uint16", tailrace.Code.CORRUPT),
    ],
)
def test_elements_that_nobody_knows_are_in_the_way_of_no_other_array(
    kind: Any, dtype: Any, code: tailrace.Code, tmp_path: Path
) -> None:
    state = {"strange": np.ones(4, np.uint16), "known": np.arange(3.0)}
    with tailrace.open(shared_dir=tmp_path / "shared", local_dir=tmp_path / "local") as session:
        session.save(1, state)
    tree = json.loads(_tree.encode(state)[0])
    tree["tree"]["strange"] |= {"kind": kind, "dtype": dtype}
    with tailrace.read(tmp_path / "shared") as opened:
        checkpoint = _checkpoint.Checkpoint(opened._reader, 0, json.dumps(tree).encode())
        assert checkpoint["known"].load().tolist() == [0, 1, 2]
        strange = checkpoint["strange"]
        assert strange.shape == (4,) and "strange" in repr(strange)
        for ask in (strange.load, lambda: strange[1:2], lambda: strange.dtype, lambda: strange.nbytes, checkpoint.tree):
            with pytest.raises(tailrace.Error, match="region 'strange'") as caught:
                ask()
            assert caught.value.code is code


def test_elements_that_nobody_knows_are_told_of_segments_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"threads": 1, "buffer_bytes": 1 << 20, "pickle": False}
    writer = _segments.Writer("test", files=1, name="test", **settings)
    writer.open(str(tmp_path), lambda: None)
    writer.add("part", lambda: {"strange": torch.ones(4)})
    with monkeypatch.context() as patch:  # no longer than the tree is merged
        merge = _tree.merge
        patch.setattr(_tree, "merge", lambda parts: merge(parts).replace(b"float32", b"float3x"))
        writer.start()
        writer.wait()
    with (
        _segments.Reader(str(tmp_path)) as reader,
        pytest.raises(tailrace.Error, match="region 'part/strange'") as told,
    ):
        reader.load("part")
    assert told.value.code is tailrace.Code.UNSUPPORTED


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_of_dcp_has_no_tree_and_says_what_loads_it(tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(2)}, storage_writer=StorageWriter.alone(tmp_path / "step-3"), no_dist=True)
    with tailrace.read(tmp_path / "step-3") as checkpoint:
        sentence = "saved by tailrace.torch.StorageWriter, and dcp.load with tailrace.torch.StorageReader loads it"
        with pytest.raises(FileNotFoundError, match=sentence):
            checkpoint.tree()


def test_a_checkpoint_that_is_closed_says_so(tmp_path: Path) -> None:
    tailrace.torch.save({"t": torch.ones(2)}, tmp_path / "f")
    with tailrace.read(tmp_path / "f") as checkpoint, tailrace.torch.open(tmp_path / "f") as file:
        pass
    for read in (checkpoint["t"].load, checkpoint.tree, lambda: checkpoint.step, lambda: file["t"]):
        with pytest.raises(tailrace.Error, match=r"^this checkpoint has been closed; nothing was read$") as refused:
            read()
        assert refused.value.code is tailrace.Code.FAILED_STATE
    assert repr(checkpoint) == "<Checkpoint, closed>"


def test_a_plain_object_in_place_of_an_array_is_told_to_be_in_the_tree(tmp_path: Path) -> None:
    with tailrace.open(shared_dir=tmp_path / "shared", local_dir=tmp_path / "local") as session:
        session.save(5, {"u": np.zeros(3), "meta": {"step": 5}})
    with tailrace.read(tmp_path / "shared") as checkpoint:
        with pytest.raises(KeyError, match=r"there is no array 'meta' in epoch 5, but tree\(\)\['meta'\] is there"):
            checkpoint["meta"]
        with pytest.raises(KeyError, match=r"there is no array 'v' in epoch 5; list\(\)"):
            checkpoint["v"]


def test_to_ask_for_a_name_does_not_go_through_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tailrace.torch.save(OrderedDict(u=torch.ones(3), meta=5), tmp_path / "f")
    with tailrace.read(tmp_path / "f") as checkpoint:
        with pytest.raises(KeyError, match=r"but tree\(\)\['meta'\] is there"):
            checkpoint["meta"]
        monkeypatch.setattr(_restore, "members_of", lambda _: pytest.fail("the tree was gone through"))
        assert "u" in checkpoint and "meta" not in checkpoint and checkpoint.get("v") is None


def test_a_name_that_is_not_there_is_told_with_the_nearest(tmp_path: Path) -> None:
    with tailrace.open(shared_dir=tmp_path) as session:
        session.save(3, {"model": {"weight": np.ones(3), "bias": np.ones(2)}})
    with tailrace.read(tmp_path) as checkpoint:
        with pytest.raises(KeyError, match=r"no array 'wieght' in epoch 3; near are 'model/weight' of its 2 arrays"):
            checkpoint["wieght"]
        with pytest.raises(KeyError, match=r"no array 'x' in epoch 3; list\(\) of the checkpoint gives the names"):
            checkpoint["x"]
        assert "wieght" not in checkpoint and checkpoint.get("wieght") is None
        assert "model/bias" in list(checkpoint)


def open_files_below(place: Path) -> list[str]:
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # listdir's own
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [name for name in names if Path(name).is_relative_to(place)]


def test_a_read_that_fails_closes_the_files(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    with tailrace.open(shared_dir=place) as session:
        session.save(1, {"w": np.ones(3)})
        session.save(2, {"w": np.ones(3)})
    file = sorted(place.glob("*.tailrace"))[0]
    with tailrace.read(place):
        assert open_files_below(place)  # or the test would prove nothing
    kept = []  # the exceptions, which keep the frames in which they were raised
    for wrong in (
        lambda: tailrace.read(file, step=7),
        lambda: tailrace.read(file, rank=1),
        lambda: tailrace.read(place, rank=1),
        lambda: tailrace.torch.open(place, rank=1),
    ):
        with pytest.raises(tailrace.Error) as caught:
            wrong()
        kept.append(caught.value)
        assert caught.value.code is tailrace.Code.NOT_FOUND and open_files_below(place) == []
    sorted(place.glob("*.tailrace"))[-1].write_bytes(b"")
    with warnings.catch_warnings(), pytest.raises(RuntimeWarning, match="damaged ones") as warned:
        warnings.simplefilter("error")
        tailrace.read(place)
    assert warned.value is not None and open_files_below(place) == []


def test_a_directory_of_directories_is_told_from_one_of_epochs(tmp_path: Path) -> None:
    with pytest.raises(tailrace.Error, match=rf"no complete epoch in {tmp_path}$"):
        tailrace.read(tmp_path)
    with tailrace.open(shared_dir=tmp_path / "step-100") as session:
        session.save(100, {"a": np.ones(3)})
    with pytest.raises(FileNotFoundError, match=f"are not searched, such as {tmp_path}/step-100$"):
        tailrace.read(tmp_path)
    with pytest.raises(tailrace.Error, match=rf"no complete epoch 7 in {tmp_path}$"):
        tailrace.read(tmp_path, step=7)
