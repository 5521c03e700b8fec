"""What every backend is made of: a core of programs and two executors.

A core says *what* is asked and what the answers mean, without a driver. An executor carries one request to the
server with driver calls, and turns the driver's errors into Fairlane's. Cores of backends with stored procedures
share `ProcedureCore`; adapters without procedures write their own programs.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, Self
from uuid import uuid4

from fairlane.contract import CLIENT_REVISION
from fairlane.errors import ConfigurationError, LeaseLost, SchemaNotReady
from fairlane.model import GroupStatus, Lease, MessageStatus, QueueStatus, Revision, instant, new_lease
from fairlane.program import Call, Program

Rows = Sequence[Sequence[Any]]
MAX_BIGINT = 2**63 - 1
FRESH = "fairlane:"
"""What a dedup id begins with that no caller gave."""

_MADE_HERE = re.compile(FRESH + "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Executor(Protocol):
    """Carries requests to the server with blocking driver calls; many threads may use one at once.

    Making one does no input or output: the first request connects.
    """

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self: ...
    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self: ...
    def execute(self, request: Any) -> Any: ...
    def close(self) -> None: ...


class AsyncExecutor(Protocol):
    """The same for asyncio; many tasks of one event loop may use one at once. A cancelled call harms no other."""

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self: ...
    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self: ...
    async def execute(self, request: Any) -> Any: ...
    async def close(self) -> None: ...


class LeaseGone(Exception):
    """Told by an executor to its core: the server says that the token no longer holds. Never leaves a core."""


class Core(ABC):
    """The operations of a backend as programs. Arguments were checked before; events are JSON text here."""

    def __init__(self, queue: str) -> None:
        self.queue = queue

    def check_arguments(self, operation: str, arguments: dict[str, Any]) -> None:  # noqa: B027 - most refuse nothing
        """Refuse a priority, a min_priority or a delay that this backend cannot honour, before anything is sent.

        Raises:
            UnsupportedByBackend: as promise 13 of the contract says.
        """

    @abstractmethod
    def revision(self) -> Program[Revision | None]:
        """Return what the database says of itself, None when the queue is not there."""

    @abstractmethod
    def publish(self, group_id: str, payload: str, priority: int, dedup_id: str | None) -> Program[int]:
        """Append a message and return its seq."""

    @abstractmethod
    def claim(self, worker_id: str, visibility: float, min_priority: int) -> Program[Lease | None]:
        """Lease a message; the lease's `event` is the stored text."""

    @abstractmethod
    def ack(self, lease: Lease) -> Program[None]:
        """Finish a message or raise `LeaseLost`."""

    @abstractmethod
    def nack(self, lease: Lease, delay: float) -> Program[None]:
        """Give a message back or raise `LeaseLost`."""

    @abstractmethod
    def extend(self, lease: Lease, visibility: float) -> Program[datetime]:
        """Return the new end of the lease or raise `LeaseLost`."""

    @abstractmethod
    def queue_status(self) -> Program[QueueStatus]:
        """Return the queue's figures."""

    @abstractmethod
    def group_status(self, limit: int) -> Program[list[GroupStatus]]:
        """Return groups in the order of the line."""

    @abstractmethod
    def message_status(self, group_id: str, limit: int) -> Program[list[MessageStatus]]:
        """Return a group's messages, head first; their `event` is the stored text."""

    def check_ready(self) -> Program[None]:
        """Ask the database once whether it serves this client.

        Raises:
            SchemaNotReady: it does not.
        """
        revision = yield from self.revision()
        if revision is None:
            raise SchemaNotReady(self.queue, None, CLIENT_REVISION)
        if revision.found < CLIENT_REVISION or revision.serves > CLIENT_REVISION:
            raise SchemaNotReady(self.queue, revision.found, CLIENT_REVISION, revision.serves)


