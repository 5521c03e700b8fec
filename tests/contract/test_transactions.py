"""Publishing inside the application's transactions: order, claims and drained groups while transactions are open."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from fairlane import ConfigurationError, LeaseLost
from tests.harness import LONG, SHORT, Queue, Queues, eventually

pytestmark = [pytest.mark.promise(1, 3), pytest.mark.backends("postgres")]

PATIENCE = 10.0
"""If a call that must not wait takes more seconds than this, it counts as waiting."""


@asynccontextmanager
async def connected(queue: Queue) -> AsyncIterator[Any]:
    """A connection of the application, with psycopg's own transactions. Open transactions are rolled back at the
    end."""
    import psycopg

    connection = await psycopg.AsyncConnection.connect(queue.kit.url(queue.name))
    try:
        yield connection
    finally:
        await connection.close()


async def publish(connection: Any, queue: Queue, group_id: Any, event: Any, dedup_id: Any = None) -> Any:
    """Publish as SQL, inside the connection's transaction."""
    cursor = await connection.execute(
        f'select "{queue.name}".publish(%s, to_json(%s::text), 0, %s)', (group_id, event, dedup_id)
    )
    return (await cursor.fetchone())[0]


async def in_time(awaitable: Any) -> Any:
    """Await a call that must not wait for another transaction."""
    return await asyncio.wait_for(awaitable, PATIENCE)


@pytest.mark.parametrize("way", ["ack", "nack", "expiry"])
async def test_transactions_a_smaller_seq_that_commits_while_a_larger_one_is_leased(queue: Queue, way: str) -> None:
    """The lease acts on the message that was leased, not on the head. After a nack the leased message comes first
    again, since it has been delivered before."""
    await queue.publish("g", "zero")
    zero = await queue.get()
    async with connected(queue) as slow:
        smaller = await publish(slow, queue, "g", "smaller")
        larger = await in_time(queue.publish("g", "larger"))
        assert smaller < larger
        await queue.ack(zero)
        lease = await in_time(queue.get(visibility=SHORT if way == "expiry" else LONG))
        assert (lease.event, lease.seq) == ("larger", larger)
        await slow.commit()
    if way == "ack":
        await queue.ack(lease)
    else:
        if way == "expiry":
            await queue.expired(lease)
        else:
            await queue.nack(lease)
        again = await queue.get()
        assert (again.event, again.attempts) == ("larger", 2), "another message came between the deliveries of one"
        with pytest.raises(LeaseLost):
            await queue.ack(lease)
        await queue.ack(again)
    last = await queue.get()
    assert (last.event, last.seq, last.attempts) == ("smaller", smaller, 1)
    await queue.ack(last)
    assert await queue.leftovers() == {}


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_transactions_no_call_waits_for_an_open_publisher(queue: Queue, end: Any) -> None:
    """A publishes, and its transaction stays open. B publishes, claims and acks in the same group, which then looks
    empty. Guards against a group that is dropped although A's message will need it, and against an ack or claim that
    waits for A."""
    await queue.publish("g", "first")
    async with connected(queue) as slow:
        await publish(slow, queue, "g", "from A")
        await in_time(queue.publish("g", "from B"))
        assert [event for _, event in await in_time(queue.drain())] == ["first", "from B"]
        assert await in_time(queue.claim("w", LONG)) is None
        await queue.publish("other", "x")
        assert await in_time(queue.drain()) == [("other", "x")]
        await (slow.commit() if end == "commit" else slow.rollback())
    assert [event for _, event in await queue.drain()] == (["from A"] if end == "commit" else [])
    assert await queue.claim("w", LONG) is None
    assert await queue.leftovers() == {}, "a group that looks empty stayed for ever"


async def test_transactions_a_group_that_looks_empty_hides_no_other_group(queue: Queue) -> None:
    """Twenty such groups stand first in line, all with open publishers."""
    for n in range(20):
        await queue.publish(f"g{n}", "first")
    async with connected(queue) as slow:
        for n in range(20):
            await publish(slow, queue, f"g{n}", "from A")
        assert len(await queue.drain()) == 20
        await queue.publish("other", 1)
        await queue.publish("other", 2)
        await queue.ack(await in_time(queue.get()))
        assert (await in_time(queue.get())).event == 2
        await slow.commit()
    assert [event for _, event in await queue.drain()] == ["from A"] * 20


async def test_transactions_an_uncommitted_publish_is_not_delivered(queue: Queue) -> None:
    async with connected(queue) as slow:
        await publish(slow, queue, "g", "A")
        assert await in_time(queue.claim("w", LONG)) is None
        assert (await queue.status()).messages == 0
        await slow.commit()
    assert await queue.drain() == [("g", "A")]


