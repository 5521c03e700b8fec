"""The functions for many messages, called by SQL and by a transport."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from fairlane import Message
from fairlane.backends.postgres.core import array
from tests.backends.postgres.sessions import Lane
from tests.harness import LONG, Queue

pytestmark = [pytest.mark.backends("postgres"), pytest.mark.promise(1, 3, 9, 12)]

GOOD = "array['g', 'h'], array['1', '2']::json[], array[0, 1], array[null, 'd']::text[]"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("array['g'], array['1', '2']::json[], array[0, 1], array[null, 'd']::text[]", "same length"),
        ("array['g', 'h'], array['1', '2']::json[], array[0], array[null, 'd']::text[]", "same length"),
        ("array['g', 'h'], array['1', '2']::json[], array[0, 1], null", "same length"),
        ("null, null, null, null", "same length"),
        ("array['g', ''], array['1', '2']::json[], array[0, 1], array[null, 'd']::text[]", "p_group_id"),
        ("array['g', null], array['1', '2']::json[], array[0, 1], array[null, 'd']::text[]", "p_group_id"),
        ("array['g', 'h'], array['1', null]::json[], array[0, 1], array[null, 'd']::text[]", "p_event"),
        ("array['g', 'h'], array['1', '2']::json[], array[0, 9], array[null, 'd']::text[]", "p_priority"),
        ("array['g', 'h'], array['1', '2']::json[], array[0, 1], array[null, '']::text[]", "p_dedup_id"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_published(lane: Lane, arguments: str, text: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=text):
        lane.rows(f"select {lane.queue}.publish_many({arguments})")
    assert lane.one(f"select count(*) from {lane.queue}.messages") == 0
    assert lane.one(f"select count(*) from {lane.queue}.group_ids") == 0


def test_sql_gets_the_seqs_the_leases_and_the_places_of_lost_leases(lane: Lane) -> None:
    seqs = [seq for (seq,) in lane.rows(f"select {lane.queue}.publish_many({GOOD})")]
    assert len(set(seqs)) == 2
    leased = lane.rows(f"select group_id, token from {lane.queue}.claim_many('w', 60, 10)")
    assert [group for group, _ in leased] == ["g", "h"]
    (_, first), (_, second) = leased
    tokens = f"array['{first}', '{first}', '{second}']::uuid[]"
    assert lane.rows(f"select {lane.queue}.ack_many(array['g', 'nobody', 'h'], {tokens})") == [(2,)]
    assert lane.one(f"select count(*) from {lane.queue}.group_ids") == 0


@pytest.mark.parametrize("limit", ["0", "1001", "null"])
def test_a_wrong_limit_of_a_claim_is_refused(lane: Lane, limit: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="p_limit"):
        lane.rows(f"select * from {lane.queue}.claim_many('w', 60, {limit})")


@pytest.mark.parametrize(
    "odd", ["a,b", "{a}", '"', "\\", '\\"', "null", "NULL", " a ", "'", "\u20ac\U0001f4a9", "\x01\n"]
)
async def test_texts_arrive_in_arrays_as_they_were_sent(queue: Queue, odd: str) -> None:
    """Guards against a text that ends its element of the array, and against the word null."""
    await queue.publish_many([Message(odd, {"text": odd}, dedup_id=odd), Message("g", odd)])
    leases = await queue.claim_many("w", LONG, 5)
    assert {lease.group_id: lease.event for lease in leases} == {odd: {"text": odd}, "g": odd}
    assert [message.dedup_id for message in await queue.messages(odd)] == [odd]
    assert await queue.ack_many(leases) == []


def test_the_text_of_an_array_is_what_postgres_reads(lane: Lane) -> None:
    values: list[Any] = [None, "", "a", '"', "\\", "{", "}", ",", "null"]
    (row,) = lane.watcher.connection.execute("select %s::text::text[]", (array(values),)).fetchall()
    assert row[0] == values


async def test_batches_that_would_wait_for_each_other_are_repeated(queue: Queue) -> None:
    """The same dedup ids in different groups are locked in opposite orders. Guards against an error for one of them, or
    against half of a batch."""
    ids = [f"d{number}" for number in range(30)]
    batches = [
        [Message(f"g{number:02}", side, dedup_id=ids[number if side else -number]) for number in range(30)]
        for side in (0, 1)
    ]
    for _ in range(4):
        found = await asyncio.gather(*(queue.publish_many(batch) for batch in batches))
        assert [len(set(seqs)) for seqs in found] == [30, 30]
    assert len(await queue.drain()) == 30