class ProcedureCore(Core):
    """Programs for backends whose operations are stored: each yields exactly one `Call`.

    The names of the calls and of their arguments are those of the procedure files; rows have the columns that the
    files' headers promise.
    """

    client_tokens: ClassVar[bool] = False
    """The client makes the claim token: because the server has no source of it, or a request may be applied twice."""

    sent_twice: ClassVar[bool] = False
    """A request may be applied although its answer was lost, and is then sent again. So a publish carries an id of its
    own, and a fence names its message: a claim that arrives once more can lease another one under the same token."""

    def _call(self, operation: str, arguments: Mapping[str, Any] | None = None) -> Program[Rows]:
        """Ask for one operation. Cores whose server may say "busy, nothing was done" ask again here."""
        rows: Rows = yield Call(operation, arguments or {})
        return rows

    def revision(self) -> Program[Revision | None]:
        rows = yield from self._call("revision")
        return Revision(*rows[0]) if rows and rows[0][0] else None

    def publish(self, group_id: str, payload: str, priority: int, dedup_id: str | None) -> Program[int]:
        arguments = {
            "p_group_id": group_id,
            "p_event": payload,
            "p_priority": priority,
            "p_dedup_id": dedup_id,
        }
        if not self.sent_twice:
            rows = yield from self._call("publish", arguments)
            return int(rows[0][0])
        call_id = str(uuid4())
        arguments["p_call_id"] = call_id
        arguments["p_dedup_id"] = dedup_id or f"{FRESH}{call_id}"
        rows = yield from self._call("publish", arguments)
        if not rows:  # it was carried out before, and its message has been finished since
            rows = yield from self._call("finished", {"p_call_id": call_id})
        return int(rows[0][0]) if rows else 0  # 0: so many were finished since that even its seq is forgotten

    def claim(self, worker_id: str, visibility: float, min_priority: int) -> Program[Lease | None]:
        arguments = {"p_worker_id": worker_id, "p_visibility": visibility, "p_min_priority": min_priority}
        if self.client_tokens:
            arguments["p_token"] = str(uuid4())
        rows = yield from self._call("claim", arguments)
        if not rows:
            return None
        group_id, seq, event, token, attempts, published_at, expires_at = rows[0]
        return new_lease(
            group_id, event, int(seq), str(token), int(attempts), published_at=published_at, expires_at=expires_at
        )

    def ack(self, lease: Lease) -> Program[Any]:
        return self._fenced("ack", lease)

    def nack(self, lease: Lease, delay: float) -> Program[Any]:
        return self._fenced("nack", lease, p_delay=delay)

    def extend(self, lease: Lease, visibility: float) -> Program[datetime]:
        rows = yield from self._fenced("extend", lease, p_visibility=visibility)
        return instant(rows[0][0])

    def _fenced(self, operation: str, lease: Lease, **more: Any) -> Program[Rows]:
        """Call an operation that only the holder of the token may do."""
        arguments = {"p_group_id": lease.group_id, "p_token": lease.token, **more}
        if self.sent_twice:
            if lease.seq > MAX_BIGINT:
                raise LeaseLost(lease.group_id, lease.seq)
            arguments["p_seq"] = lease.seq
        try:
            rows = yield from self._call(operation, arguments)
        except LeaseGone as gone:
            raise LeaseLost(lease.group_id, lease.seq) from gone.__cause__
        if not rows:
            raise LeaseLost(lease.group_id, lease.seq)
        return rows

    def queue_status(self) -> Program[QueueStatus]:
        rows = yield from self._call("queue_status")
        return QueueStatus(*rows[0])

    def group_status(self, limit: int) -> Program[list[GroupStatus]]:
        rows = yield from self._call("group_status", {"p_limit": limit})
        return [GroupStatus(*row) for row in rows]

    def message_status(self, group_id: str, limit: int) -> Program[list[MessageStatus]]:
        rows = yield from self._call("message_status", {"p_group_id": group_id, "p_limit": limit})
        return [self._message(row) for row in rows]

    def _message(self, row: Sequence[Any]) -> MessageStatus:
        group_id, seq, state, position, attempts, dedup_id, published_at, age_seconds, event = row
        when = instant(published_at)
        if self.sent_twice and dedup_id is not None and _MADE_HERE.fullmatch(dedup_id):
            dedup_id = None
        return MessageStatus(group_id, seq, state, position, attempts, dedup_id, when, age_seconds, event)


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend as the rest of the package sees it."""

    name: str
    core: Callable[[str], Core]
    executor: type[Executor]
    async_executor: type[AsyncExecutor]


def check_options(backend: str, options: dict[str, Any], known: tuple[str, ...] = ()) -> None:
    """Refuse options that a backend does not have.

    Raises:
        ConfigurationError: naming them, and those that it has.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        has = f"it takes {', '.join(known)}" if known else "it takes none"
        raise ConfigurationError(f"{backend} has no option {', '.join(unknown)}; {has}")


@contextmanager
def translated(translate: Callable[[Exception], Exception | None]) -> Iterator[None]:
    """Raise what `translate` makes of a driver's error, chained to it; let errors pass that it answers with None."""
    try:
        yield
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error
