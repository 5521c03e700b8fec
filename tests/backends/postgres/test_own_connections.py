"""A transport's own connections: threads and event loops share them, and broken ones are replaced."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any
from urllib.parse import quote

import psycopg
import psycopg_pool
import pytest

import fairlane
from fairlane import BackendUnavailable, ConfigurationError
from fairlane.backends.postgres.executor import PostgresExecutor
from fairlane.backends.postgres.sessions import OwnAsyncConnection, OwnConnection
from tests.harness import LONG, Queue, Queues, eventually

pytestmark = [pytest.mark.backends("postgres"), pytest.mark.promise(1, 9)]


def named(queue: Queue, **settings: str) -> str:
    """A URL whose sessions have the queue's name as application name, with these settings."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return f"{queue.kit.url(queue.name)}?application_name={queue.name}&options={quote(options)}"


def rows(queue: Queue, statement: str) -> list[Any]:
    with psycopg.connect(queue.kit.url(queue.name), autocommit=True) as connection:
        return connection.execute(statement, (queue.name,)).fetchall()


def sessions(queue: Queue) -> set[int]:
    return {pid for (pid,) in rows(queue, "select pid from pg_stat_activity where application_name = %s")}


def end_sessions(queue: Queue) -> None:
    rows(queue, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s")


@pytest.mark.parametrize("kind", ["own", "pool"])
@pytest.mark.parametrize("how", ["ended by an administrator", "idle for too long"])
async def test_a_connection_closed_while_idle_is_replaced_without_an_error(
    queue: Queue, queues: Queues, kind: str, how: str
) -> None:
    """Guards against an error in the first call after each pause of a worker."""
    settings = {"idle_session_timeout": "200ms"} if how == "idle for too long" else {}
    if kind == "own":
        mine = await queues.open(queue.name, url=named(queue, **settings))
    else:
        sync = queues.twin == "sync"
        pool = (psycopg_pool.ConnectionPool if sync else psycopg_pool.AsyncConnectionPool)(
            named(queue, **settings), open=False, min_size=1
        )
        await queue.call(pool.open)
        queues.afterwards(pool.close)
        mine = queues.over(queue.name, pool)
    for number in range(3):
        await mine.publish("g", number)
        if how == "ended by an administrator":
            end_sessions(queue)
        await eventually(lambda: not sessions(queue))
    assert [event for _, event in await queue.drain()] == [0, 1, 2]


async def test_a_stricter_default_isolation_does_not_matter(queue: Queue, queues: Queues) -> None:
    mine = await queues.open(queue.name, url=named(queue, default_transaction_isolation="serializable"))
    await mine.publish("g", 1)
    lease = await mine.extend(await mine.get(), LONG)
    await mine.nack(lease)
    assert await mine.drain() == [("g", 1)]


async def test_statements_are_prepared_under_names_that_no_other_client_has(queue: Queue, queues: Queues) -> None:
    """Guards against a direct connection that is mistaken for a pooler, and against the names that psycopg gives."""
    names = []
    for _ in range(2):
        mine = await queues.open(queue.name, max_connections=1)
        for number in range(10):
            await mine.publish("g", number)
        connection = mine.transport._executor._source._pool.take()
        found = await mine.call(connection.ask, "select name from pg_prepared_statements")
        mine.transport._executor._source._pool.give(connection)
        names.append({row["name"] for row in found})
    assert all(names)
    assert not names[0] & names[1]


@pytest.fixture
async def alone(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], int]]:
    """Check that no two calls use a connection at once. The function returns the most connections in use at once."""
    in_use: set[int] = set()
    most = 0
    doubles = []

    def enter(connection: Any) -> None:
        nonlocal most
        if id(connection) in in_use:
            doubles.append(connection)
        in_use.add(id(connection))
        most = max(most, len(in_use))

    blocking, awaited = OwnConnection.ask, OwnAsyncConnection.ask

    def ask(self: Any, *arguments: Any) -> Any:
        enter(self)
        try:
            return blocking(self, *arguments)
        finally:
            in_use.discard(id(self))

    async def ask_async(self: Any, *arguments: Any) -> Any:
        enter(self)
        try:
            return await awaited(self, *arguments)
        finally:
            in_use.discard(id(self))

    monkeypatch.setattr(OwnConnection, "ask", ask)
    monkeypatch.setattr(OwnAsyncConnection, "ask", ask_async)
    yield lambda: most
    assert not doubles


