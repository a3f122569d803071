"""Versions that VELOC itself has written (its memory mode), as a source.

    DIRECTORY/NAME-RANK-VERSION.dat   the regions of a rank
    DIRECTORY/NAME-agg-VERSION.dat    those of all ranks, one after the other

    u64 n, then n times (i32 id, u64 bytes), packed, ids ascending, then the regions' bytes without padding

Numbers are little-endian (compat/veloc/memory_file.h). The files have no mark and no checksum, and no file
says how many ranks there are. So everything is checked that can be, before anything is written.

With `chksum = true` VELOC keeps a checksum of each rank's regions apart, in the directory of its key `meta`,
and with `aggregated = true` where each rank's regions begin in the file of all ranks:

    META/NAME-RANK-VERSION.dat.chksum   SHA-256, 32 bytes
    META/NAME-agg-VERSION.dat           i64 ranks, then as many i64 offsets
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import stat
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tailrace._errors import Code, Error

JOB = "veloc"  # of the epochs of libveloc-client (compat/veloc/stream.h)
_GROUP = "default"  # to which it gives the regions of VELOC's files (compat/veloc/client_restart.cc)
_FILE = re.compile(r"(?s:(.+))-(agg|0|[1-9][0-9]*)-(0|[1-9][0-9]*)\.dat")
_MOST_NUMBER = (1 << 31) - 1  # ranks and versions are C's int
_MOST_REGIONS = 1 << 20
_COUNT_BYTES = 8
_SUM_BYTES = 32
_ENTRY = np.dtype([("id", "<i4"), ("bytes", "<u8")])  # packed


@dataclasses.dataclass(frozen=True)
class FileName:
    directory: str
    name: str
    rank: int | None  # None: the file of all ranks
    version: int

    def of(self, rank: int) -> str:
        return os.path.join(self.directory, f"{self.name}-{rank}-{self.version}.dat")

    def sum_of(self, rank: int, meta: str | None) -> str:
        return os.path.join(self.directory if meta is None else meta, f"{self.name}-{rank}-{self.version}.dat.chksum")


@dataclasses.dataclass(frozen=True)
class Version:
    number: int
    ranks: list[dict[int, torch.Tensor]]  # bytes by id; of all ranks, or of the chosen one

    def trees(self) -> list[Any]:
        """A state for each rank."""
        return [{str(number): region for number, region in regions.items()} for regions in self.ranks]

    def regions(self) -> list[Any]:
        """The same under the names that libveloc-client gives the regions."""
        return [{f"{JOB}/{_GROUP}/{number}": region for number, region in regions.items()} for regions in self.ranks]


def parse(path: str) -> FileName | None:
    """From the right, because a name may have hyphens and digits."""
    directory, file = os.path.split(path)
    match = _FILE.fullmatch(file)
    if match is None:
        return None
    rank = None if match[2] == "agg" else int(match[2])
    version = int(match[3])
    return FileName(directory, match[1], rank, version) if max(rank or 0, version) <= _MOST_NUMBER else None


def may_be(path: str, head: bytes) -> bool:
    """Whether a file with VELOC's name, and this beginning, is to be read as VELOC's, though it may be
    torn. Others may have such a name, too."""
    if parse(path) is None:
        return False
    if len(head) >= _COUNT_BYTES and int.from_bytes(head[:_COUNT_BYTES], "little") > _MOST_REGIONS:
        return False
    if head[_COUNT_BYTES : _COUNT_BYTES + 1] != b"{":
        return True
    try:  # an id ending in 0x7b, or the header of safetensors
        _parts(path, several=True)
    except Error:
        return False
    return True


def files(path: str, rank: int | None = None) -> list[str]:
    """The files of the version to which a file belongs, or that of one of its ranks."""
    if os.path.isdir(path):
        raise Error(
            Code.INVALID_ARGUMENT,
            f"'{path}' is a directory, in which VELOC may have put many versions; name a file of the one you mean, "
            f"such as '{example(path) or os.path.join(path, 'NAME-0-VERSION.dat')}'; nothing was read",
        )
    named = parse(path)
    if named is None:
        raise Error(
            Code.INVALID_ARGUMENT,
            f"'{path}' tells neither name nor version: VELOC calls its files NAME-RANK-VERSION.dat, or "
            "NAME-agg-VERSION.dat; nothing was read",
        )
    if named.rank is None:
        return [path]
    if rank is not None:  # the others may be on other nodes, or be other programs'
        return [named.of(rank)]
    there = set()
    try:
        for file in os.listdir(named.directory or "."):
            one = parse(file)
            if one and (one.name, one.version) == (named.name, named.version) and one.rank is not None:
                there.add(one.rank)
    except OSError as error:
        kind = Code.NOT_FOUND if isinstance(error, FileNotFoundError) else Code.IO_ERROR
        raise Error(kind, f"looking for the ranks of '{path}': {error.strerror}; nothing was read") from None
    if named.rank not in there:
        raise Error(Code.NOT_FOUND, f"there is no file '{path}'; nothing was read")
    missing = next(one for one in range(len(there) + 1) if one not in there)
    if missing < len(there):
        raise Error(
            Code.CORRUPT,
            f"rank {missing} has no file '{named.of(missing)}', and rank {max(there)} has one: the version is not "
            "whole; --rank converts the file of one rank; nothing was read",
        )
    return [named.of(one) for one in range(len(there))]


def example(directory: str) -> str | None:
    """A file of the newest version in a directory."""
    found = [one for one in map(parse, os.listdir(directory)) if one]
    newest = max(found, key=lambda one: (one.version, one.rank is None, -(one.rank or 0)), default=None)
    if newest is None:
        return None
    rank = "agg" if newest.rank is None else newest.rank
    return os.path.join(directory, f"{newest.name}-{rank}-{newest.version}.dat")


def read(path: str, rank: int | None, meta: str | None = None) -> Version:
    """`meta`: VELOC's directory for checksums, which must then be there. Without it those beside the files count,
    if there are any."""
    named = files(path, rank)
    version = parse(path)
    assert version is not None  # otherwise files() has refused it

    def check(number: int, content: Any, where: str) -> None:
        if rank is None or rank == number:
            _expect_sum(content, version.sum_of(number, meta), meta is not None, where)

    if version.rank is not None:
        numbers = range(len(named)) if rank is None else [rank]
        parts = [_parts(file, False, check, number)[0] for number, file in zip(numbers, named, strict=True)]
        if rank is None:
            _expect_no_more(version, len(parts), meta)
        return Version(version.version, parts)
    ranks = _parts(path, True, check)
    _expect_no_more(version, len(ranks), meta)
    if meta is not None:
        _expect_map(path, ranks, os.path.join(meta, f"{version.name}-agg-{version.version}.dat"))
    if rank is None:
        return Version(version.version, ranks)
    if not 0 <= rank < len(ranks):
        raise Error(Code.NOT_FOUND, f"'{path}' holds no rank {rank}: it has the regions of {len(ranks)}")
    return Version(version.version, [ranks[rank]])


def _kept(path: str, most_bytes: int) -> bytes | None:
    """The content of one of VELOC's small files; None if it is not there."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Error(Code.INVALID_ARGUMENT, f"'{path}' is no regular file; nothing was written")
        with open(path, "rb") as file:
            return file.read(most_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Error(Code.IO_ERROR, f"reading '{path}': {error.strerror}; nothing was written") from None


def _expect_sum(content: Any, path: str, must_be: bool, where: str) -> None:
    kept = _kept(path, _SUM_BYTES)
    if kept is None:
        if must_be:
            raise Error(
                Code.NOT_FOUND,
                f"there is no checksum '{path}'; leave out --meta to convert without checksums; nothing was written",
            )
        return
    if len(kept) != _SUM_BYTES:
        raise Error(Code.CORRUPT, f"'{path}' is no checksum of VELOC's, which has 32 bytes; nothing was written")
    if hashlib.sha256(content).digest() != kept:
        raise _torn(where, f"its SHA-256 is not the one that VELOC has kept in '{path}'")


def _expect_no_more(version: FileName, ranks: int, meta: str | None) -> None:
    """There is no checksum of a rank after the last."""
    more = version.sum_of(ranks, meta)
    if _kept(more, _SUM_BYTES) is not None:
        raise Error(
            Code.CORRUPT,
            f"rank {ranks} has the checksum '{more}', and only {ranks} ranks have regions: the version is not whole; "
            "nothing was written",
        )


def _expect_map(path: str, ranks: list[dict[int, torch.Tensor]], kept_in: str) -> None:
    """The file of all ranks has as many as VELOC has kept, and each where it should be."""
    sizes = [
        _COUNT_BYTES + _ENTRY.itemsize * len(regions) + sum(region.numel() for region in regions.values())
        for regions in ranks
    ]
    expected = np.array([len(ranks), *np.cumsum([0, *sizes[:-1]])], "<i8").tobytes()
    kept = _kept(kept_in, len(expected))
    if kept is not None and kept != expected:
        raise _torn(f"'{path}'", f"its {len(ranks)} ranks do not lie as VELOC has kept it in '{kept_in}'")


def _parts(
    path: str, several: bool, check: Callable[[int, Any, str], None] | None = None, first: int = 0
) -> list[dict[int, torch.Tensor]]:
    """The regions of the rank, or of the several ranks, in a file. They stay in it: it is mapped. `check` gets each
    rank, its bytes, and a name of the place; ranks count from `first`."""
    content = _mapped(path)
    checks: list[tuple[int, int, str]] = []
    parts: list[dict[int, torch.Tensor]] = []
    end = 0
    while not parts or (several and end < len(content)):
        where = f"'{path}'" + (f", rank {len(parts)}," if several else "")
        begin = end
        part, end = _part(content, begin, where)
        parts.append(part)
        checks.append((begin, end, where))
    if end != len(content):
        raise _torn(f"'{path}'", f"its regions end at byte {end}, and the file at byte {len(content)}")
    for number, (begin, end, where) in enumerate(checks, first):
        if check is not None:
            check(number, content[begin:end], where.rstrip(","))
    return parts


def _mapped(path: str) -> Any:
    """The bytes of a file. A descriptor for each rank would be too many, so none stays open."""
    try:
        status = os.stat(path)
    except OSError as error:
        kind = Code.NOT_FOUND if isinstance(error, FileNotFoundError) else Code.IO_ERROR
        raise Error(kind, f"opening '{path}': {error.strerror}; nothing was read") from None
    if not stat.S_ISREG(status.st_mode):
        raise Error(Code.INVALID_ARGUMENT, f"'{path}' is no regular file; nothing was read")
    if status.st_size == 0:
        raise _torn(f"'{path}'", "it is empty")
    # Private, so that nothing that is done with a tensor changes the file.
    storage: Any = torch.UntypedStorage.from_file(path, False, status.st_size)
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy()


def _part(content: Any, begin: int, where: str) -> tuple[dict[int, torch.Tensor], int]:
    """The regions whose table begins at a byte, and the byte at which they end."""
    room = len(content) - begin
    count = int.from_bytes(content[begin : begin + _COUNT_BYTES].tobytes(), "little")
    table_bytes = _COUNT_BYTES + _ENTRY.itemsize * count
    if room < _COUNT_BYTES or count > _MOST_REGIONS or table_bytes > room:
        announced = "a table" if room < _COUNT_BYTES else f"the table of {count} regions that they announce"
        raise _torn(where, f"the {room} bytes at byte {begin} have no room for {announced}")
    if count == 0:
        raise _torn(where, f"the table at byte {begin} has no region")
    table = np.frombuffer(content, _ENTRY, count, begin + _COUNT_BYTES)
    regions: dict[int, torch.Tensor] = {}
    end, last = begin + table_bytes, None
    for number, nbytes in table.tolist():
        if number in regions:
            raise _torn(where, f"id {number} is in the table twice")
        if last is not None and number < last:
            raise _torn(where, f"id {number} follows id {last}, and ids ascend")
        if nbytes > len(content) - end:
            raise _torn(where, f"id {number} of {nbytes} bytes at byte {end} would end behind byte {len(content)}, "
                               "the file's end")  # fmt: skip
        # Of a storage of its own, because a storage is saved whole.
        regions[number] = torch.from_numpy(content[end : end + nbytes])
        end, last = end + nbytes, number
    return regions, end


def _torn(where: str, why: str) -> Error:
    return Error(
        Code.CORRUPT,
        f"{where} is not a whole file of VELOC's memory mode: {why}; nothing was written",
    )
