"""Fixtures: the Postgres server of the test suite, and a fresh queue on it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import psycopg
import pytest

from fairlane import migrate
from tests.backends.postgres.sessions import Lane
from tests.conftest import require_server
from tests.harness import KITS


@pytest.fixture(scope="session")
def url() -> str:
    """A superuser's URL."""
    require_server(KITS["postgres"]().missing)
    return os.environ["FAIRLANE_TEST_POSTGRES_URL"]


@pytest.fixture(params=["1"])
def lane(request: pytest.FixtureRequest, url: str) -> Iterator[Lane]:
    """A fresh queue; parametrize it indirectly to choose the head start."""
    queue = f"t{secrets.token_hex(6)}"
    migrate.upgrade(url, queue=queue, head_start=request.param)
    made = Lane(url, queue)
    yield made
    made.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"drop schema {queue} cascade")
