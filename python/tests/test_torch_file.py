"""tailrace.torch.save and load: as torch.save and torch.load for state dicts, and safer."""

from __future__ import annotations

import collections
import os
import re
import resource
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import tailrace
import tailrace.torch
from tailrace import _core
from tailrace.torch import _durable


def test_a_file_for_others_that_does_not_fit_leaves_the_older_one_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"older")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(tailrace.Error, match=r"writing '.*model\.pt': File too large; what was there is intact"):
            _durable.replace(str(path), lambda file: torch.save(torch.ones(1 << 20), file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(TypeError):
        _durable.replace(str(path), lambda file: file.write("text"))  # type: ignore[arg-type]
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"] and path.read_bytes() == b"older"


def test_a_state_dict_comes_back_as_torch_would_give_it(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(3, 30)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    torch.save(state, tmp_path / "torch.pt")
    tailrace.torch.save(state, tmp_path / "ours")
    ours, theirs = tailrace.torch.load(tmp_path / "ours"), torch.load(tmp_path / "torch.pt", weights_only=True)
    assert type(ours["model"]) is collections.OrderedDict and ours["model"]._metadata == theirs["model"]._metadata
    assert str(ours) == str(theirs)
    for key, tensor in theirs["model"].items():
        assert torch.equal(ours["model"][key], tensor)
    model.load_state_dict(ours["model"])
    optimizer.load_state_dict(ours["optimizer"])
    assert sorted(os.listdir(tmp_path)) == ["ours", "torch.pt"]  # nothing else is left
    assert str(tailrace.torch.load(tmp_path / "torch.pt")) == str(theirs)  # reads torch's files too
    assert tailrace.read(tmp_path / "ours")["model/0.weight"][3:5].shape == (2, 30)


def test_shared_storages_stay_shared(tmp_path: Path) -> None:
    base = torch.arange(1000.0)
    state = {
        "whole": base,
        "row": base[100:200],
        "matrix": base.view(10, 100).t(),
        "bits": base.view(torch.int32)[::7],
        "tied": [base.detach(), base[100:200].detach()],
        "alone": torch.arange(1e6)[5:8],
    }
    tailrace.torch.save(state, tmp_path / "f")
    assert (tmp_path / "f").stat().st_size < 100_000  # the storage once, and of the last only what is seen of it
    loaded = tailrace.torch.load(tmp_path / "f")
    for key in ("whole", "row", "matrix", "bits", "alone"):
        assert torch.equal(loaded[key], state[key]) and loaded[key].stride() == state[key].stride(), key
    loaded["whole"][100] = -1
    assert loaded["row"][0] == -1 and loaded["matrix"][0, 1] == -1 and loaded["tied"][1][0] == -1


def test_storages_of_two_lengths_may_begin_at_one_address(tmp_path: Path) -> None:
    memory = torch.arange(100.0).numpy()
    saved = {"short": torch.from_numpy(memory[:10]), "long": torch.from_numpy(memory)}
    tailrace.torch.save(saved, tmp_path / "f")
    loaded = tailrace.torch.load(tmp_path / "f")
    assert all(torch.equal(loaded[name], saved[name]) for name in saved)


def test_views_that_do_not_fit_their_storage_are_corrupt() -> None:
    from tailrace import _tree

    base = torch.zeros(64, dtype=torch.uint8)
    node = {"$": "array", "region": "b", "kind": "torch", "dtype": "uint8", "shape": [64]}
    good = {"$": "view", "v": node, "dtype": "float32", "offset": 1, "shape": [3, 5], "stride": [5, 1]}
    assert _tree.decode(good, lambda ref: base).shape == (3, 5)
    for change in [
        {"offset": 2},
        {"offset": -1},
        {"stride": [5, 2]},
        {"shape": [3]},
        {"dtype": "load"},
        {"shape": "x"},
        {"shape": [1 << 40, 1 << 40], "stride": [0, 0]},
    ]:
        with pytest.raises(tailrace.Error) as refused:
            _tree.decode({**good, **change}, lambda ref: base)
        assert refused.value.code is tailrace.Code.CORRUPT, change
    assert base.untyped_storage().nbytes() == 64


class Custom:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom)

    __hash__ = None  # type: ignore[assignment]


def test_pickled_objects_load_only_without_weights_only(tmp_path: Path) -> None:
    with pytest.raises(tailrace.Error, match=r"the tree\['c'\]"):
        tailrace.torch.save({"c": Custom()}, tmp_path / "f")
    tailrace.torch.save({"c": Custom()}, tmp_path / "f", pickle=True)
    with pytest.raises(tailrace.Error, match="weights_only=False"):
        tailrace.torch.load(tmp_path / "f")
    assert tailrace.torch.load(tmp_path / "f", weights_only=False) == {"c": Custom()}


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    tailrace.torch.save({"w": torch.ones(5)}, path)
    with pytest.raises(tailrace.Error):
        tailrace.torch.save({"w": torch.ones(5).to_sparse()}, path)
    assert tailrace.torch.load(path)["w"].sum() == 5
    code = f"""
import os, torch, tailrace.torch
from tailrace import _core
real = _core.write_runs
def die(*arguments):
    real(*arguments)
    os._exit(9)
_core.write_runs = die
tailrace.torch.save({{"w": torch.zeros(5)}}, {str(path)!r})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert tailrace.torch.load(path)["w"].sum() == 5
    tailrace.torch.save({"w": torch.full((5,), 2.0)}, path)
    assert tailrace.torch.load(path)["w"].sum() == 10
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_save_takes_nothing_from_another_of_the_same_path(
    committed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    begun, goes_on = threading.Event(), threading.Event()
    write_runs = _core.write_runs

    def second() -> None:
        tailrace.torch.save({"w": torch.full((5,), 2.0)}, path)

    other = threading.Thread(target=second)

    def write(*given: Any) -> Any:
        if threading.current_thread() is other:  # its files are made
            begun.set()
            goes_on.wait()
        else:
            with pytest.raises(tailrace.Error) as busy:
                second()
            assert busy.value.code is tailrace.Code.BUSY
            if not committed:
                raise tailrace.Error(tailrace.Code.IO_ERROR, "the test's own failure")
        return write_runs(*given)

    class Epoch:
        """As another process would, the second save begins at the moment that it can."""

        def __init__(self, *given: Any) -> None:
            self._epoch = real(*given)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._epoch, name)

        def close(self) -> None:
            self._epoch.close()
            if threading.current_thread() is not other:
                other.start()
                begun.wait()

    real = _core.DirectEpoch
    monkeypatch.setattr(_core, "DirectEpoch", Epoch)
    monkeypatch.setattr(_core, "write_runs", write)
    try:
        tailrace.torch.save({"w": torch.ones(5)}, path)
    except tailrace.Error as error:
        assert not committed and "the test's own failure" in str(error)
    goes_on.set()
    other.join()
    assert tailrace.torch.load(path)["w"].tolist() == [2.0] * 5
    assert os.listdir(tmp_path) == ["f"]


def refuse_what_has_no_memory(place: str) -> None:
    whole = init_device_mesh("cpu", (1,))
    strange = {
        "DTensor .*tailrace.torch.StorageWriter": distribute_tensor(torch.arange(6.0), whole, [Shard(0)]),
        "DTensor": distribute_tensor(torch.empty(0, 3), whole, [Shard(0)]),
        "device meta": torch.ones(3, device="meta"),
        "sparse_coo": torch.ones(3).to_sparse(),
    }
    with tailrace.open(shared_dir=f"{place}/shared", local_dir=f"{place}/local") as session:
        for said, tensor in strange.items():
            state = {"w": [torch.ones(2), tensor]}
            for save in (
                lambda state=state: tailrace.torch.save(state, f"{place}/f"),
                lambda state=state: session.save(1, state),
            ):
                with pytest.raises(tailrace.Error, match=f"tensor 'w/1': .*({said})") as refused:
                    save()
                assert refused.value.code is tailrace.Code.INVALID_ARGUMENT
                assert refused.value.intact == "nothing was saved"
        session.save(1, {"w": torch.zeros(6)})
        with pytest.raises(tailrace.Error, match=r"\['w'\]: a DTensor .*StorageReader"):
            session.restore(1, {"w": next(iter(strange.values()))})


def test_tensors_without_memory_of_their_own_are_refused_by_name(tmp_path: Path) -> None:
    distributed.run(1, refuse_what_has_no_memory, str(tmp_path))


def test_damage_and_absence_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with pytest.raises(tailrace.Error) as missing:
        tailrace.torch.load(path)
    assert missing.value.code is tailrace.Code.NOT_FOUND and missing.value.path == str(path)
    tailrace.torch.save({"w": torch.full((500,), 77, dtype=torch.int64)}, path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(tailrace.Error) as cut:
        tailrace.torch.load(path)
    assert cut.value.code is tailrace.Code.CORRUPT
    at = data.index(b"\x4d\0\0\0\0\0\0\0" * 4)
    path.write_bytes(data[:at] + b"\x4c" + data[at + 1 :])
    with pytest.raises(tailrace.Error) as flipped:
        tailrace.torch.load(path)
    assert flipped.value.code is tailrace.Code.CORRUPT and flipped.value.offset is not None


def test_a_directory_is_refused_with_what_loads_it(tmp_path: Path) -> None:
    with pytest.raises(tailrace.Error, match=r"is a directory.*tailrace\.read.*StorageReader") as refused:
        tailrace.torch.load(tmp_path)
    assert refused.value.code is tailrace.Code.INVALID_ARGUMENT and refused.value.path == str(tmp_path)


def test_tensors_go_to_the_device_that_is_asked_for(tmp_path: Path) -> None:
    state: dict[str, Any] = {"a": torch.ones(3), "n": 1}
    tailrace.torch.save(state, tmp_path / "f")
    assert tailrace.torch.load(tmp_path / "f", map_location="meta")["a"].is_meta


def test_tensors_are_loaded_into_memory_whatever_the_default_device(tmp_path: Path) -> None:
    base = torch.arange(8.0)
    tailrace.torch.save({"a": torch.ones(3), "v": [base, base[2:4]]}, tmp_path / "f")
    live = {"a": torch.zeros(3, 2)[:, 1], "v": [torch.zeros(8), torch.zeros(2)]}
    with torch.device("meta"):
        made = tailrace.torch.load(tmp_path / "f")
        lazy = tailrace.read(tmp_path / "f")["a"].load()
        tailrace.torch.load(tmp_path / "f", into=live)
    for state in (made, live):
        assert state["a"].tolist() == [1, 1, 1] and state["v"][1].tolist() == [2, 3]
    assert lazy.tolist() == [1, 1, 1]


def test_what_is_no_path_or_no_device_is_refused(tmp_path: Path) -> None:
    state, place = {"a": torch.ones(3)}, tmp_path / "f"
    tailrace.torch.save(state, place)
    for call in (
        lambda: tailrace.torch.save(state, 5),  # type: ignore[arg-type]
        lambda: tailrace.torch.load(5),  # type: ignore[arg-type]
        lambda: tailrace.torch.load(place, map_location={"cpu": "nowhere"}),
        lambda: tailrace.torch.load(place, map_location="nowhere"),
    ):
        with pytest.raises(tailrace.Error, match=r"a int is given|map_location is .*not one device") as refused:
            call()
        assert refused.value.code is tailrace.Code.INVALID_ARGUMENT


# ---- into live tensors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [tailrace.torch.save, torch.save])
def test_a_live_state_is_filled_in_place(tmp_path: Path, save: Any) -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40))
    saved = {"model": model.state_dict(), "rates": [1e-3, {"step": 7}], "tied": [torch.rand(9), torch.rand(4).half()]}
    save(saved, tmp_path / "f")
    torch.manual_seed(2)
    other = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40))
    across = torch.zeros(4, 2, dtype=torch.float16)[:, 1]
    live = {"model": other.state_dict(), "rates": [0.0, {}], "tied": [torch.zeros(9), across]}
    assert tailrace.torch.load(tmp_path / "f", into=live) is live
    assert live["rates"] == saved["rates"]
    for name, parameter in other.state_dict().items():  # the model's own memory
        assert torch.equal(parameter, saved["model"][name]), name
    assert torch.equal(live["tied"][0], saved["tied"][0]) and torch.equal(across, saved["tied"][1])


def test_what_lies_beside_the_views_that_are_filled_stays(tmp_path: Path) -> None:
    base = torch.arange(100.0)
    tailrace.torch.save({"a": base[:10], "b": base[10:20]}, tmp_path / "f")
    mine = torch.full((100,), -1.0)
    tailrace.torch.load(tmp_path / "f", into={"a": mine[:10], "b": mine[10:20]})
    assert torch.equal(mine[:20], base[:20]) and bool((mine[20:] == -1).all())


@pytest.mark.parametrize("same_views", [True, False])
def test_views_are_filled_whether_or_not_the_live_ones_share_a_storage(tmp_path: Path, same_views: bool) -> None:
    base = torch.arange(1000.0)
    tailrace.torch.save({"row": base[100:200], "matrix": base.view(10, 100).t()}, tmp_path / "f")
    zeros = torch.zeros(1000)
    other = zeros if same_views else torch.zeros(1000)
    live = {"row": zeros[100:200], "matrix": other.view(10, 100).t()}
    tailrace.torch.load(tmp_path / "f", into=live)
    assert torch.equal(live["row"], base[100:200]) and torch.equal(live["matrix"], base.view(10, 100).t())


@pytest.mark.parametrize("save", [tailrace.torch.save, torch.save])
def test_a_state_of_another_model_is_refused_with_every_difference(tmp_path: Path, save: Any) -> None:
    base = torch.rand(6)
    save({"a": torch.rand(3), "b": torch.rand(4), "c": torch.rand(5), "v": [base, base[1:3]], "n": 1}, tmp_path / "f")
    live = {"a": torch.zeros(3), "b": torch.zeros(5), "c": torch.zeros(5).int(), "d": torch.zeros(1)}
    live |= {"v": [torch.zeros(6), torch.zeros(3)], "n": 0}
    with pytest.raises(tailrace.Error) as refused:
        tailrace.torch.load(tmp_path / "f", into=live)
    assert refused.value.code is tailrace.Code.INVALID_ARGUMENT
    for said in ("['b'] has shape (4,)", "['c'] is of float32", "['d'] is not in", "['v'][1] has shape (2,)"):
        assert said in str(refused.value), str(refused.value)
    assert "['a']" not in str(refused.value) and str(tmp_path / "f") in str(refused.value)
    assert live["n"] == 0 and not any(live["a"]) and not any(live["v"][0])
    with pytest.raises(tailrace.Error, match="map_location"):
        tailrace.torch.load(tmp_path / "f", into=live, map_location="cpu")


@pytest.mark.parametrize("save", [tailrace.torch.save, torch.save])
def test_tensors_without_memory_cannot_be_filled(tmp_path: Path, save: Any) -> None:
    base = torch.ones(6)
    save({"w": [torch.ones(3), base, base[:3]], "n": 1}, tmp_path / "f")
    gone = torch.zeros(3)
    gone.untyped_storage().resize_(0)
    for said, tensor in {
        "device meta has no memory to fill": torch.zeros(3, device="meta"),
        "device cpu has no memory to fill": gone,
        "layout torch.sparse_coo has no plain memory to fill": torch.zeros(3).to_sparse(),
    }.items():
        for live in ([tensor, torch.zeros(6), torch.zeros(3)], [torch.zeros(3), torch.zeros(6), tensor]):
            with pytest.raises(tailrace.Error, match=said) as refused:
                tailrace.torch.load(tmp_path / "f", into={"w": live, "n": 0})
            assert refused.value.code is tailrace.Code.INVALID_ARGUMENT and not live[1].any()


@pytest.mark.filterwarnings("ignore")
def test_what_a_torch_file_cannot_fill_is_told_before_anything_is_filled(tmp_path: Path) -> None:
    plain = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantized tensors will be gone some day
        quantized = torch.quantize_per_tensor(plain, 0.1, 0, torch.qint8)
    nested = torch.nested.nested_tensor([plain, plain])
    for number, (said, saved, live) in enumerate(
        [
            ("in the checkpoint: a tensor of layout torch.sparse_coo", plain.to_sparse(), torch.zeros(3)),
            ("in the checkpoint: a tensor of layout torch.sparse_csr", torch.eye(3).to_sparse_csr(), torch.zeros(3, 3)),
            ("a tensor of layout torch.sparse_coo has no plain memory", plain, plain.to_sparse()),
            ("in the checkpoint: a quantized tensor", quantized, quantized.clone()),
            ("is of qint8 in the checkpoint", quantized, torch.zeros(3)),
            ("in the checkpoint: a Tensor on device meta", plain.to("meta"), torch.zeros(3)),
            ("a nested tensor cannot be filled", plain, nested),
        ]
    ):
        path = tmp_path / str(number)
        torch.save({"a": plain, "b": plain, "x": saved, "z": plain, "n": 1, "more": plain}, path)
        state = {"a": torch.zeros(3), "b": torch.zeros(4), "x": live, "z": torch.zeros(3), "n": 0}
        with pytest.raises(tailrace.Error, match=re.escape(f"{path}' does not belong to this state")) as refused:
            tailrace.torch.load(path, into=state)
        for part in (said, "['b'] has shape (3,)", "['more'] is in the checkpoint only"):
            assert part in str(refused.value), (said, str(refused.value))
        assert refused.value.code is tailrace.Code.INVALID_ARGUMENT
        assert state["n"] == 0 and not any(state[name].any() for name in "abz"), said


@pytest.mark.parametrize("save", [tailrace.torch.save, torch.save])
def test_tensors_and_arrays_of_one_type_fill_each_other(tmp_path: Path, save: Any) -> None:
    saved = {"t": torch.nn.Parameter(torch.arange(6.0).view(2, 3)), "n": np.arange(6, dtype=np.float32).reshape(2, 3)}
    save(saved, tmp_path / "f")
    live = {"t": np.zeros((2, 3), np.float32), "n": torch.zeros(3, 2).t()}
    tailrace.torch.load(tmp_path / "f", into=live, weights_only=save is tailrace.torch.save)
    assert live["t"].tolist() == live["n"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_quantized_elements_in_a_file_are_refused() -> None:
    from tailrace import _tree

    node = {"$": "array", "region": "b", "kind": "torch", "dtype": "qint8", "shape": [64]}
    with pytest.raises(tailrace.Error, match="qint8") as refused:
        _tree.decode(node, lambda ref: ref.empty())
    assert refused.value.code is tailrace.Code.UNSUPPORTED
    view = {"$": "view", "v": {**node, "dtype": "uint8"}, "dtype": "quint8", "offset": 0, "shape": [4], "stride": [1]}
    with pytest.raises(tailrace.Error) as refused:
        _tree.decode(view, lambda ref: ref.empty())
    assert refused.value.code is tailrace.Code.CORRUPT


def test_arrays_are_filled_from_views_of_tensors(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    tailrace.torch.save({"a": base, "b": base[2:4]}, tmp_path / "f")
    live = {"a": np.zeros(6, np.float32), "b": np.zeros(2, np.float32)}
    tailrace.torch.load(tmp_path / "f", into=live)
    assert live["a"].tolist() == base.tolist() and live["b"].tolist() == [2, 3]


FILLED = """
import sys, threading
import torch, tailrace.torch

def own():  # memory that no file backs
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

across = sys.argv[2] == "across"
def tensor(i):
    made = torch.zeros(1 << 10, 2 << 10)
    return made.t() if across else made
live = {str(i): tensor(i) for i in range(40)}
for part in live.values():
    part += 1  # all of it is there
before, most, over = own(), [0], threading.Event()
def watch():
    while not over.wait(0.002):
        most[0] = max(most[0], own() - before)
watcher = threading.Thread(target=watch)
watcher.start()
try:
    tailrace.torch.load(sys.argv[1], into=live)
finally:
    over.set()
watcher.join()
assert all(float(part.min()) == float(part.max()) == int(i) for i, part in live.items())
print(most[0] >> 10)
"""


@pytest.mark.parametrize("layout", ["straight", "across"])
def test_filling_takes_bounded_memory(tmp_path: Path, layout: str) -> None:
    shape = (2 << 10, 1 << 10) if layout == "across" else (1 << 10, 2 << 10)
    tailrace.torch.save({str(i): torch.full(shape, float(i)) for i in range(40)}, tmp_path / "f")  # 320 MiB
    done = subprocess.run(
        [sys.executable, "-c", FILLED, tmp_path / "f", layout], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 64, done.stdout


def test_a_tensor_whose_elements_are_one_cannot_be_filled(tmp_path: Path) -> None:
    tailrace.torch.save({name: torch.ones(3) for name in "abc"}, tmp_path / "f")
    live = {"a": torch.zeros(3), "b": torch.zeros(1).expand(3), "c": torch.zeros(3)}
    with pytest.raises(tailrace.Error, match=r"\['b'\]: a tensor whose elements are the same memory"):
        tailrace.torch.load(tmp_path / "f", into=live)
    assert not any(tensor.any() for tensor in live.values())


def test_tensors_that_the_format_cannot_hold_are_refused(tmp_path: Path) -> None:
    parts = [torch.ones(2), torch.ones(3)]
    for layout in (torch.strided, torch.jagged):
        with pytest.raises(tailrace.Error, match=r"\['w'\] is a nested tensor.*nothing was saved"):
            tailrace.torch.save({"w": torch.nested.nested_tensor(parts, layout=layout)}, tmp_path / "f")
    cut = torch.zeros(1 << 16)
    cut.untyped_storage().resize_(8)
    with pytest.raises(tailrace.Error, match="'w': a Tensor on device cpu has no memory"):
        tailrace.torch.save({"w": cut}, tmp_path / "f")


def test_a_device_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    tailrace.torch.save({"w": torch.ones(3)}, tmp_path / "f")
    with pytest.raises(tailrace.Error, match=r"region 'w', of shape \(3,\), on cuda:99: .*nothing was read"):
        tailrace.torch.load(tmp_path / "f", map_location="cuda:99")


def test_a_link_is_followed_as_torch_follows_it(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    real, link, second = tmp_path / "disk" / "model", tmp_path / "link", tmp_path / "second"
    link.symlink_to("disk/model")  # nothing is there yet
    second.symlink_to("link")
    for number, path in enumerate((link, second, real)):
        tailrace.torch.save({"n": number}, path)
        assert link.is_symlink() and second.is_symlink() and not real.is_symlink()
        assert tailrace.torch.load(real) == tailrace.torch.load(second) == {"n": number}
    assert os.listdir(tmp_path / "disk") == ["model"]
    assert sorted(os.listdir(tmp_path)) == ["disk", "link", "second"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "to_directory").symlink_to("directory")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "taken.unfinished").symlink_to("directory")
    before = sorted(os.listdir(tmp_path))
    for name, said in {
        "directory": "is not a file",
        "to_directory": "is not a file",
        "fifo": "is not a file",
        "a": "leads to itself",
        "taken": "which is a link",
    }.items():
        with pytest.raises(tailrace.Error, match=f"{said}.*; nothing was saved"):
            tailrace.torch.save({"n": 1}, tmp_path / name)
        assert sorted(os.listdir(tmp_path)) == before, name
    assert os.listdir(tmp_path / "directory") == []


def test_a_shard_is_a_sessions_to_save(tmp_path: Path) -> None:
    with pytest.raises(tailrace.Error, match=r"'w' is a Shard.*nothing was saved"):
        tailrace.torch.save({"w": tailrace.Shard(torch.ones(3), (3,), (0,))}, tmp_path / "f")


def test_a_directory_of_the_users_is_not_taken(tmp_path: Path) -> None:
    mine = tmp_path / "model.unfinished"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(tailrace.Error, match="other files") as raised:
        tailrace.torch.save({"a": torch.ones(3)}, tmp_path / "model")
    assert raised.value.code == tailrace.Code.ALREADY_EXISTS
    assert (mine / "notes.txt").read_text() == "mine"


def test_the_directory_beside_the_file_is_this_users_alone(tmp_path: Path) -> None:
    seen: list[int] = []
    real = _core.write_runs

    def look(*arguments: Any) -> Any:
        seen.append((tmp_path / "model.unfinished").stat().st_mode & 0o7777)
        return real(*arguments)

    before = os.umask(0)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_core, "write_runs", look)
            tailrace.torch.save({"a": torch.ones(3)}, tmp_path / "model")
    finally:
        os.umask(before)
    assert seen == [0o700]
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o666, "by the umask, as torch.save does it"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users in turn")
def test_another_users_directory_is_not_taken(tmp_path: Path) -> None:
    place = tmp_path / "model.unfinished"
    place.mkdir()
    os.chown(place, 64321, 64321)
    with pytest.raises(tailrace.Error, match="is not this user's; nothing was saved"):
        tailrace.torch.save({"a": torch.ones(3)}, tmp_path / "model")
    assert os.listdir(tmp_path) == ["model.unfinished"]


@pytest.mark.parametrize("buffer_bytes", [0, 4095])
def test_buffers_of_an_odd_size_are_refused(tmp_path: Path, buffer_bytes: int) -> None:
    with pytest.raises(tailrace.Error, match="buffer_bytes") as raised:
        tailrace.torch.save({"a": torch.ones(3)}, tmp_path / "model", buffer_bytes=buffer_bytes)
    assert raised.value.code == tailrace.Code.INVALID_ARGUMENT
    assert os.listdir(tmp_path) == []


def test_a_state_that_is_nothing_comes_back(tmp_path: Path) -> None:
    for state in (None, [], {}, 5):
        tailrace.torch.save(state, tmp_path / "f")
        assert tailrace.torch.load(tmp_path / "f") == state
        with tailrace.read(tmp_path / "f") as checkpoint:
            assert checkpoint.tree() == state == checkpoint.lazy_tree()


DTYPES = sorted({str(found) for found in vars(torch).values() if isinstance(found, torch.dtype)})


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shared", [False, True])
def test_elements_of_every_type_load_or_are_refused_at_the_save(tmp_path: Path, name: str, shared: bool) -> None:
    bytes_ = torch.arange(16, dtype=torch.uint8)
    tensor = bytes_.view(getattr(torch, name.removeprefix("torch.")))
    state = {"t": tensor, **({"bytes": bytes_} if shared else {})}
    try:
        tailrace.torch.save(state, tmp_path / "f")
    except tailrace.Error as refused:
        assert "quantized" in str(refused) and "nothing was saved" in str(refused)
        assert "qint" in name or "quint" in name
        return
    loaded = tailrace.torch.load(tmp_path / "f")["t"]
    assert loaded.dtype == tensor.dtype and torch.equal(loaded.view(torch.uint8), bytes_)