async def test_transactions_slow_and_rolled_back_publishers_over_draining_groups_lose_nothing(queue: Queue) -> None:
    """Transactions of up to 50 ms, a fifth of them rolled back, publish into few groups that workers keep empty. Guards
    against a message that is lost because its group was dropped meanwhile."""
    groups = [f"g{n}" for n in range(4)]
    committed: list[tuple[str, str]] = []
    drained: list[tuple[str, str]] = []
    publishing = True

    async def publisher(number: int) -> None:
        async with connected(queue) as connection:
            for count in range(30):
                chosen = sorted(random.sample(groups, random.choice([1, 1, 2])))
                events = [(group, f"{number}-{count}-{group}") for group in chosen]
                for group, event in events:
                    await publish(connection, queue, group, event)
                await asyncio.sleep(random.choice([0, 0, 0.005, 0.02, 0.05]))
                if random.random() < 0.2:
                    await connection.rollback()
                else:
                    await connection.commit()
                    committed.extend(events)

    async def worker(number: int) -> None:
        while publishing or (await queue.status()).messages:
            lease = await queue.claim(f"w{number}", LONG)
            if lease is None:
                await asyncio.sleep(0.002)
                continue
            drained.append((lease.group_id, lease.event))
            await queue.ack(lease)

    workers = [asyncio.ensure_future(worker(n)) for n in range(4)]
    await asyncio.wait_for(asyncio.gather(*(publisher(n) for n in range(5))), 60)
    publishing = False
    await asyncio.wait_for(asyncio.gather(*workers), 20)
    assert sorted(drained) == sorted(committed), "a message was lost, or delivered twice"
    for number in range(5):  # the transactions of one publisher follow each other
        for group in groups:
            mine = [int(event.split("-")[1]) for name, event in drained if name == group and event[0] == str(number)]
            assert mine == sorted(mine), "a group got out of order"
    assert await queue.claim("w", LONG) is None
    assert await queue.leftovers() == {}


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_transactions_an_equal_dedup_id_waits_for_the_first_transaction(queue: Queue, end: Any) -> None:
    async with connected(queue) as slow:
        first = await publish(slow, queue, "g", "first", "id")
        second = asyncio.ensure_future(queue.publish("g", "second", dedup_id="id"))
        await eventually(lambda: waiting(queue))
        assert not second.done()
        await (slow.commit() if end == "commit" else slow.rollback())
        seq = await in_time(second)
    assert (seq == first) == (end == "commit")
    assert [event for _, event in await queue.drain()] == ["first" if end == "commit" else "second"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_transactions_first_publishers_of_a_new_group_wait_for_each_other(queue: Queue, end: Any) -> None:
    async with connected(queue) as slow:
        await publish(slow, queue, "new", "first")
        second = asyncio.ensure_future(queue.publish("new", "second"))
        await eventually(lambda: waiting(queue))
        await (slow.commit() if end == "commit" else slow.rollback())
        await in_time(second)
    expected = ["first", "second"] if end == "commit" else ["second"]
    assert [event for _, event in await queue.drain()] == expected


async def waiting(queue: Queue) -> Any:
    """Return whether a session waits for a lock in this queue, according to the server."""
    async with connected(queue) as connection:
        cursor = await connection.execute(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like %s",
            (f'%"{queue.name}".publish%',),
        )
        return (await cursor.fetchone())[0] > 0


async def test_transactions_that_make_new_groups_in_opposite_orders_deadlock_and_can_be_repeated(queue: Queue) -> None:
    """As documented, one of the two fails with 40P01, changes nothing, and succeeds when it is repeated."""
    import psycopg

    async with connected(queue) as one, connected(queue) as two:
        await publish(one, queue, "a", "one")
        await publish(two, queue, "b", "two")
        results = await asyncio.gather(
            publish(one, queue, "b", "one"), publish(two, queue, "a", "two"), return_exceptions=True
        )
        failed = [result for result in results if isinstance(result, BaseException)]
        assert [type(error) for error in failed] == [psycopg.errors.DeadlockDetected]
        loser = (one, two)[[isinstance(result, BaseException) for result in results].index(True)]
        winner = two if loser is one else one
        await loser.rollback()
        await winner.commit()
        for group in ("a", "b"):
            await publish(loser, queue, group, "again")
        await loser.commit()
    drained = await queue.drain()
    assert sorted(group for group, _ in drained) == ["a", "a", "b", "b"]
    assert [event for _, event in drained].count("again") == 2


async def client(queue: Queue) -> Any:
    """A connection as an application with this twin would use it."""
    connection = await queue.call(queue.kit.connection, queue.name, queue.twin)
    queue.owner.afterwards(connection.close)  # an open transaction would keep the queue from being removed
    return connection


async def test_transactions_operations_on_a_given_connection_join_its_transaction(queue: Queue, queues: Queues) -> None:
    connection = await client(queue)
    mine = queues.over(queue.name, connection)
    await mine.publish("g", "lost")
    await mine.call(connection.rollback)
    assert await queue.claim("w", LONG) is None
    await mine.publish("g", "kept")
    assert await queue.claim("w", LONG) is None, "it was visible before the commit"
    await mine.call(connection.commit)
    lease = await mine.get()
    assert lease.event == "kept"
    await mine.ack(lease)
    await mine.call(connection.rollback)  # the claim and the ack were rolled back
    lease = await queue.get()
    assert (lease.event, lease.attempts) == ("kept", 1)
    await mine.close()
    assert not connection.closed, "closing the transport closed the application's connection"


async def test_transactions_go_on_after_a_lost_lease_that_had_a_savepoint_of_its_own(
    queue: Queue, queues: Queues
) -> None:
    await queue.publish("g", 1)
    late = await queue.get(visibility=SHORT)
    await queue.expired(late)
    holder = await queue.get()
    connection = await client(queue)
    mine = queues.over(queue.name, connection)

    async def within(work: Any) -> None:
        """Run the block in a nested transaction, inside the open one."""
        await queue.call(connection.execute, "savepoint here")
        try:
            await work()
        except (LeaseLost, ZeroDivisionError):
            await queue.call(connection.execute, "rollback to savepoint here")

    async def half_done() -> None:
        await mine.publish("h", "undone", dedup_id="id")
        await mine.publish("new", "undone")
        raise ZeroDivisionError

    await mine.publish("h", "before")
    await within(lambda: mine.ack(late))
    await within(half_done)
    await mine.publish("h", "after", dedup_id="id")
    await queue.call(connection.commit)
    await queue.ack(holder)
    assert await queue.drain() == [("h", "before"), ("h", "after")]
    assert await queue.leftovers() == {}


async def test_transactions_times_do_not_stand_still_inside_one(queue: Queue, queues: Queues) -> None:
    """Guards against `now()`, which returns the time of the transaction's start."""
    await queue.publish("g", 1)
    await queue.publish("h", 1)
    connection = await client(queue)
    mine = queues.over(queue.name, connection)
    await queue.call(connection.execute, "select pg_sleep(0.3)")
    before = await queue.now()
    lease = await mine.get("w", 5)
    assert lease.expires_at >= before + timedelta(seconds=5)
    await queue.call(connection.execute, "select pg_sleep(0.1)")
    extended = await mine.extend(lease, 5)
    assert extended.expires_at >= lease.expires_at + timedelta(seconds=0.1)
    await mine.nack(lease)
    assert await mine.line() == ["h", "g"], "what was given back in this transaction is not claimable in it"
    await mine.call(connection.commit)
    assert await queue.claim("w", LONG) is None


@pytest.mark.promise(13)
@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
async def test_transactions_of_a_stricter_isolation_level_are_refused(queue: Queue, queues: Queues, level: Any) -> None:
    """At such a level the second look of ack cannot see a message that was just committed, and would drop its group."""
    import psycopg

    await queue.publish("g", 1)
    lease = await queue.get()
    connection = await client(queue)
    if queue.twin == "sync":
        connection.isolation_level = psycopg.IsolationLevel[level]
    else:
        await connection.set_isolation_level(psycopg.IsolationLevel[level])
    mine = queues.over(queue.name, connection)
    for refused in (mine.claim("w", LONG), mine.ack(lease), mine.nack(lease), mine.extend(lease, LONG)):
        with pytest.raises(ConfigurationError, match="READ COMMITTED"):
            await refused
        await mine.call(connection.rollback)
    await mine.publish("g", 2)
    await mine.call(connection.commit)
    await queue.ack(lease)
    assert await queue.drain() == [("g", 2)]


async def test_transactions_of_our_own_are_read_committed_whatever_the_default_is(queue: Queue) -> None:
    """Guards against a default of the role or the database with which all procedures except publish refuse to work."""
    url = queue.kit.url(queue.name)
    mark = "&" if "?" in url else "?"
    strict = await queue.another(url=f"{url}{mark}options=-c%20default_transaction_isolation%3Dserializable")
    await strict.publish("g", 1)
    await strict.ack(await strict.get())


async def test_transactions_an_empty_group_kept_by_an_open_publisher_starts_again_as_new(queue: Queue) -> None:
    """Its row could not be dropped, but the group was empty. So the next publish sets a new priority and a new
    place."""
    await queue.publish("kept", "first", 0)
    async with connected(queue) as slow:
        await publish(slow, queue, "kept", "from A")
        assert len(await in_time(queue.drain())) == 1
        await slow.rollback()
    await queue.publish("served", 1)
    await queue.publish("served", 2)
    await queue.ack(await queue.get())
    await queue.publish("kept", "again", 3)
    lease = await queue.get("w", LONG, 3)
    assert (lease.group_id, lease.event) == ("kept", "again")
    await queue.nack(lease)
    await queue.publish("new", 1)
    assert await queue.line() == ["new", "served", "kept"]
