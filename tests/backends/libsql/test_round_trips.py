"""One operation is one request: one statement or one atomic batch. A publish has an id, so it is not applied twice."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane import Message
from fairlane.contract import MAX_DELAY, MAX_VISIBILITY
from tests.backends.libsql.relay import Relay
from tests.harness import LONG, Queue
from tests.harness.kits.libsql import LibsqlKit

pytestmark = pytest.mark.xdist_group("libsql-others")


async def test_every_operation_is_one_statement_in_one_request(queue: Queue, relay: Relay) -> None:
    await queue.publish("g", 1, 3, dedup_id="d")
    lease = await queue.get("w", LONG, 2)
    await queue.extend(lease, LONG)
    await queue.nack(lease, 60)
    await queue.claim("w", LONG)
    await queue.status()
    await queue.groups()
    await queue.messages("g")
    assert [len(request.statements) for request in relay.seen] == [1] * 8


async def test_a_cycle_of_claim_and_ack_is_two_requests(queue: Queue, relay: Relay) -> None:
    await queue.fill([("g", number) for number in range(5)])
    for _ in range(5):
        await queue.ack(await queue.get())
    assert len(relay.seen) == 10


async def test_many_messages_are_one_request(queue: Queue, relay: Relay) -> None:
    await queue.publish_many([Message(f"g{number}", number) for number in range(40)])
    one, *others = await queue.claim_many("w", LONG, 30)
    assert await queue.ack_many(others) == []
    assert await queue.ack_and_claim(one, "w", LONG)
    assert [len(request.statements) for request in relay.seen] == [40, 30, 29, 2]


async def test_writes_go_through_one_stream_that_is_kept(queue: Queue, relay: Relay) -> None:
    """Guards against a new stream for each request, as in libsql-client: it can block all writers of sqld for ever."""
    for number in range(10):
        await queue.publish("g", number)
    batons = [request.baton for request in relay.seen]
    assert batons[0] is None
    assert None not in batons[1:]
    assert not any({"type": "close"} in request.body["requests"] for request in relay.seen)


async def test_looking_needs_no_stream(queue: Queue, relay: Relay) -> None:
    await queue.groups()
    assert [(request.baton, request.body["requests"][-1]) for request in relay.seen] == [(None, {"type": "close"})]


async def test_every_publish_has_an_id_and_shows_only_those_that_callers_gave(queue: Queue, relay: Relay) -> None:
    await queue.publish("g", 1)
    await queue.publish("g", 2, dedup_id="mine")
    sent = [request.body["requests"][0]["stmt"]["named_args"] for request in relay.seen]
    ids = [{each["name"]: each["value"].get("value") for each in arguments} for arguments in sent]
    assert len({each["p_call_id"] for each in ids} - {None}) == 2
    assert [row.dedup_id for row in await queue.messages("g")] == [None, "mine"]


@pytest.mark.parametrize("start", [2**31 - 1, 2**53, 2**62])
async def test_integers_of_64_bits_are_exact(queue: Queue, start: Any) -> None:
    """Guards against integers as floats, as other clients send them above 31 bits: above 53 bits these are inexact."""
    await queue.publish("g", 1)
    change = f"update \"{queue.name}_settings\" set value = {start} where name = 'last_seq'"
    assert isinstance(queue.kit, LibsqlKit)
    await queue.call_blocking(queue.kit.send, queue.name, [(change, {})])
    seq = await queue.publish("g", 2)
    assert seq == start + 1
    await queue.ack(await queue.get())
    lease = await queue.get("w", MAX_VISIBILITY)
    assert lease.seq == seq
    lease = await queue.extend(lease, LONG)
    await queue.nack(lease, MAX_DELAY)
    (group,) = await queue.groups()
    (message,) = await queue.messages("g")
    assert message.seq == seq
    seconds = [group.ready_in_seconds, group.oldest_seconds, message.age_seconds, (await queue.status()).oldest_seconds]
    assert [type(value) for value in seconds] == [float] * 4
