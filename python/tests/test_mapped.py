"""load(mmap=True), tree(mmap=True) and tailrace.torch.open: bytes are read when they are used."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tailrace
import tailrace.torch
from tailrace import _core, _mapping


def state() -> dict[str, Any]:
    base = torch.arange(600_000.0)
    return {
        "w": torch.arange(1 << 20, dtype=torch.float32).view(1024, 1024),
        "b": torch.arange(10, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "z": torch.tensor(1 + 2j, dtype=torch.complex128),
        "across": torch.arange(6.0).view(2, 3).t(),
        "views": [base, base[10:20]],
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "none": torch.empty(0, 3),
        "n": 3,
    }


def test_mapped_tensors_are_what_was_saved(tmp_path: Path) -> None:
    tailrace.torch.save(state(), tmp_path / "f")
    read = tailrace.torch.load(tmp_path / "f")
    for how in ({}, {"verify": True}, {"map_location": lambda storage, _: None}):
        mapped = tailrace.torch.load(tmp_path / "f", mmap=True, **how)
        assert repr(mapped) == repr(read)
        assert mapped["across"].stride() == (1, 3) and type(mapped["parameter"]) is torch.nn.Parameter
        mapped["views"][0][10] = -1
        assert mapped["views"][1][0] == -1  # one storage
    assert tailrace.torch.load(tmp_path / "f", "meta", mmap=True)["w"].is_meta
    with open(tmp_path / "f", "rb") as file:
        assert repr(tailrace.torch.load(file, mmap=True)) == repr(read)


def test_what_is_written_into_mapped_tensors_never_gets_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tailrace.torch.save(state(), path)
    before = path.read_bytes()
    mapped = tailrace.torch.load(path, mmap=True)
    mapped["w"] += 1
    mapped["array"][:] = 0
    assert mapped["w"][0, 1] == 2 and path.read_bytes() == before
    tailrace.torch.save({"w": torch.zeros(3)}, path)  # and a save takes nothing from them
    assert mapped["w"][0, 2] == 3 and tailrace.torch.load(path)["w"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("mmap", [False, True])
def test_a_state_is_released_when_the_program_drops_it(mmap: bool, tmp_path: Path) -> None:
    tailrace.torch.save(state(), tmp_path / "f")
    gc.collect()
    gc.disable()
    try:
        loaded = tailrace.torch.load(tmp_path / "f", mmap=mmap)
        held = [weakref.ref(loaded[name]) for name in ("w", "across", "array")]
        with open("/proc/self/maps") as maps:
            assert (str(tmp_path / "f") in maps.read()) is mmap
        del loaded
        assert [one() for one in held] == [None] * 3
        with open("/proc/self/maps") as maps:
            assert str(tmp_path / "f") not in maps.read()
    finally:
        gc.enable()


READS = """
import sys
import torch, tailrace.torch

def read():  # bytes that this process has asked the system for
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("rchar"))

def own():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))

