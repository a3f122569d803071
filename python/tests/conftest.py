"""What all tests share: no records of theirs among the user's own, and no settings from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("TAILRACE_")]:
        monkeypatch.delenv(name)
    records: Path = tmp_path_factory.getbasetemp() / "records"
    monkeypatch.setenv("TAILRACE_RECORD_DIR", str(records))
    yield
