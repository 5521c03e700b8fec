"""Promise 9 under faults: lost answers, broken connections, full and restarted servers, killed workers."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import BackendFull, BackendUnavailable, LeaseLost
from tests.harness import LONG, SHORT, Queue, Queues, eventually
from tests.harness.processes import OtherProcess
from tests.servers.redis import Redis as RedisServer

pytestmark = pytest.mark.promise(9)

SERVERS = {
    "postgres": ("postgres",),
    "redis": ("redis", *RedisServer.keeps_data),
    "libsql": ("sqld",),
}
"""Private servers, which the tests restart. Redis keeps its log here, since otherwise it would be empty afterwards."""

own_server = [pytest.mark.backends(*SERVERS), pytest.mark.xdist_group("own-servers")]


def with_own_server(test: Any) -> Any:
    for mark in own_server:
        test = mark(test)
    return test


@pytest.fixture
async def own(queues: Queues, servers: Any) -> AsyncIterator[Any]:
    """A queue on a private server, and that server."""
    server = servers(*SERVERS[queues.kit.backend])
    queues.kit.server_url = server.url
    queue = await queues.make()
    yield queue, server
    server.start()


async def break_connections(queue: Queue, server: Any) -> None:
    """Break every connection to the server except this one."""
    if queue.caps.backend == "libsql":
        pytest.skip("sqld breaks no connections when asked to: tests/backends/libsql does it on the way")
    if queue.caps.backend == "postgres":
        import psycopg

        async with await psycopg.AsyncConnection.connect(server.url, autocommit=True) as connection:
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where pid <> pg_backend_pid() and backend_type = 'client backend'"
            )
    else:
        import redis.asyncio

        client: Any  # the driver's commands are not typed
        async with redis.asyncio.Redis.from_url(server.url) as client:
            await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


async def one_error_at_most(operation: Any, *, patience: float = 0.0) -> Any:
    """Call until it works: accept one typed error, or typed errors for `patience` seconds while the server starts."""
    end = asyncio.get_running_loop().time() + patience
    errors = 0
    while True:
        try:
            return await operation()
        except BackendUnavailable:
            errors += 1
            if asyncio.get_running_loop().time() > end:
                assert errors <= 1, "more than one error for one broken connection"
        await asyncio.sleep(0.02)


async def finish(queue: Queue, lease: Any) -> None:
    """Ack; after an error, `LeaseLost` means that it was done."""
    with contextlib.suppress(LeaseLost):
        await one_error_at_most(lambda: queue.ack(lease))


@with_own_server
@pytest.mark.parametrize("how", ["broken", "restarted", "crashed"])
async def test_faults_between_claim_and_ack_are_one_typed_error_at_most(own: Any, how: str) -> None:
    queue, server = own
    for number in range(4):
        await queue.publish("g", number)
    await queue.publish("other", "x")
    # several connections are in the pool, and all of them are broken afterwards
    held = await asyncio.gather(*(queue.claim(f"w{n}", LONG) for n in range(6)))
    lease = next(lease for lease in held if lease and lease.group_id == "g")
    if how == "broken":
        await break_connections(queue, server)
    else:
        await asyncio.to_thread(server.restart, kill=how == "crashed")
    await finish(queue, lease)
    assert (await queue.get()).event == 1, "the ack was not applied"
    await asyncio.gather(*(queue.publish(f"new-{n}", n) for n in range(12)))
    assert len([1 for name, _ in await queue.drain() if name.startswith("new")]) == 12
    other = next(lease for lease in held if lease and lease.group_id == "other")
    await queue.ack(other)
    status = await queue.status()
    assert (status.messages, status.in_flight) == (3, 1)


@with_own_server
async def test_faults_while_the_server_is_down_are_typed_and_nothing_is_lost(own: Any) -> None:
    queue, server = own
    await queue.publish("g", 1, dedup_id="kept")
    lease = await queue.get()
    await asyncio.to_thread(server.stop)
    for call in (
        queue.publish("g", 2),
        queue.claim("w", LONG),
        queue.ack(lease),
        queue.nack(lease),
        queue.extend(lease, LONG),
        queue.status(),
    ):
        with pytest.raises(BackendUnavailable) as caught:
            await asyncio.wait_for(call, 15)
        assert "127.0.0.1" in str(caught.value)
        assert "postgres:" not in str(caught.value)  # user:password
    await asyncio.to_thread(server.start)
    await one_error_at_most(lambda: queue.publish("g", 3), patience=10)
    await queue.ack(lease)
    assert [event for _, event in await queue.drain()] == [3]


@with_own_server
async def test_faults_a_transport_waits_for_a_server_that_is_not_up_yet(own: Any) -> None:
    queue, server = own
    await asyncio.to_thread(server.stop)
    opening = asyncio.ensure_future(queue.another(startup_timeout=20))
    await asyncio.sleep(0.3)
    assert not opening.done()
    await asyncio.to_thread(server.start)
    late = await opening
    await late.publish("g", 1)
    assert await late.drain() == [("g", 1)]


@with_own_server
async def test_faults_during_work_lose_nothing_that_was_accepted(own: Any) -> None:
    """Connections break again and again under publishers and workers."""
    queue, server = own
    accepted: set[int] = set()
    tried: set[int] = set()
    done: set[int] = set()
    publishing = True

    async def publisher(number: int) -> None:
        for n in range(number, 240, 3):
            tried.add(n)
            try:
                await queue.publish(f"g{n % 7}", n)
                accepted.add(n)
            except BackendUnavailable:
                continue

    async def worker(number: int) -> None:
        lease = None
        while publishing or not accepted <= done:
            try:
                lease = await queue.claim(f"w{number}", 0.5)
                if lease is None:
                    await asyncio.sleep(0.005)
                    continue
                await queue.ack(lease)
                done.add(lease.event)
            except BackendUnavailable:
                done.add(lease.event) if lease is not None else None  # perhaps acked; it was delivered in any case
            except LeaseLost:
                continue

    async def breaker() -> None:
        for _ in range(5):
            await asyncio.sleep(0.08)
            await break_connections(queue, server)

    workers = [asyncio.ensure_future(worker(n)) for n in range(3)]
    await asyncio.wait_for(asyncio.gather(*(publisher(n) for n in range(3)), breaker()), 60)
    publishing = False
    await asyncio.wait_for(asyncio.gather(*workers), 30)
    assert accepted <= done <= tried
    await eventually(lambda: drained(queue), 10)
    assert await queue.leftovers() == {}


async def drained(queue: Queue) -> Any:
    await queue.drain()
    return (await queue.status()).messages == 0


@pytest.mark.promise(3)
async def test_faults_a_killed_worker_loses_only_its_lease(queue: Queue) -> None:
    """SIGKILL comes between claim and ack. The server is not told, and no cleaning process runs."""
    if queue.caps.reach == "process":
        pytest.skip("declared: a queue in memory has no other process")
    await queue.publish("g", 1)
    await queue.publish("g", 2)
    async with OtherProcess(queue) as victim:
        theirs = await victim.call("claim", "victim", 1.0 + 2 * queue.caps.claim_wait)
        assert theirs[1] == 1
        assert await queue.claim("w", LONG) is None
        victim.kill()
    await eventually(lambda: claimable(queue), 5)
    lease = await queue.get()
    assert (lease.event, lease.attempts) == (1, 2)
    await queue.ack(lease)
    assert await queue.drain() == [("g", 2)]


async def claimable(queue: Queue) -> Any:
    if not queue.caps.exact_counts:
        return not (await queue.status()).in_flight
    return (await queue.status()).ready


@pytest.mark.backends("redis")
@pytest.mark.xdist_group("own-servers")
@pytest.mark.promise(7)
async def test_faults_redis_at_maxmemory_still_drains(queues: Queues, servers: Any) -> None:
    """Publishing is refused with a typed error and adds nothing; claim, extend, nack and ack go on."""
    queues.kit.server_url = servers("redis", "--maxmemory", "12mb").url
    queue = await queues.make()
    accepted = 0
    with pytest.raises(BackendFull) as caught:  # noqa: PT012 - which publish fails is the server's choice
        for number in range(10_000):
            await queue.publish(f"g{number % 50}", [number, "x" * 4000])
            accepted += 1
    assert "secret" not in str(caught.value)
    assert accepted > 50
    assert (await queue.status()).messages == accepted
    lease = await queue.get()
    await queue.nack(await queue.extend(lease, LONG), delay=SHORT)
    await queue.unparked(lease.group_id)
    drained = await queue.drain()
    assert sorted(event[0] for _, event in drained) == list(range(accepted))
    await queue.publish("g", "room again")
    assert await queue.drain() == [("g", "room again")]
    assert await queue.leftovers() == {}


@pytest.mark.backends("sqlite")
async def test_faults_a_locked_file_is_waited_for(queue: Queue, folder: Path) -> None:
    """Another program holds the write lock for a while. Every operation waits, and none fails."""
    other = sqlite3.connect(folder / "queue.db", isolation_level=None, check_same_thread=False)

    async def behind(operation: Any) -> Any:
        other.execute("begin immediate")
        waiting = asyncio.ensure_future(operation)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        other.execute("rollback")
        return await waiting

    await behind(queue.publish("g", 1))
    lease = await behind(queue.get())
    await behind(queue.extend(lease, LONG))
    await behind(queue.nack(lease))
    await behind(queue.ack(await queue.get()))
    assert await queue.leftovers() == {}
    other.close()


@pytest.mark.backends("sqlite")
async def test_faults_a_file_that_stays_locked_is_a_typed_error_and_nothing_is_changed(
    queue: Queue, folder: Path
) -> None:
    impatient = await queue.another(busy_timeout=0.1)
    await impatient.publish("g", 1)
    lease = await impatient.get()
    with contextlib.closing(sqlite3.connect(folder / "queue.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        for operation in (
            lambda: impatient.publish("g", 2),
            lambda: impatient.claim("w", LONG),
            lambda: impatient.ack(lease),
        ):
            with pytest.raises(BackendUnavailable, match=r"queue\.db"):
                await operation()
        assert (await impatient.status()).messages == 1, "looking does not need the lock"
        other.execute("rollback")
    await impatient.ack(lease)
    assert await queue.leftovers() == {}


@pytest.mark.backends("sqlite")
async def test_faults_a_full_file_is_a_typed_error_and_can_be_drained(
    queue: Queue, queues: Queues, folder: Path
) -> None:
    """SQLITE_FULL, as from a full disk: publishing fails and adds nothing, but existing messages can be handled."""
    await queue.fill([(f"g{n}", "x" * 500) for n in range(50)])
    if queue.twin == "sync":
        connection: Any = sqlite3.connect(folder / "queue.db", isolation_level=None, check_same_thread=False)
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages + 2}")
    else:
        import aiosqlite

        connection = await aiosqlite.connect(folder / "queue.db", isolation_level=None)
        pages = (await connection.execute_fetchall("pragma page_count"))[0][0]
        await connection.execute_fetchall(f"pragma max_page_count = {pages + 2}")
    full = queues.over(queue.name, connection)
    accepted = 0
    with pytest.raises(BackendFull):  # noqa: PT012
        for _ in range(100):
            await full.publish("new", "x" * 2000)
            accepted += 1
    assert (await queue.status()).messages == 50 + accepted
    assert len(await full.drain()) == 50 + accepted
    assert await queue.leftovers() == {}
    await queue.call(connection.close)
