"""Promise 5: never served groups first, then whoever has waited longest; ties by the order of events, not by name."""

import pytest

from tests.harness import LONG, SHORT

pytestmark = [pytest.mark.promise(5), pytest.mark.needs("fairness")]

# In name order the last comes first, so that an order by name shows.
NAMES = [f"group-{n:02}" for n in range(12, 0, -1)]


@pytest.mark.cluster
async def test_fairness_new_groups_go_in_the_order_of_their_first_publish(queue):
    for name in NAMES:
        await queue.publish(name, 1)
    for name in sorted(NAMES):
        await queue.publish(name, 2)
    assert await queue.line() == NAMES


async def test_fairness_a_never_served_group_goes_before_every_served_one(queue):
    for name in NAMES[:3]:
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    for _ in range(3):
        await queue.ack(await queue.get())
    await queue.publish("new", 1)
    assert await queue.line() == ["new", *NAMES[:3]]


async def test_fairness_a_refilled_group_is_new_again(queue):
    await queue.publish("drained", 1)
    await queue.ack(await queue.get())
    await queue.publish("backlog", 1)
    await queue.publish("backlog", 2)
    await queue.ack(await queue.get())
    await queue.publish("drained", 2)
    assert await queue.line() == ["drained", "backlog"]


@pytest.mark.parametrize("way", ["ack", "nack", "expiry"])
async def test_fairness_a_served_group_goes_to_the_back(queue, way):
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


async def test_fairness_the_place_is_the_end_of_a_lease_not_its_claim(queue):
    """Guards against an order by the time of the claim: A was claimed first and finished last."""
    for name in ("A", "B"):
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    first, second = await queue.get(), await queue.get()
    assert first.group_id == "A"
    await queue.ack(second)
    await queue.ack(first)
    assert await queue.line() == ["B", "A"]


async def test_fairness_an_expired_lease_stands_at_the_time_of_its_expiry(queue):
    """Not at the time of its claim, nor in front of everything as something urgent."""
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


async def test_fairness_a_parked_group_stands_at_the_end_of_its_delay(queue):
    for name in ("parked", "other"):
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    parked, other = await queue.get(), await queue.get()
    await queue.nack(parked, delay=SHORT)
    await queue.unparked("parked")
    await queue.ack(other)
    assert await queue.line() == ["parked", "other"]


async def test_fairness_a_publish_does_not_move_a_group(queue):
    for name in ("A", "B"):
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    for _ in range(2):
        await queue.ack(await queue.get())
    await queue.publish("B", 3)
    await queue.publish("A", 3)
    assert await queue.line() == ["A", "B"]


@pytest.mark.parametrize("operation", ["ack", "nack"])
async def test_fairness_groups_served_within_one_tick_go_in_the_order_of_events(queue, operation):
    """As fast as one caller can: whoever keeps milliseconds, or breaks ties by name, mixes these up."""
    names = [f"{n:03}" for n in range(99, -1, -1)]
    await queue.fill([(name, number) for number in range(3) for name in names])
    for _ in range(2):
        leases = [await queue.get() for _ in names]
        assert [lease.group_id for lease in leases] == names
        for lease in leases:
            await getattr(queue, operation)(lease)


async def test_fairness_a_backlog_with_a_leased_head_hides_nobody(queue):
    """2,000 messages of one group in front of one other group: guards against scanning messages in a window."""
    await queue.fill([("backlog", number) for number in range(min(2000, queue.caps.tested_messages))])
    await queue.publish("other", 1)
    head = await queue.get()
    assert head.group_id == "backlog"
    lease = await queue.get()
    assert lease.group_id == "other"
    assert await queue.claim("w", LONG) is None
    await queue.ack(head)
    assert (await queue.get()).event == 1


async def test_fairness_a_backlog_does_not_monopolise_workers(queue):
    await queue.fill([("backlog", number) for number in range(300)])
    await queue.fill([("small", number) for number in range(5)])
    served = []
    for _ in range(10):
        lease = await queue.get()
        served.append(lease.group_id)
        await queue.ack(lease)
    assert served == ["backlog", "small"] * 5


async def test_fairness_new_first_may_hold_served_backlogs_back(queue):
    """The default's price, which the documents name; the test below has the way out."""
    await queue.publish("served", 1)
    await queue.publish("served", 2)
    await queue.ack(await queue.get())
    for number in range(10):
        await queue.publish(f"new-{number}", 1)
        lease = await queue.get()
        assert lease.group_id == f"new-{number}"
        await queue.ack(lease)


@pytest.mark.needs("new_groups_arrival")
@pytest.mark.cluster
async def test_fairness_new_groups_arrival_is_one_time_line(queues):
    queue = await queues.make(new_groups="arrival")
    await queue.publish("served", 1)
    await queue.publish("served", 2)
    await queue.publish("served", 3)
    await queue.ack(await queue.get())
    for name in NAMES[:3]:
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    assert (await queue.get()).group_id == "served", "a new group went before one that had waited longer"
    assert await queue.line() == NAMES[:3]


@pytest.mark.needs("new_groups_arrival")
async def test_fairness_new_groups_arrival_starves_nobody(queues):
    """A steady stream of new groups, which new-first lets pass for ever."""
    queue = await queues.make(new_groups="arrival")
    for number in range(4):
        await queue.publish("backlog", number)
    served = []
    for number in range(12):
        await queue.publish(f"new-{number}", 1)
        lease = await queue.get()
        served.append(lease.group_id)
        await queue.ack(lease)
    assert served.count("backlog") == 4


@pytest.mark.needs("new_groups_arrival")
async def test_fairness_new_groups_arrival_keeps_ties_in_order(queues):
    queue = await queues.make(new_groups="arrival")
    names = [f"{n:03}" for n in range(60, 0, -1)]
    for name in names:
        await queue.publish(name, 1)
    assert await queue.line() == names
