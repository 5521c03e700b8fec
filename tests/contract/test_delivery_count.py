"""Promise 8: attempts counts the deliveries of this message."""

from __future__ import annotations

import pytest

from tests.harness import LONG, SHORT, Queue

pytestmark = pytest.mark.promise(8)


@pytest.mark.cluster
async def test_delivery_count_grows_by_one_with_every_claim_of_the_message(queue: Queue) -> None:
    await queue.publish("g", 1)
    attempts = []
    for way in ("nack", "expire", "park", "extend and nack", "nack"):
        lease = await queue.get(visibility=SHORT if way == "expire" else LONG)
        attempts.append(lease.attempts)
        if way == "expire":
            await queue.expired(lease)
        elif way == "park":
            await queue.nack(lease, delay=SHORT)
            await queue.unparked("g")
        else:
            await queue.nack(await queue.extend(lease, LONG) if "extend" in way else lease)
    assert attempts == [1, 2, 3, 4, 5]


async def test_delivery_count_of_the_next_message_starts_at_one(queue: Queue) -> None:
    """Guards against a count that belongs to the group."""
    await queue.publish("g", 1)
    await queue.publish("g", 2)
    for _ in range(3):
        await queue.nack(await queue.get())
    last = await queue.get()
    assert last.attempts == 4
    await queue.ack(last)
    assert (await queue.get()).attempts == 1


async def test_delivery_count_starts_at_one_in_a_refilled_group(queue: Queue) -> None:
    for number in range(2):
        await queue.publish("g", number)
        await queue.nack(await queue.get())
        lease = await queue.get()
        assert lease.attempts == 2
        await queue.ack(lease)


async def test_delivery_count_starts_at_one_after_an_expired_lease_was_acked(queue: Queue) -> None:
    await queue.publish("g", 1)
    await queue.publish("g", 2)
    lease = await queue.get(visibility=SHORT)
    await queue.expired(lease)
    lease = await queue.get()
    assert lease.attempts == 2
    await queue.ack(lease)
    assert (await queue.get()).attempts == 1


async def test_delivery_count_is_not_changed_by_extend_or_refused_calls(queue: Queue) -> None:
    await queue.publish("g", 1)
    lease = await queue.get()
    assert (await queue.extend(lease, LONG)).attempts == 1
    assert await queue.claim("w", LONG) is None
    if queue.caps.inspect_messages:
        assert (await queue.groups())[0].attempts == 1
