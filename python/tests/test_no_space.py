"""A file system that is full while a save goes on: the error says so, what was there is intact, the next save works.

The file system is a small tmpfs, in a mount namespace that goes with the process in it.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import tailrace
import tailrace.torch
from tailrace.convert import convert
from tailrace.torch import StorageReader, StorageWriter, _durable, _segments
from tailrace.torch.lightning import TailraceCheckpointIO

MOUNTED = 'mount -t tmpfs -o size=24m none "$0" && exec "$@"'
FLOATS = 1 << 20  # of a state: 4 MiB


def state_of(step: int) -> dict[str, Any]:
    return {"w": torch.full((FLOATS,), float(step)), "step": step}


@contextmanager
def filled(place: Path) -> Iterator[None]:
    """All but one MiB of the file system is taken."""
    filler = place / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(place).free - (1 << 20))
    yield
    filler.unlink()


def check(
    place: Path,
    save: Callable[[int], Any],
    load: Callable[[], Any],
    committed: Callable[[], list[str]],
    newest: int = 1,
) -> None:
    """newest: what can be loaded after the save of state 2 has failed."""
    save(1)
    before = committed()
    with filled(place):
        with pytest.raises((tailrace.Error, dcp.CheckpointException), match="No space left on device") as caught:
            save(2)
        error = caught.value
        if isinstance(error, dcp.CheckpointException):
            ((error, _),) = error.failures.values()
        assert isinstance(error, tailrace.Error) and error.code is tailrace.Code.NO_SPACE, error
        assert error.path is not None and Path(error.path).is_relative_to(place), error
        assert error.intact is not None, error
        assert committed() == before and load() == newest
    save(3)
    assert load() == 3


def files_in(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if not path.name.endswith(".lock"))


def step_of(state: Any) -> int:
    (value,) = set(np.unique(np.asarray(state["w"])))
    assert value == state["step"]
    return int(value)


def session_on(place: Path, shared: Path, local: Path, newest: int) -> None:
    with tailrace.open(shared_dir=shared, local_dir=local, buffer_bytes="1MiB", keep_local=1) as session:

        def save(step: int) -> None:
            session.save(step, state_of(step))
            session.wait(step)

        def load() -> int:
            state = state_of(0)
            assert session.restore_latest(into=state) == step_of(state)
            return step_of(state)

        check(place, save, load, lambda: files_in(shared), newest)
        # The failure was raised by save or wait, and is again at the end of the session.
        with pytest.raises(tailrace.Error, match="No space left on device"):
            session.close()


def flush_of_a_session(place: Path, elsewhere: Path) -> None:
    session_on(place, place / "shared", elsewhere, newest=2)  # it stays in the node-local tier


def capture_of_a_session(place: Path, elsewhere: Path) -> None:
    session_on(place, elsewhere, place / "local", newest=1)


def one_file(place: Path, _: Path) -> None:
    path = place / "files" / "one"
    path.parent.mkdir()
    check(
        place,
        lambda step: tailrace.torch.save(state_of(step), path),
        lambda: step_of(tailrace.torch.load(path)),
        lambda: files_in(path.parent),
    )


def conversion(place: Path, elsewhere: Path) -> None:
    elsewhere.mkdir()
    target = place / "d" / "target"
    target.parent.mkdir()
    for to in ("torch", "ranks", "tailrace", "dcp", "tailrace-dcp"):

        def save(step: int, to: str = to) -> None:
            torch.save(state_of(step), elsewhere / "source.pt")
            convert(elsewhere / "source.pt", target, to=to, replace=True)

        def load() -> int:
            convert(target, elsewhere / "back.pt", replace=True)
            return step_of(torch.load(elsewhere / "back.pt"))

        check(place, save, load, lambda: files_in(target.parent))


def through_dcp(place: Path, save: Callable[..., Any]) -> None:
    def load() -> int:
        state = state_of(0)
        dcp.load(state, storage_reader=StorageReader(place / "c"))
        return step_of(state)

    writer = StorageWriter(place / "c", files=2)
    check(place, lambda step: save(state_of(step), storage_writer=writer), load, lambda: files_in(place / "c"))


def dcp_save(place: Path, _: Path) -> None:
    through_dcp(place, dcp.save)


def dcp_async_save(place: Path, _: Path) -> None:
    through_dcp(place, lambda *args, **kwargs: dcp.async_save(*args, **kwargs).result())


def segments(place: Path, _: Path) -> None:
    """As DeepSpeed's checkpoints, and those of Hugging Face: a directory each, and a file that names the last."""
    writer = _segments.Writer("test", files=1, name="test", threads=2, buffer_bytes=1 << 20, pickle=False)
    latest = place / "latest"

    def save(step: int) -> None:
        def then() -> None:
            _durable.replace(str(latest), lambda file: file.write(b"%d" % step))

        writer.open(str(place / str(step)), then)
        writer.add("state", lambda: state_of(step))
        writer.start()
        writer.wait()

    def load() -> int:
        with _segments.Reader(str(place / latest.read_text())) as reader:
            return step_of(reader.load("state"))

    def complete() -> list[str]:
        return sorted(of.name for of in place.iterdir() if of.is_dir() and _segments.owners_in(str(of)) is not None)

    check(place, save, load, complete)


def lightning_alone(place: Path, plugin: TailraceCheckpointIO) -> None:
    """As a ModelCheckpoint that keeps the last one: it saves a new one, and removes the old one."""
    kept = place / "kept"
    kept.mkdir()

    def save(step: int) -> None:
        old = list(kept.iterdir())
        plugin.save_checkpoint(state_of(step), kept / str(step))
        for path in old:
            plugin.remove_checkpoint(path)
        plugin.teardown()

    def load() -> int:
        (name,) = files_in(kept)
        return step_of(plugin.load_checkpoint(kept / name))

    check(place, save, load, lambda: files_in(kept))


def lightning(place: Path, _: Path) -> None:
    lightning_alone(place, TailraceCheckpointIO())


def lightning_in_the_background(place: Path, _: Path) -> None:
    lightning_alone(place, TailraceCheckpointIO(asynchronous=True))


WAYS = (
    flush_of_a_session,
    capture_of_a_session,
    one_file,
    conversion,
    dcp_save,
    dcp_async_save,
    segments,
    lightning,
    lightning_in_the_background,
)


def run_all(place: str, elsewhere: str) -> None:
    for number, way in enumerate(WAYS):
        print(way.__name__, flush=True)
        inner = Path(place, way.__name__)
        inner.mkdir()
        way(inner, Path(elsewhere, str(number)))
        shutil.rmtree(inner)


def test_a_full_file_system_is_an_error_and_the_next_save_works(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "small", tmp_path / "elsewhere"
    place.mkdir()
    alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    mounted = [*alone, "sh", "-c", MOUNTED, str(place)]
    try:
        probe = subprocess.run([*mounted, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"no small file system: {error}")
    if probe.returncode != 0:
        pytest.skip(f"no small file system: {probe.stderr.strip()}")
    code = f"import test_no_space; test_no_space.run_all({str(place)!r}, {str(elsewhere)!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*mounted, sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_save_that_can_write_nothing_leaves_nothing_behind(tmp_path: Path) -> None:
    tailrace.torch.save(state_of(1), tmp_path / "state")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(tailrace.Error) as caught:
            tailrace.torch.save(state_of(2), tmp_path / "state")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.code is tailrace.Code.NO_SPACE and caught.value.intact == "what was there is intact"
    assert os.listdir(tmp_path) == ["state"] and step_of(tailrace.torch.load(tmp_path / "state")) == 1
