"""Counts of what was done to a file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

COUNTS = (
    "opens", "reads", "read_bytes", "writes", "written_bytes", "seeks", "backward_seeks", "backward_offsets", "syncs",
    "maps",
)  # fmt: skip


@dataclass
class Tally:
    """Calls that succeeded, and bytes.

    `seeks` are all lseeks. `backward_seeks` are those that went to a place before the one they
    left. `backward_offsets` are reads and writes at a given offset (pread, pwrite) before the end
    of the same thread's last one through the same descriptor. `maps` are mappings of the file:
    reads and writes through them are not calls and are not seen. Sizes are counted by their power
    of two: 4096 stands for 4096 to 8191 bytes, and 0 for none.
    """

    opens: int = 0
    reads: int = 0
    read_bytes: int = 0
    writes: int = 0
    written_bytes: int = 0
    seeks: int = 0
    backward_seeks: int = 0
    backward_offsets: int = 0
    syncs: int = 0
    maps: int = 0
    read_sizes: Counter[int] = field(default_factory=Counter)
    write_sizes: Counter[int] = field(default_factory=Counter)

    def read(self, size: int) -> None:
        self.reads += 1
        self.read_bytes += size
        self.read_sizes[power_below(size)] += 1

    def write(self, size: int) -> None:
        self.writes += 1
        self.written_bytes += size
        self.write_sizes[power_below(size)] += 1

    @property
    def calls(self) -> int:
        return self.opens + self.reads + self.writes + self.seeks + self.syncs + self.maps

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def add(self, other: Tally) -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.read_sizes.update(other.read_sizes)
        self.write_sizes.update(other.write_sizes)

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {name: getattr(self, name) for name in COUNTS}
        for name in ("read_sizes", "write_sizes"):
            plain[name] = {str(size): count for size, count in sorted(getattr(self, name).items())}
        return plain


def power_below(size: int) -> int:
    """The greatest power of two that is not above `size`; 0 for 0."""
    return 1 << (size.bit_length() - 1) if size else 0
