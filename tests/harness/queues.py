"""Queues under test: a transport of either twin behind one async interface."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, cast
from uuid import uuid4

import fairlane
from fairlane import GroupStatus, Lease, Message, MessageStatus, QueueStatus
from fairlane.backends import MANIFESTS
from fairlane.backends.stored import ACK, CLAIM, NACK, PUBLISH, Call, Rows, as_text
from tests.harness.kits.base import Kit
from tests.harness.leases import held

Twin = Literal["sync", "async"]
P = ParamSpec("P")
R = TypeVar("R")

# More threads than any test has calls in progress, so that blocking calls never wait for each other here.
_threads = ThreadPoolExecutor(max_workers=64, thread_name_prefix="sync-twin")


async def in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a blocking call so that it blocks neither the event loop nor another blocking call."""
    return await asyncio.get_running_loop().run_in_executor(_threads, lambda: function(*args, **kwargs))


class Queue:
    """One transport of either twin, with the operations of the contract as coroutines."""

    def __init__(self, owner: Queues, name: str, transport: Any) -> None:
        self.owner = owner
        self.name = name
        self.transport = transport
        self.kit = owner.kit
        self.twin = owner.twin
        self.caps = owner.kit.caps
        self.bulk = Bulk(self)
        self._parked: dict[str, datetime] = {}  # the known ends of delays, where one cannot look at the queue

    async def call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the transport in the way of its twin."""
        if self.twin == "sync":
            return await in_thread(method, *args, **kwargs)
        return await method(*args, **kwargs)

    async def call_blocking(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a blocking function, with either twin."""
        return await in_thread(function, *args, **kwargs)

    async def publish(self, *args: Any, **kwargs: Any) -> int:
        return cast(int, await self.call(self.transport.publish, *args, **kwargs))

    async def claim(self, *args: Any, **kwargs: Any) -> Lease | None:
        return cast(Lease | None, await self.call(self.transport.claim, *args, **kwargs))

    async def ack(self, *args: Any, **kwargs: Any) -> None:
        await self.call(self.transport.ack, *args, **kwargs)

    async def nack(self, *args: Any, **kwargs: Any) -> None:
        await self.call(self.transport.nack, *args, **kwargs)
        if not self.caps.inspect_messages:
            delay = kwargs.get("delay", args[1] if len(args) > 1 else 0.0)
            self._parked[args[0].group_id] = datetime.now(UTC) + timedelta(seconds=delay + self.caps.resolution)

    async def extend(self, *args: Any, **kwargs: Any) -> Lease:
        return cast(Lease, await self.call(self.transport.extend, *args, **kwargs))

    async def publish_many(self, messages: Iterable[Message[Any]]) -> list[int]:
        return cast(list[int], await self.call(self.transport.publish_many, messages))

    async def claim_many(self, *args: Any, **kwargs: Any) -> list[Lease]:
        return cast(list[Lease], await self.call(self.transport.claim_many, *args, **kwargs))

    async def ack_many(self, leases: Iterable[Lease]) -> list[Lease]:
        return cast(list[Lease], await self.call(self.transport.ack_many, leases))

    async def ack_and_claim(self, *args: Any, **kwargs: Any) -> Lease | None:
        return cast(Lease | None, await self.call(self.transport.ack_and_claim, *args, **kwargs))

    async def release(self, group_id: str) -> bool:
        return cast(bool, await self.call(self.transport.release, group_id))

    async def purge(self, group_id: str) -> int:
        return cast(int, await self.call(self.transport.purge, group_id))

    async def pause(self, group_id: str | None = None) -> bool:
        return cast(bool, await self.call(self.transport.pause, group_id))

    async def resume(self, group_id: str | None = None) -> bool:
        return cast(bool, await self.call(self.transport.resume, group_id))

    async def close(self) -> None:
        await self.call(self.transport.close)

    async def status(self) -> QueueStatus:
        return cast(QueueStatus, await self.call(self.transport.inspect.queue))

    async def groups(self, **kwargs: Any) -> Sequence[GroupStatus]:
        return cast(Sequence[GroupStatus], await self.call(self.transport.inspect.groups, **kwargs))

    async def messages(self, group_id: str, **kwargs: Any) -> Sequence[MessageStatus]:
        return cast(Sequence[MessageStatus], await self.call(self.transport.inspect.messages, group_id, **kwargs))

    # What tests need besides the contract.

    async def get(self, worker_id: str = "worker", visibility: float = 60.0, min_priority: int = 0) -> Lease:
        """Claim a message; fail if there is none."""
        return held(await self.claim(worker_id, visibility, min_priority))

    async def fill(self, messages: Iterable[tuple[str, Any]], priority: int = 0) -> None:
        """Publish many (group_id, event) in order, as fast as the server allows."""
        await self.bulk.publish(list(messages), priority)

    async def drain(self, worker_id: str = "drain", min_priority: int = 0) -> list[tuple[str, Any]]:
        """Claim and ack until nothing is deliverable. Return (group_id, event) in the order of delivery."""
        seen = []
        while (lease := await self.claim(worker_id, 60.0, min_priority)) is not None:
            seen.append((lease.group_id, lease.event))
            await self.ack(lease)
        return seen

    async def line(self, worker_id: str = "line") -> list[str]:
        """Claim one message of every deliverable group. Return the groups in the order of the line."""
        found = []
        while (lease := await self.claim(worker_id, 60.0)) is not None:
            found.append(lease.group_id)
        return found

    async def now(self) -> datetime:
        """Return the time of the clock that leases run by."""
        return await in_thread(self.kit.now, self.name)

    async def expired(self, *leases: Lease | datetime) -> None:
        """Wait just until leases (or moments) are over by the clock that leases run by."""
        end = max(item if isinstance(item, datetime) else item.expires_at for item in leases)
        # what a lease's end was rounded to is known where our own clock has counted it
        end += timedelta(seconds=0.5 if self.caps.clock == "client" else 2 * self.caps.resolution)
        while (rest := (end - await self.now()).total_seconds()) >= 0:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(rest + 0.001)

    async def unparked(self, group_id: str) -> None:
        """Wait just until a group's delay is over by the server's clock."""
        if not self.caps.inspect_messages:
            await asyncio.sleep((self._parked[group_id] - datetime.now(UTC)).total_seconds())
            return
        while (rest := max(g.ready_in_seconds for g in await self.groups() if g.group_id == group_id)) > 0:  # noqa: ASYNC110
            await asyncio.sleep(rest + 0.001)

    async def leftovers(self) -> dict[str, int]:
        """Return the numbers of rows, keys or documents by their place, read with the raw driver; empty if there are
        none."""
        counts = await in_thread(self.kit.leftovers, self.name)
        return {place: count for place, count in counts.items() if count}

    async def another(self, **options: Any) -> Queue:
        """Return a second transport on the same queue, with its own connections."""
        return await self.owner.open(self.name, **options)


