"""What all tests share: no records of theirs among the user's own, no settings from outside, and no handler of a signal
that an earlier test, or a library in it, has left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

SEED = "TAILRACE_SEED"  # no setting: it replays a test's choices


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("TAILRACE_") and name != SEED]:
        monkeypatch.delenv(name)
    records: Path = tmp_path_factory.getbasetemp() / "records"
    monkeypatch.setenv("TAILRACE_RECORD_DIR", str(records))
    yield


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:  # None: not Python's
            signal.signal(number, handler)
