"""Queues on a real sqld, behind a relay that can fail on purpose. Every test runs for both twins.

The contract suite runs on libSQL as on every other backend. The tests here are about what can fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.libsql.relay import Relay
from tests.harness import Queue, Queues
from tests.harness.kits.libsql import LibsqlKit
from tests.servers import Server

TIMEOUT = 6.0
"""Seconds for a call. One request gets a third of it."""


@pytest.fixture(params=["sync", "async"])
def twin(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(servers: Callable[..., Server]) -> Server:
    """An sqld that only this module uses."""
    return servers("sqld")


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    with Relay(server.port) as made:
        yield made


@pytest.fixture
async def queues(server: Server, twin: str, folder: Path) -> AsyncIterator[Queues]:
    """Queues on the server itself. Requests go through the relay only in tests that use the relay's URL."""
    kit = LibsqlKit()
    kit.server_url = server.url
    made = Queues(kit, twin, folder)  # type: ignore[arg-type]
    yield made
    with contextlib.suppress(Exception):
        server.start()
    await made.close()


@pytest.fixture
async def queue(queues: Queues, relay: Relay) -> Queue:
    """A fresh queue behind the relay. The list of requests that the relay has seen is empty."""
    made = await queues.make(url=relay.url, timeout=TIMEOUT, retry_seconds=10)
    relay.seen.clear()
    return made


def executor(queue: Queue) -> Any:
    """The driver's side of a queue."""
    return queue.transport._executor
