"""Promise 5: the group that has waited longest goes first; new groups have a head start; ties are decided by the order
of events."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from tests.harness import LONG, SHORT, Queue, Queues

pytestmark = [pytest.mark.promise(5), pytest.mark.needs("fairness")]

# The last group is the first one by name, so an order by name would be noticed.
NAMES = [f"group-{n:02}" for n in range(12, 0, -1)]

HOUR = 3600
"""A head start that lasts longer than any test, however slow the machine."""


@pytest.mark.cluster
async def test_fairness_new_groups_go_in_the_order_of_their_first_publish(queue: Queue) -> None:
    for name in NAMES:
        await queue.publish(name, 1)
    for name in sorted(NAMES):
        await queue.publish(name, 2)
    assert await queue.line() == NAMES


@pytest.mark.needs("head_start")
async def test_fairness_a_new_group_goes_before_those_served_within_the_head_start(queues: Queues) -> None:
    queue = await queues.make(head_start=HOUR)
    for name in NAMES[:3]:
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    for _ in range(3):
        await queue.ack(await queue.get())
    await queue.publish("new", 1)
    assert await queue.line() == ["new", *NAMES[:3]]


@pytest.mark.needs("head_start")
async def test_fairness_a_refilled_group_is_new_again(queues: Queues) -> None:
    queue = await queues.make(head_start=HOUR)
    await queue.publish("drained", 1)
    await queue.ack(await queue.get())
    await queue.publish("backlog", 1)
    await queue.publish("backlog", 2)
    await queue.ack(await queue.get())
    await queue.publish("drained", 2)
    assert await queue.line() == ["drained", "backlog"]


@pytest.mark.parametrize("way", ["ack", "nack", "expiry"])
async def test_fairness_a_served_group_goes_to_the_back(queue: Queue, way: str) -> None:
    for name in NAMES[:4]:
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    leases = [await queue.get(visibility=SHORT if way == "expiry" else LONG) for _ in range(4)]
    order = [leases[n] for n in (2, 0, 3, 1)]
    if way == "expiry":
        order = leases = sorted(leases, key=lambda lease: lease.expires_at)
        await queue.expired(*leases)
    for lease in order:
        if way == "ack":
            await queue.ack(lease)
        elif way == "nack":
            await queue.nack(lease)
    assert await queue.line() == [lease.group_id for lease in order]


async def test_fairness_the_place_is_the_end_of_a_lease_not_its_claim(queue: Queue) -> None:
    """Guards against an order by the time of the claim: A was claimed first and finished last."""
    for name in ("A", "B"):
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    first, second = await queue.get(), await queue.get()
    assert first.group_id == "A"
    await queue.ack(second)
    await queue.ack(first)
    assert await queue.line() == ["B", "A"]


async def test_fairness_an_expired_lease_stands_at_the_time_of_its_expiry(queue: Queue) -> None:
    """It does not stand at the time of its claim, and it is not moved to the front."""
    for name in ("expires", "before", "after"):
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    expires = await queue.get(visibility=SHORT)
    before = await queue.get()
    after = await queue.get()
    await queue.ack(before)
    acked_in_time = await queue.now() < expires.expires_at
    await queue.expired(expires)
    await queue.ack(after)
    line = await queue.line()
    assert line[-1] == "after"
    if acked_in_time:  # a busy machine may have slept longer than the lease
        assert line == ["before", "expires", "after"]


async def test_fairness_a_parked_group_stands_at_the_end_of_its_delay(queue: Queue) -> None:
    for name in ("parked", "other"):
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    parked, other = await queue.get(), await queue.get()
    await queue.nack(parked, delay=SHORT)
    await queue.unparked("parked")
    await queue.ack(other)
    assert await queue.line() == ["parked", "other"]


async def test_fairness_a_publish_does_not_move_a_group(queue: Queue) -> None:
    for name in ("A", "B"):
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    for _ in range(2):
        await queue.ack(await queue.get())
    await queue.publish("B", 3)
    await queue.publish("A", 3)
    assert await queue.line() == ["A", "B"]


@pytest.mark.parametrize("operation", ["ack", "nack"])
async def test_fairness_groups_served_within_one_tick_go_in_the_order_of_events(queue: Queue, operation: Any) -> None:
    """One caller goes as fast as it can. Times in milliseconds, or ties that are decided by name, would mix up the
    order."""
    names = [f"{n:03}" for n in range(99, -1, -1)]
    await queue.fill([(name, number) for number in range(3) for name in names])
    for _ in range(2):
        leases = [await queue.get() for _ in names]
        assert [lease.group_id for lease in leases] == names
        for lease in leases:
            await getattr(queue, operation)(lease)


async def test_fairness_a_backlog_with_a_leased_head_hides_no_other_group(queue: Queue) -> None:
    """One group has 2,000 messages and stands before another group. Guards against a claim that scans a window of
    messages."""
    await queue.fill([("backlog", number) for number in range(min(2000, queue.caps.tested_messages))])
    await queue.publish("other", 1)
    head = await queue.get()
    assert head.group_id == "backlog"
    lease = await queue.get()
    assert lease.group_id == "other"
    assert await queue.claim("w", LONG) is None
    await queue.ack(head)
    assert (await queue.get()).event == 1


async def test_fairness_a_backlog_does_not_monopolise_workers(queue: Queue) -> None:
    await queue.fill([("backlog", number) for number in range(300)])
    await queue.fill([("small", number) for number in range(5)])
    served = []
    for _ in range(10):
        lease = await queue.get()
        served.append(lease.group_id)
        await queue.ack(lease)
    assert served == ["backlog", "small"] * 5


@pytest.mark.needs("head_start")
@pytest.mark.cluster
@pytest.mark.parametrize("head_start", [None, 0.3, 0])
async def test_fairness_a_new_group_goes_behind_one_that_has_waited_longer_than_the_head_start(
    queues: Queues, head_start: Any
) -> None:
    """None is the default, one second."""
    queue = await queues.make(head_start=head_start)
    await queue.publish("served", 1)
    await queue.publish("served", 2)
    await queue.ack(await queue.get())
    acked = await queue.now()
    await queue.expired(acked + timedelta(seconds=1 if head_start is None else head_start))
    await queue.publish("new", 1)
    assert await queue.line() == ["served", "new"]


async def test_fairness_the_head_start_is_a_second_by_default(queue: Queue) -> None:
    """The counterpart of the test above: guards against a shorter head start."""
    for number in range(20):
        old, new = f"old-{number}", f"new-{number}"
        await queue.publish(old, 1)
        await queue.publish(old, 2)
        before = await queue.now()
        await queue.ack(await queue.get())
        await queue.expired(await queue.now() + timedelta(seconds=0.5 - 2 * queue.caps.resolution))
        await queue.publish(new, 1)
        in_time = (await queue.now() - before).total_seconds() < 1 - 2 * queue.caps.resolution
        line = await queue.line()
        if in_time:  # otherwise the machine was busy
            assert line == [new, old]
            return
    raise AssertionError("this machine never came to a claim within a second")


@pytest.mark.needs("head_start")
@pytest.mark.cluster
async def test_fairness_groups_drained_and_refilled_hold_a_backlog_back_for_the_head_start_at_most(
    queues: Queues,
) -> None:
    """Guards against starvation: with new groups before all served ones, the backlog would be served once."""
    head_start = 0.25
    queue = await queues.make(head_start=head_start)
    slack = 3 * queue.caps.resolution + 0.01  # the queue's clock may differ from ours
    published = {f"busy-{number}": 0.0 for number in range(5)}
    for number in range(6):
        await queue.publish("backlog", number)
    since = time.monotonic()
    for name in published:
        await queue.publish(name, 1)
    served = others = 0
    while served < 5:
        lease = await queue.get()
        await queue.ack(lease)
        if lease.group_id == "backlog":
            served += 1
            since = time.monotonic()
            continue
        others += 1
        waited = published[lease.group_id] - since
        assert waited < head_start + slack, f"a group made {waited:.3f} s after the backlog was served went before it"
        published[lease.group_id] = time.monotonic()
        await queue.publish(lease.group_id, 1)
    assert others >= 4 * len(published), "new groups had no head start"


@pytest.mark.needs("head_start")
async def test_fairness_with_always_new_groups_go_before_all_served_ones_for_ever(queues: Queues) -> None:
    queue = await queues.make(head_start="always")
    await queue.publish("served", 1)
    await queue.publish("served", 2)
    await queue.ack(await queue.get())
    await queue.expired(await queue.now() + timedelta(seconds=1.1))  # longer than the default
    for name in NAMES:
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    for name in NAMES:
        lease = await queue.get()
        assert lease.group_id == name
        await queue.ack(lease)
    assert await queue.line() == ["served", *NAMES]


@pytest.mark.needs("head_start")
@pytest.mark.cluster
async def test_fairness_without_a_head_start_there_is_one_time_line(queues: Queues) -> None:
    queue = await queues.make(head_start=0)
    await queue.publish("served", 1)
    await queue.publish("served", 2)
    await queue.publish("served", 3)
    await queue.ack(await queue.get())
    for name in NAMES[:3]:
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    assert (await queue.get()).group_id == "served", "a new group went before one that had waited longer"
    assert await queue.line() == NAMES[:3]


@pytest.mark.needs("head_start")
async def test_fairness_without_a_head_start_no_group_waits_for_new_ones(queues: Queues) -> None:
    """A steady stream of new groups, each made just before a claim."""
    queue = await queues.make(head_start=0)
    for number in range(4):
        await queue.publish("backlog", number)
    served = []
    for number in range(12):
        await queue.publish(f"new-{number}", 1)
        lease = await queue.get()
        served.append(lease.group_id)
        await queue.ack(lease)
    assert served.count("backlog") == 4


@pytest.mark.needs("head_start")
@pytest.mark.parametrize("head_start", [0, 0.3, "always"])
async def test_fairness_new_groups_made_within_one_tick_keep_the_order_of_their_publishes(
    queues: Queues, head_start: Any
) -> None:
    queue = await queues.make(head_start=head_start)
    names = [f"{n:03}" for n in range(60, 0, -1)]
    for name in names:
        await queue.publish(name, 1)
    assert await queue.line() == names
