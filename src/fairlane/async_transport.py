"""The transport for asyncio, which drives the same programs as the one for blocking code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from fairlane import contract
from fairlane.backends.base import AsyncExecutor, Core, starting
from fairlane.backends.shared.waiting import Roomy
from fairlane.codec import Codec, JsonCodec
from fairlane.model import GroupStatus, Lease, Message, MessageStatus, QueueStatus, T
from fairlane.operations import Operations
from fairlane.program import run_async
from fairlane.transport import STARTUP_TIMEOUT, Described, refuse


class AsyncTransport(Described[T]):
    """A queue for asyncio. Many tasks of one event loop may share one object. `Transport` documents the operations."""

    def __init__(
        self, client: Any, *, queue: str = contract.DEFAULT_QUEUE, codec: Codec[T] | None = None, **options: object
    ) -> None:
        backend = self.manifest.loaded()
        name = contract.check_queue(queue)
        self._assemble(backend.core(name), backend.async_executor.from_client(client, name, **options), codec)

    @classmethod
    async def from_url(cls, url: str, *arguments: Any, **keywords: Any) -> AsyncTransport[Any]:
        """Connect to the backend at a URL; see `Transport.from_url`."""
        made: AsyncTransport[Any] = await cls._from_url(url, *arguments, **keywords)
        return made

    @classmethod
    async def _from_url(
        cls,
        url: str,
        *,
        queue: str = contract.DEFAULT_QUEUE,
        codec: Codec[Any] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: object,
    ) -> Any:
        backend = cls.manifest.loaded()
        name = contract.check_queue(queue)
        made = cls.__new__(cls)
        made._assemble(backend.core(name), backend.async_executor.from_url(url, name, **options), codec)
        try:
            with starting(made._executor, startup_timeout):
                await run_async(made._operations.start(startup_timeout), made._execute)
        except BaseException:
            await made.close()
            raise
        return made

    def _assemble(self, core: Core[Any, Any], executor: AsyncExecutor[Any, Any], codec: Codec[T] | None) -> None:
        self._operations = Operations(core, JsonCodec() if codec is None else codec)
        if isinstance(executor, Roomy):
            self._operations.room = executor.room
        self._executor = executor
        self._execute: Callable[[Any], Awaitable[Any]] = executor.execute

    @property
    def inspect(self) -> AsyncInspector:
        """Look at the queue without changing it."""
        return AsyncInspector(self)

    async def publish(self, group_id: str, event: T, priority: int = 0, *, dedup_id: str | None = None) -> int:
        """Append an event to a group and return the message's seq; see `Transport.publish`."""
        return await run_async(self._operations.publish(group_id, event, priority, dedup_id), self._execute)

    async def claim(
        self, worker_id: str, visibility: float, min_priority: int = 0, *, wait: float = 0.0
    ) -> Lease[T] | None:
        """Lease the oldest message of the group that has waited longest, or None; see `Transport.claim`.

        A cancelled claim may have leased a message that no worker received. That lease expires by itself. One that is
        cancelled while it only waits has leased nothing.
        """
        return await run_async(self._operations.claim(worker_id, visibility, min_priority, wait), self._execute)

    async def ack(self, lease: Lease[T]) -> None:
        """Delete the leased message and free its group; see `Transport.ack`."""
        await run_async(self._operations.ack(lease), self._execute)

    async def publish_many(self, messages: Iterable[Message[T]]) -> list[int]:
        """Publish messages in their order, and return their seqs; see `Transport.publish_many`."""
        return await run_async(self._operations.publish_many(messages), self._execute)

    async def claim_many(self, worker_id: str, visibility: float, limit: int, min_priority: int = 0) -> list[Lease[T]]:
        """Lease messages of up to `limit` different groups, in the order of the line; see `Transport.claim_many`."""
        return await run_async(self._operations.claim_many(worker_id, visibility, limit, min_priority), self._execute)

    async def ack_many(self, leases: Iterable[Lease[T]]) -> list[Lease[T]]:
        """Delete leased messages and free their groups, and return the lost leases; see `Transport.ack_many`."""
        return await run_async(self._operations.ack_many(leases), self._execute)

    async def ack_and_claim(
        self, lease: Lease[T], worker_id: str, visibility: float, min_priority: int = 0
    ) -> Lease[T] | None:
        """Delete the leased message, and lease the next one; see `Transport.ack_and_claim`."""
        program = self._operations.ack_and_claim(lease, worker_id, visibility, min_priority)
        return await run_async(program, self._execute)

    async def nack(self, lease: Lease[T], delay: float = 0.0) -> None:
        """Return the message to the head of its group; see `Transport.nack`."""
        await run_async(self._operations.nack(lease, delay), self._execute)

    async def extend(self, lease: Lease[T], visibility: float) -> Lease[T]:
        """Let the lease end `visibility` seconds from now, and return the new lease; see `Transport.extend`."""
        return await run_async(self._operations.extend(lease, visibility), self._execute)

    async def release(self, group_id: str) -> bool:
        """End the lease of a worker that is gone, and return whether the group was leased; see `Transport.release`."""
        return await run_async(self._operations.release(group_id), self._execute)

    async def purge(self, group_id: str) -> int:
        """Delete the messages that wait in a group, and return how many there were; see `Transport.purge`."""
        return await run_async(self._operations.purge(group_id), self._execute)

    async def pause(self, group_id: str | None = None) -> bool:
        """Let claims pass a group, or the whole queue, over until `resume`; see `Transport.pause`."""
        return await run_async(self._operations.pause(group_id), self._execute)

    async def resume(self, group_id: str | None = None) -> bool:
        """End the pause of a group, or of the whole queue; see `Transport.resume`."""
        return await run_async(self._operations.resume(group_id), self._execute)

    async def close(self) -> None:
        """Close the connections that this transport opened; the application's own client stays open. Idempotent."""
        from asyncio import shield

        if self._execute is not refuse:
            self._execute = refuse
            self._operations.close()
            await shield(self._executor.close())  # a caller that is cancelled here cannot close the transport again

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncInspector:
    """Look at a queue without changing it; see `Inspector`."""

    def __init__(self, transport: AsyncTransport[Any]) -> None:
        self._transport = transport

    async def queue(self) -> QueueStatus:
        """Return the queue's figures."""
        return await run_async(self._transport._operations.queue_status(), self._transport._execute)

    async def groups(self, *, limit: int = 100) -> Sequence[GroupStatus]:
        """Return up to `limit` (1 to 10,000) groups in the order of the line, those that are claimable first."""
        return await run_async(self._transport._operations.group_status(limit), self._transport._execute)

    async def messages(self, group_id: str, *, limit: int = 100) -> Sequence[MessageStatus]:
        """Return up to `limit` (1 to 10,000) messages of a group, its head first."""
        return await run_async(self._transport._operations.message_status(group_id, limit), self._transport._execute)
