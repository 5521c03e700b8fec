"""Claims that wait are woken, and on Redis over one connection. They do not depend on it."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlane import Message
from fairlane.backends.redis.listener import Listener
from fairlane.backends.redis.wire import keys_of
from fairlane.backends.shared import listening, waiting
from tests.contract.test_waiting import SOON, waits
from tests.harness import LONG, Queue, eventually, held
from tests.harness.waiting import at_most, counted_listeners

pytestmark = [pytest.mark.promise(2), pytest.mark.cluster]
on_redis = pytest.mark.backends("redis", "redis-cluster")

WOKEN = ("memory", "sqlite", "postgres", "redis", "redis-cluster")
"""Backends on which claims are woken."""


def wake_ups(queue: Queue) -> str:
    (key,) = (key for key in keys_of(queue.name) if key.endswith(":wake"))
    return key


async def is_told(queue: Queue) -> None:
    """Wait until the claims of a transport are announced."""
    room = queue.transport._operations.room
    await eventually(room.listening)
    await asyncio.sleep(0.2)  # the thread then blocks, and the first claim announces itself


def put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next look so late that it helps no test."""
    monkeypatch.setattr(waiting, "POLL", 100.0)
    for name in ("postgres", "redis"):
        monkeypatch.setattr(importlib.import_module(f"fairlane.backends.{name}.core"), "ANNOUNCED", 60.0)


@pytest.mark.backends(*WOKEN)
@pytest.mark.parametrize(
    "how",
    [
        "publish",
        "publish_many",
        "ack",
        "ack_many",
        "nack",
        "delayed nack",
        "release",
        "end of a lease",
        "end of a delay",
    ],
)
async def test_what_makes_a_message_claimable_wakes_a_claim(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The next look would be too late. Guards against an operation that forgets to wake, which the looks would hide."""
    put_off(monkeypatch)
    other = await queue.another()
    lease: Any = None
    if not how.startswith("publish"):
        await queue.publish_many([Message("g", 1), Message("g", 2)])
        lease = await other.get("w", 1.5 if how == "end of a lease" else LONG)
        if how == "end of a delay":
            await other.nack(lease, 1.5)
    waiter = await waits(queue)
    if queue.kit.backend in ("postgres", "redis"):
        await is_told(queue)
    does: dict[str, Callable[[], Awaitable[Any]]] = {
        "publish": lambda: other.publish("g", 1),
        "publish_many": lambda: other.publish_many([Message("g", 1)]),
        "ack": lambda: other.ack(lease),
        "ack_many": lambda: other.ack_many([lease]),
        "nack": lambda: other.nack(lease),
        "delayed nack": lambda: other.nack(lease, 0.5),
        "release": lambda: other.release("g"),
    }
    if how in does:
        await does[how]()
    with at_most(SOON):
        held(await waiter)


@pytest.mark.backends(*WOKEN)
async def test_a_claim_that_is_served_wakes_the_next_one_of_its_transport(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch wakes a transport once. Guards against claims that sleep on beside messages for them."""
    put_off(monkeypatch)
    number = 6
    other = await queue.another()
    waiters = [await waits(queue) for _ in range(number)]
    if queue.kit.backend in ("postgres", "redis"):
        await is_told(queue)
    await other.publish_many([Message(f"g{each}", each) for each in range(number)])
    with at_most(SOON):
        leases = await asyncio.gather(*waiters)
    assert sorted(held(lease).event for lease in leases) == list(range(number))


@on_redis
async def test_claims_of_one_transport_share_one_connection(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = counted_listeners(monkeypatch, Listener)
    number = 200 if queue.twin == "async" else 20
    waiters = [asyncio.create_task(queue.claim("w", LONG, wait=60)) for _ in range(number)]
    await is_told(queue)
    await queue.publish_many([Message(f"g{each}", each) for each in range(number)])
    with at_most(60):
        leases = await asyncio.gather(*waiters)
    assert len({held(lease).group_id for lease in leases}) == number
    assert len(opened) == 1


@on_redis
async def test_a_publish_wakes_one_transport_and_not_the_others(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []

    def hear(self: Listener, seconds: float) -> list[int]:
        found = original(self, seconds)
        heard.extend(found)
        return found

    original = Listener.hear
    monkeypatch.setattr(Listener, "hear", hear)
    others = [await queue.another() for _ in range(3)]
    waiters = [await waits(each) for each in (queue, *others)]
    for each in (queue, *others):
        await is_told(each)
    await (await queue.another()).publish("g", 1)
    with at_most(SOON):
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0.1)
    assert sum(waiter.done() for waiter in waiters) == 1
    assert heard == [0]
    await (await queue.another()).publish_many([Message(f"h{each}", each) for each in range(3)])
    with at_most(SOON):
        await asyncio.gather(*waiters)


@on_redis
async def test_nobody_is_woken_if_nobody_waits(queue: Queue) -> None:
    await queue.publish("g", 1)
    await queue.nack(await queue.get())
    await queue.ack(await queue.get())
    assert await queue.leftovers() == {}
    with queue.kit.connect(queue.name) as client:  # type: ignore[attr-defined]
        meta = f"{{{queue.name}}}:meta"
        client.zadd(f"{{{queue.name}}}:waiting", {"0": time.time() * 1e6 - 1})
        client.hset(meta, "waiting", 1)
        await queue.publish("g", 1)
        assert not client.exists(wake_ups(queue))
        assert not client.hexists(meta, "waiting")
        client.hset(meta, "waiting", 1)
        client.zadd(f"{{{queue.name}}}:waiting", {"0": time.time() * 1e6 + 60e6, "3": time.time() * 1e6 + 60e6})
        await queue.publish("h", 1, 2)
        assert client.lrange(wake_ups(queue), 0, -1) == [b"0"]


@on_redis
async def test_a_connection_that_was_killed_or_silent_costs_at_most_one_look_and_is_replaced(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent: list[Listener] = []

    def hear(self: Listener, seconds: float) -> list[int]:
        if not silent:
            silent.append(self)
        if self in silent:
            time.sleep(seconds)
            raise ConnectionError
        return original(self, seconds)

    original = Listener.hear
    monkeypatch.setattr(listening, "HEARTBEAT", 2.0)
    monkeypatch.setattr(Listener, "hear", hear)
    waiter = await waits(queue)
    await is_told(queue)
    await queue.publish("g", 1)
    with at_most(SOON):
        assert held(await waiter).event == 1
    again = await waits(queue)
    await eventually(lambda: queue.transport._operations.room._connection not in (None, silent[0]))
    await queue.publish("h", 1)
    with at_most(SOON):
        assert held(await again).event == 1


@on_redis
async def test_a_user_without_the_right_to_wait_looks_and_the_log_says_so_once(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Listener) -> None:
        raise listening.CannotListen("the user may not run BLPOP")

    monkeypatch.setattr(Listener, "_find", refused)
    with caplog.at_level(logging.WARNING, "fairlane"):
        for number in range(2):
            waiter = await waits(queue)
            await eventually(lambda: queue.transport._operations.room._refused)
            await queue.publish(f"g{number}", number)
            with at_most(SOON):
                assert held(await waiter).event == number
    said = [record.getMessage() for record in caplog.records if "may not run" in record.getMessage()]
    assert len(said) == 1, said
