"""torch.distributed.checkpoint in one process: what comes back, what is refused, what an interrupted save leaves."""

from __future__ import annotations

import contextlib
import inspect
import io
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from distributed import PLAN_CACHING
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan

import tailrace
from tailrace.torch import AsyncStager, StorageReader, StorageWriter, _staging, _writer

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def sample(seed: int = 1) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {
        "model": {
            "w": torch.randn(300, 700),
            "half": torch.randn(17, 5).bfloat16(),
            "eight": torch.randn(64).to(torch.float8_e4m3fn),
            "scalar": torch.tensor(3.25),
            "empty": torch.empty(0, 4),
            "ints": torch.arange(9),
            "strided": torch.randn(40, 30).t()[::2],
        },
        "optimizer": {"state": {0: {"step": torch.tensor(7.0)}}, "lr": 1e-3, "betas": (0.9, 0.95)},
        "step": 12,
    }


def blank(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: blank(part) for key, part in value.items()}
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else type(value)()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.float(), b.float())
    return bool(a == b)


def save(state: Any, path: Path, **options: Any) -> None:
    dcp.save(state, checkpoint_id=path, storage_writer=StorageWriter(**options))


def load(state: Any, path: Path, **options: Any) -> Any:
    dcp.load(state, checkpoint_id=path, storage_reader=StorageReader(**options))
    return state


@pytest.mark.parametrize("files", [1, 4])
def test_a_state_comes_back_from_exactly_k_files(tmp_path: Path, files: int) -> None:
    path = tmp_path / "step-120"
    save(sample(), path, files=files)
    names = [file.name for file in path.iterdir()]
    assert len(names) == files and all(".e000000120." in name for name in names)
    state = blank(sample())
    held = state["model"]["w"]
    assert same(load(state, path), sample()) and state["model"]["w"] is held
    with tailrace.read(path) as checkpoint:  # tensors by their names, without torch.distributed
        assert torch.equal(torch.from_numpy(checkpoint["model.w"][10:12]), sample()["model"]["w"][10:12])
        assert torch.equal(checkpoint["model.half"].load(), sample()["model"]["half"])


def test_tensors_of_another_type_are_converted(tmp_path: Path) -> None:
    save({"w": torch.arange(5, dtype=torch.float64)}, tmp_path / "c")
    assert torch.equal(load({"w": torch.zeros(5)}, tmp_path / "c")["w"], torch.arange(5).float())
    column = torch.zeros(5, 2)[:, 1]
    assert load({"w": column}, tmp_path / "c")["w"] is column and torch.equal(column, torch.arange(5).float())


def test_saving_again_replaces_the_old_checkpoint_when_complete(tmp_path: Path) -> None:
    writer = StorageWriter(tmp_path / "c", files=2)
    dcp.save(sample(1), storage_writer=writer)

    class Stop(Exception):
        pass

    class Interrupted(StorageWriter):
        def finish(self, metadata: Any, results: Any) -> None:
            raise Stop

    interrupted = Interrupted(tmp_path / "c")  # which stays alive, as an exception's trace may keep it
    with pytest.raises(dcp.CheckpointException):
        dcp.save(sample(2), storage_writer=interrupted)
    reader = StorageReader(tmp_path / "c")
    state = blank(sample())
    dcp.load(state, storage_reader=reader)
    assert same(state, sample(1))
    dcp.save(sample(3), storage_writer=writer)
    dcp.load(state, storage_reader=reader)
    assert same(state, sample(3))
    assert len(list((tmp_path / "c").iterdir())) == 2


def test_nothing_is_there_before_the_first_save_is_finished(tmp_path: Path) -> None:
    class Watching(StorageWriter):
        def finish(self, metadata: Any, results: Any) -> None:
            with pytest.raises(tailrace.Error) as early:
                StorageReader(tmp_path / "c").read_metadata()
            assert early.value.code is tailrace.Code.NOT_FOUND
            refused: list[Any] = []

            def second() -> None:
                other = StorageWriter(tmp_path / "c")
                other.set_up_storage_writer(True)
                with pytest.raises(tailrace.Error) as busy:
                    other.prepare_global_plan([SavePlan([])])
                refused.append(busy.value.code)

            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
            assert refused == [tailrace.Code.BUSY]
            super().finish(metadata, results)

    writer = Watching(tmp_path / "c")
    dcp.save(sample(), storage_writer=writer)
    assert same(load(blank(sample()), tmp_path / "c"), sample())


