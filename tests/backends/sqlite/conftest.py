"""Fixtures: databases for tests of the statements of the SQLite family."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.sqlite.database import DIALECTS, Database


@pytest.fixture(params=DIALECTS)
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty queue of each dialect, in plain SQLite. Its clock stands still."""
    made = Database(request.param)
    yield made
    made.close()


@pytest.fixture(params=DIALECTS)
def by_arrival(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty queue of each dialect, with head_start=0."""
    made = Database(request.param, "0")
    yield made
    made.close()


@pytest.fixture(params=[name for name in DIALECTS if name != "sqlite"])
def resent(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty queue of each dialect whose requests may be applied twice."""
    made = Database(request.param)
    yield made
    made.close()
