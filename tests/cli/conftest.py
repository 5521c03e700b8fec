"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import migrate


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a migrated SQLite file, which is the default backend."""
    url = "sqlite:///queue.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRLANE_URL", url)
    monkeypatch.delenv("STM_TRANSPORT_BACKEND", raising=False)
    migrate.upgrade(url)
    return tmp_path
