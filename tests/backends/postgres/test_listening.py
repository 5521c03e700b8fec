"""Claims that wait on Postgres are notified over one connection, and do not depend on it."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any

import psycopg
import pytest

from fairlane import Message
from fairlane.backends.postgres.listener import Listener
from fairlane.backends.shared import listening
from fairlane.backends.stored import ANNOUNCED
from tests.contract.test_waiting import SOON, waits
from tests.harness import KITS, LONG, Queue, eventually, held
from tests.harness.waiting import at_most, counted_listeners

LISTENING = "select pid from pg_stat_activity where query like 'listen \"fairlane%' and datname = current_database()"


def server(queue: Queue) -> psycopg.Connection[Any]:
    return psycopg.connect(KITS["postgres"]().url(queue.name), autocommit=True)


def announced(connection: psycopg.Connection[Any], queue: Queue) -> list[Any]:
    """The channels of the claims that wait."""
    rows = connection.execute(f"select channel from {queue.name}.waiters where ends_at > clock_timestamp()").fetchall()
    return [channel for (channel,) in rows]


async def is_told(queue: Queue) -> str:
    """Wait until the claims of a transport are announced, and return their channel."""
    room = queue.transport._operations.room
    await eventually(room.listening)
    with server(queue) as connection:
        await eventually(lambda: room.listening() in announced(connection, queue))
    channel = room.listening()
    assert channel
    return str(channel)


@pytest.mark.backends("postgres")
@pytest.mark.promise(2)
class TestNotified:
    async def test_claims_of_one_transport_share_one_connection_which_is_closed_with_it(
        self, queue: Queue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened = counted_listeners(monkeypatch, Listener)
        number = 200 if queue.twin == "async" else 20
        with server(queue) as connection:
            waiters = [asyncio.create_task(queue.claim("w", LONG, wait=60)) for _ in range(number)]
            channel = await is_told(queue)
            pids = LISTENING.replace("fairlane%", f'{channel}"')
            assert len(connection.execute(pids).fetchall()) == 1
            assert announced(connection, queue) == [channel]
            await queue.publish_many([Message(f"g{each}", each) for each in range(number)])
            with at_most(60):
                leases = await asyncio.gather(*waiters)
            assert len({held(lease).group_id for lease in leases}) == number
            assert len(opened) == 1
            await queue.close()
            await eventually(lambda: not connection.execute(pids).fetchall())

    async def test_a_publish_wakes_one_transport_and_not_the_others(self, queue: Queue) -> None:
        """Guards against a wake-up for each transport of a fleet: all but one would claim for nothing."""
        others = [await queue.another() for _ in range(3)]
        waiters = [await waits(each) for each in (queue, *others)]
        channels = {await is_told(each) for each in (queue, *others)}
        assert len(channels) == 4
        heard: list[str] = []
        with server(queue) as connection:
            for channel in channels:
                connection.execute(f'listen "{channel}"')
            connection.add_notify_handler(lambda notify: heard.append(notify.channel))
            await (await queue.another()).publish("g", 1)
            with at_most(SOON):
                await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            connection.execute("select 1")
        assert len(heard) == 1
        assert sum(waiter.done() for waiter in waiters) == 1
        await (await queue.another()).publish_many([Message(f"h{each}", each) for each in range(3)])
        with at_most(SOON):
            await asyncio.gather(*waiters)

    async def test_nobody_is_notified_if_nobody_waits(self, queue: Queue) -> None:
        """Guards against NOTIFY in each commit, which makes commits wait for each other."""
        await queue.publish("g", 1)
        await queue.nack(await queue.get())
        with server(queue) as connection:
            connection.execute(f"insert into {queue.name}.waiters values ('gone', 0, clock_timestamp())")
            connection.execute("listen gone")
            heard: list[Any] = []
            connection.add_notify_handler(heard.append)
            await queue.publish("h", 1)
            connection.execute("select 1")
            assert heard == []
            connection.execute(f"insert into {queue.name}.waiters values ('gone', 0, clock_timestamp() + '9 s')")
            await queue.publish("i", 1)
            await eventually(lambda: connection.execute("select 1") and heard)

    async def test_an_open_publisher_does_not_keep_the_wake_ups_of_others(self, queue: Queue) -> None:
        """Its transaction has taken the announcement, and may still roll back."""
        waiter = await waits(queue)
        await is_told(queue)
        with psycopg.connect(KITS["postgres"]().url(queue.name)) as connection:
            connection.execute(f"select {queue.name}.publish('open', '1')")
            with at_most(SOON):
                await (await queue.another()).publish("g", 2)
                assert held(await waiter).event == 2
            second = await waits(queue)
            connection.commit()
        with at_most(SOON):
            assert held(await second).group_id == "open"

    @pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
    async def test_a_publish_in_an_older_snapshot_wakes_too(self, queue: Queue, isolation: str) -> None:
        """The announcement is renewed after the snapshot was taken. Guards against 40001 for the publisher."""
        waiter = await waits(queue)
        await is_told(queue)
        with psycopg.connect(KITS["postgres"]().url(queue.name)) as connection:
            connection.execute(f"set transaction isolation level {isolation}")
            connection.execute("select 1")
            await asyncio.sleep(ANNOUNCED / 2)
            connection.execute(f"select {queue.name}.publish('g', '1')")
        with at_most(SOON):
            assert held(await waiter).event == 1

    async def test_a_connection_that_was_killed_costs_at_most_one_look(self, queue: Queue) -> None:
        waiter = await waits(queue)
        channel = await is_told(queue)
        with server(queue) as connection:
            pids = LISTENING.replace("fairlane%", f'{channel}"')
            assert connection.execute(f"select pg_terminate_backend(pid) from ({pids}) as l").fetchall() == [(True,)]
            await queue.publish("g", 1)
            with at_most(SOON):
                assert held(await waiter).event == 1
            again = await waits(queue)
            await eventually(lambda: queue.transport._operations.room.listening() not in (None, channel))
        await queue.publish("h", 1)
        with at_most(SOON):
            assert held(await again).event == 1

    async def test_a_silent_connection_costs_at_most_one_look_and_is_replaced(
        self, queue: Queue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        silent: list[Listener] = []

        def hear(self: Listener, seconds: float) -> list[int]:
            if not silent:
                silent.append(self)
            if self in silent:
                time.sleep(seconds)
                return []
            return original(self, seconds)

        def check(self: Listener) -> None:
            if self in silent:
                raise TimeoutError
            original_check(self)

        original, original_check = Listener.hear, Listener.check
        monkeypatch.setattr(listening, "HEARTBEAT", 2.0)
        monkeypatch.setattr(Listener, "hear", hear)
        monkeypatch.setattr(Listener, "check", check)
        waiter = await waits(queue)
        await is_told(queue)
        await queue.publish("g", 1)
        with at_most(SOON):
            assert held(await waiter).event == 1
        again = await waits(queue)
        await eventually(lambda: queue.transport._operations.room.listening() not in (None, silent[0].name))
        await queue.publish("h", 1)
        with at_most(SOON):
            assert held(await again).event == 1


@pytest.mark.backends("pgbouncer")
@pytest.mark.promise(2)
async def test_behind_a_pooler_a_claim_looks_and_the_log_says_so_once(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fairlane"):
        for number in range(2):
            waiter = await waits(queue)
            await eventually(lambda: queue.transport._operations.room._refused)
            await queue.publish(f"g{number}", number)
            with at_most(SOON):
                assert held(await waiter).event == number
    said = [record.getMessage() for record in caplog.records if "pooler" in record.getMessage()]
    assert len(said) == 1, said


@pytest.mark.backends("postgres")
@pytest.mark.promise(7)
@pytest.mark.twins("sync")
async def test_behind_an_old_snapshot_old_announcements_cost_a_publish_nothing(queue: Queue) -> None:
    """Vacuum removes nothing then. Guards against a search that walks over the entries of all earlier waits, as it does
    with a volatile time."""
    with psycopg.connect(KITS["postgres"]().url(queue.name)) as old, server(queue) as connection:
        old.execute("set transaction isolation level repeatable read")
        old.execute("select 1")
        connection.execute(
            f"insert into {queue.name}.waiters"
            " select 'gone', 0, clock_timestamp() - n * interval '1 second' from generate_series(1, 20000) as n"
        )
        connection.execute(f"delete from {queue.name}.waiters")
        connection.execute(f"vacuum {queue.name}.waiters")
        connection.execute("load 'auto_explain'")
        for setting in ("log_min_duration = 0", "log_analyze = on", "log_buffers = on", "log_nested_statements = on"):
            connection.execute(f"set auto_explain.{setting}")
        connection.execute("set client_min_messages = log")
        plans: list[str] = []
        connection.add_notice_handler(lambda notice: plans.append(str(notice.message_primary)))
        connection.execute(f"select {queue.name}.publish('g', '1')")
        (plan,) = [plan for plan in plans if "insert into" in plan.lower() and "waiters" in plan]
        hits = re.search(r"waiters_live.*?shared hit=(\d+)", plan, re.DOTALL)
        assert hits, plan
        assert int(hits[1]) <= 12, plan
