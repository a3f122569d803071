"""tailrace convert of versions that VELOC has written: all ranks by one path, into every format; torn ones are refused
with the file and the fault; an epoch that a session of the same program finds."""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from measuring import most_memory

import tailrace.torch
from tailrace import Code, Error
from tailrace.convert import FORMATS, convert, format_of
from tailrace.convert.__main__ import main

Regions = dict[int, bytes]

STATES: list[Regions] = [
    {-2: b"below 0", 0: b"", 7: bytes(range(250)) * 100},
    {0: b"of rank 1", 3: b"x"},
    {0: b"of rank 2"},
]


def part(regions: Regions) -> bytes:
    """A rank's regions by the definition of the format (compat/veloc/memory_file.h)."""
    table = b"".join(struct.pack("<iQ", number, len(content)) for number, content in regions.items())
    return struct.pack("<Q", len(regions)) + table + b"".join(regions.values())


def write(place: Path, states: list[Regions], name: str = "heat", version: int = 40) -> Path:
    """The path of rank 0's file."""
    for rank, regions in enumerate(states):
        (place / f"{name}-{rank}-{version}.dat").write_bytes(part(regions))
    return place / f"{name}-0-{version}.dat"


def write_aggregated(place: Path, states: list[Regions]) -> Path:
    path = place / "heat-agg-40.dat"
    path.write_bytes(b"".join(map(part, states)))
    return path


def state_of(regions: Regions) -> dict[str, bytes]:
    return {str(number): content for number, content in regions.items()}


def bytes_of(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: bytes_of(value) for key, value in tree.items()}
    assert tree.dtype in (torch.uint8, np.dtype("uint8")) and tree.ndim == 1
    return bytes(np.asarray(tree))


ALL = {f"rank{rank}": state_of(regions) for rank, regions in enumerate(STATES)}


@pytest.mark.parametrize("kind", ["of rank 0", "of rank 2", "aggregated"])
def test_any_file_of_a_version_stands_for_all_ranks(kind: str, tmp_path: Path) -> None:
    write(tmp_path, STATES[:1], version=39)
    write(tmp_path, STATES[:2], name="heat-2d")
    write(tmp_path, [{1: b"another's"}] * 5, name="a-heat")
    if kind == "aggregated":
        source = write_aggregated(tmp_path, STATES)
    else:
        write(tmp_path, STATES)
        source = tmp_path / f"heat-{kind[-1]}-40.dat"
    assert format_of(source) == "veloc"
    convert(source, tmp_path / "out", to="ranks")
    assert sorted(os.listdir(tmp_path / "out")) == ["rank0.pt", "rank1.pt", "rank2.pt"]
    for rank, regions in enumerate(STATES):
        assert bytes_of(torch.load(tmp_path / "out" / f"rank{rank}.pt")) == state_of(regions)


def test_a_region_is_saved_without_the_rest_of_its_file(tmp_path: Path) -> None:
    convert(write(tmp_path, [{0: b"small", 1: bytes(1 << 20)}]), tmp_path / "out", to="ranks")
    state = torch.load(tmp_path / "out" / "rank0.pt")
    assert state["0"].untyped_storage().nbytes() == 5
    assert (tmp_path / "out" / "rank0.pt").stat().st_size < 1.1 * (1 << 20)


@pytest.mark.parametrize("to", [name for name in FORMATS if name not in ("ranks", "tailrace")])
@pytest.mark.parametrize("writer", [write, write_aggregated])
def test_formats_of_one_state_have_the_ranks_in_it(
    to: str, writer: Callable[[Path, list[Regions]], Path], tmp_path: Path
) -> None:
    source = writer(tmp_path, STATES)
    moved = convert(source, tmp_path / "out", to=to)
    assert moved == sum(len(content) for regions in STATES for content in regions.values())
    if to == "safetensors":
        from safetensors.torch import load_file

        flat = {f"{rank}.{number}": content for rank, state in ALL.items() for number, content in state.items()}
        assert bytes_of(load_file(tmp_path / "out")) == flat
        return
    assert format_of(tmp_path / "out") == to
    convert(tmp_path / "out", tmp_path / "end.pt")
    assert bytes_of(torch.load(tmp_path / "end.pt")) == ALL
    if to == "dcp":
        blank = {"rank1": {"3": torch.zeros(1, dtype=torch.uint8)}}
        dcp.load(blank, checkpoint_id=tmp_path / "out")
        assert bytes_of(blank["rank1"]["3"]) == b"x"