tailrace.torch.load(sys.argv[1], mmap=True)
before = read(), own()
mapped = tailrace.torch.load(sys.argv[1], mmap=sys.argv[2] == "map")
print(read() - before[0], own() - before[1], float(mapped["w"][-1]))
"""


def test_a_mapped_load_reads_and_copies_nothing_but_the_index(tmp_path: Path) -> None:
    tailrace.torch.save({"w": torch.full((16 << 20,), 3.0)}, tmp_path / "f")  # 64 MiB

    def cost(how: str) -> list[float]:
        command = [sys.executable, "-c", READS, str(tmp_path / "f"), how]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    read, copied, last = cost("map")
    assert read < 1 << 20 and copied < 8 << 20 and last == 3.0
    assert cost("read")[0] >= 64 << 20  # what is counted above


def test_damage_is_told_where_bytes_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tailrace.torch.save({"w": torch.full((500,), 77, dtype=torch.int64), "v": torch.ones(3)}, path)
    data = path.read_bytes()
    at = data.index(b"\x4d\0\0\0\0\0\0\0" * 4)
    path.write_bytes(data[:at] + b"\x4c" + data[at + 1 :])
    assert tailrace.torch.load(path, mmap=True)["w"][0] == 76  # as the page says
    with pytest.raises(tailrace.Error) as flipped:
        tailrace.torch.load(path, mmap=True, verify=True)
    assert flipped.value.code is tailrace.Code.CORRUPT and flipped.value.offset == at
    with tailrace.torch.open(path) as file:
        assert file["v"].tolist() == [1, 1, 1]
        with pytest.raises(tailrace.Error, match="checksum mismatch"):
            file["w"]


def test_a_truncated_file_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tailrace.torch.save(state(), path)
    size = path.stat().st_size
    for cut in (size - 5000, size // 2, 5000):
        os.truncate(path, cut)
        with pytest.raises(tailrace.Error) as short:
            tailrace.torch.load(path, mmap=True)
        assert short.value.code is tailrace.Code.CORRUPT
    with pytest.raises(tailrace.Error, match="is truncated: it ends at offset 10, but") as cut_off:
        (tmp_path / "g").write_bytes(bytes(10))
        _mapping._map_file(str(tmp_path / "g"), 4096)
    assert cut_off.value.path == str(tmp_path / "g")


def test_a_file_that_is_replaced_while_it_is_opened_is_mapped_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    tailrace.torch.save({"w": torch.zeros(1000)}, path)
    original, left = _mapping._map_file, [2]

    def replaced(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            tailrace.torch.save({"w": torch.full((1000,), 1.0 + left[0])}, path)
        return original(*arguments)

    monkeypatch.setattr(_mapping, "_map_file", replaced)
    assert tailrace.torch.load(path, mmap=True)["w"].unique().tolist() == [1.0] and left == [0]
    left[0] = 1000
    with pytest.raises(tailrace.Error) as busy:
        tailrace.torch.load(path, mmap=True)
    assert busy.value.code is tailrace.Code.BUSY


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    tailrace.torch.save({"w": torch.ones(2)}, tmp_path / "f")
    torch.save({"w": torch.ones(2)}, tmp_path / "theirs")
    with pytest.raises(ValueError, match="verify=False needs mmap=True"):
        tailrace.torch.load(tmp_path / "f", verify=False)
    with pytest.raises(ValueError, match="mmap and `into` exclude each other"):
        tailrace.torch.load(tmp_path / "f", mmap=True, into={"w": torch.zeros(2)})
    with pytest.raises(tailrace.Error, match="has no checksums"):
        tailrace.torch.load(tmp_path / "theirs", verify=True)


def test_trees_of_directories_are_mapped(tmp_path: Path) -> None:
    saved = {"a": np.arange(1 << 20), "t": torch.ones(5), "n": [1]}
    with tailrace.open(shared_dir=str(tmp_path / "s"), local_dir=str(tmp_path / "l"), files=3) as session:
        session.save(1, saved)
        session.wait()
        with pytest.raises(tailrace.Error, match="a session's epoch is not mapped"):
            session.read().tree(mmap=True)
    with tailrace.read(tmp_path / "s") as checkpoint:
        for verify in (None, True):
            mapped = checkpoint.tree(mmap=True, verify=verify)
            assert repr(mapped) == repr(checkpoint.tree())
            mapped["a"][0] = 7
        assert checkpoint["a"][0] == 0
    assert mapped["a"][-1] == (1 << 20) - 1  # stays when the checkpoint is closed


def test_files_that_the_program_wrote_by_itself_are_not_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "s"
    with tailrace.open(shared_dir=shared, local_dir=tmp_path / "l", files=1, files_as="original") as session:
        with session.save_files(1, {"a": np.arange(9)}) as begun:
            Path(begun.path("their.txt")).write_text("theirs")
        session.wait()
    original, mapped_files = _mapping._map_file, []

    def noted(path: str, end: int) -> Any:
        mapped_files.append(Path(path).name)
        return original(path, end)

    monkeypatch.setattr(_mapping, "_map_file", noted)
    with tailrace.read(shared) as checkpoint:
        assert [path for path in shared.rglob("their.txt")] != []  # it lies apart
        assert checkpoint.tree(mmap=True)["a"].tolist() == list(range(9))
    assert len(mapped_files) == 1 and mapped_files[0] != "their.txt"


def test_regions_in_several_pieces_or_at_odd_places_are_read(tmp_path: Path) -> None:
    tailrace.torch.save(state(), tmp_path / "f")
    reader = _core.Reader.open_file(str(tmp_path / "f"))
    names = [name for name, _, _ in reader.regions(0)]
    places = reader.places(0)

    class Odd:
        """The file as if one region lay in pieces, and another at an odd offset."""

        def places(self, rank: int) -> Any:
            changed = list(places)
            changed[names.index("w")] = None
            path, offset = places[names.index("b")]  # type: ignore[misc]
            changed[names.index("b")] = (path, offset + 2)
            return changed

        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

    odd: Any = Odd()
    mapped = _mapping.regions(odd, 0, names, lambda: odd, "f")
    as_they_lie = _mapping.regions(reader, 0, names, lambda: reader, "f")
    assert {"w", "b"} < as_they_lie.keys()
    assert mapped.keys() == as_they_lie.keys() - {"w", "b"}
    checkpoint = tailrace.read(tmp_path / "f")
    loaded = checkpoint._load(checkpoint.skeleton, False, "cpu", mapped)
    assert repr(loaded) == repr(tailrace.torch.load(tmp_path / "f"))


def test_an_open_file_gives_each_tensor_when_it_is_taken(tmp_path: Path) -> None:
    saved = {**state(), "tied": {}}
    saved["tied"]["w"] = saved["w"]
    tailrace.torch.save(saved, tmp_path / "f")
    with tailrace.torch.open(tmp_path / "f") as file:
        assert sorted(file) == sorted(
            ["w", "b", "flags", "z", "across", "views/0", "views/1", "parameter", "array", "none", "tied/w"]
        )
        assert torch.equal(file["w"], saved["w"]) and torch.equal(file["tied/w"], saved["w"])
        assert torch.equal(file.get_tensor("views/1"), saved["views"][1])
        assert type(file["parameter"]) is torch.nn.Parameter and file["array"].tolist() == saved["array"].tolist()
        part = file.get_slice("w")
        assert tuple(part.shape) == (1024, 1024) and torch.equal(part[3:5, 2], saved["w"][3:5, 2])
        assert torch.equal(file.get_slice("views/0")[5:7], saved["views"][0][5:7])
        with pytest.raises(KeyError):
            file["nothing"]
    with tailrace.torch.open(tmp_path / "f", device="meta") as file:
        assert file["w"].is_meta