def test_a_killed_save_leaves_the_old_checkpoint_and_nothing_for_ever(tmp_path: Path) -> None:
    save(sample(1), tmp_path / "c", files=2)
    code = f"""
import os, torch, torch.distributed.checkpoint as dcp
from tailrace import _core
from tailrace.torch import StorageWriter
class Killed(StorageWriter):
    def finish(self, metadata, results):
        os.kill(os.getpid(), 9)
dcp.save({{"w": torch.ones(1000)}}, storage_writer=Killed({str(tmp_path / "c")!r}))
"""
    killed = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert any(file.name.endswith(".unfinished") for file in (tmp_path / "c").iterdir())
    assert same(load(blank(sample()), tmp_path / "c"), sample(1))
    save(sample(2), tmp_path / "c", files=2)
    assert same(load(blank(sample()), tmp_path / "c"), sample(2))
    assert len(list((tmp_path / "c").iterdir())) == 2


def test_another_model_is_refused(tmp_path: Path) -> None:
    save({"w": torch.ones(3, 4)}, tmp_path / "c")
    for other in [{"w": torch.zeros(4, 3)}, {"w": torch.zeros(3, 4), "v": torch.zeros(1)}]:
        with pytest.raises((dcp.CheckpointException, RuntimeError, ValueError)):
            load(other, tmp_path / "c")
        assert not other["w"].any()


def test_damage_is_found(tmp_path: Path) -> None:
    save({"w": torch.full((1000,), 77, dtype=torch.int64)}, tmp_path / "c")
    (file,) = (tmp_path / "c").iterdir()
    data = bytearray(file.read_bytes())
    data[data.index(b"\x4d\0\0\0\0\0\0\0" * 4)] ^= 1
    file.write_bytes(data)
    with pytest.raises(dcp.CheckpointException, match="checksum"):
        load({"w": torch.zeros(1000, dtype=torch.int64)}, tmp_path / "c")


class Hostile:
    def __reduce__(self) -> Any:
        return (exec, ("import builtins; builtins.tailrace_test_ran = True",))


def test_no_code_runs_on_load_unless_trusted(tmp_path: Path) -> None:
    import builtins

    save({"w": torch.ones(2), "object": Hostile()}, tmp_path / "c")
    assert not hasattr(builtins, "tailrace_test_ran")
    with pytest.raises(dcp.CheckpointException, match="trust_pickle"):
        load({"w": torch.zeros(2), "object": None}, tmp_path / "c")
    assert not hasattr(builtins, "tailrace_test_ran")
    load({"w": torch.zeros(2), "object": None}, tmp_path / "c", trust_pickle=True)
    assert builtins.__dict__.pop("tailrace_test_ran")


@pytest.mark.skipif(not PLAN_CACHING, reason="this PyTorch does not cache plans")
def test_cached_plans_are_saved_again(tmp_path: Path) -> None:
    class Planner(DefaultSavePlanner):  # a class of its own: the cache is keyed by the class's name
        pass

    for step in range(3):
        state = {"w": torch.full((50,), step), "s": step}
        planner = Planner(**PLAN_CACHING)
        dcp.save(state, checkpoint_id=tmp_path / f"s{step}", storage_writer=StorageWriter(), planner=planner)
    for step in range(3):
        state = load({"w": torch.zeros(50, dtype=torch.int64), "s": -1}, tmp_path / f"s{step}")
        assert state["s"] == step and (state["w"] == step).all()


class Slow(StorageWriter):
    """Writes when it is released."""

    def __init__(self, path: str | Path = "") -> None:
        super().__init__(path)
        self.released = threading.Event()

    def write_data(self, plan: Any, planner: Any) -> Any:
        assert self.released.wait(60)
        return super().write_data(plan, planner)


