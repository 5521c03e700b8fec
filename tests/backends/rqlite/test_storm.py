"""Publishers and workers of both twins work while answers are lost and the leader changes.

The number of operations and the time are limited. The test checks the contract from outside: which worker held which
message, and when.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import Any

import pytest

from fairlane import BackendUnavailable, LeaseLost
from tests.harness import LONG, Queue
from tests.harness.queues import in_thread
from tests.servers.rqlite import Cluster

pytestmark = pytest.mark.promise(1, 2, 3, 9)

GROUPS = 5
PUBLISHERS = 3
EACH = 40
SECONDS = 120


class Record:
    """Which worker holds which message, as the workers see it."""

    def __init__(self) -> None:
        self.holders: dict[str, str] = {}
        self.delivered: dict[str, list[Any]] = {}
        self.finished: list[Any] = []

    def take(self, worker: Any, lease: Any) -> None:
        assert lease.group_id not in self.holders, f"{worker} and {self.holders[lease.group_id]} hold one group"
        self.holders[lease.group_id] = worker
        past = self.delivered.setdefault(lease.group_id, [])
        if lease.attempts > 1 and past:
            assert lease.event in (past[-1], *[lease.event] * (lease.event not in past)), "a message was overtaken"
        assert not past or past[-1] == lease.event or lease.event not in past, "a finished message came again"
        if not past or past[-1] != lease.event:
            past.append(lease.event)

    def give_up(self, lease: Any) -> None:
        del self.holders[lease.group_id]


async def repeated(operation: Any, lease: Any) -> Any:
    """Call ack or nack again until its outcome is known, as a careful caller does.

    Leases are long here, and no other worker has the token. So `LeaseLost` can only mean that an earlier try was
    applied.
    """
    doubt = False
    while True:
        try:
            return await operation(lease)
        except BackendUnavailable as error:
            doubt = doubt or "not known" in str(error)
        except LeaseLost:
            assert doubt, "a lease was lost that nobody else could have got"
            return None


async def publish(queue: Queue, record: Any, number: Any) -> None:
    for n in range(EACH):
        event = f"{number}-{n}"
        while True:
            # with its own dedup id, so that even a failed call may be repeated
            with contextlib.suppress(BackendUnavailable):
                await queue.publish(f"g{(number + n) % GROUPS}", event, dedup_id=event)
                break


async def work(queue: Queue, record: Any, name: str, total: Any) -> None:
    chance = random.Random(name)
    while len(record.finished) < total:
        try:
            lease = await queue.claim(name, LONG)
        except BackendUnavailable:
            continue
        if lease is None:
            await asyncio.sleep(0.01)
            continue
        record.take(name, lease)
        if chance.random() < 0.3:
            with contextlib.suppress(BackendUnavailable):
                lease = await queue.extend(lease, LONG)
        record.give_up(lease)  # from the next request on, another worker may get the message
        if chance.random() < 0.25:
            await repeated(queue.nack, lease)
        else:
            await repeated(queue.ack, lease)
            record.finished.append(lease.event)


async def trouble(cluster: Cluster, over: Any) -> None:
    chance = random.Random(4)
    anywhere: dict[str, Any] = {"endpoint": "execute"}
    while not over.is_set():
        kind = chance.choice(["drop", "refuse", "raft", "applied", "slow", "proxy", "change", "lose", "stop"])
        if kind == "drop":
            cluster.faults.drop_answers(2, **anywhere)
        elif kind == "refuse":
            cluster.faults.refuse(2, **anywhere)
        elif kind in ("raft", "applied"):
            cluster.faults.raft_error(2, applied=kind == "applied")
        elif kind == "slow":
            cluster.faults.slow(0.1, 2, after=True, **anywhere)
        elif kind == "proxy":
            cluster.faults.reply(502, "bad gateway", **anywhere)
        elif kind == "change":
            with contextlib.suppress(ValueError):
                await in_thread(cluster.change_leader)
        elif kind == "lose":
            cluster.lose_leader(0.1)
        else:
            index = chance.randrange(3)
            await in_thread(cluster.stop_node, index)
            await asyncio.sleep(0.15)
            await in_thread(cluster.start_node, index)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), 0.05)


async def test_no_message_is_lost_doubled_or_reordered_while_everything_fails_at_random(
    queue: Queue, cluster: Cluster
) -> None:
    record, over = Record(), asyncio.Event()
    total = PUBLISHERS * EACH
    storm = asyncio.ensure_future(trouble(cluster, over))
    workers = [work(queue, record, f"w{n}", total) for n in range(4)]
    publishers = [publish(queue, record, number) for number in range(PUBLISHERS)]
    try:
        await asyncio.wait_for(asyncio.gather(*publishers, *workers), SECONDS)
    finally:
        over.set()
        await storm
        cluster.faults.clear()
    assert Counter(record.finished) == Counter(f"{number}-{n}" for number in range(PUBLISHERS) for n in range(EACH))
    for events in record.delivered.values():
        for number in range(PUBLISHERS):
            own = [int(event.partition("-")[2]) for event in events if event.startswith(f"{number}-")]
            assert own == sorted(set(own)), "one publisher's messages changed places"
    assert await queue.leftovers() == {}
