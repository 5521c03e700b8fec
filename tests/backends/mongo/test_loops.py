"""One asyncio transport in several event loops, and in forked children: each loop has a client of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

import fairlane
from fairlane import ConfigurationError
from fairlane.backends.mongo.transports import AsyncMongoTransport

pytestmark = [pytest.mark.backends("mongo"), pytest.mark.twins("async"), pytest.mark.promise(1, 9)]


def in_thread(work: Any) -> None:
    """Run a coroutine in a loop of its own, in another thread."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(asyncio.wait_for(work(), 20))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


async def test_one_run_after_the_other(queue: Any, capfd: Any) -> None:
    for number in range(3):
        in_thread(lambda number=number: queue.transport.publish("g", number))
    assert [event for _, event in await queue.drain()] == [0, 1, 2]
    assert capfd.readouterr().err == ""


async def test_loops_in_threads_at_the_same_time(queue: Any, capfd: Any) -> None:
    async def work(name: str) -> None:
        for number in range(10):
            await queue.transport.publish(name, number)

    async def all_of_them() -> None:
        calls = [asyncio.to_thread(in_thread, lambda name=name: work(name)) for name in ("a", "b", "c")]
        await asyncio.gather(work("here"), *calls)

    await all_of_them()
    found: dict[str, list[int]] = {}
    for group, event in await queue.drain():
        found.setdefault(group, []).append(event)
    assert found == {name: list(range(10)) for name in ("a", "b", "c", "here")}
    assert capfd.readouterr().err == ""


async def test_closing_in_one_loop_closes_the_clients_of_all(queue: Any) -> None:
    used, closed = threading.Event(), threading.Event()

    async def elsewhere() -> None:
        await queue.transport.publish("g", 1)
        used.set()
        await asyncio.to_thread(closed.wait)
        with pytest.raises(fairlane.TransportClosed):
            await queue.transport.publish("g", 2)

    other = asyncio.create_task(asyncio.to_thread(in_thread, elsewhere))
    await asyncio.to_thread(used.wait)
    await queue.transport.close()
    closed.set()
    await other


async def test_a_client_of_the_application_in_another_loop_is_refused_before_anything_is_sent(queue: Any) -> None:
    import pymongo

    client: Any = pymongo.AsyncMongoClient(queue.kit.url(queue.name))
    given: AsyncMongoTransport[Any] = AsyncMongoTransport(client, queue=queue.name)
    await given.publish("g", 1)
    with pytest.raises(ConfigurationError, match="one event loop only"):
        in_thread(lambda: given.publish("g", 2))
    await given.publish("g", 3)
    assert [event for _, event in await queue.drain()] == [1, 3]
    await client.close()


async def test_a_client_that_the_application_used_in_another_loop_is_refused_too(queue: Any) -> None:
    import pymongo

    client: Any = pymongo.AsyncMongoClient(queue.kit.url(queue.name))
    await client.admin.command("ping")
    with pytest.raises(ConfigurationError, match="one event loop only"):
        in_thread(lambda: AsyncMongoTransport(client, queue=queue.name).publish("g", 2))
    assert await queue.drain() == []
    await client.close()


async def test_a_forked_child_has_clients_of_its_own(queue: Any) -> None:
    await queue.publish("parent", 0)

    async def work() -> None:
        for number in range(5):
            await queue.transport.publish("child", number)
        await queue.transport.close()

    child = os.fork()
    if not child:
        code = 1
        try:
            asyncio.run(asyncio.wait_for(work(), 20))
            code = 0
        finally:
            os._exit(code)
    for number in range(1, 5):
        await queue.publish("parent", number)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    found = await queue.drain()
    assert [event for group, event in found if group == "child"] == [0, 1, 2, 3, 4]
    assert [event for group, event in found if group == "parent"] == [0, 1, 2, 3, 4]
