"""tailrace convert: every format into every other, bit for bit; whole or not at all; nothing run; bounded memory."""

from __future__ import annotations

import collections
import itertools
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from killing import is_killed_after
from measuring import most_memory

import tailrace.torch
from tailrace import Code, Error
from tailrace.convert import FORMATS, convert, format_of
from tailrace.convert.__main__ import main, size_text

FULL = [name for name in FORMATS if name != "safetensors"]


def tensors() -> dict[str, Any]:
    torch.manual_seed(1)
    return {
        "w": torch.randn(300, 50),
        "half": torch.randn(7, 3).to(torch.bfloat16),
        "nan": torch.tensor([float("nan"), -0.0, 1e-45]),
        "numbers": torch.arange(5000),
        "mask": torch.tensor([True, False, True]),
        "none": torch.empty(0, 4),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
    }


def nested() -> dict[str, Any]:
    state = tensors()
    return {"model": state, "optimizer": {"lr": 1e-3, "step": 7, "betas": [0.9, 0.99], "m": torch.randn(40, 40)}}


def same(a: Any, b: Any) -> bool:
    """Bit for bit."""
    if isinstance(a, torch.Tensor):
        if not (isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape):
            return False
        flat_a, flat_b = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
        return torch.equal(flat_a, flat_b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(FULL, FULL)))
def test_there_and_back_again_is_bit_for_bit(tmp_path: Path, first: str, second: str) -> None:
    state = nested()
    torch.save(state, tmp_path / "start.pt")
    convert(tmp_path / "start.pt", tmp_path / "one", to=first)
    assert format_of(str(tmp_path / "one")) == first
    convert(tmp_path / "one", tmp_path / "two", to=second)
    convert(tmp_path / "two", tmp_path / "end.pt")
    assert same(torch.load(tmp_path / "end.pt", weights_only=True), state)
    assert sorted(os.listdir(tmp_path)) == ["end.pt", "one", "start.pt", "two"]


@pytest.mark.parametrize("other", FULL)
def test_safetensors_hold_the_tensors_of_a_flat_state(tmp_path: Path, other: str) -> None:
    from safetensors.torch import load_file, save_file

    save_file(tensors(), tmp_path / "a.safetensors")
    convert(tmp_path / "a.safetensors", tmp_path / "b", to=other)
    convert(tmp_path / "b", tmp_path / "c.safetensors")
    assert same(load_file(tmp_path / "c.safetensors"), tensors())


def test_what_others_write_is_read_and_the_other_way_round(tmp_path: Path) -> None:
    state = nested()
    dcp.save(state, checkpoint_id=tmp_path / "dcp")
    convert(tmp_path / "dcp", tmp_path / "m.tailrace")
    assert same(tailrace.torch.load(tmp_path / "m.tailrace"), state)
    convert(tmp_path / "m.tailrace", tmp_path / "again", to="dcp")
    convert(tmp_path / "m.tailrace", tmp_path / "ours", to="tailrace-dcp", files=2)
    assert len(os.listdir(tmp_path / "ours")) == 2
    for place, reader in ((tmp_path / "again", None), (tmp_path / "ours", tailrace.torch.StorageReader())):
        blank = {"model": {name: torch.zeros_like(t) for name, t in tensors().items()}}
        dcp.load(blank, checkpoint_id=place, storage_reader=reader)
        assert same(blank["model"], state["model"])


