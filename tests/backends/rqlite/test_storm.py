"""Everything at once: publishers and workers of both kinds, while answers get lost and leaders come and go.

Bounded in operations and time. What is checked is the contract, from the outside: who held which message when.
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


class Ledger:
    """Who holds what, as the workers see it."""

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


async def stubborn(operation: Any, lease: Any) -> Any:
    """What a careful caller does with an ack or a nack: repeat it while its outcome is not known.

    Leases are long here and nobody else has the token, so `LeaseLost` can only mean that it was done.
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


async def publish(queue: Queue, ledger: Any, number: Any) -> None:
    for n in range(EACH):
        event = f"{number}-{n}"
        while True:
            # with an id of its own, so that even a call that has failed may be repeated
            with contextlib.suppress(BackendUnavailable):
                await queue.publish(f"g{(number + n) % GROUPS}", event, dedup_id=event)
                break


async def work(queue: Queue, ledger: Any, name: str, total: Any) -> None:
    chance = random.Random(name)
    while len(ledger.finished) < total:
        try:
            lease = await queue.claim(name, LONG)
        except BackendUnavailable:
            continue
        if lease is None:
            await asyncio.sleep(0.01)
            continue
        ledger.take(name, lease)
        if chance.random() < 0.3:
            with contextlib.suppress(BackendUnavailable):
                lease = await queue.extend(lease, LONG)
        ledger.give_up(lease)  # from the moment of the request on, somebody else may have it
        if chance.random() < 0.25:
            await stubborn(queue.nack, lease)
        else:
            await stubborn(queue.ack, lease)
            ledger.finished.append(lease.event)


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


async def test_a_storm_loses_doubles_and_reorders_nothing(queue: Queue, cluster: Cluster) -> None:
    ledger, over = Ledger(), asyncio.Event()
    total = PUBLISHERS * EACH
    storm = asyncio.ensure_future(trouble(cluster, over))
    workers = [work(queue, ledger, f"w{n}", total) for n in range(4)]
    publishers = [publish(queue, ledger, number) for number in range(PUBLISHERS)]
    try:
        await asyncio.wait_for(asyncio.gather(*publishers, *workers), SECONDS)
    finally:
        over.set()
        await storm
        cluster.faults.clear()
    assert Counter(ledger.finished) == Counter(f"{number}-{n}" for number in range(PUBLISHERS) for n in range(EACH))
    for events in ledger.delivered.values():
        for number in range(PUBLISHERS):
            own = [int(event.partition("-")[2]) for event in events if event.startswith(f"{number}-")]
            assert own == sorted(set(own)), "one publisher's messages changed places"
    assert await queue.leftovers() == {}