def go_on_when_waited_for(writer: Slow) -> None:
    """Releases the save that the writer is at when somebody waits for its thread, not before."""
    assert writer._begun.wait(60)
    assert writer._turn is not None
    thread = writer._turn.thread
    join = thread.join

    def release_and_join() -> None:
        writer.released.set()
        join()

    thread.join = release_and_join  # type: ignore[method-assign,assignment]


def test_async_save_stages_once_and_reuses_its_memory(tmp_path: Path) -> None:
    writer = Slow()
    state = {"w": torch.full((100_000,), 1.0)}
    first = dcp.async_save(state, checkpoint_id=tmp_path / "1", storage_writer=writer)
    kept = writer._stager.kept_bytes
    state["w"].fill_(2)  # the program goes on; the first save must not see it
    go_on_when_waited_for(writer)
    second = dcp.async_save(state, checkpoint_id=tmp_path / "2", storage_writer=writer)
    assert first.done()  # it was waited for: its staging memory was in use
    first.result()
    second.result()
    assert writer._stager.kept_bytes == kept == state["w"].nbytes
    for step in (1, 2):
        assert (load({"w": torch.zeros(100_000)}, tmp_path / str(step))["w"] == step).all()
    writer.close()
    assert writer._stager.kept_bytes == 0


def test_threads_that_live_on_do_not_keep_a_writer_busy(tmp_path: Path) -> None:
    class Planner(DefaultSavePlanner):
        def create_local_plan(self) -> Any:
            raise OSError("the test's own failure")

    writer = StorageWriter(tmp_path / "c")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(dcp.save, {"w": torch.ones(3)}, storage_writer=writer).result()
        dcp.save({"w": torch.full((3,), 2.0)}, storage_writer=writer)
        dcp.async_save({"w": torch.full((3,), 3.0)}, storage_writer=writer).result()
        # A save that fails in this thread, and one that goes on in others.
        with pytest.raises(dcp.CheckpointException, match="the test's own failure"):
            dcp.save({"w": torch.ones(3)}, storage_writer=writer, planner=Planner())
        dcp.async_save({"w": torch.full((3,), 4.0)}, storage_writer=writer).result()
        pool.submit(dcp.save, {"w": torch.full((3,), 5.0)}, storage_writer=writer).result()
    assert (load({"w": torch.zeros(3)}, tmp_path / "c")["w"] == 5).all()


