"""The transport for blocking code, which drives the programs of `operations`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, ClassVar, Generic, NoReturn, Self

from fairlane import contract
from fairlane.backends.base import Core, Executor, starting
from fairlane.backends.manifest import Manifest
from fairlane.backends.shared.waiting import Roomy
from fairlane.capabilities import Capabilities
from fairlane.codec import Codec, JsonCodec
from fairlane.errors import TransportClosed
from fairlane.model import GroupStatus, Lease, Message, MessageStatus, QueueStatus, T
from fairlane.operations import Operations
from fairlane.program import run

STARTUP_TIMEOUT = 5.0
"""Seconds for which a new transport waits for a server that is not up yet."""


def refuse(request: object) -> NoReturn:
    """Refuse every request; replaces the executor's method when a transport is closed."""
    raise TransportClosed()


class Described(Generic[T]):
    """The properties of both kinds of transports."""

    manifest: ClassVar[Manifest]
    _operations: Operations[Any, Any, T]

    @property
    def backend(self) -> str:
        """The name of the backend, as in `STM_TRANSPORT_BACKEND`."""
        return self.manifest.name

    @property
    def capabilities(self) -> Capabilities:
        """The promises of the contract that this backend keeps."""
        return self.manifest.capabilities

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._operations.core.queue