@pytest.mark.parametrize("to", [name for name in FORMATS if name not in ("ranks", "tailrace")])
def test_a_rank_alone_has_its_ids_only(to: str, tmp_path: Path) -> None:
    write(tmp_path, STATES)
    (tmp_path / "heat-0-40.dat").write_bytes(b"torn")  # and the others do not count
    (tmp_path / "heat-1-40.dat").unlink()
    convert(tmp_path / "heat-0-40.dat", tmp_path / "out", to=to, rank=2)
    convert(tmp_path / "out", tmp_path / "end.pt")
    assert bytes_of(torch.load(tmp_path / "end.pt")) == state_of(STATES[2])
    for rank in (1, 3):
        with pytest.raises(Error, match=f"heat-{rank}-40.dat") as caught:
            convert(tmp_path / "heat-0-40.dat", tmp_path / "none.pt", rank=rank)
        assert caught.value.code is Code.NOT_FOUND
    aggregated = write_aggregated(tmp_path, STATES)
    convert(aggregated, tmp_path / "end.pt", rank=1, replace=True)
    assert bytes_of(torch.load(tmp_path / "end.pt")) == state_of(STATES[1])
    with pytest.raises(Error, match="no rank 3") as caught:
        convert(aggregated, tmp_path / "none.pt", rank=3)
    assert caught.value.code is Code.NOT_FOUND and not (tmp_path / "none.pt").exists()


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("writer", [write, write_aggregated])
def test_tailrace_gets_the_epoch_of_a_program_for_veloc(
    writer: Callable[[Path, list[Regions]], Path], files: int, tmp_path: Path
) -> None:
    convert(writer(tmp_path, STATES), tmp_path / "heat", to="tailrace", files=files)
    names = sorted(os.listdir(tmp_path / "heat"))
    assert len(names) == files and all(name.startswith("veloc.e000000040.") for name in names)
    for rank, regions in enumerate(STATES):
        with tailrace.read(tmp_path / "heat", rank=rank) as checkpoint:
            saved = {name: nbytes for name, nbytes, _ in checkpoint._reader.regions(rank)}
            assert saved == {f"veloc/default/{number}": len(content) for number, content in regions.items()}
            assert bytes_of({name: checkpoint[name].load() for name in saved}) == {
                f"veloc/default/{number}": content for number, content in regions.items()
            }


def test_a_session_goes_on_from_it(tmp_path: Path) -> None:
    """As libveloc-client's does, with these settings (compat/veloc/stream.cc)."""
    source = write(tmp_path, STATES)
    (tmp_path / "persistent").mkdir()
    convert(source, tmp_path / "persistent" / "heat", to="tailrace", rank=1)
    settings: dict[str, Any] = {"name": "veloc", "local_dir": tmp_path / "scratch", "record": False}
    with tailrace.open(shared_dir=tmp_path / "persistent" / "heat", **settings) as session:
        assert [one.step for one in session.list()] == [40]
        with session.read(40) as checkpoint:
            found = {name: array.load() for name, array in checkpoint.items()}
        assert bytes_of(found) == {"veloc/default/0": b"of rank 1", "veloc/default/3": b"x"}
        session.save(41, {})
    with tailrace.open(shared_dir=tmp_path / "persistent" / "heat", **settings) as session:
        assert [one.step for one in session.list()] == [41, 40]


def shorter(content: bytes) -> bytes:
    return content[:-1]


def longer(content: bytes) -> bytes:
    return content + b"\0"


def a_table(*entries: tuple[int, int], content: bytes = b"") -> bytes:
    return struct.pack("<Q", len(entries)) + b"".join(struct.pack("<iQ", *entry) for entry in entries) + content