async def test_many_callers_share_few_connections_while_these_break_and_calls_are_cancelled(
    queue: Queue, queues: Queues, alone: Callable[[], int]
) -> None:
    """Guards against a connection that two calls use, a lost connection, and a caller that waits for ever."""
    crowd = await queues.open(queue.name, url=named(queue), max_connections=3, timeout=10)
    accepted: list[tuple[int, int]] = []
    end = time.monotonic() + 6

    async def publisher(number: int) -> None:
        each = 0
        while time.monotonic() < end:
            each += 1
            with suppress(BackendUnavailable):
                await crowd.publish(f"g{number}", each)
                accepted.append((number, each))

    async def impatient() -> None:
        while time.monotonic() < end:
            with suppress(BackendUnavailable, TimeoutError):
                if queue.twin == "async":
                    await asyncio.wait_for(crowd.status(), 0.002)
                else:
                    await crowd.status()
            await asyncio.sleep(0.01)

    async def breaker() -> None:
        while time.monotonic() < end:
            await asyncio.sleep(0.2)
            await asyncio.to_thread(end_sessions, queue)

    await asyncio.wait_for(asyncio.gather(*(publisher(n) for n in range(12)), impatient(), breaker()), 30)
    assert alone() <= 3 + 1  # a connection that was thrown away may still be in its last call
    assert len(sessions(queue)) <= 3
    stored = [(int(group[1:]), event) for group, event in await queue.drain()]
    assert set(accepted) <= set(stored)
    assert len(stored) == len(set(stored))
    assert len({number for number, _ in accepted}) == 12, "somebody was never served"


@pytest.mark.twins("async")
async def test_event_loops_in_parallel_threads_share_one_transport(
    queue: Queue, queues: Queues, alone: Callable[[], int]
) -> None:
    """Guards against a call that is not woken when another event loop gives a connection back."""
    shared = await queues.open(queue.name, max_connections=2, timeout=10)
    failures: list[BaseException] = []

    async def publish(number: int) -> None:
        await asyncio.gather(*(shared.transport.publish(f"g{number}", each) for each in range(20)))

    def loop(number: int) -> None:
        try:
            for _ in range(3):
                asyncio.run(publish(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        await shared.publish("main", 1)
        await asyncio.sleep(0.005)
    assert failures == []
    assert alone() <= 2
    assert len([1 for group, _ in await queue.drain() if group != "main"]) == 4 * 3 * 20


@pytest.mark.twins("async")
async def test_a_loop_that_ends_while_its_call_waits_blocks_no_other_loop(
    queue: Queue, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop was opening a connection, and calls of another loop wait for that connection."""
    shared = await queues.open(queue.name, max_connections=1, timeout=10)
    source = shared.transport._executor._source
    source._pool.drop(source._pool.take())
    original, began = OwnAsyncConnection.opened, threading.Event()

    async def slow(opening: Any) -> Any:
        began.set()
        await asyncio.sleep(60)

    async def give_up() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(shared.transport.publish("g", 1), 0.5)

    monkeypatch.setattr(OwnAsyncConnection, "opened", slow)
    thread = threading.Thread(target=asyncio.run, args=(give_up(),))
    thread.start()
    await asyncio.to_thread(began.wait)
    monkeypatch.setattr(OwnAsyncConnection, "opened", original)
    await asyncio.wait_for(shared.publish("g", 2), 5)
    await asyncio.to_thread(thread.join)
    assert await queue.drain() == [("g", 2)]


def test_options_may_stand_in_the_url_and_libpq_does_not_see_them() -> None:
    url = "postgresql://u:p%3F@h/db?max_connections=3&application_name=a&timeout=2.5&prepare_threshold=none"
    source: Any = PostgresExecutor.from_url(url, "q")._source
    assert source._opening.url == "postgresql://u:p%3F@h/db?application_name=a"
    assert source._opening.prepare_threshold is None
    assert (source._most, source._opening.timeout) == (3, 2.5)
    source = PostgresExecutor.from_url(url, "q", prepare_threshold=0, timeout=4)._source
    assert (source._opening.prepare_threshold, source._opening.timeout) == (0, 4)


@pytest.mark.parametrize("wrong", ["max_connections=0", "timeout=0", "prepare_threshold=-1", "timeout=x"])
def test_a_wrong_option_in_the_url_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=wrong.partition("=")[0]):
        fairlane.connect(f"postgresql://127.0.0.1:1/x?{wrong}")


@pytest.mark.parametrize("operation", ["claim", "inspect", "a refused publish"])
async def test_an_idle_connection_keeps_no_event(queue: Queue, operation: str) -> None:
    """Guards against a statement that keeps its last arguments or rows: a large event for each connection of a pool."""
    event = "x" * 1_000_000
    await queue.publish("g", event)
    if operation == "claim":
        await queue.get()
    elif operation == "inspect":
        await queue.messages("g")
    else:
        rows(queue, "select setval(format('%%I.message_seq', %s::text)::regclass, 1, false)")
        with pytest.raises(fairlane.QueueDamaged):
            await queue.publish("g", event)
    idle = list(queue.transport._executor._source._pool._idle)
    statements = [statement for connection in idle for statement in connection._statements.values()]
    assert statements
    assert not any(statement._converter.pgresult for statement in statements)
    assert not [each for each in reachable(idle) if isinstance(each, str | bytes) and len(each) > 100_000]


def reachable(objects: list[Any]) -> list[object]:
    """Return all objects that these keep alive, without classes and modules."""
    found: dict[int, object] = {}
    rest: list[object] = list(objects)
    while rest:
        each = rest.pop()
        if id(each) not in found and not isinstance(each, type | ModuleType | FunctionType):
            found[id(each)] = each
            rest.extend(gc.get_referents(each))
    return list(found.values())
