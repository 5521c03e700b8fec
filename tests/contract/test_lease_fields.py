"""Promise 14: what a lease says, and that it is immutable."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta

import pytest

from fairlane import Lease
from tests.harness import LONG, Queue

pytestmark = pytest.mark.promise(14)


@pytest.mark.cluster
async def test_lease_says_all_about_its_message(queue: Queue) -> None:
    before = await queue.now()
    seq = await queue.publish("group", {"a": [1, None]})
    published = await queue.now()
    lease = await queue.get("worker", 30)
    claimed = await queue.now()
    assert type(lease) is Lease
    assert (lease.group_id, lease.event, lease.seq, lease.attempts) == ("group", {"a": [1, None]}, seq, 1)
    assert type(lease.seq) is int
    assert type(lease.attempts) is int
    assert isinstance(lease.token, str)
    assert lease.token
    slack = timedelta(seconds=2 * queue.caps.resolution + 0.001)
    assert before - slack <= lease.published_at <= published + slack
    assert published + timedelta(seconds=30) - slack <= lease.expires_at <= claimed + timedelta(seconds=30) + slack


async def test_lease_times_are_aware_and_utc(queue: Queue) -> None:
    await queue.publish("g", 1)
    lease = await queue.get()
    for moment in (lease.published_at, lease.expires_at, (await queue.extend(lease, LONG)).expires_at):
        assert isinstance(moment, datetime)
        assert moment.tzinfo is UTC or moment.utcoffset() == timedelta(0)


async def test_lease_is_frozen(queue: Queue) -> None:
    await queue.publish("g", 1)
    lease = await queue.get()
    for field in fields(Lease):
        with pytest.raises(FrozenInstanceError):
            setattr(lease, field.name, None)
    assert [field.name for field in fields(Lease)] == [
        "group_id",
        "event",
        "seq",
        "token",
        "attempts",
        "published_at",
        "expires_at",
    ]


async def test_lease_of_a_later_delivery_keeps_the_time_of_the_publish(queue: Queue) -> None:
    await queue.publish("g", 1)
    first = await queue.get()
    await queue.nack(first)
    assert (await queue.get()).published_at == first.published_at


async def test_lease_ends_the_asked_time_after_the_claim_rounded_up(queue: Queue) -> None:
    """It never ends sooner than asked, and later only by the declared resolution."""
    await queue.publish("g", 1)
    for visibility in (0.000001, 0.0123456, 1, 1.5, 43_200):
        before = await queue.now()
        lease = await queue.get("w", visibility)
        after = await queue.now()
        resolution = queue.caps.resolution
        slack = 0.000_002  # datetimes are whole microseconds
        assert (lease.expires_at - before).total_seconds() >= visibility - slack
        assert (lease.expires_at - after).total_seconds() <= visibility + 2 * resolution + slack
        if visibility < 1:
            await queue.expired(lease)
        else:
            await queue.nack(lease)
