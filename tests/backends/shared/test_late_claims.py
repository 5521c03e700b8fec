"""A claim that waits behind other writes, or for its answer, returns a lease that has not expired yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import Lease, Message
from tests.backends.shared.breakable import servers
from tests.harness import LONG, Queue, eventually, held
from tests.harness.queues import in_thread

SHORT = 0.6
WAIT = 1.2


@pytest.mark.parametrize("after", [False, True], ids=["for its turn", "for its answer"])
@servers()
async def test_a_claim_that_waited_returns_a_lease_that_has_not_expired(queue: Queue, server: Any, after: bool) -> None:
    """Guards against a worker that begins with a message whose lease has already expired."""
    await queue.publish("g", 1)
    server.delay(WAIT, after=after)
    lease = await queue.get("w", SHORT)
    assert server.pending == 0
    assert (lease.expires_at - await in_thread(queue.kit.now, queue.name)).total_seconds() > SHORT / 3
    assert lease.attempts == 1
    await queue.ack(lease)
    assert await queue.leftovers() == {}


@servers()
async def test_the_leases_of_a_late_batch_are_extended_in_one_request(queue: Queue, server: Any) -> None:
    await queue.publish_many([Message(f"g{number}", number) for number in range(5)])
    server.delay(WAIT, after=True)
    before = server.sent
    leases = await queue.claim_many("w", SHORT, 10)
    assert server.sent == before + 2
    assert [lease.event for lease in leases] == list(range(5))
    now = await in_thread(queue.kit.now, queue.name)
    assert min((lease.expires_at - now).total_seconds() for lease in leases) > SHORT / 3
    assert await queue.ack_many(leases) == []


@servers()
async def test_a_late_batch_leaves_out_the_leases_that_others_have_taken(queue: Queue, server: Any) -> None:
    await queue.publish("first", 1)
    await queue.publish("second", 2)
    other = await queue.another()
    server.delay(WAIT, after=True)
    late = asyncio.ensure_future(queue.claim_many("w", SHORT, 2))
    await eventually(lambda: not server.pending)
    taken = await eventually(lambda: other.claim("other", LONG))
    (lease,) = await late
    assert {taken.group_id, lease.group_id} == {"first", "second"}
    await queue.ack(taken)
    await queue.ack(lease)


@servers()
async def test_the_lease_of_a_late_ack_and_claim_is_extended(queue: Queue, server: Any) -> None:
    await queue.publish_many([Message("a", 1), Message("b", 2)])
    lease = await queue.get("w", LONG)
    server.delay(WAIT, after=True)
    following = held(await queue.ack_and_claim(lease, "w", SHORT))
    assert (following.expires_at - await in_thread(queue.kit.now, queue.name)).total_seconds() > SHORT / 3
    await queue.ack(following)
    assert await queue.leftovers() == {}


@servers()
async def test_a_claim_whose_lease_expired_and_was_taken_gets_another_message(queue: Queue, server: Any) -> None:
    await queue.publish("first", 1)
    await queue.publish("second", 2)
    other = await queue.another()
    server.delay(WAIT, after=True)
    late = asyncio.ensure_future(queue.claim("w", SHORT))
    await eventually(lambda: not server.pending)
    taken = await eventually(lambda: _claimed(other, "first"))
    lease = held(await late)
    assert (taken.group_id, lease.group_id) == ("first", "second")
    await queue.ack(taken)
    await queue.ack(lease)


async def _claimed(queue: Queue, group_id: str) -> Lease[Any] | None:
    """Claim a message; nack it and return None if it is not from this group."""
    lease: Lease[Any] | None = await queue.claim("other", LONG)
    if lease is not None and lease.group_id != group_id:
        await queue.nack(lease)
        return None
    return lease
