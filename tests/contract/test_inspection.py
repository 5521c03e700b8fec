"""The figures that operators see: they must agree with what the operations do, and change nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.harness import LONG, SHORT, Queue

pytestmark = pytest.mark.needs("inspect_messages")


@pytest.mark.cluster
async def test_inspection_of_an_empty_queue(queue: Queue) -> None:
    status = await queue.status()
    assert (status.queue, status.groups, status.ready, status.in_flight, status.parked) == (queue.name, 0, 0, 0, 0)
    assert (status.messages, status.oldest_seconds) == (0, None)
    assert list(await queue.groups()) == []
    assert list(await queue.messages("nothing")) == []


async def populate(queue: Queue) -> Any:
    """One group in each state; returns the leases of those that had one."""
    top = 3 if queue.caps.priorities else 0
    for number in range(3):
        await queue.publish("in_flight", number, top, dedup_id=f"d{number}")
    await queue.publish("parked", "P")
    await queue.publish("expired", "E")
    in_flight = await queue.get("busy", LONG)
    await queue.nack(await queue.get("lazy"), delay=LONG)
    expired = await queue.get("gone", SHORT)
    for number in range(2):
        await queue.publish("ready", number)
    await queue.expired(expired)
    return in_flight, expired


@pytest.mark.cluster
async def test_inspection_counts_groups_by_state(queue: Queue) -> None:
    await populate(queue)
    status = await queue.status()
    assert (status.groups, status.ready, status.in_flight, status.parked, status.messages) == (4, 2, 1, 1, 7)
    assert status.oldest_seconds is not None
    assert 0 < status.oldest_seconds < 60


@pytest.mark.cluster
async def test_inspection_shows_groups_in_the_order_of_the_line(queue: Queue) -> None:
    await populate(queue)
    rows = await queue.groups()
    shown = [(row.group_id, row.state, row.depth, row.worker_id, row.attempts) for row in rows]
    assert shown[:2] == [("ready", "ready", 2, None, 0), ("expired", "ready", 1, "gone", 1)]
    assert sorted(shown[2:]) == [("in_flight", "in_flight", 3, "busy", 1), ("parked", "parked", 1, None, 1)]
    by_name = {row.group_id: row for row in rows}
    assert by_name["in_flight"].priority == (3 if queue.caps.priorities else 0)
    assert [by_name[name].ready_in_seconds for name in ("ready", "expired")] == [0, 0]
    for name in ("in_flight", "parked"):
        assert LONG - 30 < by_name[name].ready_in_seconds <= LONG + 2 * queue.caps.resolution
    ages = {row.group_id: row.oldest_seconds for row in rows if row.oldest_seconds is not None}
    assert ages.keys() == by_name.keys()
    assert all(0 <= age < 60 for age in ages.values())
    assert ages["in_flight"] >= ages["ready"]
    line = await queue.line()
    assert line == ["ready", "expired"]


@pytest.mark.cluster
async def test_inspection_shows_messages_head_first(queue: Queue) -> None:
    lease, _ = await populate(queue)
    rows = await queue.messages("in_flight")
    shown = [(row.state, row.position, row.attempts, row.dedup_id, row.event) for row in rows]
    assert shown == [
        ("in_flight", 1, 1, "d0", 0),
        ("waiting", 2, 0, "d1", 1),
        ("waiting", 3, 0, "d2", 2),
    ]
    assert (rows[0].seq, rows[0].published_at) == (lease.seq, lease.published_at)
    assert [row.seq for row in rows] == sorted(row.seq for row in rows)
    now = await queue.now()
    for row in rows:
        assert row.group_id == "in_flight"
        assert row.published_at.utcoffset() == timedelta(0)
        assert 0 <= row.age_seconds <= (now - row.published_at).total_seconds() + 1
    assert [row.state for row in await queue.messages("expired")] == ["waiting"]
    assert [(row.attempts, row.dedup_id) for row in await queue.messages("expired")] == [(1, None)]


async def test_inspection_limits_its_rows(queue: Queue) -> None:
    await queue.fill([(f"g{n}", number) for number in range(4) for n in range(7)])
    assert [row.group_id for row in await queue.groups(limit=3)] == ["g0", "g1", "g2"]
    assert [row.event for row in await queue.messages("g5", limit=2)] == [0, 1]
    assert len(await queue.groups()) == 7


async def test_inspection_changes_nothing(queue: Queue) -> None:
    lease, expired = await populate(queue)
    for _ in range(2):
        await queue.status()
        await queue.groups()
        await queue.messages("in_flight")
    await queue.ack(lease)
    await queue.ack(expired)
    assert await queue.line() == ["ready", "in_flight"]


async def test_inspection_sees_attempts_of_a_given_back_message_and_resets_them_with_the_next(queue: Queue) -> None:
    await queue.publish("g", 1)
    await queue.publish("g", 2)
    await queue.nack(await queue.get())
    assert [(row.state, row.attempts) for row in await queue.messages("g")] == [("waiting", 1), ("waiting", 0)]
    await queue.ack(await queue.get())
    assert [(row.event, row.attempts) for row in await queue.messages("g")] == [(2, 0)]
    row = (await queue.groups())[0]
    assert (row.state, row.worker_id, row.attempts, row.depth) == ("ready", None, 0, 1)