TORN: dict[str, tuple[bytes, str]] = {
    "a byte is missing": (shorter(part(STATES[1])), "id 3 of 1 bytes at byte 41 would end behind byte 41"),
    "a byte more": (longer(part(STATES[1])), "its regions end at byte 42, and the file at byte 43"),
    "empty": (b"", "it is empty"),
    "in the count": (part(STATES[1])[:7], "the 7 bytes at byte 0 have no room for a table"),
    "in the table": (part(STATES[1])[:31], "the 31 bytes at byte 0 have no room for the table of 2 regions"),
    "no region": (a_table(), "the table at byte 0 has no region"),
    "zeros": (bytes(100), "the table at byte 0 has no region"),
    "a table larger than the file": (
        struct.pack("<Q", 1 << 20) + bytes(100),
        "the 108 bytes at byte 0 have no room for the table of 1048576 regions",
    ),
    "a table larger than any": (
        struct.pack("<Q", (1 << 64) - 1) + bytes(100),
        "the 108 bytes at byte 0 have no room for the table of 18446744073709551615 regions",
    ),
    "an id twice": (a_table((3, 1), (3, 1), content=b"ab"), "id 3 is in the table twice"),
    "an id twice, apart": (a_table((3, 1), (4, 1), (3, 0), content=b"ab"), "id 3 is in the table twice"),
    "ids that descend": (a_table((3, 1), (-1, 1), content=b"ab"), "id -1 follows id 3, and ids ascend"),
    "a negative size": (a_table((1, (1 << 64) - 1), content=b"a"), "id 1 of 18446744073709551615 bytes"),
    "sizes that wrap around": (a_table((1, 1 << 63), (2, (1 << 63) + 1), content=b"a"), "id 1 of 92233720"),
    "a program's own file": (b"HDF5 or whatever", "have no room for the table"),
}


@pytest.mark.parametrize("fault", TORN)
@pytest.mark.parametrize("named", [0, 1])
def test_a_torn_file_of_a_rank_is_refused(fault: str, named: int, tmp_path: Path) -> None:
    content, said = TORN[fault]
    write(tmp_path, STATES)
    (tmp_path / "heat-1-40.dat").write_bytes(content)
    before = sorted(os.listdir(tmp_path))
    for to in FORMATS:
        with pytest.raises(Error) as caught:
            convert(tmp_path / f"heat-{named}-40.dat", tmp_path / "out", to=to)
        assert caught.value.code is Code.CORRUPT and caught.value.path == str(tmp_path / "heat-1-40.dat")
        assert said in str(caught.value) and caught.value.intact == "nothing was written"
        assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("fault", TORN)
def test_a_torn_file_of_all_ranks_is_refused(fault: str, tmp_path: Path) -> None:
    if fault == "empty":
        return  # then a rank's regions end where the next one's begin: nothing is torn
    path = tmp_path / "heat-agg-40.dat"
    path.write_bytes(part(STATES[0]) + TORN[fault][0])
    with pytest.raises(Error, match=f"'{path}', rank [12], is not a whole file") as caught:
        convert(path, tmp_path / "out", to="ranks")
    assert caught.value.code is Code.CORRUPT and not (tmp_path / "out").exists()


def write_sums(place: Path, states: list[Regions]) -> Path:
    """As VELOC does with chksum = true."""
    place.mkdir(exist_ok=True)
    for rank, regions in enumerate(states):
        (place / f"heat-{rank}-40.dat.chksum").write_bytes(hashlib.sha256(part(regions)).digest())
    return place


@pytest.mark.parametrize("writer", [write, write_aggregated])
def test_checksums_of_velocs_are_verified(writer: Callable[[Path, list[Regions]], Path], tmp_path: Path) -> None:
    source, meta = writer(tmp_path, STATES), write_sums(tmp_path / "meta", STATES)
    convert(source, tmp_path / "out", to="ranks", meta=meta)
    convert(source, tmp_path / "one.pt", rank=2, meta=meta)
    damaged = source if "agg" in source.name else tmp_path / "heat-1-40.dat"
    damaged.write_bytes(damaged.read_bytes().replace(b"of rank 1", b"of rank 9"))
    convert(source, tmp_path / "unnoticed", to="ranks")
    with pytest.raises(
        Error, match=r"its SHA-256 is not the one that VELOC has kept in .*heat-1-40.dat.chksum"
    ) as caught:
        convert(source, tmp_path / "none", to="ranks", meta=meta)
    assert caught.value.code is Code.CORRUPT and not (tmp_path / "none").exists()
    convert(source, tmp_path / "two.pt", rank=2, meta=meta)  # the others do not count
    write_sums(tmp_path, STATES)
    with pytest.raises(Error, match=r"its SHA-256 is not"):
        convert(source, tmp_path / "none", to="ranks")  # checksums beside the files


