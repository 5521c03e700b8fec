"""The parts of every backend: a core of programs and two executors.

A core makes the requests and reads the answers, without a driver. An executor sends one request to the server with
driver calls, and turns the driver's errors into Fairlane's errors. Backends whose operations are stored in the database
share `stored.ProcedureCore`. The other backends have programs of their own.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from math import inf
from types import TracebackType
from typing import Any, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from fairlane.contract import CLIENT_REVISION
from fairlane.errors import LeaseLost, SchemaNotReady
from fairlane.model import GroupStatus, Lease, MessageStatus, QueueStatus, Revision, T
from fairlane.program import AnswerT, Program, RequestT

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Executor(Protocol[RequestT_contra, AnswerT_co]):
    """Sends requests to the server with blocking driver calls. Many threads may use one executor at once.

    Its constructor does no input or output. The first request connects.
    """

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self: ...
    @classmethod
    def from_client(cls, client: Any, queue: str, **options: object) -> Self: ...
    def execute(self, request: RequestT_contra, /) -> AnswerT_co: ...
    def close(self) -> None: ...


class AsyncExecutor(Protocol[RequestT_contra, AnswerT_co]):
    """The same for asyncio. Many tasks of one event loop may use one executor at once.

    A cancelled call does not affect the others.
    """

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self: ...
    @classmethod
    def from_client(cls, client: Any, queue: str, **options: object) -> Self: ...
    async def execute(self, request: RequestT_contra, /) -> AnswerT_co: ...
    async def close(self) -> None: ...


LEAST = 1.0
"""Minimum seconds for a call at the start of a transport. With less time its error would not name the cause."""


class Limit:
    """The time limit of calls: seconds for each call, and a common deadline while a transport starts."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = inf

    def deadline(self, now: float) -> float:
        """Return the deadline of a call that begins now, by time.monotonic()."""
        return min(now + self._seconds, max(self._end, now + LEAST))

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """End the calls inside the context this many seconds after its beginning, but give each at least `LEAST`."""
        self._end = time.monotonic() + seconds
        try:
            yield
        finally:
            self._end = inf


@runtime_checkable
class Limited(Protocol):
    """An executor that limits the time of its calls. One that waits for no server need not do so."""

    limit: Limit


def starting(executor: object, seconds: float) -> AbstractContextManager[None]:
    """Limit the calls at the start of a transport to these seconds, if the executor can do so."""
    return executor.limit.within(seconds) if isinstance(executor, Limited) else nullcontext()


class LeaseGone(Exception):
    """Raised by an executor for its core: the server reports that the token no longer holds. Never leaves a core."""


Leased: TypeAlias = Callable[[str, str, int, str, int, datetime, datetime], Lease[T]]
"""Makes a lease of its fields, with the stored text in place of the event. `Lease` itself leaves it so."""


Draft: TypeAlias = tuple[str, str, int, str | None]
"""A message to publish: group id, event as JSON text, priority, dedup id."""


