"""Promise 6: min_priority is exact, whatever lies below it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import LONG, Queue

pytestmark = pytest.mark.promise(6)


@pytest.mark.needs("priorities")
@pytest.mark.cluster
@pytest.mark.parametrize("floor", range(5))
async def test_priority_floor_is_exact(queue: Queue, floor: Any) -> None:
    for priority in (2, 0, 4, 1, 3):
        await queue.publish(f"p{priority}", priority, priority)
    found = []
    while (lease := await queue.claim("w", LONG, floor)) is not None:
        found.append(lease.event)
    assert found == [priority for priority in (2, 0, 4, 1, 3) if priority >= floor]


@pytest.mark.needs("priorities", "fairness")
async def test_priority_orders_nothing_among_eligible_groups(queue: Queue) -> None:
    """Priority decides which groups a claim may take, fairness decides which one is next."""
    for priority in (0, 4, 2):
        for number in range(2):
            await queue.publish(f"p{priority}", number, priority)
    served = []
    for _ in range(6):
        lease = await queue.get()
        served.append(lease.group_id)
        await queue.ack(lease)
    assert served == ["p0", "p4", "p2"] * 2


@pytest.mark.needs("priorities")
async def test_priority_is_fixed_by_the_first_publish_into_an_empty_group(queue: Queue) -> None:
    await queue.publish("g", 1, 1)
    await queue.publish("g", 2, 4)
    assert await queue.claim("w", LONG, 2) is None, "a later publish changed the priority"
    await queue.ack(await queue.get("w", LONG, 1))
    assert await queue.claim("w", LONG, 2) is None, "the ack changed the priority"
    await queue.ack(await queue.get("w", LONG, 1))
    await queue.publish("g", 3, 3)
    assert (await queue.get("w", LONG, 3)).event == 3, "a drained group kept its old priority"


@pytest.mark.needs("priorities")
async def test_priority_survives_nack_and_delay(queue: Queue) -> None:
    await queue.publish("g", 1, 2)
    await queue.nack(await queue.get("w", LONG, 2))
    await queue.nack(await queue.get("w", LONG, 2), delay=0.05)
    await queue.unparked("g")
    assert await queue.claim("w", LONG, 3) is None
    assert (await queue.get("w", LONG, 2)).attempts == 3


@pytest.mark.needs("priorities")
@pytest.mark.cluster
async def test_priority_floor_is_found_behind_many_low_groups(queue: Queue) -> None:
    """There are 10,000 older groups below the floor. Guards against a claim that looks through a window of groups and
    finds nothing."""
    await queue.fill([(f"low-{n}", n) for n in range(min(10_000, queue.caps.tested_messages))])
    await queue.publish("high", "H", 3)
    lease = await queue.get("w", LONG, 3)
    assert lease.event == "H"
    assert await queue.claim("w", LONG, 3) is None
    assert await queue.claim("w", LONG, 1) is None
    await queue.nack(lease)
    assert (await queue.get("w", LONG, 3)).attempts == 2
    assert (await queue.get("w", LONG, 0)).event == 0