class Transport(Described[T]):
    """A queue for blocking code. Many threads may share one object. Use it as a context manager, or `close` it."""

    def __init__(
        self, client: Any, *, queue: str = contract.DEFAULT_QUEUE, codec: Codec[T] | None = None, **options: object
    ) -> None:
        backend = self.manifest.loaded()
        name = contract.check_queue(queue)
        self._assemble(backend.core(name), backend.executor.from_client(client, name, **options), codec)

    @classmethod
    def from_url(cls, url: str, *arguments: Any, **keywords: Any) -> Transport[Any]:
        """Connect to the backend at a URL.

        Args:
            url: the address of the backend; `docs/backends/` shows the forms.
            queue: the name of the queue, `[a-z][a-z0-9_]{0,30}`.
            codec: encodes and decodes events; strict JSON by default.
            startup_timeout: seconds to wait for a server that is not up yet.
            options: options of the backend. The class of the backend, such as `SqliteTransport`, documents them.

        Raises:
            SchemaNotReady: the queue is not migrated, or its revision does not fit this client.
            BackendUnavailable: the server cannot be reached.
            AuthenticationFailed: the server refused the credentials.
            ConfigurationError: the URL or an option is wrong.
        """
        made: Transport[Any] = cls._from_url(url, *arguments, **keywords)
        return made

    @classmethod
    def _from_url(
        cls,
        url: str,
        *,
        queue: str = contract.DEFAULT_QUEUE,
        codec: Codec[Any] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: object,
    ) -> Any:
        """Connect as `from_url` describes. Each backend's `from_url` declares its own options and calls this method.

        The caller declares the type of the events. `Self` would be wrong: the codec decides that type, not the class.
        """
        backend = cls.manifest.loaded()
        name = contract.check_queue(queue)
        made = cls.__new__(cls)
        made._assemble(backend.core(name), backend.executor.from_url(url, name, **options), codec)
        try:
            with starting(made._executor, startup_timeout):
                run(made._operations.start(startup_timeout), made._execute)
        except BaseException:
            made.close()
            raise
        return made

    def _assemble(self, core: Core[Any, Any], executor: Executor[Any, Any], codec: Codec[T] | None) -> None:
        self._operations = Operations(core, JsonCodec() if codec is None else codec)
        if isinstance(executor, Roomy):
            self._operations.room = executor.room
        self._executor = executor
        self._execute: Callable[[Any], Any] = executor.execute

    @property
    def inspect(self) -> Inspector:
        """Look at the queue without changing it."""
        return Inspector(self)

    def publish(self, group_id: str, event: T, priority: int = 0, *, dedup_id: str | None = None) -> int:
        """Append an event to a group and return the message's seq.

        Args:
            group_id: 1 to 512 bytes of UTF-8 without NUL, compared byte for byte.
            event: a JSON value, or a value that the codec encodes.
            priority: 0 to 4. The first publish into an empty group fixes the group's priority; later ones ignore it.
            dedup_id: 1 to 128 characters. While a message with this id waits or is leased in any group of the queue,
                its seq is returned and nothing is added.

        Raises:
            EventEncodingError: the event cannot be stored; nothing was written.
        """
        return run(self._operations.publish(group_id, event, priority, dedup_id), self._execute)

    def claim(self, worker_id: str, visibility: float, min_priority: int = 0, *, wait: float = 0.0) -> Lease[T] | None:
        """Lease the oldest message of the group that has waited longest, or return None when nothing is deliverable.

        Args:
            worker_id: name of the worker, shown when the queue is inspected; 1 to 512 bytes of UTF-8 without NUL.
            visibility: seconds until another worker may take the message over, 0 < visibility <= 43,200.
            min_priority: 0 to 4; only groups with at least this priority.
            wait: seconds to wait for a message if nothing is deliverable, 0 to 43,200. The claim returns as soon as
                something is deliverable. A `close` of the transport in another thread ends the wait.

        Raises:
            EventDecodingError: the message is leased, but the codec cannot decode it; the error holds the lease.
        """
        return run(self._operations.claim(worker_id, visibility, min_priority, wait), self._execute)

    def ack(self, lease: Lease[T]) -> None:
        """Delete the leased message and free its group.

        Raises:
            LeaseLost: the lease no longer holds; nothing was changed.
        """
        run(self._operations.ack(lease), self._execute)

    def publish_many(self, messages: Iterable[Message[T]]) -> list[int]:
        """Publish messages in their order, and return their seqs.

        All messages are checked before the first request. One request has up to 1,000 messages, and is carried out in
        full or not at all if `capabilities.atomic_batches` says so. An error of a later request has a note which says
        how many messages were published. Repeat the call only if the messages have dedup ids. New groups of one request
        may stand in line in another order than their messages.

        Raises:
            EventEncodingError: an event cannot be stored; nothing was written.
        """
        return run(self._operations.publish_many(messages), self._execute)

    def claim_many(self, worker_id: str, visibility: float, limit: int, min_priority: int = 0) -> list[Lease[T]]:
        """Lease messages of up to `limit` different groups, in the order of the line. An empty list is what None is to
        `claim`.

        Args:
            limit: 1 to 1,000.
            worker_id, visibility, min_priority: see `claim`.

        Raises:
            EventDecodingError: the codec cannot decode some of the messages; the error holds all leases.
        """
        return run(self._operations.claim_many(worker_id, visibility, limit, min_priority), self._execute)

    def ack_many(self, leases: Iterable[Lease[T]]) -> list[Lease[T]]:
        """Delete leased messages and free their groups. Return the leases that no longer hold: `ack` would raise
        `LeaseLost` for them, and nothing was changed there."""
        return run(self._operations.ack_many(leases), self._execute)

    def ack_and_claim(
        self, lease: Lease[T], worker_id: str, visibility: float, min_priority: int = 0
    ) -> Lease[T] | None:
        """Delete the leased message, and lease the next one; see `ack` and `claim`.

        Raises:
            LeaseLost: the lease no longer holds; nothing was changed, and nothing was claimed.
            EventDecodingError: the first message is deleted; the next one is leased, but cannot be decoded.
        """
        return run(self._operations.ack_and_claim(lease, worker_id, visibility, min_priority), self._execute)

    def nack(self, lease: Lease[T], delay: float = 0.0) -> None:
        """Return the message to the head of its group.

        Args:
            delay: seconds for which the whole group is parked, 0 to 31,536,000; 0 makes it claimable at once.

        Raises:
            LeaseLost: the lease no longer holds; nothing was changed.
        """
        run(self._operations.nack(lease, delay), self._execute)

    def extend(self, lease: Lease[T], visibility: float) -> Lease[T]:
        """Let the lease end `visibility` seconds from now, and return the lease with its new end. Its token stays.

        Args:
            visibility: seconds, 0 < visibility <= 43,200.

        Raises:
            LeaseLost: the lease no longer holds; nothing was changed.
        """
        return run(self._operations.extend(lease, visibility), self._execute)

    def release(self, group_id: str) -> bool:
        """End the lease of a worker that is gone, and return whether the group was leased.

        The message is claimable at once, and the token of the lease is void. So a worker that only seemed to be gone
        gets `LeaseLost`. It may still work on the message when another worker begins.
        """
        return run(self._operations.release(group_id), self._execute)

    def purge(self, group_id: str) -> int:
        """Delete the messages that wait in a group, and return how many there were.

        A leased message stays, also if its lease has expired. Many messages are deleted in several requests. So if an
        error is raised, some of them may be deleted. A message that is published meanwhile may be deleted too.
        """
        return run(self._operations.purge(group_id), self._execute)

    def pause(self, group_id: str | None = None) -> bool:
        """Let claims pass a group over until `resume`. Return False if it was paused already.

        Publishes go on, also into a group without messages. A lease that is under way may be extended, acked or nacked;
        if it expires, no worker takes the message over.

        Args:
            group_id: the group; None pauses the whole queue, whichever groups are paused.
        """
        return run(self._operations.pause(group_id), self._execute)

    def resume(self, group_id: str | None = None) -> bool:
        """End the pause of a group. Return False if it was not paused.

        The group goes to the back of the line, unless a lease or a delay still runs: then it waits for its end.

        Args:
            group_id: the group; None ends the pause of the whole queue. Groups that are paused by name stay paused.
        """
        return run(self._operations.resume(group_id), self._execute)

    def close(self) -> None:
        """Close the connections that this transport opened; the application's own client stays open. Idempotent."""
        if self._execute is not refuse:
            self._execute = refuse
            self._operations.close()
            self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Inspector:
    """Look at a queue without changing it. Figures are a snapshot; their cost may grow with the size of the queue."""

    def __init__(self, transport: Transport[Any]) -> None:
        self._transport = transport

    def queue(self) -> QueueStatus:
        """Return the queue's figures."""
        return run(self._transport._operations.queue_status(), self._transport._execute)

    def groups(self, *, limit: int = 100) -> Sequence[GroupStatus]:
        """Return up to `limit` (1 to 10,000) groups in the order of the line, those that are claimable first."""
        return run(self._transport._operations.group_status(limit), self._transport._execute)

    def messages(self, group_id: str, *, limit: int = 100) -> Sequence[MessageStatus]:
        """Return up to `limit` (1 to 10,000) messages of a group, its head first."""
        return run(self._transport._operations.message_status(group_id, limit), self._transport._execute)
