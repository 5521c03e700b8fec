"""Two queues are independent, whatever their names, and both twins can share one queue."""

from __future__ import annotations

import asyncio

import pytest

from fairlane import LeaseLost
from tests.harness import LONG, Queues


@pytest.mark.cluster
async def test_two_queues_in_one_database_are_independent(queues: Queues) -> None:
    one, two = await queues.make(), await queues.make()
    assert one.name != two.name
    await one.publish("g", "one", dedup_id="id")
    assert await two.claim("w", LONG) is None
    await two.publish("g", "two", dedup_id="id")
    lease_one, lease_two = await one.get(), await two.get()
    assert (lease_one.event, lease_two.event) == ("one", "two")
    for queue, foreign in ((one, lease_two), (two, lease_one)):
        for operation in (queue.ack, queue.nack, lambda lease, queue=queue: queue.extend(lease, LONG)):
            with pytest.raises(LeaseLost):
                await operation(foreign)
    await one.ack(lease_one)
    if two.caps.exact_counts:
        assert (await two.status()).in_flight == 1
    await two.ack(lease_two)
    assert (await one.leftovers(), await two.leftovers()) == ({}, {})


async def test_queues_whose_names_begin_alike_are_independent(queues: Queues) -> None:
    """Guards against prefixes that match too much when somebody looks at a queue or removes it."""
    name = queues.fresh_name()[:29]
    made = [await queues.make(name=name + tail) for tail in ("", "0", "_")]
    for number, queue in enumerate(made):
        await queue.publish("g", number)
    for number, queue in enumerate(made):
        if queue.caps.inspect_messages:
            assert [row.event for row in await queue.messages("g")] == [number]
    await asyncio.to_thread(queues.kit.drop, made[0].name)
    for number, queue in list(enumerate(made))[1:]:
        assert await queue.drain() == [("g", number)]


async def test_both_twins_share_one_queue(queues: Queues) -> None:
    """What one twin publishes the other claims, and what one leases the other may give back."""
    queue = await queues.make()
    queues.twin = "async" if queues.twin == "sync" else "sync"
    other = await queues.open(queue.name)
    await queue.publish("g", {"from": "one"})
    lease = await other.get()
    assert lease.event == {"from": "one"}
    await queue.nack(lease)
    await other.ack(await queue.get())
    assert await queue.leftovers() == {}