class Held(AsyncStager):
    """Copies in the background, when it is released; fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(background=True)
        self.released = threading.Event()
        self.fails = False

    def _copy_all(self, *args: Any) -> dict[str, Any]:
        assert self.released.wait(60)
        if self.fails:
            raise MemoryError("the test's own failure")
        return super()._copy_all(*args)


@pytest.mark.skipif(not _writer.DCP_TAKES_FUTURES, reason="this PyTorch waits for the copy")
def test_a_copy_in_the_background_is_waited_for_and_a_failed_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_writer, "_PATIENCE_SECONDS", 0.01)
    stager = Held()
    writer = StorageWriter(stager=stager)
    state = {"w": torch.full((1000,), 1.0)}
    first: Any = dcp.async_save(state, checkpoint_id=tmp_path / "1", storage_writer=writer)
    copying = writer._staging
    assert copying is not None
    failure_of = copying.exception

    def release_and_wait() -> Any:
        stager.released.set()
        return failure_of()

    copying.exception = release_and_wait  # type: ignore[method-assign,assignment]
    second: Any = dcp.async_save(state, checkpoint_id=tmp_path / "2", storage_writer=writer)
    assert first.staging_completion.done()  # it was waited for
    for step, saving in enumerate((first, second), 1):
        saving.upload_completion.result()
        assert (load({"w": torch.zeros(1000)}, tmp_path / str(step))["w"] == 1).all()

    monkeypatch.setattr(_writer, "_PATIENCE_SECONDS", 0)
    kept = [tensor.data_ptr() for tensor in stager._kept.values()]
    stager.fails = True
    with pytest.raises(MemoryError):
        dcp.async_save(state, checkpoint_id=tmp_path / "3", storage_writer=writer).upload_completion.result()
    stager.fails = False
    dcp.async_save(state, checkpoint_id=tmp_path / "3", storage_writer=writer).upload_completion.result()
    assert [tensor.data_ptr() for tensor in stager._kept.values()] == kept
    writer.close()


def test_a_failed_copy_leaves_nothing_to_wait_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Uncopied:
        def __deepcopy__(self, memo: Any) -> Any:
            raise MemoryError("the test's own failure")

    monkeypatch.setattr(_writer, "_PATIENCE_SECONDS", 0)
    writer = StorageWriter(tmp_path / "c")
    state = {"w": torch.ones(3)}
    dcp.async_save(state, storage_writer=writer).result()
    kept = [tensor.data_ptr() for tensor in writer._stager._kept.values()]
    with pytest.raises(MemoryError):
        dcp.async_save({"object": Uncopied()}, storage_writer=writer)
    dcp.async_save(state, storage_writer=writer).result()
    assert [tensor.data_ptr() for tensor in writer._stager._kept.values()] == kept


def test_a_staged_copy_is_not_overwritten_before_its_save_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_writer, "_PATIENCE_SECONDS", 0)
    writer = StorageWriter()
    first = writer.stage({"w": torch.full((3,), 1.0)})
    second = writer.stage({"w": torch.full((3,), 2.0)})
    assert (first["w"] == 1).all() and (second["w"] == 2).all()


def test_a_save_waits_for_an_asynchronous_one(tmp_path: Path) -> None:
    writer = Slow(tmp_path / "c")
    first = dcp.async_save({"w": torch.ones(3)}, storage_writer=writer)
    go_on_when_waited_for(writer)
    dcp.save({"w": torch.full((3,), 2.0)}, storage_writer=writer)
    first.result()
    assert (load({"w": torch.zeros(3)}, tmp_path / "c")["w"] == 2).all()


@pytest.mark.parametrize("background", [False, True])
def test_staging_copies_and_keeps_tied_weights_tied(background: bool) -> None:
    weight = torch.ones(5)
    state = {"a": weight, "b": [weight, torch.nn.Parameter(torch.zeros(2))], "c": {"object": [1, 2]}}
    stager = AsyncStager(background=background)
    staged = stager.stage(state)
    staged = staged.result() if background else staged
    weight.fill_(9)
    assert (staged["a"] == 1).all() and staged["a"] is staged["b"][0] and not staged["b"][1].requires_grad
    stager.close()


@pytest.mark.parametrize("background", [False, True])
def test_only_who_knows_that_a_copy_is_done_with_gets_its_memory_again(background: bool) -> None:
    stager = AsyncStager(background=background)
    weight = torch.ones(5)

    def stage(how: Callable[..., Any], value: int) -> torch.Tensor:
        weight.fill_(value)
        staged = how({"w": weight})
        copied: torch.Tensor = (staged.result() if background else staged)["w"]
        assert (copied == value).all()
        return copied

    first, second = stage(stager.stage, 1), stage(stager.stage, 2)
    third, fourth = stage(stager.stage_again, 3), stage(stager.stage_again, 4)
    assert third.data_ptr() == fourth.data_ptr()
    stage(stager.stage, 5)
    assert (first == 1).all() and (second == 2).all() and (third == 4).all()
    stager.close()


def test_a_copy_is_new_also_behind_one_that_is_not_complete() -> None:
    stager = Held()
    values = [torch.full((5,), number) for number in range(3)]
    copies = [stager.stage_again({"w": values[0]}), *(stager.stage({"w": value}) for value in values[1:])]
    stager.released.set()
    for value, copy in zip(values, copies, strict=True):
        assert torch.equal(copy.result()["w"], value)
    stager.close()


@pytest.mark.skipif(
    "async_stager" not in inspect.signature(dcp.async_save).parameters, reason="this PyTorch takes no stager"
)
@pytest.mark.parametrize("background", [False, True])
def test_a_stager_that_dcp_calls_itself_leaves_a_save_under_way_alone(tmp_path: Path, background: bool) -> None:
    stager = AsyncStager(background=background)
    state = {"w": torch.full((1000,), 1.0)}
    writers = [Slow(tmp_path / str(step)) for step in (1, 2)]
    saves = []
    for step, writer in enumerate(writers, 1):
        state["w"].fill_(step)
        saving: Any = dcp.async_save(state, storage_writer=writer, async_stager=stager)
        if background:
            saving.staging_completion.result()
        saves.append(getattr(saving, "upload_completion", saving))
    for writer in writers:
        writer.released.set()
    for step, save_ in enumerate(saves, 1):
        save_.result()
        assert (load({"w": torch.zeros(1000)}, tmp_path / str(step))["w"] == step).all()
    stager.close()


def test_lazy_views_of_the_same_memory_are_staged_with_their_own_values() -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    state = {"z": z, "conjugate": z.conj(), "imaginary": z.imag, "negative": z.conj().imag}
    staged = AsyncStager().stage(state)
    for name, tensor in state.items():
        assert torch.equal(staged[name], tensor), name


class Streams:
    """In place of torch.cuda's streams: what was done with them, and in which thread."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.current: set[Any] = set()
        patch.setattr(torch.cuda, "current_stream", lambda device: self._stream(device, "program's"))
        patch.setattr(torch.cuda, "Stream", lambda device: self._stream(device, "own"))
        patch.setattr(torch.cuda, "stream", self._make_current)

    def _stream(self, device: Any, of: str) -> Any:
        return SimpleNamespace(
            device=device,
            record_event=lambda: ("event", of, str(device), threading.get_ident()),
            wait_event=lambda event: self.log.append(("wait", str(device), event)),
            synchronize=lambda: self.log.append(("synchronize", str(device))),
        )

    @contextlib.contextmanager
    def _make_current(self, stream: Any) -> Iterator[None]:
        self.current.add(str(stream.device))
        yield
        self.current.remove(str(stream.device))