class Core(ABC, Generic[RequestT, AnswerT]):
    """The operations of a backend as programs. Arguments are checked already, and events are JSON text here.

    A claim that waits uses `next_ready`, or `claim_within` if the server itself waits for messages (`long_polls`).
    """

    long_polls: ClassVar[bool] = False

    def __init__(self, queue: str) -> None:
        self.queue = queue

    def check_arguments(self, operation: str, arguments: Mapping[str, float]) -> None:
        """Refuse a priority, a min_priority or a delay that this backend does not support, before anything is sent.

        Raises:
            UnsupportedByBackend: the backend cannot keep what the argument asks for (promise 13 of the contract).
        """

    @abstractmethod
    def revision(self) -> Program[RequestT, AnswerT, Revision | None]:
        """Return the queue's revision, or None if the queue is not there."""

    @abstractmethod
    def publish(
        self, group_id: str, payload: str, priority: int, dedup_id: str | None
    ) -> Program[RequestT, AnswerT, int]:
        """Append a message and return its seq."""

    @abstractmethod
    def claim(
        self, worker_id: str, visibility: float, min_priority: int, leased: Leased[T]
    ) -> Program[RequestT, AnswerT, Lease[T] | None]:
        """Lease a message, and return what `leased` makes of it; return None if nothing is deliverable."""

    def claim_within(
        self, worker_id: str, visibility: float, leased: Leased[T], seconds: float
    ) -> Program[RequestT, AnswerT, Lease[T] | None]:
        """Claim, and let the server wait for a message, for about these seconds. Only if `long_polls`."""
        raise NotImplementedError

    def next_ready(self, min_priority: int, name: str | None) -> Program[RequestT, AnswerT, float | None]:
        """Return for how many seconds no group of this priority or more is claimable; None if there is no group.

        The result is 0 or less if a group is claimable. Only if not `long_polls`.

        Args:
            name: the name under which the server shall ring for the next messages; None: it shall not.
        """
        raise NotImplementedError

    @abstractmethod
    def ack(self, lease: Lease[Any]) -> Program[RequestT, AnswerT, None]:
        """Finish a message or raise `LeaseLost`."""

    @abstractmethod
    def nack(self, lease: Lease[Any], delay: float) -> Program[RequestT, AnswerT, None]:
        """Give a message back or raise `LeaseLost`."""

    @abstractmethod
    def extend(self, lease: Lease[Any], visibility: float) -> Program[RequestT, AnswerT, datetime]:
        """Return the new end of the lease or raise `LeaseLost`."""

    def publish_many(self, drafts: Sequence[Draft]) -> Program[RequestT, AnswerT, list[int]]:
        """Append at most `MAX_BATCH` messages in their order, and return their seqs."""
        seqs = []
        for draft in drafts:
            seqs.append((yield from self.publish(*draft)))
        return seqs

    def claim_many(
        self, worker_id: str, visibility: float, limit: int, min_priority: int
    ) -> Program[RequestT, AnswerT, list[Lease[Any]]]:
        """Lease messages of different groups, and return the leases with the stored texts as events."""
        leases: list[Lease[Any]] = []
        while len(leases) < limit:
            lease: Lease[Any] | None = yield from self.claim(worker_id, visibility, min_priority, Lease)
            if lease is None:
                break
            leases.append(lease)
        return leases

    def ack_many(self, leases: Sequence[Lease[Any]]) -> Program[RequestT, AnswerT, list[Lease[Any]]]:
        """Finish at most `MAX_BATCH` messages, and return the leases that no longer hold."""
        lost = []
        for lease in leases:
            try:
                yield from self.ack(lease)
            except LeaseLost:
                lost.append(lease)
        return lost

    def ack_and_claim(
        self, lease: Lease[Any], worker_id: str, visibility: float, min_priority: int, leased: Leased[T]
    ) -> Program[RequestT, AnswerT, Lease[T] | None]:
        """Finish a message or raise `LeaseLost`, and lease the next one."""
        yield from self.ack(lease)
        return (yield from self.claim(worker_id, visibility, min_priority, leased))

    @abstractmethod
    def release(self, group_id: str) -> Program[RequestT, AnswerT, bool]:
        """End the lease of a group, whoever holds it; return whether there was one."""

    @abstractmethod
    def purge(self, group_id: str) -> Program[RequestT, AnswerT, int]:
        """Delete the messages of a group that are not leased; return how many there were."""

    @abstractmethod
    def pause(self, group_id: str | None) -> Program[RequestT, AnswerT, bool]:
        """Let claims pass a group over, or all groups if it is None; return False if that was so already."""

    @abstractmethod
    def resume(self, group_id: str | None) -> Program[RequestT, AnswerT, bool]:
        """End the pause of a group, or that of the queue; return False if there was none."""

    @abstractmethod
    def queue_status(self) -> Program[RequestT, AnswerT, QueueStatus]:
        """Return the queue's figures."""

    @abstractmethod
    def group_status(self, limit: int) -> Program[RequestT, AnswerT, list[GroupStatus]]:
        """Return groups in the order of the line."""

    @abstractmethod
    def message_status(self, group_id: str, limit: int) -> Program[RequestT, AnswerT, list[MessageStatus]]:
        """Return a group's messages, head first; their `event` is the stored text."""

    def fault(self) -> Program[RequestT, AnswerT, str | None]:
        """Return what is wrong with the stored data and how to repair it, or None if no fault is known."""
        return None
        yield  # pragma: no cover - the yield makes this method a program

    def check_ready(self) -> Program[RequestT, AnswerT, None]:
        """Ask the database once whether it serves this client.

        Raises:
            SchemaNotReady: it does not.
        """
        revision = yield from self.revision()
        if revision is None:
            raise SchemaNotReady(self.queue, None, CLIENT_REVISION)
        if not fits(revision):
            raise SchemaNotReady(self.queue, revision.found, CLIENT_REVISION, revision.serves)


def fits(revision: Revision) -> bool:
    """Return whether a queue of this revision serves this client."""
    return revision.found >= CLIENT_REVISION >= revision.serves


@dataclass(frozen=True, slots=True)
class Backend(Generic[RequestT, AnswerT]):
    """The three classes of a backend. They share the types of requests and answers."""

    core: Callable[[str], Core[RequestT, AnswerT]]
    executor: type[Executor[RequestT, AnswerT]]
    async_executor: type[AsyncExecutor[RequestT, AnswerT]]


class translated:  # noqa: N801 - reads like a statement: with translated(…)
    """Raise the error that `translate` returns for a driver's error, chained to it. If it returns None, let it pass.

    This is a class, since a generator with `contextmanager` takes three times as long in every call.
    """

    __slots__ = ("_translate",)

    def __init__(self, translate: Callable[[Exception], Exception | None]) -> None:
        self._translate = translate

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            known = self._translate(error)
            if known is not None:
                raise known from error
