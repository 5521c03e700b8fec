"""Promises 1 and 9 with unusual connections: forked processes, encodings and time limits of the session."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from typing import Any
from urllib.parse import quote

import pytest

import fairlane
from fairlane import BackendUnavailable, ConfigurationError, LeaseLost, TransportClosed
from fairlane.backends.postgres.connections import PING
from fairlane.backends.postgres.pool import Pool
from fairlane.backends.postgres.sessions import OwnAsyncConnection, OwnConnection
from tests.harness import KITS, LONG, Queue, Queues, eventually

pytestmark = pytest.mark.promise(1, 9)


def in_child(work: Any) -> Any:
    """Run a function in a forked child, which never returns to the test. Return the child's exit code."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


async def ended(*children: Any) -> Any:
    return [os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1]) for child in children]


@pytest.mark.twins("sync")
@pytest.mark.cluster
@pytest.mark.backends(*(name for name, kit in KITS.items() if kit().caps.reach != "process"))
async def test_connections_are_not_shared_with_forked_children(queue: Queue) -> None:
    """Parent and children use the transport that was made before the fork. Guards against two processes on one socket,
    which would read each other's answers."""
    transport = queue.transport
    for number in range(3):
        transport.publish("before", number)

    def work(name: str) -> None:
        for number in range(40):
            transport.publish(name, number)
        transport.close()

    children = [in_child(lambda name=f"child-{n}": work(name)) for n in range(3)]
    for number in range(40):
        transport.publish("parent", number)
    assert await ended(*children) == [0, 0, 0]
    found: dict[str, list[int]] = {}
    for group, event in await queue.drain():
        found.setdefault(group, []).append(event)
    names = ("parent", "child-0", "child-1", "child-2")
    assert found == {"before": [0, 1, 2], **{name: list(range(40)) for name in names}}


@pytest.mark.twins("async")
@pytest.mark.cluster
@pytest.mark.backends(*(name for name, kit in KITS.items() if kit().caps.reach != "process"))
async def test_connections_are_not_shared_with_forked_children_of_an_event_loop(queue: Queue) -> None:
    transport = queue.transport
    await queue.publish("g", 1)

    async def work() -> None:
        for number in range(20):
            await transport.publish("child", number)
        await transport.close()

    child = in_child(lambda: asyncio.run(asyncio.wait_for(work(), 20)))
    for number in range(20):
        await transport.publish("parent", number)
    assert await ended(child) == [0]
    assert len(await queue.drain()) == 41


@pytest.mark.backends("sqlite")
async def test_connections_of_a_forked_child_keep_what_it_published_when_the_parent_closes_its_own(
    queue: Queue,
) -> None:
    """A fork copies SQLite's records of its locks into the child. Guards against a child that therefore takes no lock:
    the parent would delete the log, which the child still uses, when it closes its connection."""
    await queue.publish("before", 1)
    closed_reader, closed_writer = os.pipe()

    async def publish(number: int) -> Any:
        answer = queue.transport.publish("child", number)
        return await answer if queue.twin == "async" else answer

    async def work() -> None:
        await publish(1)
        os.read(closed_reader, 1)
        for number in range(2, 5):
            await publish(number)

    child = in_child(lambda: asyncio.run(asyncio.wait_for(work(), 20)))
    other = await queue.another()
    await queue.call(queue.transport.close)
    os.write(closed_writer, b"x")
    assert await ended(child) == [0]
    os.close(closed_reader)
    os.close(closed_writer)
    assert sorted(await other.drain()) == [("before", 1), *(("child", number) for number in range(1, 5))]


