"""A claim that waits behind other writes, or for its answer, returns a lease that has not expired yet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import Lease
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
