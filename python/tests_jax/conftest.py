"""What all tests of tailrace.jax share: four devices of the host in this process, and no settings from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"  # before JAX is imported
os.environ["JAX_PLATFORMS"] = "cpu"


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("TAILRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TAILRACE_RECORD_DIR", str(tmp_path_factory.getbasetemp() / "records"))
    yield
