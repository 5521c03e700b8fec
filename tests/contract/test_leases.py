"""Promise 3: the newest token decides, not the clock, and a worker that lost its lease changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlane import LeaseLost
from tests.harness import LONG, SHORT, Queue

pytestmark = pytest.mark.promise(3)

LATE = {
    "ack": lambda queue, lease: queue.ack(lease),
    "nack": lambda queue, lease: queue.nack(lease),
    "park": lambda queue, lease: queue.nack(lease, 3600),
    "extend": lambda queue, lease: queue.extend(lease, 3600),
}
late_operations = pytest.mark.parametrize("late", LATE)


async def snapshot(queue: Queue) -> Any:
    """Return all that an operation could have changed and that the backend shows, except what changes by itself."""
    if not queue.caps.inspect_messages:
        return await queue.leftovers()
    groups = [(g.group_id, g.state, g.priority, g.depth, g.worker_id, g.attempts) for g in await queue.groups()]
    messages = [(m.group_id, m.seq, m.attempts) for g in groups for m in await queue.messages(g[0])]
    return groups, messages


async def assert_lost(queue: Queue, operation: Any, lease: Any) -> None:
    """The operation must be refused, and must not have changed anything."""
    before = await snapshot(queue)
    with pytest.raises(LeaseLost) as caught:
        await LATE[operation](queue, lease)
    assert (caught.value.group_id, caught.value.seq) == (lease.group_id, lease.seq)
    assert await snapshot(queue) == before, f"a late {operation} changed something"


@late_operations
@pytest.mark.parametrize("holder", ["another-worker", "same-worker"])
async def test_leases_a_late_operation_never_touches_another_lease(queue: Queue, late: Any, holder: Any) -> None:
    """The same message was claimed again, also by a worker of the same name: guards against fencing by worker id,
    by seq, or by the state "is leased"."""
    await queue.publish("orders", "A")
    await queue.publish("orders", "B")
    old = await queue.get("same-worker", SHORT)
    await queue.expired(old)
    new = await queue.get(holder, LONG)
    assert new.seq == old.seq
    assert new.token != old.token
    await assert_lost(queue, late, old)
    if queue.caps.inspect_messages:
        assert (await queue.groups())[0].ready_in_seconds < 3600 / 2, "the late extend moved the holder's lease"
    await queue.ack(new)
    assert [event for _, event in await queue.drain()] == ["B"]


@late_operations
@pytest.mark.cluster
async def test_leases_a_late_operation_never_touches_a_refilled_group(queue: Queue, late: Any) -> None:
    """ABA: the group was drained, made again, and is leased again. Guards against tokens that are counters of a row
    that starts afresh."""
    await queue.publish("orders", "A")
    old = await queue.get("w", SHORT)
    await queue.expired(old)
    await queue.ack(await queue.get("w", LONG))
    await queue.publish("orders", "B")
    new = await queue.get("w", LONG)
    await assert_lost(queue, late, old)
    await queue.ack(new)
    assert await queue.leftovers() == {}


@late_operations
async def test_leases_a_late_operation_never_touches_the_next_message(queue: Queue, late: Any) -> None:
    """Another worker has finished this worker's message, and the group's next message is leased."""
    await queue.publish("orders", "A")
    await queue.publish("orders", "B")
    old = await queue.get("w", SHORT)
    await queue.expired(old)
    await queue.ack(await queue.get("w", LONG))
    new = await queue.get("w", LONG)
    assert new.event == "B"
    await assert_lost(queue, late, old)
    await queue.ack(new)


@late_operations
@pytest.mark.parametrize("first", ["ack", "nack", "park"])
async def test_leases_an_operation_on_a_lease_that_was_given_up_is_refused(queue: Queue, first: Any, late: Any) -> None:
    """For example an ack after an ack, or an extend after a nack."""
    await queue.publish("orders", "A")
    await queue.publish("orders", "B")
    lease = await queue.get()
    await LATE[first](queue, lease)
    await assert_lost(queue, late, lease)


@late_operations
async def test_leases_an_operation_on_a_group_that_is_gone_is_refused(queue: Queue, late: Any) -> None:
    await queue.publish("orders", "A")
    lease = await queue.get()
    await queue.ack(lease)
    await assert_lost(queue, late, lease)
    assert await queue.leftovers() == {}, f"a late {late} made something"


@late_operations
@pytest.mark.parametrize("token", ["not a token", "", "00000000-0000-0000-0000-000000000000", "é\N{SNOWMAN}"])
async def test_leases_a_made_up_token_is_refused_as_lost(queue: Queue, late: Any, token: Any) -> None:
    """A token has no form that a caller may rely on, so no form of it is a different error."""
    await queue.publish("orders", "A")
    lease = await queue.get()
    await assert_lost(queue, late, replace(lease, token=token))
    await queue.ack(lease)


@late_operations
async def test_leases_a_token_of_another_group_is_refused(queue: Queue, late: Any) -> None:
    await queue.publish("a", "A")
    await queue.publish("b", "B")
    mine, other = await queue.get(), await queue.get()
    await assert_lost(queue, late, replace(mine, token=other.token))
    await queue.ack(mine)
    await queue.ack(other)


async def test_leases_every_claim_makes_a_fresh_token(queue: Queue) -> None:
    await queue.publish("orders", "A")
    tokens = set()
    for _ in range(20):
        lease = await queue.get()
        tokens.add(lease.token)
        await queue.nack(lease)
    assert len(tokens) == 20


@pytest.mark.needs("extend_after_expiry")
@pytest.mark.cluster
async def test_leases_an_expired_lease_that_nobody_claimed_may_still_be_acked(queue: Queue) -> None:
    await queue.publish("orders", "A")
    lease = await queue.get(visibility=SHORT)
    await queue.expired(lease)
    await queue.ack(lease)
    assert await queue.leftovers() == {}


@pytest.mark.needs("extend_after_expiry")
async def test_leases_an_expired_lease_that_nobody_claimed_may_still_be_nacked(queue: Queue) -> None:
    await queue.publish("orders", "A")
    lease = await queue.get(visibility=SHORT)
    await queue.expired(lease)
    await queue.nack(lease, delay=LONG)
    if queue.caps.exact_counts:
        assert (await queue.status()).parked == 1
    assert await queue.claim("w", LONG) is None


@pytest.mark.needs("extend_after_expiry")
async def test_leases_an_expired_lease_that_nobody_claimed_may_still_be_extended(queue: Queue) -> None:
    await queue.publish("orders", "A")
    lease = await queue.get(visibility=SHORT)
    await queue.expired(lease)
    extended = await queue.extend(lease, LONG)
    assert await queue.claim("other", LONG) is None, "the extended lease does not hold"
    await queue.ack(extended)
    assert await queue.leftovers() == {}


async def test_leases_extend_moves_the_end_and_keeps_the_token(queue: Queue) -> None:
    await queue.publish("orders", "A")
    lease = await queue.get(visibility=30)
    before = await queue.now()
    longer = await queue.extend(lease, 300)
    after = await queue.now()
    assert replace(longer, expires_at=lease.expires_at) == lease, "extend changed more than the end"
    slack = 2 * queue.caps.resolution + 0.001
    assert 300 - slack <= (longer.expires_at - before).total_seconds()
    assert (longer.expires_at - after).total_seconds() <= 300 + slack
    await queue.ack(lease)  # the old object carries the same token


async def test_leases_extend_can_end_a_lease_sooner(queue: Queue) -> None:
    """It ends `visibility` seconds from now, also if this is earlier than its old end."""
    await queue.publish("orders", "A")
    lease = await queue.get(visibility=3600)
    shorter = await queue.extend(lease, SHORT)
    await queue.expired(shorter)
    again = await queue.get()
    assert (again.seq, again.attempts) == (lease.seq, 2)


async def test_leases_an_extended_lease_outlives_its_first_end(queue: Queue) -> None:
    await queue.publish("orders", "A")
    lease = await queue.get(visibility=SHORT)
    extended = await queue.extend(lease, LONG)
    await queue.expired(lease)
    assert await queue.claim("other", LONG) is None
    await queue.ack(extended)


@pytest.mark.cluster
async def test_leases_an_abandoned_lease_is_recovered_twice_in_a_row(queue: Queue) -> None:
    """No cleaning process runs here: recovery is a part of claim."""
    await queue.publish("orders", "A")
    await queue.publish("orders", "B")
    leases = []
    for _ in range(3):
        leases.append(await queue.get(visibility=SHORT))
        await queue.expired(leases[-1])
    assert [(lease.event, lease.attempts) for lease in leases] == [("A", 1), ("A", 2), ("A", 3)]
    await queue.ack(await queue.get())
    assert [event for _, event in await queue.drain()] == ["B"]


@pytest.mark.needs("priorities")
async def test_leases_an_abandoned_lease_is_recovered_with_a_floor(queue: Queue) -> None:
    """Guards against recovery that looks only at floor 0, or that puts the group back with another priority."""
    await queue.publish("low", "L", 1)
    await queue.publish("high", "H", 4)
    first = await queue.get("w", SHORT, 3)
    assert first.event == "H"
    for attempt in (2, 3):
        await queue.expired(first)
        first = await queue.get("w", SHORT, 3)
        assert (first.event, first.attempts) == ("H", attempt)
    await queue.expired(first)
    assert (await queue.get("w", LONG, 4)).event == "H"
    assert await queue.claim("w", LONG, 2) is None
    assert (await queue.get("w", LONG, 1)).event == "L"


async def test_leases_an_abandoned_lease_is_recovered_in_front_of_a_backlog(queue: Queue) -> None:
    await queue.fill([("orders", number) for number in range(50)])
    abandoned = await queue.get(visibility=SHORT)
    await queue.expired(abandoned)
    assert [event for _, event in await queue.drain()] == list(range(50))
