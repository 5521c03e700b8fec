"""One client: `python -m tests.torture.actor ROLE TWIN URL QUEUE JOURNAL SEED`, until SIGTERM.

Roles: `publisher`, `worker`, and on Postgres `transactions`: a publisher that publishes in its own transactions and
rolls back one of five.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fairlane
from fairlane import FairlaneError, Lease, LeaseLost
from tests.torture.batches import acking, claiming, going_on, publishing
from tests.torture.history import Journal

GROUPS = [f"group-{number}" for number in range(10)]
TIMEOUT = 5.0
ENOUGH = 20
"""Publishers wait while there are more messages, so that groups are drained and filled again all the time."""

_stopping = False


def _stop(*_: object) -> None:
    global _stopping  # a signal handler has no other place to report to
    _stopping = True


class Plan:
    """Chooses at random what a client does next; the same seed makes the same choices."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def message(self) -> tuple[str, str, int]:
        """Return a group, a unique event, and the group's priority."""
        number = self._random.randrange(len(GROUPS))
        return GROUPS[number], str(uuid.UUID(int=self._random.getrandbits(128))), number % 3

    def messages(self) -> list[tuple[str, str, int]]:
        return [self.message() for _ in range(self._random.randint(1, 6))]

    def visibility(self) -> float:
        return self._random.choice((0.5, 1.0, 2.0))

    def steps(self) -> Iterator[tuple[str, float]]:
        """Return what to do with a lease: operations and their numbers."""
        die = self._random.random()
        if die < 0.02:
            yield "wait", 2.3  # lets the lease run out, and then uses it late
        elif die < 0.08:
            yield "extend", 2.0
        if die > 0.9:
            yield "nack", self._random.choice((0.0, 0.0, 0.3))
        else:
            yield "ack", 0.0

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def pause(self) -> float:
        return self._random.uniform(0.0, 0.02)


def facts(lease: Lease[Any]) -> dict[str, Any]:
    return {
        "group_id": lease.group_id,
        "event": lease.event,
        "seq": lease.seq,
        "token": lease.token,
        "attempts": lease.attempts,
    }


def options(url: str) -> dict[str, Any]:
    """Return options that make calls end soon, where the backend has them."""
    names = {option.name for option in fairlane.backends.manifest_of(url.partition(":")[0]).options}
    return {"timeout": TIMEOUT} if "timeout" in names else {}


def blocking(role: str, url: str, queue: str, journal: Journal, plan: Plan) -> None:
    while not _stopping:
        try:
            with fairlane.connect(url, queue, startup_timeout=20, **options(url)) as transport:
                while not _stopping:
                    one = publish_once if role == "publisher" else work_once
                    one(transport, journal, plan)
                    time.sleep(plan.pause())
        except FairlaneError:
            time.sleep(0.1)


def publish_once(transport: Any, journal: Journal, plan: Plan) -> None:
    if plan.chance(0.2):
        while not _stopping and transport.inspect.queue().messages > ENOUGH:
            time.sleep(0.05)
    if plan.chance(0.2):
        with publishing(journal, plan.messages()) as (messages, entries):
            for each, seq in zip(entries, transport.publish_many(messages), strict=True):
                each.returned(seq)
        return
    group_id, event, priority = plan.message()
    with journal.call("publish", group_id=group_id, event=event, priority=priority) as entry:
        entry.returned(transport.publish(group_id, event, priority))


def work_many(transport: Any, journal: Journal, plan: Plan) -> None:
    visibility = plan.visibility()
    with claiming(journal, facts, visibility, 3) as claimed:
        leases = transport.claim_many("worker", visibility, 3)
        claimed(leases)
    if leases and plan.chance(0.5):
        with suppress(LeaseLost), going_on(journal, facts, leases[-1], visibility) as went_on:
            following = transport.ack_and_claim(leases.pop(), "worker", visibility)
            went_on(following)
            leases += [following] if following else []
    if leases:
        with acking(journal, leases) as acked:
            acked(transport.ack_many(leases))


def work_once(transport: Any, journal: Journal, plan: Plan) -> None:
    if plan.chance(0.2):
        work_many(transport, journal, plan)
        return
    visibility = plan.visibility()
    with journal.call("claim", visibility=visibility) as entry:
        lease = transport.claim("worker", visibility)
        entry.returned(facts(lease) if lease else None)
    if lease is None:
        time.sleep(0.05)
        return
    for step, number in plan.steps():
        try:
            if step == "wait":
                time.sleep(number)
            elif step == "extend":
                with journal.call("extend", token=lease.token, visibility=number) as entry:
                    lease = transport.extend(lease, number)
                    entry.returned()
            elif step == "nack":
                with journal.call("nack", token=lease.token, delay=number) as entry:
                    transport.nack(lease, number)
                    entry.returned()
            else:
                with journal.call("ack", token=lease.token) as entry:
                    transport.ack(lease)
                    entry.returned()
        except LeaseLost:
            return