class Bulk:
    """Many operations at once. Where the backend has stored operations, they bypass the transport."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def publish(self, messages: Sequence[tuple[str, Any]], priority: int = 0) -> None:
        """Publish in order."""
        if not self._queue.kit.batches:
            groups: dict[str, list[Any]] = {}
            for group_id, event in messages:
                groups.setdefault(group_id, []).append(event)
            await asyncio.gather(*(self._publish(group_id, events, priority) for group_id, events in groups.items()))
            return
        common = {"p_priority": priority, "p_dedup_id": None}
        await self._batch(
            Call(PUBLISH, {"p_group_id": group_id, "p_event": json.dumps(event), **common})
            for group_id, event in messages
        )
        await in_thread(self._queue.kit.settle, self._queue.name)

    async def _publish(self, group_id: str, events: list[Any], priority: int) -> None:
        for event in events:
            await self._queue.publish(group_id, event, priority)

    async def hold(self, visibility: float = 3600.0, *, delay: float | None = None, ack: bool = False) -> list[Any]:
        """Claim one message of every claimable group, and keep it leased, or park it, or ack it. Return the events."""
        found: list[Any] = []
        if not self._queue.kit.batches:
            while (lease := await self._queue.claim("bulk", visibility)) is not None:
                found.append(lease.event)
                if ack:
                    await self._queue.ack(lease)
                elif delay is not None:
                    await self._queue.nack(lease, delay)
            return found
        while leases := await self._claim(visibility):
            found += [event for _, event in leases]
            if ack:
                await self._batch(Call(ACK, fence) for fence, _ in leases)
            elif delay is not None:
                await self._batch(Call(NACK, {**fence, "p_delay": delay}) for fence, _ in leases)
        await in_thread(self._queue.kit.settle, self._queue.name)
        return found

    async def _claim(self, visibility: float) -> list[tuple[dict[str, Any], Any]]:
        """Claim many messages. Return what proves each lease, and its event."""
        common = {"p_worker_id": "bulk", "p_visibility": visibility, "p_min_priority": 0}
        own_tokens = getattr(MANIFESTS[self._queue.kit.backend].loaded().core, "client_tokens", False)
        answers = await self._batch(
            Call(CLAIM, {**common, "p_token": str(uuid4())} if own_tokens else common) for _ in range(1000)
        )
        fences = [
            {"p_group_id": as_text(rows[0]["group_id"]), "p_token": str(rows[0]["token"])}
            | ({"p_seq": rows[0]["seq"]} if own_tokens else {})
            for rows in answers
            if rows
        ]
        return list(zip(fences, [json.loads(rows[0]["event"]) for rows in answers if rows], strict=True))

    async def _batch(self, calls: Iterable[Call]) -> list[Rows]:
        return await in_thread(self._queue.kit.batch, self._queue.name, list(calls))


class Queues:
    """Makes queues on one backend for one test, and removes them afterwards."""

    _numbers = itertools.count(1)

    def __init__(self, kit: Kit, twin: Twin, folder: Path) -> None:
        self.kit = kit
        self.twin: Twin = twin
        self._cleanup = contextlib.AsyncExitStack()
        kit.folder = folder

    @classmethod
    def fresh_name(cls) -> str:
        """Return a name that no other test, worker or run on the same server uses."""
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        return f"t_{worker}_{next(cls._numbers)}_{secrets.token_hex(4)}"

    async def make(self, *, name: str = "", head_start: float | str | None = None, **options: Any) -> Queue:
        """Make a new, migrated, empty queue and a transport on it."""
        name = name or self.fresh_name()
        self._cleanup.push_async_callback(in_thread, self.kit.drop, name)
        await in_thread(self.kit.create, name, head_start)
        return await self.open(name, **options)

    async def open(self, name: str, **options: Any) -> Queue:
        """Open a transport on a queue that exists."""
        options = {**self.kit.options(self.twin), **options}
        url = options.pop("url", None) or self.kit.url(name)
        transport: Any
        if self.twin == "sync":
            transport = await in_thread(fairlane.connect, url, name, **options)
        else:
            transport = await fairlane.connect_async(url, name, **options)
        queue = Queue(self, name, transport)
        self._cleanup.push_async_callback(queue.close)
        return queue

    def over(self, name: str, client: Any, **options: Any) -> Queue:
        """Make a transport on a client, pool or connection of the application."""
        kinds = MANIFESTS[self.kit.backend].transports()
        return Queue(self, name, kinds[self.twin == "async"](client, queue=name, **options))

    def afterwards(self, close: Callable[[], Any]) -> None:
        """Close a resource of the application before the queues are removed, also when the test fails."""

        async def closing() -> None:
            result = close()
            if inspect.isawaitable(result):
                await result

        self._cleanup.push_async_callback(closing)

    async def close(self) -> None:
        """Close every transport, then remove every queue."""
        await self._cleanup.aclose()
