"""One asyncio transport in several event loops: each loop gets its own connections."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import libsql_client
import pytest

import fairlane
from fairlane import ConfigurationError
from tests.backends.shared.breakable import backends
from tests.harness import LONG, Queues
from tests.harness.queues import in_thread


@pytest.fixture
async def queues(behind: Any, twin: Any, folder: Any) -> Any:
    made = Queues(behind.kit, twin, folder)
    yield made
    await made.close()


@backends("async")
async def test_loops_in_parallel_threads_share_a_transport(queues: Any, behind: Any) -> None:
    """Guards against one loop that replaces the client while other loops are in the middle of their calls."""
    queue = await queues.make(url=behind.url)
    transport = queue.transport

    async def work(number: int) -> None:
        for n in range(10):
            await transport.publish(f"g{number}", n)
            await asyncio.sleep(0)

    await asyncio.gather(work(0), *(in_thread(asyncio.run, work(number)) for number in range(1, 5)))
    assert sorted(await queue.drain()) == [(f"g{number}", n) for number in range(5) for n in range(10)]


@backends("async")
async def test_connections_end_with_their_loop(queues: Any, behind: Any) -> None:
    queue = await queues.make(url=behind.url)
    before = behind.proxy.connections
    for n in range(3):
        await in_thread(asyncio.run, queue.transport.publish("g", n))
    for _ in range(100):
        if behind.proxy.connections <= before:
            break
        await asyncio.sleep(0.05)
    assert behind.proxy.connections <= before
    assert [event for _, event in await queue.drain()] == [0, 1, 2]


@backends("async")
async def test_a_client_of_the_application_stays_in_its_loop(queues: Any, behind: Any, backend: str) -> None:
    """In another loop it gives one typed error before anything is sent. In its own loop it still works."""
    queue = await queues.make(url=behind.url)
    transport: Any
    if backend == "rqlite":
        rqlite_client = httpx.AsyncClient()
        transport = fairlane.AsyncRqliteTransport(rqlite_client, url=behind.url, queue=queue.name)
        queues.afterwards(rqlite_client.aclose)
    else:
        libsql = libsql_client.create_client(behind.url.replace("libsql+http", "http"))
        transport = fairlane.AsyncLibsqlTransport(libsql, queue=queue.name)
        queues.afterwards(libsql.close)
    await transport.publish("g", 1)
    with pytest.raises(ConfigurationError, match="event loop"):
        await in_thread(asyncio.run, transport.publish("g", 2))
    lease = await transport.claim("w", LONG)
    await transport.ack(lease)
    assert await queue.leftovers() == {}
