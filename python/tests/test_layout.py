"""Where ranks write in the files of a save: every byte belongs to one of them, and heads come before runs."""

from __future__ import annotations

import random

import pytest

from tailrace import _layout

BLOCK = 4096


@pytest.mark.parametrize("seed", range(20))
def test_heads_and_runs_fill_each_file_without_gap_or_overlap(seed: int) -> None:
    draw = random.Random(seed)
    ranks, files, start = draw.randint(1, 9), draw.randint(1, 9), BLOCK * draw.randint(1, 3)
    room = draw.choice([0, 1, BLOCK, 3 * BLOCK + 5])
    needs = [
        (BLOCK * draw.randint(0, 3), [BLOCK * draw.randint(0, 5) for _ in _layout.files_of(rank, ranks, files)])
        for rank in range(ranks)
    ]
    places = _layout.arrange(needs, files, start, room)
    assert [list(place.files) for place in places] == [
        list(_layout.files_of(rank, ranks, files)) for rank in range(ranks)
    ]
    for file in range(files):
        heads = [
            (place.head, place.head + head)
            for place, (head, _) in zip(places, needs, strict=True)
            if place.files[0] == file
        ]
        runs = [
            (place.runs[place.files.index(file)], runs[place.files.index(file)])
            for place, (_, runs) in zip(places, needs, strict=True)
            if file in place.files
        ]
        end = start + (-(-room // BLOCK) * BLOCK if file == 0 else 0)
        for first, last in [*heads, *((offset, offset + nbytes) for offset, nbytes in runs)]:
            assert first == end
            end = last