@pytest.mark.parametrize("writer", [write, write_aggregated])
def test_ranks_that_only_checksums_know_are_missing(
    writer: Callable[[Path, list[Regions]], Path], tmp_path: Path
) -> None:
    source, meta = writer(tmp_path, STATES[:2]), write_sums(tmp_path / "meta", STATES)
    with pytest.raises(Error, match=r"rank 2 has the checksum .*, and only 2 ranks have regions") as caught:
        convert(source, tmp_path / "none", to="ranks", meta=meta)
    assert caught.value.code is Code.CORRUPT
    (meta / "heat-2-40.dat.chksum").unlink()
    convert(source, tmp_path / "out", to="ranks", meta=meta)
    (meta / "heat-1-40.dat.chksum").write_bytes(bytes(31))
    with pytest.raises(Error, match=r"heat-1-40.dat.chksum' is no checksum of VELOC's"):
        convert(source, tmp_path / "none", to="ranks", meta=meta)
    (meta / "heat-1-40.dat.chksum").unlink()
    with pytest.raises(Error, match=r"no checksum '.*heat-1-40.dat.chksum'; leave out --meta") as caught:
        convert(source, tmp_path / "none", to="ranks", meta=meta)
    assert caught.value.code is Code.NOT_FOUND
    with pytest.raises(Error, match=r"meta is VELOC's"):
        convert(tmp_path / "out", tmp_path / "none", to="torch", meta=meta)


def test_the_map_of_a_file_of_all_ranks_is_verified(tmp_path: Path) -> None:
    source, meta = write_aggregated(tmp_path, STATES), write_sums(tmp_path / "meta", STATES)
    sizes = [len(part(regions)) for regions in STATES]
    whole = struct.pack("<4q", 3, 0, sizes[0], sizes[0] + sizes[1])
    (meta / "heat-agg-40.dat").write_bytes(whole)
    convert(source, tmp_path / "out", to="ranks", meta=meta)
    for wrong in (whole[:-1], whole + b"\0", struct.pack("<5q", 4, 0, sizes[0], sizes[0] + sizes[1], sum(sizes))):
        (meta / "heat-agg-40.dat").write_bytes(wrong)
        with pytest.raises(Error, match=r"its 3 ranks do not lie as VELOC has kept it"):
            convert(source, tmp_path / "none", to="ranks", meta=meta)


def test_every_shorter_file_is_refused(tmp_path: Path) -> None:
    states: list[Regions] = [{0: b"ab", 1: b"", 5: b"c"}, {0: b"", 2: b"de"}]
    whole = part(states[1])
    source = write(tmp_path, states)
    for length in range(len(whole)):
        (tmp_path / "heat-1-40.dat").write_bytes(whole[:length])
        with pytest.raises(Error, match=r"heat-1-40.dat' is not a whole file") as caught:
            convert(source, tmp_path / "out", to="ranks")
        assert caught.value.code is Code.CORRUPT
    aggregated = write_aggregated(tmp_path, states)
    both = aggregated.read_bytes()
    for length in range(len(both)):
        if length == len(both) - len(whole):
            continue  # the whole of a smaller job, as the page says
        aggregated.write_bytes(both[:length])
        with pytest.raises(Error, match=r"heat-agg-40.dat'.* is not a whole file"):
            convert(aggregated, tmp_path / "out", to="ranks")


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    source = write(tmp_path, [*STATES, *STATES])
    for rank in (4, 2):
        (tmp_path / f"heat-{rank}-40.dat").unlink()
        with pytest.raises(
            Error, match=f"rank {rank} has no file '{tmp_path}/heat-{rank}-40.dat', and rank 5"
        ) as caught:
            convert(source, tmp_path / "out", to="ranks")
        assert caught.value.code is Code.CORRUPT
    source.unlink()
    for of in (source, tmp_path / "heat-9-40.dat"):
        with pytest.raises(Error, match=of.name) as caught:
            convert(of, tmp_path / "out", to="ranks", source_format="veloc")
        assert caught.value.code is Code.NOT_FOUND
    with pytest.raises(Error, match=r"rank 0 has no file .*heat-0-40.dat"):
        convert(tmp_path / "heat-5-40.dat", tmp_path / "out", to="ranks")
    assert not (tmp_path / "out").exists()


def test_a_rank_whose_file_is_none_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path, STATES)
    (tmp_path / "heat-1-40.dat").unlink()
    os.mkfifo(tmp_path / "heat-1-40.dat")
    with pytest.raises(Error, match=r"heat-1-40.dat' is no regular file"):
        convert(source, tmp_path / "out", to="ranks")
    (tmp_path / "heat-1-40.dat").unlink()
    (tmp_path / "heat-1-40.dat").symlink_to("nowhere")
    with pytest.raises(Error, match=r"heat-1-40.dat") as caught:
        convert(source, tmp_path / "out", to="ranks")
    assert caught.value.code is Code.NOT_FOUND


