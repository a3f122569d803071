"""Sessions: what is saved comes back, in place or as a tree; what cannot be is refused by name."""

from __future__ import annotations

import collections
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tailrace

Settings = dict[str, Any]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return {
        "shared_dir": tmp_path / "shared",
        "local_dir": tmp_path / "local",
        "buffer_bytes": "1MiB",
        "buffers": 2,
    }


def sample() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "u": rng.standard_normal((40, 50)),
        "nested": [{"a": np.arange(7, dtype=np.int8)}, (np.float32(1.5), np.zeros((0, 3)))],
        "meta": {"lr": 1e-3, "name": "run", "betas": (0.9, 0.95), "none": None, "big": 1 << 200},
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) or (a != a and b != b)


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_a_rank_without_comm_is_told_of_comm(
    settings: Settings, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(other, raising=False)
    with tailrace.open(**settings):
        for number, told in (("2", True), ("1", False), ("", False), ("two", False)):
            monkeypatch.setenv(variable, number)
            with pytest.raises(tailrace.Error, match="another session uses") as refused:
                tailrace.open(**settings)
            assert refused.value.code is tailrace.Code.BUSY
            assert (f"{variable} is 2, and if that session is of another rank" in str(refused.value)) is told


def test_saves_and_restores_in_place(settings: Settings) -> None:
    state = sample()
    with tailrace.open(**settings) as session:
        assert session.restore_latest(into=state) is None
        session.save(1, state)
        state["u"][:] = 7
        state["meta"]["lr"] = 0.5
        session.save(2, state)
        assert session.wait()
        assert [epoch.step for epoch in session.list()] == [2, 1]
        assert session.state(2).state is tailrace.State.COMMITTED
    fresh = sample()
    held = fresh["u"]
    with tailrace.open(**settings) as session:
        assert session.restore_latest(into=fresh) == 2
        assert same(fresh, state) and fresh["u"] is held
        session.restore(1, fresh)
        assert same(fresh, sample())


def test_leaves_k_files_and_nothing_else(settings: Settings) -> None:
    with tailrace.open(**settings, files=3) as session:
        session.save(5, sample())
    assert len(list(settings["shared_dir"].iterdir())) == 3


def test_reads_lazily_without_a_job(settings: Settings) -> None:
    state = sample()
    with tailrace.open(**settings) as session:
        session.save(3, state)
    with tailrace.read(settings["shared_dir"]) as checkpoint:
        assert checkpoint.step == 3 and checkpoint.rank_count == 1
        assert set(checkpoint) == {"u", "nested/0/a", "nested/1/1"}
        u = checkpoint["u"]
        assert u.shape == (40, 50) and u.dtype == np.float64 and u.nbytes == state["u"].nbytes
        for index in [3, -1, slice(2, 9), (slice(1, 3), 4), (..., slice(5, 6)), slice(None, None, 2), [1, 5]]:
            assert np.array_equal(u[index], state["u"][index]), index
        with pytest.raises(IndexError):
            u[40]
        assert same(np.asarray(u), state["u"])
        assert same(checkpoint.tree(), state)
        lazy = checkpoint.lazy_tree()
        assert isinstance(lazy["nested"][0]["a"], tailrace.LazyArray)
    (only,) = settings["shared_dir"].iterdir()
    renamed = only.rename(only.with_name("mine.bin"))
    assert same(tailrace.read(renamed).tree(), state)
    with pytest.raises(tailrace.Error) as missing:
        tailrace.read(renamed, step=4)
    assert missing.value.code is tailrace.Code.NOT_FOUND and missing.value.path == str(renamed)


def test_plain_objects_come_back_as_they_were(settings: Settings) -> None:
    tree = {
        "float": [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324],
        "complex": 1 - 2j,
        "bytes": b"\0\xff",
        "bytearray": bytearray(b"x"),
        "set": {1, "a", (2, None)},
        "frozenset": frozenset([3]),
        "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
        "keys": {1: "one", None: 2, (1, 2): [], "$": "dollar", "a/b~c": True},
        "range": range(1, 9, 2),
        "slice": slice(None, 3),
        "scalar": np.int16(-3),
        "text": "\ud800 ä\0",
        "record": np.array([(1, 2.5)], dtype=[("i", ">i4"), ("x", "<f8")]),
        "dates": np.array(["2024-01-01"], dtype="datetime64[D]"),
        "strided": np.arange(20).reshape(4, 5).T[::2],
        "none_dimensional": np.array(3.5),
        "empty": [],
    }
    with tailrace.open(**settings) as session:
        session.save(1, tree)
    loaded = tailrace.read(settings["shared_dir"]).tree()
    assert same(loaded, tree) and type(loaded["scalar"]) is np.int16


def test_an_array_that_occurs_twice_is_saved_once_and_stays_one(settings: Settings) -> None:
    a = np.arange(5)
    with tailrace.open(**settings) as session:
        session.save(1, {"x": a, "y": [a]})
    with tailrace.read(settings["shared_dir"]) as checkpoint:
        loaded = checkpoint.tree()
        assert len(checkpoint) == 1 and loaded["x"] is loaded["y"][0]


class Custom:
    def __reduce__(self) -> Any:
        return (exec, ("import builtins; builtins.tailrace_test_ran = True",))


def test_keys_that_read_the_same_are_different_arrays(settings: Settings) -> None:
    keys: list[object] = [1, "1", None, "None", "", "value", (1, 2), "(1, 2)"]
    with tailrace.open(**settings) as session:
        session.save(1, {key: np.full(3, number) for number, key in enumerate(keys)})
    with tailrace.read(settings["shared_dir"]) as checkpoint:
        assert {key: int(array[0]) for key, array in checkpoint.tree().items()} == {k: n for n, k in enumerate(keys)}


def test_what_cannot_be_encoded_is_named_by_its_path(settings: Settings) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with tailrace.open(**settings) as session:
        for tree, path in [
            ({"a": [0, {"b": Custom()}]}, "the tree['a'][1]['b'] is a "),
            ({"a": np.array([object()])}, "the array 'a'"),
            ({"a": np.ma.masked_array([1, 2], [False, True])}, "the array 'a': a masked array"),
            (loop, "contains itself"),
        ]:
            with pytest.raises(tailrace.Error, match="nothing was saved") as refused:
                session.save(1, tree)
            assert refused.value.code is tailrace.Code.INVALID_ARGUMENT and path in str(refused.value)
            assert refused.value.intact == "nothing was saved"
        assert session.list() == []


def test_pickle_runs_only_for_who_asks_twice(settings: Settings) -> None:
    import builtins

    with tailrace.open(**settings) as session:
        session.save(1, {"c": Custom(), "u": np.ones(3)}, pickle=True)
        with pytest.raises(tailrace.Error, match="trust_pickle"):
            session.restore_latest(into={"c": None, "u": np.zeros(3)})
    checkpoint = tailrace.read(settings["shared_dir"])
    assert np.array_equal(checkpoint["u"], np.ones(3))
    with pytest.raises(tailrace.Error, match="trust_pickle"):
        checkpoint.tree()
    assert not hasattr(builtins, "tailrace_test_ran")
    checkpoint.tree(trust_pickle=True)
    assert builtins.__dict__.pop("tailrace_test_ran")


def test_another_models_state_is_listed_and_nothing_is_changed(settings: Settings) -> None:
    saved = {"same": np.ones(3), "shape": np.ones((2, 3)), "type": np.ones(2), "gone": np.ones(1), "plain": 1}
    mine = {
        "same": np.zeros(3),
        "shape": np.zeros((3, 2)),
        "type": np.zeros(2, "f4"),
        "new": np.zeros(1),
        "plain": 2,
    }
    with tailrace.open(**settings) as session:
        session.save(1, saved)
        with pytest.raises(tailrace.Error) as refused:
            session.restore_latest(into=mine)
        assert refused.value.code is tailrace.Code.INVALID_ARGUMENT
        assert refused.value.intact == "nothing was changed"
    text = str(refused.value)
    for part in [
        "'shape'] has shape (2, 3) in the checkpoint, and (3, 2) here",
        "'type'] is of float64",
        "'gone']",
        "'new']",
    ]:
        assert part in text
    assert "['same']" not in text and not mine["same"].any() and mine["plain"] == 2


def test_a_plain_value_in_a_tuple_has_to_be_the_one_that_was_saved(settings: Settings) -> None:
    with tailrace.open(**settings) as session:
        session.save(1, {"pair": (1, np.ones(2))})
        with pytest.raises(tailrace.Error, match=r"\['pair'\]\[0\] is in a tuple, so it cannot be set"):
            session.restore_latest(into={"pair": (2, np.zeros(2))})
        state = {"pair": (1, np.zeros(2))}
        assert session.restore_latest(into=state) == 1 and state["pair"][1].all()


def test_plain_values_are_taken_as_saved(settings: Settings) -> None:
    with tailrace.open(**settings) as session:
        session.save(1, {"u": np.ones(2), "meta": {"epoch": 7, "new": [1, 2]}})
        state = {"u": np.zeros(2), "meta": {"epoch": 0}}
        assert session.restore_latest(into=state) == 1
    assert state["meta"] == {"epoch": 7, "new": [1, 2]} and state["u"].all()


def damage(file: Path, find: bytes) -> None:
    data = bytearray(file.read_bytes())
    at = data.index(find)
    data[at] ^= 1
    file.write_bytes(data)


def test_damage_is_found_and_an_older_epoch_serves(settings: Settings) -> None:
    with tailrace.open(**settings) as session:
        for step in (1, 2):
            session.save(step, {"u": np.full(1000, step, np.int64), "step": step})
    newest = sorted(settings["shared_dir"].iterdir())[-1]
    damage(newest, np.full(4, 2, np.int64).tobytes())
    with pytest.raises(tailrace.Error) as found:
        tailrace.read(settings["shared_dir"])["u"].load()
    assert found.value.code is tailrace.Code.CORRUPT
    assert found.value.path is not None and Path(found.value.path) == newest
    state = {"u": np.zeros(1000, np.int64), "step": 0}
    with (
        tailrace.open(**{**settings, "local_dir": settings["local_dir"] / "other", "keep_shared": 2}) as session,
        pytest.warns(RuntimeWarning, match="epoch 1 is opened in place of damaged ones: epoch 2"),
    ):
        assert session.restore_latest(into=state) == 1
        assert state["step"] == 1 and (state["u"] == 1).all()
        # Retention has heard of the damage. So epoch 2 is not one of the two that keep_shared keeps.
        session.save(3, {"u": np.full(1000, 3, np.int64), "step": 3})
        session.wait(3)
        session.restore(1, into=state)
    assert state["step"] == 1


def test_what_is_wrong_with_the_program_leads_to_no_older_epoch(settings: Settings) -> None:
    class Stubborn(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            raise KeyboardInterrupt

    with tailrace.open(**settings) as session:
        for step in (1, 2):
            session.save(step, {"u": np.full(1000, step, np.int64)})
            session.wait(step)
        with pytest.raises(KeyboardInterrupt):
            session.restore_latest(into=Stubborn(u=np.zeros(1000, np.int64)))
        state = {"u": np.zeros(1000, np.int64)}
        assert session.restore_latest(into=state) == 2 and (state["u"] == 2).all()


def test_hostile_trees_are_corrupt_and_run_nothing(settings: Settings) -> None:
    from tailrace import _tree

    for text in [
        b"", b"[]", b'{"tailrace":2,"tree":0}', b'{"tailrace":1}', b'{"tailrace":1,"tree":{"$":"os.system","v":"x"}}',
        b'{"tailrace":1,"tree":{"$":"float","v":"1e5"}}', b'{"tailrace":1,"tree":{"$":"torch.dtype","v":"load"}}',
        b'{"tailrace":1,"tree":{"$":"scalar","dtype":"|O","v":"00"}}', b'{"tailrace":1,"tree":{"$":"tuple","v":5}}',
        b'{"tailrace":1,"tree":{"$":"scalar","dtype":"float64","v":"zz"}}', b"[" * 100000,
        b'{"tailrace":1,"tree":{"$":"torch.device","v":"nonsense"}}', b'{"tailrace":1,"tree":{"$":"complex","v":[]}}',
        b'{"tailrace":1,"tree":{"$":"complex","v":[1%s,0]}}' % (b"0" * 400),
    ]:  # fmt: skip
        with pytest.raises(tailrace.Error) as refused:
            _tree.decode(_tree.parse(text), lambda ref: None)
        assert refused.value.code is tailrace.Code.CORRUPT, text


ARRAY = b'{"$":"array","region":"a","kind":"torch","dtype":"uint8","shape":[8]}'


@pytest.mark.parametrize(
    "node",
    [
        b'{"$":"dict"}',
        b'{"$":"dict","v":5}',
        b'{"$":"dict","v":[[[],1]]}',
        b'{"$":"ordered","v":[[%s,1]]}' % ARRAY,
        b"[" * 600 + b"]" * 600,
        b'{"a":{"$":"view","v":%s}}' % ARRAY,
        b'{"a":{"$":"view","v":%s,"dtype":"uint8","offset":0,"shape":8,"stride":[1]}}' % ARRAY,
        b'{"a":{"$":"view","v":%s,"dtype":"uint8","offset":1,"shape":[8],"stride":[1]}}' % ARRAY,
        b'{"a":{"$":"view","v":%s,"dtype":"uint8","offset":"0","shape":[8],"stride":[1]}}' % ARRAY,
    ],
)
def test_hostile_trees_are_not_restored(node: bytes, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from tailrace import _tree

    saved = b'{"tailrace":1,"tree":%s}' % node, {"a": np.ones(8, np.uint8)}
    live = {"a": torch.zeros(8, dtype=torch.uint8)}
    with tailrace.open(**settings) as session:
        with monkeypatch.context() as patch:
            patch.setattr(_tree, "encode", lambda *given: saved)
            session.save(1, {})
        with pytest.raises(tailrace.Error) as refused:
            session.restore(1, live)
    assert refused.value.code is tailrace.Code.CORRUPT and not live["a"].any()


def test_what_the_reader_of_an_array_raises_is_no_corruption() -> None:
    from tailrace import _tree

    def fail(ref: object) -> None:
        raise RuntimeError("no memory left")

    with pytest.raises(RuntimeError, match="no memory left"):
        _tree.decode(_tree.parse(b'{"tailrace":1,"tree":[%s]}' % ARRAY), fail)


def test_objects_of_a_library_that_is_missing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailrace import _tree

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(tailrace.Error, match="torch") as refused:
        _tree.decode({"$": "torch.Size", "v": [1]}, lambda ref: None)
    assert refused.value.code is tailrace.Code.UNSUPPORTED


def test_settings_are_checked_by_the_core(settings: Settings) -> None:
    with pytest.raises(tailrace.Error, match="files") as refused:
        tailrace.open(**settings, flies=2)
    assert refused.value.code is tailrace.Code.INVALID_ARGUMENT
    with tailrace.open(**settings, checksum=False, files=2) as session:
        assert session.setting("checksum") == "no" and session.setting("files") == "2"
        with pytest.raises(tailrace.Error) as busy:
            tailrace.open(**settings)
        assert busy.value.code is tailrace.Code.BUSY
    with pytest.raises(tailrace.Error) as closed:
        session.save(1, {})
    assert closed.value.code is tailrace.Code.FAILED_STATE and "this session has been closed" in str(closed.value)
    for call in (session.wait, session.list, lambda: session.state(1), lambda: session.restore_latest(into={})):
        with pytest.raises(tailrace.Error, match="this session has been closed"):
            call()


def test_an_error_says_where_and_what_is_intact(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(tailrace.Error) as refused:
        tailrace.open(shared_dir=blocked / "below", local_dir=tmp_path / "local")
    assert refused.value.path is not None and refused.value.path.startswith(str(blocked))
    error = tailrace.Error(
        tailrace.Code.IO_ERROR,
        "writing 4096 bytes at offset 512 of '/a b/c': No space; earlier epochs are intact",
    )
    assert (error.path, error.offset, error.intact) == ("/a b/c", 512, "earlier epochs are intact")
    error = tailrace.Error(
        tailrace.Code.IO_ERROR,
        "epoch 0 of run 1 was not committed; earlier epochs are intact: syncing '/a b/c.d': Input/output error",
    )
    assert (error.path, error.intact) == ("/a b/c.d", "earlier epochs are intact")


def test_other_threads_run_while_a_call_copies_and_waits(settings: Settings) -> None:
    # A thread that counts makes progress inside save and close: it could not if they held the GIL.
    state = {"u": np.ones(60_000_000 // 8)}
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    with tailrace.open(**settings, bandwidth_cap="200MiB") as session:
        thread.start()
        session.save(1, state)
        before = counted
        session.wait()
        within = counted - before
    stop.set()
    thread.join()
    assert within > 100


@pytest.mark.parametrize(
    ("array", "global_shape", "offset"),
    [
        (np.ones(3), (4, 4), (0, 0)),
        (np.ones((2, 2)), (4,), (1, 1)),
        (np.ones((2, 2)), (4, 4), (1,)),
        (np.ones((1, 1, 1)), (2, 2, 2), ()),
        (np.ones(1), (4,), (-1,)),
        (np.ones(1), (1 << 64,), (0,)),
        (np.ones(3), (4,), (2,)),  # beyond the end
    ],
)
def test_a_shard_that_fits_no_array_is_refused(
    array: Any, global_shape: tuple[int, ...], offset: tuple[int, ...], settings: Settings
) -> None:
    with tailrace.open(**settings) as session:
        with pytest.raises(tailrace.Error, match="array") as caught:
            session.save(1, {"x": tailrace.Shard(array, global_shape, offset)})
        assert caught.value.code is tailrace.Code.INVALID_ARGUMENT
        session.save(2, {"x": np.ones(1)})


def test_an_error_about_a_path_that_is_no_text_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "\udcff"
    blocked.touch()
    monkeypatch.setenv("TAILRACE_SHARED_DIR", str(blocked))
    with pytest.raises(tailrace.Error):
        tailrace.open(local_dir=tmp_path)


def test_a_shard_is_placed_by_any_integers(settings: Settings) -> None:
    numbers: Any = np.array([4])
    with tailrace.open(**settings) as session:
        session.save(1, {"x": tailrace.Shard(np.arange(4), numbers, numbers - 4)})
        target = tailrace.Shard(np.zeros(4, np.int64), [np.int64(4)], [0])
        session.restore(1, {"x": target})
    assert target.array.tolist() == [0, 1, 2, 3]
    for place in (4, [4.0], None, "4"):
        with pytest.raises(tailrace.Error, match="sequences of integers"):
            tailrace.Shard(np.arange(4), place, [0])  # type: ignore[arg-type]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_halo_is_neither_saved_nor_restored(library: str, settings: Settings) -> None:
    whole = np.arange(6.0 * 5).reshape(6, 5)
    grid: Any = np.full((10, 6), -1.0)
    grid[2:8, 1:6] = whole
    other: Any = np.full((9, 5), 7.0)
    if library == "torch":
        torch = pytest.importorskip("torch", reason="torch is not installed")
        grid, other = torch.from_numpy(grid), torch.from_numpy(other)
    with tailrace.open(**settings) as session:
        session.save(1, {"u": tailrace.Shard(grid, whole.shape, (0, 0), halo=[2, (1, 0)])})
        assert np.array_equal(session.read()["u"][:], whole)
        part = tailrace.Shard(other, whole.shape, (1, 2), halo=((2, 2), 1))
        session.restore(1, {"u": part})
    assert np.array_equal(np.asarray(part.own), whole[1:6, 2:5])
    around = np.asarray(other).copy()
    around[2:7, 1:4] = 7.0
    assert (around == 7.0).all()
    for halo in (-1, 5, [1], [(1, 2, 3), 0], "2", [1.5, 1]):
        with pytest.raises(tailrace.Error, match="halo"):
            tailrace.Shard(grid, whole.shape, (0, 0), halo=halo)  # type: ignore[arg-type]


@pytest.mark.parametrize("view", ["transposed", "every other", "backwards", "broadcast"])
def test_arrays_whose_elements_lie_apart_are_saved_as_they_are(view: str, settings: Settings) -> None:
    base = np.arange(24 * 30, dtype=np.float32).reshape(24, 30)
    views = {
        "transposed": base.T,
        "every other": base[1::2, ::3],
        "backwards": base[::-1],
        "broadcast": np.broadcast_to(base[0], (4, 30)),
    }
    array = views[view]
    leaf = tailrace._leaves.to_save(array, apart=True)
    assert (leaf.owner is array) is (view in ("transposed", "every other")), "those need no copy"
    with tailrace.open(**settings) as session:
        session.save(1, {"x": array})
        assert np.array_equal(session.read()["x"][:], array)


def test_records_are_restored_in_place(settings: Settings) -> None:
    record = np.dtype([("position", "f8", 3), ("kind", "i4"), ("of", [("a", ">u2"), ("b", "S5")])])
    array = np.zeros(5, record)
    array["kind"], array["of"]["a"], array["of"]["b"] = np.arange(5), np.arange(5) * 300, b"name"
    into = np.zeros(5, record)
    with tailrace.open(**settings) as session:
        session.save(1, {"x": array})
        session.restore(1, {"x": into})
        assert np.array_equal(into, array)
        with pytest.raises(tailrace.Error, match=r"is of .* in the checkpoint, and of"):
            session.restore(1, {"x": np.zeros(5, record.descr[:2])})


def test_what_is_declared_of_a_shard_is_saved_with_it(settings: Settings) -> None:
    with tailrace.open(**settings) as session:
        session.save(
            1,
            {
                "gaps": tailrace.Shard(np.arange(4), [9], [2], gaps=True),
                "overlap": tailrace.Shard(np.arange(4), [4], [0], overlap=True),
                "plain": tailrace.Shard(np.arange(4), [4], [0]),
            },
        )
        regions = {name: piece for name, _, piece in session.read()._reader.regions(0) if piece is not None}
    assert {name: piece[4] for name, piece in regions.items()} == {"gaps": 1, "overlap": 2, "plain": 0}


def test_directories_may_be_bytes(tmp_path: Path) -> None:
    with tailrace.open(shared_dir=os.fsencode(tmp_path / "s"), local_dir=tmp_path / "l") as session:  # type: ignore[arg-type]
        assert session.setting("shared_dir") == str(tmp_path / "s")


def test_parts_that_are_no_json_are_an_error(settings: Settings) -> None:
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]})
    with tailrace.open(**settings) as session:
        for value in (slice(object(), None), 10**5000, np.zeros(2, overlapping)):
            with pytest.raises(tailrace.Error, match=r"no safe encoding: .*nothing was saved"):
                session.save(1, {"x": value})


class _Slow:
    def __reduce__(self) -> tuple[type, tuple[()]]:
        time.sleep(0.2)
        return (dict, ())


def test_blocked_seconds_have_what_python_did_before_the_copy(settings: Settings) -> None:
    with tailrace.open(**settings) as session:
        session.save(1, {"slow": _Slow()}, pickle=True)
        assert session.state(1).blocked_seconds >= 0.2