@pytest.mark.parametrize("background", [False, True])
def test_each_gpu_copies_on_a_stream_that_is_waited_for(monkeypatch: pytest.MonkeyPatch, background: bool) -> None:
    # Also without GPUs, or with one: the devices are of tensors without data, and the copies of others.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with FakeTensorMode():
        a, b = torch.empty(3, device="cuda:0"), torch.empty(3, device="cuda:1")
    assert {str(gpu) for gpu in _staging._gpus({"x": [a, torch.ones(1)], "y": {"z": (b,)}, "n": 5})} == {
        "cuda:0",
        "cuda:1",
    }

    streams = Streams(monkeypatch)
    monkeypatch.setattr(_staging, "_gpus", lambda state: iter([b.device, a.device, b.device]))

    class Watching(AsyncStager):
        def _copy(self, value: Any, path: Any, *args: Any) -> Any:
            streams.log.append(("copy", *sorted(streams.current)))
            return super()._copy(value, path, *args)

    stager = Watching(background=background)
    for _ in range(2):  # the second time with the streams of the first
        staged = stager.stage({"w": torch.ones(3)})
        assert (staged.result() if background else staged)["w"].all()
        gpus = {"cuda:0", "cuda:1"}
        log, streams.log = streams.log, []
        assert {entry[:2] for entry in log[:2]} == {("wait", gpu) for gpu in gpus}
        assert {entry[2] for entry in log[:2]} == {("event", "program's", gpu, threading.get_ident()) for gpu in gpus}
        assert log[2:4] == [("copy", "cuda:0", "cuda:1")] * 2
        assert set(log[4:]) == {("synchronize", gpu) for gpu in gpus}
    stager.close()


@pytest.mark.parametrize("background", [False, True])
def test_what_is_staged_in_either_way_is_saved(tmp_path: Path, background: bool) -> None:
    writer = StorageWriter(tmp_path / "c", stager=AsyncStager(background=background))
    saving = dcp.async_save({"w": torch.ones(3)}, storage_writer=writer)
    getattr(saving, "upload_completion", saving).result()
    assert (load({"w": torch.zeros(3)}, tmp_path / "c")["w"] == 1).all()
    writer.close()


