"""Many workers, threads and tasks at once: nothing lost, nothing twice, nothing out of order."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from fairlane import BackendUnavailable, LeaseLost, TransportClosed
from tests.harness import LONG, SHORT, Queue, eventually, held

pytestmark = pytest.mark.promise(1, 2, 3)


@pytest.mark.cluster
async def test_concurrency_workers_and_publishers_together_keep_every_group_in_order(queue: Queue) -> None:
    """Groups drain and fill again all the time. So a group is often dropped while somebody publishes into it."""
    groups, each, workers = 6, 25, 6
    other = await queue.another()
    seen: dict[str, list[int]] = {f"g{n}": [] for n in range(groups)}
    held: set[str] = set()
    left = groups * each

    async def publisher(group: Any) -> None:
        for number in range(each):
            await queue.publish(group, number)
            if number % 5 == 0:
                await asyncio.sleep(random.uniform(0, 0.004))

    async def worker(number: int) -> None:
        nonlocal left
        mine = other if number % 2 else queue
        while left:
            lease = await mine.claim(f"w{number}", LONG)
            if lease is None:
                await asyncio.sleep(0.001)
                continue
            assert lease.group_id not in held, "two messages of a group in flight"
            held.add(lease.group_id)
            if random.random() < 0.15:
                held.discard(lease.group_id)
                await mine.nack(lease)
                continue
            seen[lease.group_id].append(lease.event)
            left -= 1
            held.discard(lease.group_id)
            await mine.ack(lease)

    await asyncio.wait_for(
        asyncio.gather(*(publisher(group) for group in seen), *(worker(n) for n in range(workers))), 60
    )
    assert seen == {group: list(range(each)) for group in seen}
    assert await queue.leftovers() == {}


async def test_concurrency_leases_that_run_out_all_the_time_lose_nothing(queue: Queue) -> None:
    """Workers are slower than their leases, and still every message is acked exactly once."""
    await queue.fill([(f"g{n % 5}", n) for n in range(40)])
    acked: list[int] = []
    finishing: set[int] = set()

    async def worker(number: int) -> None:
        while len(acked) < 40:
            lease = await queue.claim(f"w{number}", random.choice([0.01, 0.03, LONG]))
            if lease is None:
                await asyncio.sleep(0.002)
                continue
            assert finishing.issuperset(range(lease.event % 5, lease.event, 5)), "a group got out of order"
            if random.random() < 0.3 and (lease.expires_at - lease.published_at).total_seconds() < LONG:
                await asyncio.sleep(0.02)
            finishing.add(lease.event)
            try:
                await queue.ack(lease)
            except LeaseLost:
                continue
            acked.append(lease.event)

    await asyncio.wait_for(asyncio.gather(*(worker(n) for n in range(5))), 60)
    assert sorted(acked) == list(range(40)), "a message was acked twice, or lost"
    assert await queue.leftovers() == {}


@pytest.mark.twins("sync")
@pytest.mark.cluster
async def test_concurrency_one_transport_object_serves_many_threads(queue: Queue) -> None:
    """Sixteen threads use one object, and every reply must reach the thread that asked."""
    await queue.fill([(f"g{n}", n) for n in range(16)])

    async def worker(number: int) -> None:
        for _ in range(12):
            lease = await queue.claim(f"worker-{number}", LONG)
            assert lease is not None, "a false None"
            assert lease.group_id == f"g{lease.event % 1000}"
            extended = await queue.extend(lease, LONG)
            assert (extended.group_id, extended.token) == (lease.group_id, lease.token)
            seq = await queue.publish(lease.group_id, lease.event + 1000)
            assert seq > lease.seq
            await queue.ack(lease)

    await asyncio.gather(*(worker(n) for n in range(16)))
    status = await queue.status()
    assert (status.in_flight, status.messages) == (0, 16)


@pytest.mark.twins("async")
@pytest.mark.promise(9)
@pytest.mark.cluster
async def test_concurrency_claims_cancelled_at_random_moments_lose_nothing(queue: Queue) -> None:
    """500 claims are cancelled. No reply may reach another caller, no message may stay away for longer than its lease,
    and no connection may leak from the pool."""
    groups = 60
    await queue.fill([(f"g{n}", n) for n in range(groups)])
    leases = []

    async def claim(number: int) -> None:
        lease = await queue.claim(f"worker-{number}", SHORT)
        if lease is not None:
            leases.append((number, lease))

    async def cancelled(number: int) -> None:
        task = asyncio.ensure_future(claim(number))
        await asyncio.sleep(random.choice([0, 0, 0.0002, 0.0005, 0.001, 0.003, 0.01]))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() or task.exception() is None, task.exception()

    for start in range(0, 500, 25):
        await asyncio.gather(*(cancelled(n) for n in range(start, start + 25)))
    assert len({lease.token for _, lease in leases}) == len(leases), "one lease reached two callers"
    # the transport works as before: more claims at once than any pool has connections get the right replies
    seqs = await asyncio.gather(*(queue.publish(f"after-{n}", n) for n in range(80)))
    assert len(set(seqs)) == 80

    await eventually(lambda: all_ready(queue, groups + 80), 20)
    answers = await asyncio.gather(*(queue.claim(f"final-{n}", LONG) for n in range(groups + 80)))
    assert None not in answers, "a message was lost beyond its lease"
    got = [held(lease) for lease in answers]
    assert len({lease.group_id for lease in got}) == groups + 80
    assert all(lease.group_id in (f"g{lease.event}", f"after-{lease.event}") for lease in got)
    for lease in got:
        await queue.ack(lease)
    assert await queue.leftovers() == {}


async def all_ready(queue: Queue, count: Any) -> Any:
    if not queue.caps.exact_counts:
        return not (await queue.status()).in_flight
    return (await queue.status()).ready == count


@pytest.mark.twins("async")
async def test_concurrency_cancelled_operations_of_every_kind_leave_the_transport_usable(queue: Queue) -> None:
    """A cancelled ack, nack, extend or publish may or may not have been applied; everything else goes on."""
    await queue.fill([(f"g{n}", n) for n in range(20)])
    for round_ in range(60):
        lease = await queue.claim("w", LONG)
        if lease is None:
            break
        operation = (
            lambda lease=lease: queue.ack(lease),
            lambda lease=lease: queue.nack(lease),
            lambda lease=lease: queue.extend(lease, LONG),
            lambda: queue.publish("other", "x"),
        )[round_ % 4]
        task = asyncio.ensure_future(operation())
        await asyncio.sleep(random.choice([0, 0.0003, 0.001]))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        try:
            await queue.extend(lease, LONG)
            await queue.nack(lease)
        except LeaseLost:
            pass
    if queue.caps.inspect_messages:
        rows = await queue.groups(limit=1000)
        assert sum(row.depth for row in rows) == (await queue.status()).messages
    drained = await queue.drain()
    assert len({event for _, event in drained if event != "x"}) == len([e for _, e in drained if e != "x"])
    assert await queue.leftovers() == {}


@pytest.mark.cluster
@pytest.mark.promise(9)
async def test_concurrency_a_transport_closed_under_its_callers_answers_each_or_raises_a_typed_error(
    queue: Queue,
) -> None:
    """Guards against a cancellation that nobody requested, which would end the caller's task silently. Guards also
    against errors of the driver, and against callers that wait for ever."""
    other = await queue.another()
    accepted = set()

    async def caller(number: int) -> None:
        for count in range(1000):
            await other.publish(f"g{number}", (number * 1000) + count)
            accepted.add((number * 1000) + count)
            await asyncio.sleep(0)

    for pause in (0, 0, 0.002, 0.01, 0.03):
        callers = [asyncio.ensure_future(caller(number)) for number in range(6)]
        await asyncio.sleep(pause)
        await asyncio.wait_for(other.close(), 30)
        ends = await asyncio.wait_for(asyncio.gather(*callers, return_exceptions=True), 30)
        assert {type(end) for end in ends} <= {TransportClosed, BackendUnavailable}, ends
        with pytest.raises(TransportClosed):
            await other.publish("g", 1)
        published = [event for _, event in await queue.drain()]
        assert accepted <= set(published)
        assert len(set(published)) == len(published)
        accepted.clear()
        other = await queue.another()
