"""Lists: items that all ranks hold together, and any number of ranks takes up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tailrace

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist  # noqa: E402
from distributed import run  # noqa: E402

PARTICLE = np.dtype([("position", "f8", 3), ("kind", "i4")])


def settings_in(place: Path | str) -> dict[str, Any]:
    return {"shared_dir": f"{place}/shared", "local_dir": f"{place}/local"}


def particles(first: int, last: int) -> Any:
    made = np.zeros(last - first, PARTICLE)
    made["kind"] = np.arange(first, last)
    made["position"] = np.arange(first, last)[:, None] + np.array([0.25, 0.5, 0.75])
    return made


def lists(first: int, last: int) -> dict[str, Any]:
    """Items number `first` to `last` of lists of several kinds."""
    numbers = np.arange(first, last)
    return {
        "ids": tailrace.List(numbers),
        "positions": tailrace.List(numbers[:, None] * np.array([1.0, 10.0, 100.0])),
        "tensors": tailrace.List(torch.from_numpy(numbers[:, None, None] * np.ones((2, 2), np.float32))),
        "records": tailrace.List(particles(first, last)),
    }


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, value in one.items():
        assert type(value.items) is type(other[name].items)
        assert value.items.dtype == other[name].items.dtype
        assert np.array_equal(np.asarray(value.items), np.asarray(other[name].items)), name


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_list_is_as_long_as_it_was_saved(count: int, tmp_path: Path) -> None:
    state = lists(0, count)
    into = lists(0, 3)
    with tailrace.open(**settings_in(tmp_path)) as session:
        session.save(1, state)
        session.restore(1, into=into)
        assert_same(into, state)
        found = session.read()
        assert found["positions"].shape == (count, 3)
        assert np.array_equal(found["positions"][:], state["positions"].items)
        assert np.array_equal(found["records"].load(), state["records"].items)
    assert np.array_equal(tailrace.read(tmp_path / "shared").tree()["ids"], np.arange(count))


def test_boxes_of_a_list(tmp_path: Path) -> None:
    state = lists(0, 9)
    with tailrace.open(**settings_in(tmp_path)) as session:
        session.save(1, state)
    found = tailrace.read(tmp_path / "shared")
    assert np.array_equal(found["positions"][2:5, 1:], state["positions"].items[2:5, 1:])
    assert np.array_equal(found["positions"][-1], state["positions"].items[-1])
    assert np.array_equal(found["tensors"][3, 0, 1:], state["tensors"].items[3, 0, 1:])
    assert np.array_equal(found["records"][4:6], state["records"].items[4:6])


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (tailrace.List(np.zeros((2, 4))), r"items of float64 with shape \(3,\) in the checkpoint"),
        (tailrace.List(np.zeros((2, 3), np.float32)), "and of float32"),
        (np.zeros((9, 3)), "is a List in the checkpoint only"),
        (tailrace.List(3), "without an array of items"),
        (tailrace.List(np.float64(3)), "without an array of items"),
    ],
)
def test_another_list_is_a_difference_and_nothing_is_changed(target: Any, why: str, tmp_path: Path) -> None:
    with tailrace.open(**settings_in(tmp_path)) as session:
        session.save(1, {"p": lists(0, 9)["positions"], "x": 5})
        into = {"p": target, "x": 0}
        with pytest.raises(tailrace.Error, match=why) as caught:
            session.restore(1, into=into)
        assert caught.value.code is tailrace.Code.INVALID_ARGUMENT
        assert into["x"] == 0
        session.save(2, {"p": np.zeros((9, 3))})
        with pytest.raises(tailrace.Error, match="is a List here only"):
            session.restore(2, into={"p": tailrace.List(np.zeros((9, 3)))})


@pytest.mark.parametrize("items", [3, [1, 2], np.float64(1), np.array(5)])
def test_what_has_no_rows_is_not_saved_as_a_list(items: Any, tmp_path: Path) -> None:
    why = r"\['p'\] is a List without an array of items"
    with tailrace.open(**settings_in(tmp_path)) as session, pytest.raises(tailrace.Error, match=why):
        session.save(1, {"p": tailrace.List(items)})


def test_a_list_is_saved_by_a_session_only(tmp_path: Path) -> None:
    import tailrace.torch

    with pytest.raises(tailrace.Error, match="is a List: a Session saves it"):
        tailrace.torch.save(lists(0, 3), tmp_path / "f")


COUNTS = [5, 0, 8, 1]


def save_uneven(place: str) -> None:
    rank = dist.get_rank()
    first = sum(COUNTS[:rank])
    mine = lists(first, first + COUNTS[rank])
    with tailrace.open(**settings_in(place), comm=dist.group.WORLD, files=2, ranks_per_node=2) as session:
        session.save(1, mine)
        session.wait(1)
        into = lists(0, 2)
        session.restore(1, into=into)
        assert_same(into, mine)


def restore_shares(place: str) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    total = sum(COUNTS)
    each, more = divmod(total, ranks)
    first = rank * each + min(rank, more)
    into = lists(0, 2)
    with tailrace.open(**settings_in(place), comm=dist.group.WORLD) as session:
        assert session.restore_latest(into=into) == 1
        assert_same(into, lists(first, first + each + (rank < more)))
        assert np.array_equal(session.read()["ids"][:], np.arange(total))


@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_another_number_of_ranks_gets_even_shares(ranks: int, tmp_path: Path) -> None:
    run(4, save_uneven, str(tmp_path))
    run(ranks, restore_shares, str(tmp_path))


def by_threes(indices: Any, count: int, ranks: int) -> Any:
    assert count == sum(COUNTS)
    return indices // 3 % ranks


def restore_owned(place: str) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    into = {name: tailrace.List(a.items, owner=by_threes) for name, a in lists(0, 2).items()}
    every = lists(0, sum(COUNTS))
    mine = np.flatnonzero(by_threes(np.arange(sum(COUNTS)), sum(COUNTS), ranks) == rank)
    with tailrace.open(**settings_in(place), comm=dist.group.WORLD) as session:
        assert session.restore_latest(into=into) == 1
        assert_same(into, {name: tailrace.List(a.items[mine]) for name, a in every.items()})
        for owner, why in (
            (lambda i, n, r: i * 0 + r, "gives item 0 to rank 2, but there are 2 ranks"),
            (lambda i, n, r: i - 1, "gives item 0 to rank -1"),
            (lambda i, n, r: 0, "must return a rank for each"),
            (lambda i, n, r: i * 0.0, "must return a rank for each"),
        ):
            with pytest.raises(tailrace.Error, match=why):
                session.restore(1, into={**into, "ids": tailrace.List(np.zeros(0, np.int64), owner=owner)})


def test_an_owner_says_which_rank_gets_which_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(4, save_uneven, str(tmp_path))
    run(2, restore_owned, str(tmp_path))


@pytest.mark.parametrize("asked", [1, 4, 5, 100])
def test_shares_do_not_depend_on_how_many_are_asked_at_once(asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailrace._restore, "_MOST_ASKED", asked)
    runs = tailrace._restore._share("x", 23, lambda i, n, r: i // 3 % r, 1, 3)
    assert runs == [(3, 3), (12, 3), (21, 2)]


def save_other_items(place: str) -> None:
    mine = tailrace.List(np.zeros((3, 3 + dist.get_rank())))
    with pytest.raises(tailrace.Error), tailrace.open(**settings_in(place), comm=dist.group.WORLD) as session:
        session.save(1, {"p": mine})
        session.wait(1)


def test_ranks_whose_items_differ_commit_nothing(tmp_path: Path) -> None:
    run(2, save_other_items, str(tmp_path))
    with pytest.raises(tailrace.Error, match="complete epoch"):
        tailrace.read(tmp_path / "shared")