def test_an_object_that_cannot_be_saved_is_named(tmp_path: Path) -> None:
    state = {"w": torch.ones(2), "held": {"by": threading.Lock()}}
    with pytest.raises(dcp.CheckpointException, match=r"'held\.by' cannot be pickled"):
        save(state, tmp_path / "c")
    with pytest.raises(tailrace.Error, match=r"\['held'\]\['by'\]: a lock cannot be copied") as refused:
        dcp.async_save(state, checkpoint_id=tmp_path / "c", storage_writer=StorageWriter())
    assert refused.value.code is tailrace.Code.INVALID_ARGUMENT


def test_a_name_that_is_too_long_is_told_with_what_is_intact(tmp_path: Path) -> None:
    with pytest.raises(dcp.CheckpointException, match="bytes, but may have 1 to 4096; what was there is intact"):
        save({"w" * 5000: torch.ones(2)}, tmp_path / "c")


def test_what_dcp_cannot_put_into_k_files_is_refused(tmp_path: Path) -> None:
    if "use_collectives" in inspect.signature(dcp.save).parameters:
        with pytest.raises((dcp.CheckpointException, tailrace.Error), match="use_collectives"):
            dcp.save({"w": torch.ones(1)}, storage_writer=StorageWriter(tmp_path), use_collectives=False)
    with pytest.raises(dcp.CheckpointException, match="was given a path"):
        dcp.save({"w": torch.ones(1)}, storage_writer=StorageWriter())
    (tmp_path / "plain").mkdir()
    with tailrace.open(shared_dir=tmp_path / "plain", local_dir=tmp_path / "local") as session:
        session.save(1, {"a": 1})
    # Some versions of PyTorch only log what the reader says.
    said = r"torch\.distributed\.checkpoint|metadata is None"
    with pytest.raises((dcp.CheckpointException, tailrace.Error), match=said):
        load({"w": torch.ones(1)}, tmp_path / "plain")


def test_metadata_in_a_hostile_file_is_corrupt() -> None:
    from tailrace import _tree
    from tailrace.torch import _metadata

    good = {"places": [], "planner_data": None, "version": None}
    about = b'{"checkpoint_id": null, "save_id": "1", "modules": []}'
    assert _metadata.decode(_tree.encode(good)[0], about)[0].storage_data == {}
    for tree, save in [
        ({}, None),
        ({}, about),
        (good, None),
        ({"entries": [["a", "load", True, [1], []]]}, None),
        ({"entries": 5}, None),
        (good, b"{}"),
        (good, b"[]"),
        (good, b"{"),
        (good, b"[" * 100_000),
        (good, b"\xff"),
        ({**good, "tensors": [["a", "load", True, [1], []]]}, about),
        ({**good, "tensors": [["a", "float32", True, [1], [[]]]]}, about),
        ({**good, "tensors": [["a", "float32", True, [1], [[[0], [1], 0]]]]}, about),
        ({**good, "bytes": [[]]}, about),
        ({**good, "bytes": [["a", 1]]}, about),
        ([], about),
    ]:
        buffer = io.BytesIO()
        buffer.write(_tree.encode(tree)[0])
        with pytest.raises(tailrace.Error) as refused:
            _metadata.decode(buffer.getvalue(), save)
        assert refused.value.code is tailrace.Code.CORRUPT


def test_what_cannot_be_staged_is_an_error() -> None:
    freed = torch.zeros(1 << 16)
    freed.untyped_storage().resize_(0)  # as FSDP does between its steps
    cut = torch.zeros(1 << 16)
    cut.untyped_storage().resize_(8)
    cycle: dict[str, Any] = {}
    cycle["again"] = [cycle]
    for state, said in (
        ({"a": [freed]}, r"\['a'\]\[0\]: a Tensor on device cpu has no memory"),
        ({"a": cut}, r"\['a'\]: a Tensor on device cpu has no memory"),
        (cycle, "contains itself"),
    ):
        for background in (False, True):
            with pytest.raises(tailrace.Error, match=f"{said}.*; nothing was saved") as refused:
                staged = AsyncStager(background=background).stage(state)
                staged.result()
            assert refused.value.code is tailrace.Code.INVALID_ARGUMENT
