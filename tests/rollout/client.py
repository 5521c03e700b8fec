"""A publisher or worker: `python -m tests.rollout.client ROLE TWIN URL QUEUE JOURNAL`, until SIGTERM.

It runs with the previous release as well, so it uses operations of this version only if they are there. A call that
fails is made again.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fairlane
from fairlane import FairlaneError, LeaseLost
from tests.torture.history import Journal

GROUPS = [f"group-{number}" for number in range(6)]
VISIBILITY = 30.0
AGAIN_SECONDS = 0.2
NEW = hasattr(fairlane, "Message")
"""Whether there are operations on many messages."""

if NEW:
    from tests.torture.batches import claiming, going_on, publishing

_stopping = False


def _stop(*_: object) -> None:
    global _stopping  # a signal handler has no other place to report to
    _stopping = True


async def call(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a method of a transport of either twin."""
    result = method(*arguments, **named)
    return await result if inspect.isawaitable(result) else result


async def insisting(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """Call again after an error, which the journal has."""
    while True:
        try:
            return await attempt()
        except LeaseLost:
            raise
        except FairlaneError:
            await asyncio.sleep(AGAIN_SECONDS)


class Client:
    """The calls of one client, each written down."""

    def __init__(self, transport: Any, journal: Journal) -> None:
        self.transport = transport
        self.journal = journal

    async def publish(self) -> None:
        """Publish one message, or some at once. The dedup id makes a call that is repeated the same publish."""
        many = NEW and random.random() < 0.3
        chosen = [(random.choice(GROUPS), str(uuid.uuid4()), 0) for _ in range(3 if many else 1)]
        await insisting(partial(self.publish_many, chosen) if many else partial(self.publish_one, *chosen[0]))
        await asyncio.sleep(random.uniform(0.0, 0.02))

    async def publish_one(self, group_id: str, event: str, priority: int) -> None:
        with self.journal.call("publish", group_id=group_id, event=event, priority=priority) as entry:
            entry.returned(await call(self.transport.publish, group_id, event, priority, dedup_id=event))

    async def publish_many(self, chosen: list[tuple[str, str, int]]) -> None:
        with publishing(self.journal, chosen) as (messages, entries):
            named = [replace(message, dedup_id=message.event) for message in messages]
            for entry, seq in zip(entries, await call(self.transport.publish_many, named), strict=True):
                entry.returned(seq)

    async def work(self) -> None:
        """Claim and ack, one message after the other, or some at once."""
        leases = await insisting(self.claim_many if NEW and random.random() < 0.3 else self.claim)
        if not leases:
            await asyncio.sleep(0.02)
        while leases:
            lease = leases.pop()
            if random.random() < 0.05:
                await self.finish("nack", lease)
            elif NEW and random.random() < 0.3:
                leases += await self.ack_and_claim(lease)
            else:
                await self.finish("ack", lease)

    async def claim(self) -> list[Any]:
        with self.journal.call("claim", visibility=VISIBILITY) as entry:
            lease = await call(self.transport.claim, "worker", VISIBILITY)
            entry.returned(facts(lease) if lease else None)
        return [lease] if lease else []

    async def claim_many(self) -> list[Any]:
        with claiming(self.journal, facts, VISIBILITY, 2) as claimed:
            leases: list[Any] = await call(self.transport.claim_many, "worker", VISIBILITY, 2)
            claimed(leases)
        return leases

    async def finish(self, operation: str, lease: Any) -> None:
        async def attempt() -> None:
            with self.journal.call(operation, token=lease.token) as entry:
                await call(getattr(self.transport, operation), lease)
                entry.returned()

        await insisting(attempt)

    async def ack_and_claim(self, lease: Any) -> list[Any]:
        with going_on(self.journal, facts, lease, VISIBILITY) as went_on:
            following = await call(self.transport.ack_and_claim, lease, "worker", VISIBILITY)
            went_on(following)
        return [following] if following else []


def facts(lease: Any) -> dict[str, Any]:
    return {name: getattr(lease, name) for name in ("group_id", "event", "seq", "token", "attempts")}


async def run(role: str, twin: str, url: str, queue: str, journal: Journal) -> None:
    async with AsyncExitStack() as stack:

        async def connect() -> Any:
            with journal.call("connect") as entry:
                opening: Any = fairlane.connect if twin == "sync" else fairlane.connect_async
                transport = await call(opening, url, queue, startup_timeout=20)
                if twin == "sync":
                    stack.enter_context(transport)
                else:
                    await stack.enter_async_context(transport)
                entry.returned()
                return transport

        client = Client(await insisting(connect), journal)
        while not _stopping:
            await (client.publish() if role == "publisher" else client.work())


def main() -> None:
    role, twin, url, queue, path = sys.argv[1:]
    signal.signal(signal.SIGTERM, _stop)
    asyncio.run(run(role, twin, url, queue, Journal(Path(path))))


if __name__ == "__main__":
    main()