async def awaited(role: str, url: str, queue: str, journal: Journal, plan: Plan) -> None:
    while not _stopping:
        try:
            async with await fairlane.connect_async(url, queue, startup_timeout=20, **options(url)) as transport:
                while not _stopping:
                    one = publish_once_async if role == "publisher" else work_once_async
                    await asyncio.gather(one(transport, journal, plan), one(transport, journal, plan))
                    await asyncio.sleep(plan.pause())
        except FairlaneError:
            await asyncio.sleep(0.1)


async def impatient(call: Any, plan: Plan) -> Any:
    """Await a call, and sometimes give up at once, which counts as cancelled."""
    try:
        return await asyncio.wait_for(call, plan.pause() / 2 if plan.chance(0.03) else None)
    except TimeoutError as error:
        raise asyncio.CancelledError from error


async def publish_once_async(transport: Any, journal: Journal, plan: Plan) -> None:
    if plan.chance(0.2):
        while not _stopping and (await transport.inspect.queue()).messages > ENOUGH:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.05)
    if plan.chance(0.2):
        with suppress(asyncio.CancelledError), publishing(journal, plan.messages()) as (messages, entries):
            seqs = await impatient(transport.publish_many(messages), plan)
            for each, seq in zip(entries, seqs, strict=True):
                each.returned(seq)
        return
    group_id, event, priority = plan.message()
    try:
        with journal.call("publish", group_id=group_id, event=event, priority=priority) as entry:
            entry.returned(await impatient(transport.publish(group_id, event, priority), plan))
    except asyncio.CancelledError:
        return


async def work_many_async(transport: Any, journal: Journal, plan: Plan) -> None:
    visibility = plan.visibility()
    leases = []
    with suppress(asyncio.CancelledError), claiming(journal, facts, visibility, 3) as claimed:
        leases = await impatient(transport.claim_many("worker", visibility, 3), plan)
        claimed(leases)
    if leases and plan.chance(0.5):
        with suppress(LeaseLost), going_on(journal, facts, leases[-1], visibility) as went_on:
            following = await transport.ack_and_claim(leases.pop(), "worker", visibility)
            went_on(following)
            leases += [following] if following else []
    if leases:
        with acking(journal, leases) as acked:
            acked(await transport.ack_many(leases))


async def work_once_async(transport: Any, journal: Journal, plan: Plan) -> None:
    if plan.chance(0.2):
        await work_many_async(transport, journal, plan)
        return
    visibility = plan.visibility()
    try:
        with journal.call("claim", visibility=visibility) as entry:
            lease = await impatient(transport.claim("worker", visibility), plan)
            entry.returned(facts(lease) if lease else None)
    except asyncio.CancelledError:
        return
    if lease is None:
        await asyncio.sleep(0.05)
        return
    for step, number in plan.steps():
        try:
            if step == "wait":
                await asyncio.sleep(number)
            elif step == "extend":
                with journal.call("extend", token=lease.token, visibility=number) as entry:
                    lease = await transport.extend(lease, number)
                    entry.returned()
            elif step == "nack":
                with journal.call("nack", token=lease.token, delay=number) as entry:
                    await transport.nack(lease, number)
                    entry.returned()
            else:
                with journal.call("ack", token=lease.token) as entry:
                    await transport.ack(lease)
                    entry.returned()
        except LeaseLost:
            return


def transactions(url: str, queue: str, journal: Journal, plan: Plan) -> None:
    """Publish in transactions of the application. What is rolled back must never be delivered."""
    import psycopg

    while not _stopping:
        try:
            with psycopg.connect(url, connect_timeout=5) as connection:
                transport: Any = fairlane.PostgresTransport(connection, queue=queue)
                while not _stopping:
                    group_id, event, priority = plan.message()
                    with journal.call("publish", group_id=group_id, event=event, priority=priority) as entry:
                        try:
                            seq = transport.publish(group_id, event, priority)
                            time.sleep(plan.pause())
                            if plan.chance(0.2):
                                connection.rollback()
                                entry.returned("rolled back")
                            else:
                                connection.commit()
                                entry.returned(seq)
                        except psycopg.Error as error:  # from the application's own commit
                            raise FairlaneError("the application's transaction failed") from error
                    time.sleep(plan.pause() * 5)
        except (FairlaneError, psycopg.Error):
            time.sleep(0.1)


def main() -> None:
    role, twin, url, queue, path, seed = sys.argv[1:]
    signal.signal(signal.SIGTERM, _stop)
    journal, plan = Journal(Path(path)), Plan(seed)
    if role == "transactions":
        transactions(url, queue, journal, plan)
    elif twin == "sync":
        blocking(role, url, queue, journal, plan)
    else:
        asyncio.run(awaited(role, url, queue, journal, plan))


if __name__ == "__main__":
    main()
