"""Queues on servers that a test may break."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.backends.shared.breakable import OPTIONS, Behind, Breakable, Fault, behind_a_proxy, breakable
from tests.harness import Queue, Queues
from tests.harness.scene import Scene
from tests.servers import Server


@pytest.fixture
def server(fault: Fault, servers: Callable[..., Server]) -> Iterator[Breakable]:
    with breakable(fault.backend, lambda: servers("sqld")) as made:
        yield made


@pytest.fixture
def behind(backend: str, servers: Callable[..., Server]) -> Iterator[Behind]:
    with behind_a_proxy(backend, lambda: servers("sqld")) as made:
        yield made


@pytest.fixture
async def queues(server: Breakable, twin: str, folder: Path) -> AsyncIterator[Queues]:
    made = Queues(server.kit, twin, folder)  # type: ignore[arg-type]
    yield made
    await made.close()


@pytest.fixture
async def queue(queues: Queues, server: Breakable) -> Queue:
    """A fresh queue whose requests go to the server that a test can break."""
    return await queues.make(url=server.url, retry_seconds=10, **OPTIONS)


@pytest.fixture
async def scene(queue: Queue, server: Breakable) -> Scene:
    return await Scene(queue, server).build()
