"""Promise 1: within a group, messages are delivered in publish order, and come back to the head."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness import LONG, SHORT, Queue

pytestmark = pytest.mark.promise(1)


@pytest.mark.cluster
async def test_order_messages_of_a_group_are_delivered_in_publish_order(queue: Queue) -> None:
    for number in range(12):
        await queue.publish("orders", number)
    assert await queue.drain() == [("orders", number) for number in range(12)]


async def test_order_holds_across_publishers_with_connections_of_their_own(queue: Queue) -> None:
    """Guards against sequences that give numbers in blocks: publishes A, B, A, B one after the other would come out as
    A, A, B, B."""
    other = await queue.another()
    seqs = []
    for number in range(20):
        publisher = queue if number % 2 else other
        seqs.append(await publisher.publish("orders", number))
    assert seqs == sorted(set(seqs))
    assert [event for _, event in await queue.drain()] == list(range(20))


async def test_order_of_one_group_is_not_disturbed_by_others(queue: Queue) -> None:
    for number in range(5):
        for group in ("a", "b", "c"):
            await queue.publish(group, number)
    delivered = await queue.drain()
    for group in ("a", "b", "c"):
        assert [event for name, event in delivered if name == group] == list(range(5))


async def test_order_overlapping_publishes_all_arrive_once(queue: Queue) -> None:
    seqs = await asyncio.gather(*(queue.publish("orders", number) for number in range(40)))
    assert len(set(seqs)) == 40
    delivered = [event for _, event in await queue.drain()]
    by_seq = [number for _, number in sorted(zip(seqs, range(40), strict=True))]
    assert delivered == by_seq


@pytest.mark.cluster
async def test_order_a_nacked_message_comes_back_before_the_next(queue: Queue) -> None:
    for event in "ABC":
        await queue.publish("orders", event)
    for _ in range(3):
        lease = await queue.get()
        assert lease.event == "A", "B was seen before A was acked"
        await queue.nack(lease)
    assert [event for _, event in await queue.drain()] == ["A", "B", "C"]


async def test_order_an_expired_message_comes_back_before_the_next(queue: Queue) -> None:
    for event in "ABC":
        await queue.publish("orders", event)
    abandoned = await queue.get(visibility=SHORT)
    await queue.expired(abandoned)
    lease = await queue.get()
    assert (lease.event, lease.seq) == ("A", abandoned.seq)
    await queue.ack(lease)
    assert [event for _, event in await queue.drain()] == ["B", "C"]


async def test_order_a_delayed_head_blocks_its_group_and_nothing_else(queue: Queue) -> None:
    for event in "AB":
        await queue.publish("parked", event)
    await queue.publish("free", "C")
    await queue.nack(await queue.get(), delay=LONG)
    assert await queue.drain() == [("free", "C")]
    await queue.publish("parked", "D")
    assert await queue.claim("w", LONG) is None, "a publish un-parked the group"
    if queue.caps.exact_counts:
        assert (await queue.status()).parked == 1


async def test_order_a_parked_message_comes_back_first_when_its_delay_is_over(queue: Queue) -> None:
    for event in "AB":
        await queue.publish("orders", event)
    before = await queue.get()
    start = await queue.now()
    await queue.nack(before, delay=SHORT)
    await queue.unparked("orders")
    lease = await queue.get()
    assert (lease.event, lease.seq) == ("A", before.seq)
    assert (await queue.now() - start).total_seconds() >= SHORT, "the delay was cut short"


@pytest.mark.cluster
async def test_order_a_publish_into_an_in_flight_group_waits_behind_the_lease(queue: Queue) -> None:
    await queue.publish("orders", "A")
    lease = await queue.get()
    await queue.publish("orders", "B")
    assert await queue.claim("other", LONG) is None
    await queue.ack(lease)
    assert [event for _, event in await queue.drain()] == ["B"], "the ack took what was not leased"


async def test_order_a_nack_returns_what_was_leased_whatever_was_published_meanwhile(queue: Queue) -> None:
    await queue.publish("orders", "A")
    lease = await queue.get()
    await queue.publish("orders", "B")
    await queue.nack(lease)
    assert [event for _, event in await queue.drain()] == ["A", "B"]


async def test_order_seq_grows_also_after_the_queue_was_empty(queue: Queue) -> None:
    seqs = []
    for number in range(5):
        seqs.append(await queue.publish("orders", number))
        await queue.drain()
    assert seqs == sorted(set(seqs)), "a seq was used twice"
