"""What a program says of an array in its state: Shard, this rank's piece of an array of all ranks, and List, items that
all ranks hold together. They take the array's place in the tree (_tree)."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tailrace import _leaves
from tailrace._errors import Code, Error


@dataclasses.dataclass(frozen=True)
class Shard:
    """This rank's piece of a global array, row-major: element i of dimension d is element offset[d] +
    i.

    Restoring assembles the wanted piece from the pieces that were saved, on any number of ranks.
    All ranks' pieces must cover every element exactly once. Otherwise the epoch is not committed,
    unless every rank declares gaps or overlap.

    gaps: some elements may be in no rank's piece. They cannot be read.
    overlap: several ranks' pieces may contain the same element. The value of the lowest rank
        counts.
    halo: the number of elements at both ends of each dimension of `array` that are copies of the
        neighbours' (ghost cells). It is a number for all dimensions, or for each dimension a number
        or (before, after). These elements do not belong to the piece, which is `own`: they are not
        saved, not counted in global_shape and offset, and not changed by a restore.
    """

    array: Any
    global_shape: Sequence[int]
    offset: Sequence[int]
    _: dataclasses.KW_ONLY
    gaps: bool = False
    overlap: bool = False
    halo: int | Sequence[int | tuple[int, int]] = 0
    own: Any = dataclasses.field(init=False, repr=False, compare=False)  # `array` without its halo

    @property
    def declared(self) -> int:
        return (_leaves.GAPS if self.gaps else 0) | (_leaves.OVERLAP if self.overlap else 0)

    def __post_init__(self) -> None:
        try:  # JSON cannot hold numpy's integers
            for field in ("global_shape", "offset"):
                object.__setattr__(self, field, tuple(operator.index(n) for n in getattr(self, field)))
        except TypeError:
            raise Error(
                Code.INVALID_ARGUMENT,
                f"a Shard at {self.offset!r} of an array of {self.global_shape!r}: both are sequences of integers",
            ) from None
        object.__setattr__(self, "own", _without_halo(self.array, self.halo))


def _without_halo(array: Any, halo: Any) -> Any:
    if not _leaves.is_array(array):
        return array  # the encoder refuses it, with its place in the tree
    shape = tuple(array.shape)
    try:
        pairs = [_both_ends(one) for one in (halo if isinstance(halo, Sequence) else [halo] * len(shape))]
        if len(pairs) != len(shape) or any(
            min(pair) < 0 or sum(pair) > n for pair, n in zip(pairs, shape, strict=True)
        ):
            raise ValueError
    except (TypeError, ValueError):
        raise Error(
            Code.INVALID_ARGUMENT,
            f"a Shard of an array of shape {shape} with halo={halo!r}: it must be a number of elements, or for each "
            "dimension a number or (before, after), and may not leave out more than there is",
        ) from None
    if not any(sum(pair) for pair in pairs):
        return array
    return array[tuple(slice(before, n - after) for (before, after), n in zip(pairs, shape, strict=True))]


def _both_ends(one: Any) -> tuple[int, int]:
    try:
        return operator.index(one), operator.index(one)
    except TypeError:
        before, after = one
        return operator.index(before), operator.index(after)


@dataclasses.dataclass(eq=False)
class List:
    """Items that all ranks hold together, such as particles, or the cells of an adaptive mesh.

    items: this rank's items, one in each row (dimension 0) of an array or a tensor. Each rank may
        have any number of them, also none. Type and shape of an item must be the same on all ranks,
        and every rank must save the list. The whole list is the items of rank 0, then those of rank
        1, and so on.

    A restore replaces `items` by a new array of the same library. On the same number of ranks as at
    the save, each rank gets its own items back. On another number, each rank gets an even share, in
    the order of the whole list. tailrace.read gives the whole list.

    owner: says which rank gets which item in place of an even share. owner(indices, count, ranks)
        takes an array of items' numbers in the whole list, the length of the list and the number of
        ranks, and returns an array of ranks. It must return the same on all ranks.
    """

    items: Any
    _: dataclasses.KW_ONLY
    owner: Callable[[Any, int, int], Any] | None = None
