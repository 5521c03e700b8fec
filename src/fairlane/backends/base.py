"""What every backend is made of: a core of programs and two executors.

A core says *what* is asked and what the answers mean, without a driver. An executor carries one request to the
server with driver calls, and turns the driver's errors into Fairlane's. Cores whose operations are stored in the
database share `stored.ProcedureCore`; the others write their own programs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from fairlane.contract import CLIENT_REVISION
from fairlane.errors import SchemaNotReady
from fairlane.model import GroupStatus, Lease, MessageStatus, QueueStatus, Revision
from fairlane.program import AnswerT, Program, RequestT

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Executor(Protocol[RequestT_contra, AnswerT_co]):
    """Carries requests to the server with blocking driver calls; many threads may use one at once.

    Making one does no input or output: the first request connects.
    """

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self: ...
    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self: ...
    def execute(self, request: RequestT_contra, /) -> AnswerT_co: ...
    def close(self) -> None: ...


class AsyncExecutor(Protocol[RequestT_contra, AnswerT_co]):
    """The same for asyncio; many tasks of one event loop may use one at once. A cancelled call harms no other."""

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self: ...
    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self: ...
    async def execute(self, request: RequestT_contra, /) -> AnswerT_co: ...
    async def close(self) -> None: ...


@runtime_checkable
class Limited(Protocol):
    """An executor whose calls can be told to end sooner than usual."""

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Let calls inside of the context end so many seconds from its beginning; each may take one second at least."""
        ...


def starting(executor: object, seconds: float) -> AbstractContextManager[None]:
    """Let no call at the start of a transport take longer than that waits for its server, if the executor can do so."""
    return executor.within(seconds) if isinstance(executor, Limited) else nullcontext()


class LeaseGone(Exception):
    """Told by an executor to its core: the server says that the token no longer holds. Never leaves a core."""


class Claimed(NamedTuple):
    """A message that was just leased, before its event is decoded."""

    group_id: str
    event: str
    seq: int
    token: str
    attempts: int
    published_at: datetime
    expires_at: datetime


class Core(ABC, Generic[RequestT, AnswerT]):
    """The operations of a backend as programs. Arguments were checked before; events are JSON text here.

    Attributes:
        ends: by time.monotonic(), when a start must be over; None afterwards, when the backend's own timeout counts.
    """

    ends: float | None = None

    def __init__(self, queue: str) -> None:
        self.queue = queue

    def check_arguments(self, operation: str, arguments: dict[str, Any]) -> None:
        """Refuse a priority, a min_priority or a delay that this backend cannot honour, before anything is sent.

        Raises:
            UnsupportedByBackend: as promise 13 of the contract says.
        """

    @abstractmethod
    def revision(self) -> Program[RequestT, AnswerT, Revision | None]:
        """Return what the database says of itself, None when the queue is not there."""

    @abstractmethod
    def publish(
        self, group_id: str, payload: str, priority: int, dedup_id: str | None
    ) -> Program[RequestT, AnswerT, int]:
        """Append a message and return its seq."""

    @abstractmethod
    def claim(self, worker_id: str, visibility: float, min_priority: int) -> Program[RequestT, AnswerT, Claimed | None]:
        """Lease a message."""

    @abstractmethod
    def ack(self, lease: Lease[Any]) -> Program[RequestT, AnswerT, None]:
        """Finish a message or raise `LeaseLost`."""

    @abstractmethod
    def nack(self, lease: Lease[Any], delay: float) -> Program[RequestT, AnswerT, None]:
        """Give a message back or raise `LeaseLost`."""

    @abstractmethod
    def extend(self, lease: Lease[Any], visibility: float) -> Program[RequestT, AnswerT, datetime]:
        """Return the new end of the lease or raise `LeaseLost`."""

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
        """Return what is wrong with what is stored and what sets it right, None if nothing is known to be."""
        return None
        yield  # pragma: no cover - which makes it a program

    def check_ready(self) -> Program[RequestT, AnswerT, None]:
        """Ask the database once whether it serves this client.

        Raises:
            SchemaNotReady: it does not.
        """
        revision = yield from self.revision()
        if revision is None:
            raise SchemaNotReady(self.queue, None, CLIENT_REVISION)
        if revision.found < CLIENT_REVISION or revision.serves > CLIENT_REVISION:
            raise SchemaNotReady(self.queue, revision.found, CLIENT_REVISION, revision.serves)


@dataclass(frozen=True, slots=True)
class Backend(Generic[RequestT, AnswerT]):
    """The three classes of a backend. They agree on what is asked and answered."""

    core: Callable[[str], Core[RequestT, AnswerT]]
    executor: type[Executor[RequestT, AnswerT]]
    async_executor: type[AsyncExecutor[RequestT, AnswerT]]


class translated:  # noqa: N801 - reads like a statement: with translated(…)
    """Raise what `translate` makes of a driver's error, chained to it; let errors pass that it answers with None.

    A class, since a generator with `contextmanager` takes three times as long, in every call.
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