def test_ranks_keep_their_own_states(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    states = [{"x": torch.full((3000,), rank), "rank": rank} for rank in range(3)]
    for rank, state in enumerate(states):
        torch.save(state, tmp_path / "ranks" / f"model_rank_{rank:02}.pt")
    convert(tmp_path / "ranks", tmp_path / "epoch", to="tailrace", files=2)
    assert len(os.listdir(tmp_path / "epoch")) == 2
    with tailrace.read(tmp_path / "epoch", rank=2) as checkpoint:
        assert same(checkpoint.tree(), states[2])
    convert(tmp_path / "epoch", tmp_path / "back", to="ranks")
    assert [same(torch.load(tmp_path / "back" / f"rank{r}.pt"), states[r]) for r in range(3)] == [True] * 3
    convert(tmp_path / "epoch", tmp_path / "one.pt", rank=1)
    assert same(torch.load(tmp_path / "one.pt"), states[1])
    with pytest.raises(Error, match="3 ranks"):
        convert(tmp_path / "epoch", tmp_path / "all.pt")
    with pytest.raises(Error, match="no rank 3"):
        convert(tmp_path / "epoch", tmp_path / "all.pt", rank=3)


ROWS = 30_000  # of an array of all ranks


def save_shards(place: str) -> None:
    rank, own = dist.get_rank(), ROWS // dist.get_world_size()
    rows = slice(rank * own, rank * own + own)
    state = {
        "t": tailrace.Shard(torch.arange(2.0 * ROWS).view(ROWS, 2)[rows], (ROWS, 2), (rank * own, 0), overlap=True),
        "n": tailrace.Shard(np.arange(ROWS)[rows], [ROWS], [rank * own]),
        "own": torch.full((5,), rank),
    }
    with tailrace.open(shared_dir=place, local_dir=f"{place}.local", comm=dist.group.WORLD, files=2) as session:
        session.save(3, state)


def bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_pieces_of_an_array_of_all_ranks_stay_pieces_of_one(tmp_path: Path) -> None:
    distributed.run(3, save_shards, str(tmp_path / "epoch"))
    convert(tmp_path / "epoch", tmp_path / "again", to="tailrace", files=2)
    convert(tmp_path / "again", tmp_path / "once_more", to="tailrace", files=3)
    for place in ("epoch", "again", "once_more"):
        assert bytes_in(tmp_path / place) < 1.5 * 16 * ROWS, place  # the arrays once
        with tailrace.read(tmp_path / place, rank=1) as checkpoint:
            assert torch.equal(checkpoint["t"].load(), torch.arange(2.0 * ROWS).view(ROWS, 2))
            assert np.array_equal(checkpoint["n"][ROWS // 4 : ROWS // 2], np.arange(ROWS // 4, ROWS // 2))
            assert checkpoint["own"].load().tolist() == [1] * 5
            pieces = {name: piece for name, _, piece in checkpoint._reader.regions(1)}
            assert pieces["t"][2:] == ([ROWS // 3, 0], [ROWS // 3, 2], 2), pieces  # and what is declared
    with pytest.raises(Error, match=r"\['t'\] is one array of all ranks.*--rank 0") as refused:
        convert(tmp_path / "epoch", tmp_path / "ranks", to="ranks")
    assert refused.value.code is Code.INVALID_ARGUMENT
    convert(tmp_path / "again", tmp_path / "whole.pt", rank=2)
    whole = torch.load(tmp_path / "whole.pt")
    assert torch.equal(whole["n"], torch.arange(ROWS)) and whole["own"].tolist() == [2] * 5
    assert not (tmp_path / "ranks").exists()


def test_views_stay_views_and_numpy_becomes_tensors(tmp_path: Path) -> None:
    base = torch.arange(4000.0)
    state = collections.OrderedDict(a=base[:2000], b=base[1000:3000])
    tailrace.torch.save({"state": state, "n": np.arange(6, dtype=np.int16)}, tmp_path / "a")
    convert(tmp_path / "a", tmp_path / "a.pt")
    loaded = torch.load(tmp_path / "a.pt", weights_only=True)
    loaded["state"]["a"][1500] = -1
    assert loaded["state"]["b"][500] == -1 and loaded["n"].dtype == torch.int16


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


def test_nothing_that_a_source_holds_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.zeros(2), "e": Evil()}, "evil.pt")
    dcp.save({"w": torch.zeros(2), "e": Evil()}, checkpoint_id="entry")
    dcp.save({"w": torch.zeros(2)}, checkpoint_id="metadata")
    Path("metadata/.metadata").write_bytes(pickle.dumps(Evil()))
    for source, code in (("evil.pt", Code.UNSUPPORTED), ("entry", Code.UNSUPPORTED), ("metadata", Code.CORRUPT)):
        with pytest.raises(Error) as caught:
            convert(source, "out.tailrace")
        assert caught.value.code == code, source
    assert sorted(os.listdir()) == ["entry", "evil.pt", "metadata"]


def test_pickled_objects_are_refused_with_what_to_do_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tailrace.torch.save({"w": torch.zeros(2), "e": [Evil()]}, "one.tailrace", pickle=True)
    with tailrace.open(shared_dir="session") as session:
        session.save(1, {"e": Evil()}, pickle=True)
        session.wait(1)
    dcp.save({"w": torch.zeros(2), "e": Evil()}, storage_writer=tailrace.torch.StorageWriter("ours"))
    there = sorted(os.listdir())
    for source, instead in (
        ("one.tailrace", r"tailrace\.torch\.load: weights_only=False"),
        ("session", "trust_pickle=True"),
        ("ours", r"dcp_to_torch_save\(\.\.\., trust_pickle=True\)"),
    ):
        with pytest.raises(Error, match=rf"a conversion .*{instead}.*nothing was written$") as told:
            convert(source, "out.pt")
        assert "pass trust_pickle" not in str(told.value)
        assert told.value.code == Code.UNSUPPORTED and sorted(os.listdir()) == there


def test_a_failure_leaves_nothing_and_an_earlier_target_as_it_was(tmp_path: Path) -> None:
    torch.save(nested(), tmp_path / "a.pt")
    (tmp_path / "t.safetensors").write_text("mine")
    with pytest.raises(Error) as caught:
        convert(tmp_path / "a.pt", tmp_path / "t.safetensors")
    assert caught.value.code == Code.ALREADY_EXISTS
    with pytest.raises(Error, match=r"\['optimizer'\]\['lr'\] is a float"):
        convert(tmp_path / "a.pt", tmp_path / "t.safetensors", replace=True)
    assert (tmp_path / "t.safetensors").read_text() == "mine"
    convert(tmp_path / "a.pt", tmp_path / "t.safetensors", replace=True, tensors_only=True)
    convert(tmp_path / "t.safetensors", tmp_path / "d", to="dcp")
    convert(tmp_path / "a.pt", tmp_path / "d", to="ranks", replace=True)
    assert os.listdir(tmp_path / "d") == ["rank0.pt"]
    convert(tmp_path / "a.pt", tmp_path / "b.tailrace")
    content = bytearray((tmp_path / "b.tailrace").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "b.tailrace").write_bytes(content)
    with pytest.raises(Error) as caught:
        convert(tmp_path / "b.tailrace", tmp_path / "c.pt")
    assert caught.value.code == Code.CORRUPT
    tailrace.torch.save({"w": torch.zeros(2), "r": range(3)}, tmp_path / "r.tailrace")
    with pytest.raises(Error, match="weights_only"):  # known only when the file is written
        convert(tmp_path / "r.tailrace", tmp_path / "c.pt")
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "b.tailrace", "d", "r.tailrace", "t.safetensors"]


def test_a_kill_while_a_directory_is_replaced_leaves_a_whole_one(tmp_path: Path) -> None:
    sources = [tmp_path / "0.pt", tmp_path / "1.pt"]
    for number, source in enumerate(sources):
        torch.save({"number": number}, source)
    target = tmp_path / "d"

    def is_whole() -> bool:
        return os.listdir(target) == ["rank0.pt"] and torch.load(target / "rank0.pt")["number"] in (0, 1)

    for steps in range(100):
        convert(sources[0], target, to="ranks", replace=True)
        assert sorted(os.listdir(tmp_path)) == ["0.pt", "1.pt", "d"]
        killed = is_killed_after(steps, lambda: convert(sources[1], target, to="ranks", replace=True))
        assert not target.exists() or is_whole(), steps
        with pytest.raises(Error) as caught:
            convert(sources[1], target, to="ranks")
        assert caught.value.code == Code.ALREADY_EXISTS and is_whole(), steps
        if not killed:
            break
    assert steps == 4  # two renames, a file, a directory


@pytest.mark.parametrize("goes_back", [True, False])
def test_a_directory_that_cannot_take_the_name_leaves_the_earlier_one(
    goes_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"number": 0}, tmp_path / "a.pt")
    target = tmp_path / "d"
    convert(tmp_path / "a.pt", target, to="ranks")
    (target / "mine").touch()
    rename = os.rename

    def fail(source: str, name: str) -> None:
        if source.endswith(".partial") or (source.endswith(".replaced") and not goes_back):
            raise OSError(5, "the test's own failure")
        rename(source, name)

    with monkeypatch.context() as patch, pytest.raises(Error, match="the test's own failure") as caught:
        patch.setattr(os, "rename", fail)
        convert(tmp_path / "a.pt", target, to="ranks", replace=True)
    assert caught.value.code == Code.IO_ERROR
    earlier = target if goes_back else tmp_path / "d.replaced"
    assert goes_back or str(earlier) in str(caught.value)
    assert (earlier / "mine").exists() and sorted(os.listdir(tmp_path)) == ["a.pt", earlier.name]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("in/a.pt", "in"),  # a directory that holds the source
        ("in/a.pt", "to_in"),
        ("to_in/a.pt", "in"),
        ("in", "in"),
        ("in", "to_in"),
        ("to_in", "in"),
        ("in/a.pt", "in/a.pt"),
        ("in/a.pt", "link.pt"),
        ("link.pt", "in/a.pt"),
        ("in/a.pt", "hard.pt"),
        ("hard.pt", "in/a.pt"),
        ("ranks", "in"),  # whose file is a link into it
        ("in", "in/a.pt"),  # a part of the source
        ("x.partial", "x"),  # where the new target is written, and the earlier one waits
        ("x.replaced", "x"),
        ("d.partial.unfinished/a.pt", "d"),
    ],
)
def test_a_target_does_not_take_the_source_away(
    source: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in ("in", "ranks", "d.partial.unfinished"):
        Path(directory).mkdir()
    for file in ("in/a.pt", "x.partial", "x.replaced", "d.partial.unfinished/a.pt"):
        torch.save({"w": torch.ones(5)}, file)
    Path("in/rank0.pt").symlink_to("a.pt")
    Path("in/precious").write_text("mine")
    Path("to_in").symlink_to("in")
    Path("link.pt").symlink_to("in/a.pt")
    Path("hard.pt").hardlink_to("in/a.pt")
    Path("ranks/rank0.pt").symlink_to("../in/a.pt")
    before = {path: path.stat().st_ino for path in Path().rglob("*")}
    assert main(["--force", "--to", "ranks", source, target]) == 2
    assert "of the source" in capsys.readouterr().err
    assert {path: path.stat().st_ino for path in Path().rglob("*")} == before


def metadata_of(place: Path) -> Any:
    return pickle.loads((place / ".metadata").read_bytes())


@pytest.mark.parametrize(
    "said",
    [
        lambda: {"l.0": ("l", 1 << 60), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": ("l", 1 << 22), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": ("l", -1), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": ("l", "0"), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": ("l", True), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": ("l", 1.5), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": ("l", 1), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": ("l",), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": ("l", 1, 0), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": (0,), "l.1": (1 << 40,), "s": (-5,)},
        lambda: {"l.0": (), "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": ("l",) * 100_000, "l.1": ("l", 1), "s": ("s",)},
        lambda: {"l.0": "l0", "l.1": ["l", 1], "s": None},
        lambda: {"l.0": cyclic(), "l.1": (cyclic(),), "s": ("s",)},
        lambda: cyclic(),
        lambda: ["l.0", "l.1", "s"],
        lambda: 7,
    ],
)
def test_a_tree_that_dcp_would_not_write_is_corrupt(said: Any, tmp_path: Path) -> None:
    place = tmp_path / "dcp"
    dcp.save({"l": [torch.zeros(2), torch.ones(2)], "s": 1}, checkpoint_id=place)
    metadata = metadata_of(place)
    assert metadata.planner_data == {"l.0": ("l", 0), "l.1": ("l", 1), "s": ("s",)}
    metadata.planner_data = said()
    (place / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(Error, match=f"the metadata of '{place}'.*nothing was read") as caught:
        convert(place, tmp_path / "out.pt")
    assert caught.value.code is Code.CORRUPT and caught.value.path == str(place)
    assert os.listdir(tmp_path) == ["dcp"]


def cyclic() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def test_an_empty_container_in_a_list_of_dcp_is_none(tmp_path: Path) -> None:
    state = {"l": [{}, {"w": torch.ones(2)}, [torch.zeros(1)]], "d": {"0": 1}}
    dcp.save(state, checkpoint_id=tmp_path / "dcp")
    convert(tmp_path / "dcp", tmp_path / "out.pt")
    assert same(torch.load(tmp_path / "out.pt"), {**state, "l": [None, *state["l"][1:]]})


@pytest.mark.parametrize("broken", ["state_dict_metadata", "storage_data", "size"])
def test_metadata_of_other_types_is_an_error_with_the_path(broken: str, tmp_path: Path) -> None:
    place = tmp_path / "dcp"
    dcp.save({"w": torch.ones(2)}, checkpoint_id=place)
    for value in (None, 7, "text", [1], {"w": 1}, {1: None}, (1 << 62,), (-5,)):
        metadata = metadata_of(place)
        if broken == "size":
            metadata.state_dict_metadata["w"].size = value
        else:
            setattr(metadata, broken, value)
        (place / ".metadata").write_bytes(pickle.dumps(metadata))
        with pytest.raises(Error, match=str(place)) as caught:
            convert(place, tmp_path / "out.pt")
        told_by_dcp = broken == "storage_data" and isinstance(value, dict)  # which looks for what is not there
        assert caught.value.code is (Code.IO_ERROR if told_by_dcp else Code.CORRUPT)
        (place / ".metadata").unlink()
        dcp.save({"w": torch.ones(2)}, checkpoint_id=place)
    assert os.listdir(tmp_path) == ["dcp"]


def test_a_target_without_its_directory_is_told(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "a.pt")
    with pytest.raises(Error, match=r"no directory '.*/none'") as caught:
        convert(tmp_path / "a.pt", tmp_path / "none" / "b.safetensors")
    assert caught.value.code is Code.NOT_FOUND


def test_memory_is_bounded_whatever_the_size(tmp_path: Path) -> None:
    torch.save({str(i): torch.full((2 << 20,), float(i)) for i in range(24)}, tmp_path / "a.pt")  # 192 MiB
    steps: list[tuple[Path, Path, str]] = []
    source = tmp_path / "a.pt"
    for to in ("tailrace", "dcp", "tailrace-dcp", "safetensors", "ranks", "torch", "safetensors"):
        target = tmp_path / f"{len(steps)}.{to}"
        steps.append((source, target, to))
        source = target
    most = most_memory(steps)
    assert max(most) < 48, most


def test_the_command_converts_and_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(tensors(), "a.pt")
    assert main(["a.pt", "b.safetensors"]) == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out == "b.safetensors: 97.72 KiB of tensors, from torch to safetensors\n"
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1 KiB", 2**20 - 1: "1024 KiB", 2**40: "1 TiB", 5 * 2**50: "5120 TiB"}
    assert {nbytes: size_text(nbytes) for nbytes in sizes} == sizes
    assert main(["a.pt", "b.safetensors"]) == 2 and "was left as it is" in capsys.readouterr().err
    assert main(["none", "c.pt"]) == 3
    assert main(["a.pt", "c"]) == 2 and "--to" in capsys.readouterr().err
    Path("junk").write_text("junk" * 5000)
    assert main(["junk", "c.pt"]) == 1 and "junk" in capsys.readouterr().err
    assert sorted(os.listdir()) == ["a.pt", "b.safetensors", "junk"]


def test_the_tool_starts_the_converter_or_says_what_is_missing(tmp_path: Path) -> None:
    tool = Path(__file__).parents[2] / "tools" / "convert"
    helped = subprocess.run([sys.executable, "-B", tool, "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0 and "--tensors-only" in helped.stdout
    bare = subprocess.run([sys.executable, "-I", "-S", tool, "a", "b"], capture_output=True, text=True, check=False)
    assert bare.returncode == 4 and "TAILRACE_PYTHON" in bare.stderr
    assert "part of the Python package" in bare.stderr and "No module named 'tailrace'" in bare.stderr
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    torchless = subprocess.run(
        [sys.executable, "-B", tool, "a", "b"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert torchless.returncode == 4 and "convert needs PyTorch" in torchless.stderr, torchless.stderr
    assert "-m pip install torch" in torchless.stderr and "clone" not in torchless.stderr