def test_a_directory_is_asked_for_a_file(tmp_path: Path) -> None:
    write(tmp_path, STATES, version=40)
    write(tmp_path, STATES, version=100)
    for said in (None, "veloc"):
        with pytest.raises(Error, match=f"such as '{tmp_path}/heat-0-100.dat'") as caught:
            convert(tmp_path, tmp_path / "out.pt", source_format=said)
        assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["heat.dat", "heat-0.dat", "heat-x-4.dat", "heat-0-4", "-0-4.dat", "heat-0-04.dat",
                                  "heat-0-99999999999.dat", "heat-0-4.dat.chksum"])  # fmt: skip
def test_other_names_are_none_of_velocs(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(part(STATES[0]))
    with pytest.raises(Error):
        format_of(tmp_path / name)
    with pytest.raises(Error, match="NAME-RANK-VERSION") as caught:
        convert(tmp_path / name, tmp_path / "out.pt", source_format="veloc")
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_others_may_have_such_a_name(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3)}, tmp_path / "m-0-1.dat")
    torch.save({"w": torch.ones(3)}, tmp_path / "m-0-2.dat", _use_new_zipfile_serialization=False)
    for number, to in (("3", "safetensors"), ("4", "tailrace")):
        convert(tmp_path / "m-0-1.dat", tmp_path / f"m-0-{number}.dat", to=to)
    found = [format_of(tmp_path / f"m-0-{number}.dat") for number in (1, 2, 3, 4)]
    assert found == ["torch", "torch", "safetensors", "tailrace"]


@pytest.mark.parametrize("regions", [{number: b"a" for number in range(128)}, {0x7B: b"a" * 200}, {0x17B: b""}])
def test_its_beginning_may_look_like_others(regions: Regions, tmp_path: Path) -> None:
    """128 regions begin as pickle does; an id of 123 stands where the header of safetensors begins."""
    source = write(tmp_path, [regions])
    assert format_of(source) == "veloc"
    convert(source, tmp_path / "out.pt", rank=0)
    assert bytes_of(torch.load(tmp_path / "out.pt")) == state_of(regions)


@pytest.mark.parametrize("target", ["heat-1-40.dat", "link", "hard"])
def test_no_file_of_the_version_is_replaced(target: str, tmp_path: Path) -> None:
    source = write(tmp_path, STATES)
    (tmp_path / "link").symlink_to("heat-1-40.dat")
    (tmp_path / "hard").hardlink_to(tmp_path / "heat-2-40.dat")
    with pytest.raises(Error, match="of the source") as caught:
        convert(source, tmp_path / target, to="torch", replace=True)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert [(tmp_path / f"heat-{rank}-40.dat").read_bytes() for rank in range(3)] == [part(one) for one in STATES]


def test_veloc_is_no_target(tmp_path: Path) -> None:
    source = write(tmp_path, STATES)
    with pytest.raises(Error, match="no format 'veloc'"):
        convert(source, tmp_path / "out", to="veloc")


def test_the_command_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(), STATES)
    assert main(["heat-1-40.dat", "out.safetensors"]) == 0
    assert "from veloc to safetensors" in capsys.readouterr().out
    assert main(["--from", "veloc", "--to", "ranks", "--rank", "1", "heat-0-40.dat", "one"]) == 0
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["--to", "tailrace", "heat-0-40.dat", "heat"]) == 0
    Path("heat-1-40.dat").unlink()
    assert main(["heat-0-40.dat", "again.safetensors"]) == 1
    assert "rank 1 has no file 'heat-1-40.dat'" in capsys.readouterr().err
    assert main([".", "again.safetensors"]) == 2 and "name a file" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["tailrace", "ranks", "safetensors"])
def test_ranks_need_neither_a_descriptor_nor_memory_each(to: str, tmp_path: Path) -> None:
    for rank in range(100):  # 200 MiB
        (tmp_path / f"heat-{rank}-1.dat").write_bytes(part({0: bytes([rank]) * (2 << 20)}))
    (most,) = most_memory([(tmp_path / "heat-0-1.dat", tmp_path / "out", to)], descriptors=64)
    assert most < 64
