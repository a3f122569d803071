"""Files that the program writes by itself: saved with an epoch, and back in the node-local tier."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
import torch.distributed as dist

import tailrace

Settings = dict[str, Any]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return {"shared_dir": tmp_path / "shared", "local_dir": tmp_path / "local"}


def save(session: tailrace.Session, step: int, files: dict[str, str], tree: Any = None) -> None:
    with session.save_files(step, tree) as begun:
        for name, text in files.items():
            Path(begun.path(name)).write_text(text)


@contextlib.contextmanager
def session_with_a_failed_epoch(**settings: Any) -> Iterator[tailrace.Session]:
    """Its close tells of the failure."""
    session = tailrace.open(**settings)
    yield session
    with pytest.raises(tailrace.Error, match=r"epoch [12]: "):
        session.close()


def left_in(directory: Path) -> list[str]:
    """Directories below the nodes' own."""
    return [str(path) for path in directory.glob("*/*") if path.is_dir()]


def test_files_and_a_tree_come_back_from_one_epoch(settings: Settings) -> None:
    state = {"u": np.arange(5.0), "step": 3}
    with tailrace.open(**settings) as session:
        with session.restore_files() as files:
            assert files is None
        save(session, 3, {"a.txt": "one", "deep/b.txt": "two"}, state)
        assert session.wait()
    with tailrace.open(**settings) as session:
        into = {"u": np.zeros(5), "step": 0}
        with session.restore_files() as files:
            assert files is not None
            session.restore(files.step, into=into)
            assert files.step == 3
            assert files.names() == files.names(0) == ["a.txt", "deep/b.txt"]
            path = Path(files.path("deep/b.txt"))
            assert path.read_text() == "two"
            assert Path(files.path("a.txt", rank=0)).read_text() == "one"
            with pytest.raises(tailrace.Error, match=r"c\.txt") as caught:
                files.path("c.txt")
            assert caught.value.code is tailrace.Code.NOT_FOUND
        assert not path.exists()
    assert into["step"] == 3 and (into["u"] == np.arange(5.0)).all()


def test_an_epoch_of_its_own_number_is_found_or_refused(settings: Settings) -> None:
    with tailrace.open(**settings, keep_local=2, keep_shared=2) as session:
        save(session, 1, {"x": "first"})
        save(session, 2, {"x": "second"})
        with session.restore_files(1) as files:
            assert files is not None and Path(files.path("x")).read_text() == "first"
        with pytest.raises(tailrace.Error, match="epoch 7"), session.restore_files(7):
            pass


def test_what_the_program_could_not_write_is_not_saved(settings: Settings) -> None:
    with session_with_a_failed_epoch(**settings) as session:
        save(session, 1, {"x": "whole"})
        with pytest.raises(ZeroDivisionError), session.save_files(2) as files:
            Path(files.path("x")).write_text("half")
            print(1 // 0)
        with pytest.raises(tailrace.Error, match="saved or given up"):
            files.path("y")
        with pytest.raises(tailrace.Error, match=r"missing\.h5") as caught, session.save_files(3) as files:
            files.path("missing.h5")
        assert caught.value.code is tailrace.Code.INVALID_ARGUMENT
        with pytest.raises(tailrace.Error, match="tree") as caught, session.save_files(4, {"no": object()}) as files:
            Path(files.path("x")).write_text("with a tree that cannot be saved")
        assert session.state(2).state is tailrace.State.FAILED
        assert left_in(Path(settings["local_dir"])) == []
        with session.restore_files() as found:
            assert found is not None and found.step == 1
            assert Path(found.path("x")).read_text() == "whole"


@pytest.mark.parametrize("name", ["", "/x", "../x", "a//b", "a\0b", 3])
def test_a_name_that_is_not_possible_is_refused(settings: Settings, name: Any) -> None:
    with session_with_a_failed_epoch(**settings) as session:
        with pytest.raises(tailrace.Error) as caught, session.save_files(1) as files:
            files.path(name)
        assert caught.value.code is tailrace.Code.INVALID_ARGUMENT


def test_one_save_at_a_time_has_files(settings: Settings) -> None:
    with tailrace.open(**settings) as session, session.save_files(1) as files:
        Path(files.path("x")).write_text("outer")
        with pytest.raises(tailrace.Error, match="begun already"), session.save_files(2):
            pass
    with tailrace.open(**settings) as session, session.restore_files() as found:
        assert found is not None and Path(found.path("x")).read_text() == "outer"


def save_on_ranks(place: str) -> None:
    places = {"shared_dir": f"{place}/shared", "local_dir": f"{place}/local"}
    with session_with_a_failed_epoch(**places, comm=dist.group.WORLD) as session:
        save(session, 1, {"state.bin": f"of {session.rank}", f"only{session.rank}": "mine"})
        with pytest.raises(tailrace.Error):  # rank 1 cannot write, so the epoch exists on no rank
            with session.save_files(2) as files:
                Path(files.path("state.bin")).write_text("newer")
                if session.rank == 1:
                    raise tailrace.Error(tailrace.Code.IO_ERROR, "the disk of rank 1")
            session.wait(2)
        with session.restore_files() as found:
            assert found is not None and found.step == 1
            assert Path(found.path("state.bin")).read_text() == f"of {session.rank}"


class FullTier:
    """A core that has no room for files."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def files_begin(self) -> None:
        raise tailrace.Error(tailrace.Code.NO_SPACE, "the tier of rank 1 is full")


def one_rank_cannot_begin(place: str) -> None:
    places = {"shared_dir": f"{place}/shared", "local_dir": f"{place}/local"}
    with session_with_a_failed_epoch(**places, comm=dist.group.WORLD) as session:
        core = session._core
        if session.rank == 1:
            session._core = FullTier(core)  # type: ignore[assignment]
            with pytest.raises(tailrace.Error, match="tier of rank 1"), session.save_files(1):
                pass
            session._core = core
        else:
            save(session, 1, {"x": "text"})
        with pytest.raises(tailrace.Error, match="tier of rank 1"):
            assert session.wait(1, timeout=20), "nobody told this rank"


def test_a_rank_that_cannot_begin_files_tells_the_others(tmp_path: Path) -> None:
    assert distributed.exit_codes(2, one_rank_cannot_begin, str(tmp_path)) == [0, 0]


def restore_on_ranks(place: str) -> None:
    with (
        tailrace.open(shared_dir=f"{place}/shared", local_dir=f"{place}/local", comm=dist.group.WORLD) as session,
        session.restore_files(of_all_ranks=True) as found,
    ):
        assert found is not None
        for rank in range(3):
            assert Path(found.path("state.bin", rank)).read_text() == f"of {rank}"
            assert found.names(rank) == ["state.bin", f"only{rank}"]
        assert Path(found.path("only2")).read_text() == "mine"


def test_ranks_save_together_and_another_number_of_them_reads_all(tmp_path: Path) -> None:
    assert distributed.exit_codes(3, save_on_ranks, str(tmp_path)) == [0, 0, 0]
    assert distributed.exit_codes(2, restore_on_ranks, str(tmp_path)) == [0, 0]
    assert not [name for name in os.listdir(tmp_path / "shared") if "state.bin" in name]
