"""Fixtures of the tests that call functions directly, on a single server and on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.backends.redis.invariants import check
from tests.backends.redis.library import Library
from tests.backends.redis.servers import VARIABLES, Client, connect, missing
from tests.conftest import require_server


@pytest.fixture(params=["single", "cluster"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of a single server, and of a cluster, where an undeclared key is an error."""
    require_server(missing(request.param))
    made = connect(os.environ[VARIABLES[request.param]])
    yield made
    made.close()


@pytest.fixture
def single() -> Iterator[Client]:
    require_server(missing("single"))
    with connect(os.environ[VARIABLES["single"]]) as made:
        yield made


@pytest.fixture
def library(client: Client) -> Iterator[Library]:
    """A fresh queue; at the end all of its keys must agree with each other."""
    made = Library(client)
    yield made
    check(made)
    made.remove()


@pytest.fixture
def timed(single: Client) -> Iterator[Callable[..., Library]]:
    """Makes queues whose clock stands still until the test moves it."""
    with ExitStack() as stack:

        def make(**options: Any) -> Library:
            made = Library(single, own_clock=True, **options)
            stack.callback(made.remove)
            return made

        yield make
