"""Promise 9 when one asyncio transport is used in several event loops: each loop has its own client."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import fairlane

pytestmark = [
    pytest.mark.backends("mongo", "sqs", "redis", "redis-cluster"),
    pytest.mark.cluster,
    pytest.mark.twins("async"),
    pytest.mark.promise(1, 9),
]


def in_thread(work: Any) -> None:
    """Run a coroutine in a new loop, in another thread."""
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


async def test_loops_one_run_after_the_other(queue: Any, capfd: Any) -> None:
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


async def test_loops_closing_in_one_loop_closes_the_clients_of_all(queue: Any) -> None:
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
