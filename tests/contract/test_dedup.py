"""Promise 9: while a message with a dedup_id waits or is leased, publishing it again adds nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.harness import SHORT, Queue

pytestmark = pytest.mark.promise(9)


@pytest.mark.cluster
async def test_dedup_a_second_publish_returns_the_first_seq_and_adds_nothing(queue: Queue) -> None:
    first = await queue.publish("g", "first", dedup_id="id")
    assert await queue.publish("g", "second", dedup_id="id") == first
    assert await queue.drain() == [("g", "first")]


@pytest.mark.cluster
async def test_dedup_counts_in_the_whole_queue_whatever_the_group(queue: Queue) -> None:
    first = await queue.publish("g", "first", dedup_id="id")
    assert await queue.publish("other", "second", dedup_id="id") == first
    if queue.caps.exact_counts:
        assert (await queue.status()).groups == 1, "the duplicate made a group"
    assert await queue.drain() == [("g", "first")]
    assert await queue.leftovers() == {}


async def test_dedup_counts_while_the_message_is_leased_expired_or_given_back(queue: Queue) -> None:
    first = await queue.publish("g", "first", dedup_id="id")
    lease = await queue.get(visibility=SHORT)
    assert await queue.publish("g", "leased", dedup_id="id") == first
    await queue.expired(lease)
    assert await queue.publish("g", "expired", dedup_id="id") == first
    lease = await queue.get()
    await queue.nack(lease)
    assert await queue.publish("g", "nacked", dedup_id="id") == first
    assert await queue.drain() == [("g", "first")]


@pytest.mark.cluster
async def test_dedup_ends_with_the_message(queue: Queue) -> None:
    first = await queue.publish("g", "first", dedup_id="id")
    await queue.drain()
    if queue.caps.dedup_seconds is None:
        again = await queue.publish("g", "second", dedup_id="id")
        assert again > first
        assert await queue.drain() == [("g", "second")]
    else:
        await queue.publish("g", "second", dedup_id="id")
        assert await queue.drain() == [], "the declared window is shorter than it says"


async def test_dedup_of_a_message_in_the_middle_of_a_group(queue: Queue) -> None:
    await queue.publish("g", "A")
    second = await queue.publish("g", "B", dedup_id="id")
    await queue.publish("g", "C")
    await queue.ack(await queue.get())
    assert await queue.publish("g", "again", dedup_id="id") == second
    assert [event for _, event in await queue.drain()] == ["B", "C"]


async def test_dedup_none_means_no_deduplication(queue: Queue) -> None:
    """Equal events without an id are two messages, also if the transport makes its own ids."""
    for _ in range(3):
        await queue.publish("g", "same")
    assert [event for _, event in await queue.drain()] == ["same"] * 3


@pytest.mark.parametrize("pair", [("a", "A"), ("a", "a "), ("é", "e\N{COMBINING ACUTE ACCENT}"), ("1", "01")])
async def test_dedup_ids_are_compared_character_by_character(queue: Queue, pair: Any) -> None:
    for dedup_id in pair:
        await queue.publish("g", dedup_id, dedup_id=dedup_id)
    assert [event for _, event in await queue.drain()] == list(pair)


@pytest.mark.parametrize("dedup_id", ["x" * 128, "\N{SNOWMAN}" * 128, "'; drop--", "{}:%s", "\n", " ", "x'6869'"])
async def test_dedup_any_text_of_up_to_128_characters_is_an_id(queue: Queue, dedup_id: Any) -> None:
    first = await queue.publish("g", 1, dedup_id=dedup_id)
    assert await queue.publish("g", 2, dedup_id=dedup_id) == first
    assert await queue.drain() == [("g", 1)]


@pytest.mark.needs("inspect_messages")
@pytest.mark.parametrize("dedup_id", ["id", "fairlane:id", "fairlane:", None])
async def test_dedup_ids_are_shown_as_they_were_given(queue: Queue, dedup_id: Any) -> None:
    """Some transports make their own ids, with a common prefix: these are not shown."""
    await queue.publish("g", 1, dedup_id=dedup_id)
    assert [row.dedup_id for row in await queue.messages("g")] == [dedup_id]


@pytest.mark.cluster
async def test_dedup_holds_among_concurrent_publishers(queue: Queue) -> None:
    """Guards against a look followed by an insert: several publishers would find nothing and insert."""
    other = await queue.another()
    for round_ in range(5):
        seqs = await asyncio.gather(
            *((queue, other)[n % 2].publish(f"g{n % 3}", n, dedup_id=f"id-{round_}") for n in range(12))
        )
        assert len(set(seqs)) == 1
    assert len(await queue.drain()) == 5
    assert await queue.leftovers() == {}


@pytest.mark.needs("priorities")
async def test_dedup_a_duplicate_changes_neither_priority_nor_place(queue: Queue) -> None:
    await queue.publish("a", 1, 0, dedup_id="id")
    await queue.publish("b", 1, 0)
    await queue.publish("a", 2, 4, dedup_id="id")
    assert await queue.claim("w", 30, 1) is None
    assert await queue.line() == ["a", "b"]
