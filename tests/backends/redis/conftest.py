"""Fixtures: function libraries on one server and on a cluster, called directly, and transports on any server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from tests.backends.redis.invariants import check
from tests.backends.redis.library import Library
from tests.backends.redis.servers import VARIABLES, Client, connect, missing
from tests.conftest import require_server
from tests.harness import KITS, Queues
from tests.harness.queues import Twin


@pytest.fixture(params=["single", "cluster"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of a single server, and one of a cluster. On the cluster an undeclared key is an error."""
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
    """A fresh queue. At the end of the test all of its keys must agree with each other."""
    made = Library(client)
    yield made
    check(made)
    made.remove()


@pytest.fixture
def timed(single: Client) -> Iterator[Callable[..., Library]]:
    """A function that makes queues. Their clock stands still until the test moves it."""
    with ExitStack() as stack:

        def make(**options: Any) -> Library:
            made = Library(single, own_clock=True, **options)
            stack.callback(made.remove)
            return made

        yield make


@pytest.fixture
def url() -> str:
    """The server that all tests share."""
    require_server(missing("single"))
    return os.environ[VARIABLES["single"]]


@pytest.fixture
def name(url: str) -> Iterator[str]:
    """A migrated queue."""
    made = Queues.fresh_name()
    migrate.upgrade(url, queue=made)
    yield made
    migrate.downgrade(url, queue=made, revision="base")


@pytest.fixture
async def queues(twin: Twin, folder: Path) -> AsyncIterator[Queues]:
    """Opens transports of a twin on any server, and closes them afterwards."""
    made = Queues(KITS["redis"](), twin, folder)
    yield made
    await made.close()


@pytest.fixture
def damaged(single: Client, url: str) -> Iterator[tuple[fairlane.RedisTransport[Any], Library]]:
    """A queue, and its keys for a test to damage."""
    name = Queues.fresh_name()  # not the fixture `name`, since a test may have a parameter of this name
    migrate.upgrade(url, queue=name)
    library = Library.of_migrated(single, name)
    with fairlane.RedisTransport.from_url(url, queue=name) as queue:
        yield queue, library
    migrate.downgrade(url, queue=name, revision="base")
