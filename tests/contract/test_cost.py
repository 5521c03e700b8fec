"""Promise 7: cost does not grow with the queue, and a drained group leaves nothing behind."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

from tests.harness import LONG, SHORT, Queue, Queues

pytestmark = pytest.mark.promise(7)


@pytest.mark.cluster
async def test_cost_a_drained_group_leaves_nothing_behind(queue: Queue) -> None:
    """This holds after every possible life of a message."""
    for number in range(3):
        await queue.publish("acked", number, dedup_id=f"d{number}")
    await queue.publish("nacked", 1)
    await queue.publish("expired", 1)
    await queue.publish("parked", 1)
    await queue.publish("extended", 1)
    assert (await queue.leftovers()) != {}, "the count sees nothing"
    leases = {}
    while (lease := await queue.claim("w", SHORT)) is not None and lease.group_id not in leases:
        leases[lease.group_id] = await queue.extend(lease, LONG)
    await queue.nack(leases["nacked"])
    await queue.expired(await queue.extend(leases["expired"], SHORT))
    await queue.nack(leases["parked"], delay=SHORT)
    await queue.unparked("parked")
    await queue.ack(leases["extended"])
    await queue.ack(leases["acked"])
    assert len(await queue.drain()) == 5
    assert await queue.leftovers() == {}


@pytest.mark.cluster
async def test_cost_many_drained_groups_leave_nothing_behind(queue: Queue) -> None:
    """Uses 10,000 groups. Guards against rows, keys, index entries or dedup ids that stay when a group is drained."""
    count = min(10_000, queue.caps.tested_messages)
    await queue.fill([(f"group-{n}", n) for n in range(count)])
    if queue.caps.exact_counts:
        assert (await queue.status()).groups == count
    mine = [event for _, event in await drain_some(queue, 100)]
    rest = await queue.bulk.hold(ack=True)
    assert sorted(mine + rest) == list(range(count))
    assert await queue.leftovers() == {}


async def drain_some(queue: Queue, count: Any) -> Any:
    done = []
    for _ in range(count):
        lease = await queue.get()
        done.append((lease.group_id, lease.event))
        await queue.ack(lease)
    return done


@pytest.mark.parametrize("crowd", ["ready", "leased", "parked", "low", "backlog"])
async def test_cost_of_a_cycle_does_not_grow_with_the_queue(queues: Queues, crowd: Any) -> None:
    """Compares medians of interleaved cycles in a small queue and in a large one. A scan would cost many times as
    much."""
    many = min(5_000, queues.kit.caps.tested_messages // 2)
    if crowd == "low" and not queues.kit.caps.priorities:
        pytest.skip("declared: no priorities")
    small, large = await queues.make(), await queues.make()
    for queue, size in ((small, 50), (large, many)):
        await fill_with(queue, crowd, size)
    times: dict[str, list[float]] = {small.name: [], large.name: []}
    for number in range(30):
        for queue in (small, large):
            await queue.publish(f"own-{number}", number, 3 if crowd == "low" else 0)
            start = time.perf_counter()
            lease = await queue.get("w", LONG, 3 if crowd == "low" else 0)
            lease = await queue.extend(lease, LONG)
            await queue.nack(lease)
            lease = await queue.get("w", LONG, 3 if crowd == "low" else 0)
            await queue.ack(lease)
            times[queue.name].append(time.perf_counter() - start)
    few, many_ = (statistics.median(times[queue.name]) for queue in (small, large))
    assert many_ < 4 * few + 0.002, f"{few * 1e3:.2f} ms beside 50, {many_ * 1e3:.2f} ms beside {many}"


async def fill_with(queue: Queue, crowd: Any, size: Any) -> None:
    if crowd == "backlog":
        await queue.fill([("own", number) for number in range(size)])
        return
    await queue.fill([(f"{crowd}-{n}", n) for n in range(size)])
    if crowd in ("leased", "parked"):
        await queue.bulk.hold(3600, delay=3600 if crowd == "parked" else None)