@pytest.mark.twins("sync")
@pytest.mark.backends("memory", "sqlite", "postgres")
async def test_connections_work_in_a_child_that_was_forked_while_others_were_in_a_call(queue: Queue) -> None:
    """Guards against a lock, ours or a library's, that is copied into the child while a thread of the parent holds
    it."""
    stop = threading.Event()

    def work(number: int) -> None:
        while not stop.is_set():
            queue.transport.publish(f"parent-{number}", "x" * 1000)
            lease = queue.transport.claim(f"w{number}", LONG)
            if lease is not None:
                queue.transport.ack(lease)

    def in_time() -> None:
        signal.alarm(20)  # ends the child if it hangs
        queue.transport.publish("child", 1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            await asyncio.sleep(random.uniform(0, 0.02))
            assert await ended(in_child(in_time)) == [0]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.fixture
async def pools(queue: Queue) -> Any:
    """Makes pools and connections of the application, with settings of the session."""
    import psycopg
    import psycopg_pool

    def url(**settings: Any) -> str:
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        return f"{queue.kit.url(queue.name)}?options={quote(options)}"

    async def pool(**settings: Any) -> Any:
        kind = psycopg_pool.ConnectionPool if queue.twin == "sync" else psycopg_pool.AsyncConnectionPool
        made = kind(url(**settings), min_size=1, max_size=2, open=False)
        await queue.call(made.open)
        queue.owner.afterwards(made.close)
        return made

    async def connection(**settings: Any) -> Any:
        kind = psycopg.Connection if queue.twin == "sync" else psycopg.AsyncConnection
        made = await queue.call(kind.connect, url(**settings))
        queue.owner.afterwards(made.close)
        return made

    return {"own": url, "pool": pool, "connection": connection}


@pytest.mark.twins("sync")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("kind", ["pool", "connection"])
async def test_connections_of_the_application_are_refused_in_a_forked_child(
    queue: Queue, queues: Queues, pools: Any, kind: Any
) -> None:
    given = queues.over(queue.name, await pools[kind]())
    await given.publish("g", 1)

    def work() -> None:
        with pytest.raises(ConfigurationError, match="cannot be used after a fork"):
            given.transport.publish("g", 2)

    assert await ended(in_child(work)) == [0]
    await given.publish("g", 3)


@pytest.mark.promise(10, 11)
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_connections_carry_every_text_or_are_refused(
    queue: Queue, queues: Queues, pools: Any, encoding: Any
) -> None:
    """Guards against a message with text that the session's encoding cannot hold: every claim of it would fail."""
    url = queue.kit.url(queue.name)
    other = await queue.another(url=f"{url}?client_encoding={encoding}")
    await other.publish("\N{SNOWMAN}", "\N{PILE OF POO}", dedup_id="\N{SNOWMAN}" * 128)
    assert await other.drain("\N{SNOWMAN}") == [("\N{SNOWMAN}", "\N{PILE OF POO}")]
    for kind in ("pool", "connection"):
        given = queues.over(queue.name, await pools[kind](client_encoding=encoding))
        with pytest.raises(ConfigurationError, match="client_encoding=UTF8"):
            await given.publish("g", 1)
        with pytest.raises(ConfigurationError, match="client_encoding=UTF8"):
            await given.claim("w", LONG)


@pytest.mark.promise(10, 11)
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_connections_to_a_database_that_cannot_hold_every_text_are_refused(
    queue: Queue, queues: Queues, encoding: Any
) -> None:
    import psycopg

    url, name = queue.kit.url(queue.name), queues.fresh_name()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {name} encoding '{encoding}' locale 'C' template template0")
        try:
            there = url.rpartition("/")[0] + f"/{name}"
            with pytest.raises(ConfigurationError, match="created with encoding UTF8"):
                await queue.another(url=there)
            with pytest.raises(ConfigurationError, match="created with encoding UTF8"):
                await queue.call_blocking(fairlane.migrate.upgrade, there, queue="orders")
        finally:
            connection.execute(f"drop database {name} with (force)")


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
async def test_connections_that_may_not_wait_for_a_lock_are_one_typed_error(
    queue: Queue, queues: Queues, pools: Any, setting: Any
) -> None:
    import psycopg

    await queue.publish("g", 1)
    lease = await queue.get()
    patience = {setting: "100ms"}
    impatient = [
        await queue.another(url=pools["own"](**patience)),
        queues.over(queue.name, await pools["pool"](**patience)),
    ]
    with psycopg.connect(queue.kit.url(queue.name)) as other:
        other.execute(f'lock table "{queue.name}".groups in access exclusive mode')
        for each in impatient:
            operations = (each.publish("g", 2), each.claim("w", LONG), each.ack(lease), each.status())
            for operation in operations:
                with pytest.raises(BackendUnavailable, match="timeout"):
                    await operation
    await impatient[1].ack(lease)
    assert await queue.leftovers() == {}


@pytest.mark.backends("postgres")
async def test_connections_that_were_idle_in_a_transaction_are_one_typed_error(
    queue: Queue, queues: Queues, pools: Any
) -> None:
    connection = await pools["connection"](idle_in_transaction_session_timeout="100ms")
    given = queues.over(queue.name, connection)
    await given.publish("g", 1)
    await asyncio.sleep(0.5)
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            await given.publish("g", 2)
    assert await queue.leftovers() == {}, "what was not committed stayed"


@pytest.mark.backends("postgres")
async def test_connections_of_a_pool_that_lose_a_deadlock_are_one_typed_error(queue: Queue, pools: Any) -> None:
    """The call was its own transaction, so the caller that gets the error may simply call again."""
    import psycopg

    await queue.publish("g", 0)
    loser = await queue.another(url=pools["own"](deadlock_timeout="50ms"))
    await loser.status()
    url, messages = queue.kit.url(queue.name), f'"{queue.name}".messages'
    with psycopg.connect(url) as other, psycopg.connect(url) as gate:
        other.execute("set local deadlock_timeout = '10min'")
        other.execute(f'lock table "{queue.name}".groups in access exclusive mode')
        gate.execute(
            f"insert into {messages} (group_id, seq, event, published_at, dedup_id) values ('g', 0, '0', now(), 'd')"
        )
        # a server looks for a deadlock once, when a session has waited for a while; the other session must wait by
        # then, so the gate holds the publish in the table of the messages until it does
        publishing = asyncio.ensure_future(loser.publish("g", 1, dedup_id="d"))
        await eventually(lambda: waiting(queue, f'%"{queue.name}".publish%'))
        locking = asyncio.ensure_future(
            asyncio.to_thread(other.execute, f"lock table {messages} in access exclusive mode")
        )
        await eventually(lambda: waiting(queue, f"lock table {messages}%"))
        gate.rollback()
        with pytest.raises(BackendUnavailable, match="nothing was changed"):
            await publishing
        await locking
    await loser.publish("g", 2)
    assert [event for _, event in await queue.drain()] == [0, 2]


async def waiting(queue: Queue, statement: Any) -> Any:
    """Return whether a session with such a query waits for a lock, according to the server."""
    import psycopg

    def look() -> Any:
        with psycopg.connect(queue.kit.url(queue.name)) as connection:
            ((count,),) = connection.execute(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like %s", (statement,)
            ).fetchall()
            return count

    return await asyncio.to_thread(look) > 0


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("most", [1, 2])
async def test_connections_of_a_pool_are_never_kept_from_waiting_callers(queue: Queue, pools: Any, most: Any) -> None:
    """A transport keeps one connection out of the pool between two calls. Guards against a caller that waits for the
    pool meanwhile until its timeout."""
    crowd = await queue.another(url=pools["own"](), max_connections=most, timeout=5)
    await queue.fill([(f"g{n}", n) for n in range(200)])

    async def work(number: int) -> Any:
        count = 0
        while (lease := await crowd.claim(f"w{number}", LONG)) is not None:
            await crowd.ack(lease)
            count += 1
        return count

    assert sum(await asyncio.gather(*(work(n) for n in range(8)))) == 200
    assert await queue.leftovers() == {}


def named(pools: Any, queue: Queue) -> str:
    """Return a URL whose sessions have the name of a queue on the server."""
    return f"{pools['own'](work_mem='4MB')}&application_name={queue.name}"


async def sessions(queue: Queue) -> Any:
    """Return the process ids of the sessions that are named after a queue."""
    import psycopg

    def look() -> Any:
        with psycopg.connect(queue.kit.url(queue.name)) as connection:
            found = connection.execute("select pid from pg_stat_activity where application_name = %s", (queue.name,))
            return {pid for (pid,) in found.fetchall()}

    return await asyncio.to_thread(look)


async def no_session_is_left(queue: Queue) -> None:
    """A server ends a session a little later than the client."""

    async def none() -> Any:
        return not await sessions(queue)

    await eventually(none)


@pytest.mark.backends("postgres")
async def test_connections_of_a_pool_end_with_the_transport(queue: Queue, pools: Any) -> None:
    mine = await queue.another(url=named(pools, queue))
    await mine.publish("g", 1)
    assert await sessions(queue)
    await mine.call(mine.transport.close)
    await no_session_is_left(queue)


@pytest.mark.twins("async")
@pytest.mark.backends("postgres")
async def test_connections_that_are_opened_while_the_transport_closes_end_too(
    queue: Queue, pools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = await queue.another(url=named(pools, queue))
    original, closed = OwnAsyncConnection.opened, asyncio.Event()

    async def late(opening: Any) -> Any:
        made = await original(opening)
        await closed.wait()
        return made

    monkeypatch.setattr(OwnAsyncConnection, "opened", late)
    source = mine.transport._executor._source
    source._pool.drop(source._pool.take())  # as after a break
    publishing = asyncio.ensure_future(mine.publish("g", 1))
    await eventually(lambda: source._pool._attempt)
    await mine.transport.close()
    closed.set()
    with pytest.raises(TransportClosed):
        await publishing
    await no_session_is_left(queue)


@pytest.mark.twins("async")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5])
async def test_connections_end_also_when_the_closing_task_is_cancelled(queue: Queue, pools: Any, turns: Any) -> None:
    mine = await queue.another(url=named(pools, queue))
    await asyncio.gather(*(mine.claim("w", LONG) for _ in range(5)))
    closing = asyncio.ensure_future(mine.transport.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await mine.transport.close()
    await no_session_is_left(queue)


@pytest.mark.twins("sync")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    "step", [(OwnConnection, "is_fit"), (Pool, "give"), (OwnConnection, "ask")], ids=["is_fit", "give", "ask"]
)
async def test_connections_are_not_lost_by_an_interrupt(
    queue: Queue, pools: Any, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    """Ctrl-C comes between the statement and the return to the pool. Guards against a place in the pool that is never
    given back."""
    one = await queue.another(url=pools["own"](), max_connections=1, timeout=2)
    await one.publish("g", 0)
    original = getattr(*step)
    struck: list[tuple[type, str]] = []

    def interrupted(self: Any, *arguments: Any) -> Any:
        answer = original(self, *arguments)
        if not struck:
            struck.append(step)
            raise KeyboardInterrupt
        return answer

    kind, method = step
    monkeypatch.setattr(kind, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.transport.publish("g", 1)
    assert struck
    for number in range(2, 5):
        await one.publish("g", number)


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("silent", [False, True], ids=["answers", "silent"])
async def test_connections_that_were_idle_for_long_are_tested_before_a_call(
    queue: Queue, pools: Any, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    """A firewall between client and server may drop a connection and tell neither of them. Guards against a call that
    is sent on such a connection: nobody would know whether it was carried out."""
    mine = await queue.another(url=named(pools, queue))
    await mine.publish("g", 1)
    before = await sessions(queue)
    assert len(before) == 1
    monkeypatch.setattr("fairlane.backends.postgres.connections.PING_AFTER", 0.2)
    await asyncio.sleep(0.3)
    if silent:
        kind = OwnConnection if queue.twin == "sync" else OwnAsyncConnection
        original = kind.ask

        def ask(self: Any, text: str, arguments: Any = None) -> Any:
            return original(self, "select pg_sleep(60)" if text == PING else text, arguments)

        monkeypatch.setattr(kind, "ask", ask)
        monkeypatch.setattr("fairlane.backends.postgres.connections.PING_TIMEOUT", 0.3)
    await mine.publish("g", 2)
    monkeypatch.undo()
    assert (await sessions(queue) == before) is not silent
    assert [event for _, event in await queue.drain()] == [1, 2]


@pytest.mark.backends("postgres")
async def test_connections_that_are_no_longer_used_end(
    queue: Queue, pools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against connections that a burst of calls leaves behind for ever."""
    mine = await queue.another(url=named(pools, queue))
    await asyncio.gather(*(mine.claim("w", LONG) for _ in range(8)))
    monkeypatch.setattr("fairlane.backends.postgres.pool.IDLE_SECONDS", 0.2)
    await asyncio.sleep(0.3)
    await mine.publish("g", 1)

    async def one() -> Any:
        return len(await sessions(queue)) == 1

    await eventually(one)
    await mine.publish("g", 2)


@pytest.mark.backends("postgres")
async def test_connections_may_send_every_str_as_text(queue: Queue, queues: Queues, pools: Any) -> None:
    """An application may have taught psycopg to send every str as `text`, which is not json and not uuid."""
    from psycopg.types.string import StrDumper

    client = await pools["connection"]()
    client.adapters.register_dumper(str, StrDumper)
    given = queues.over(queue.name, client)
    await given.publish("g", {"a": 1}, dedup_id="id")
    lease = await given.extend(await given.get(), LONG)
    await given.nack(lease)
    await given.ack(await given.get())
    with pytest.raises(LeaseLost):
        await given.ack(lease)
    await queue.call(client.rollback)


@pytest.mark.twins("sync")
@pytest.mark.backends("postgres")
@pytest.mark.parametrize("state", ["57014", "55P03", "25P03", "25P04", "57P04", "58030", "XX000", "XX001"])
async def test_connections_whose_server_gives_up_are_one_typed_error(queue: Queue, state: Any) -> None:
    """The error is recognised by the server's code, whatever the text says."""
    import psycopg

    with psycopg.connect(queue.kit.url(queue.name)) as connection:
        connection.execute(
            f'create or replace function "{queue.name}".ack(p_group_id text, p_token uuid) returns void'
            f" language plpgsql as $$ begin raise exception 'no more' using errcode = '{state}'; end $$"
        )
    await queue.publish("g", 1)
    lease = await queue.get()
    with pytest.raises(BackendUnavailable, match="no more"):
        await queue.ack(lease)
    await queue.nack(lease)
