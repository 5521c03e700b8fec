"""The table of stored operations, and the programs that call them.

It is for backends whose operations are stored in the database. Operations, arguments and columns have the same names
as in the procedure files.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from os import urandom
from typing import Any, ClassVar, TypeAlias

from fairlane.backends.base import Core, Leased, LeaseGone
from fairlane.errors import FairlaneError, LeaseLost, QueueDamaged
from fairlane.model import GroupStatus, Lease, MessageStatus, QueueStatus, Revision, T, instant
from fairlane.program import Program

_log = logging.getLogger("fairlane")

PURGED_AT_ONCE = 1000
"""The largest number of messages that one request deletes. More would keep other clients waiting for too long."""

ASIDE_SECONDS = 3600.0
"""Seconds for which a damaged group is parked, so that it causes one error per hour."""

Row: TypeAlias = Mapping[str, Any]
"""The columns of one row by name."""

Rows: TypeAlias = Sequence[Row]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One stored operation.

    Attributes:
        name: the name of the procedure and its file.
        columns: the columns of its rows. Their order counts if a server does not name the columns. Times are
            microseconds since the epoch, except columns whose names end with `_seconds`.
        looks: it changes nothing.
        fenced: it needs the token of the group, so its arguments come from a lease.
        repeatable: it may be sent again if the answer to the first request was lost. `ack` and `nack` may not: the
            second answer would always be "lease lost", although the first request may have succeeded.
        waits_for_disk: its result must survive a power failure. A lost claim does no harm: its message is claimable.
        adds: it makes the queue larger. A server that is full refuses only these, so that the queue can be drained.
        wakes: it may make a message claimable, so claims that wait are woken.
        since: the revision that has brought it.
    """

    name: str
    columns: tuple[str, ...]
    looks: bool = False
    fenced: bool = False
    repeatable: bool = True
    waits_for_disk: bool = False
    adds: bool = False
    wakes: bool = False
    since: str = "0001"


REVISION = Operation("revision", ("revision", "serves"), looks=True)
PUBLISH = Operation("publish", ("seq",), waits_for_disk=True, adds=True, wakes=True)
CLAIM = Operation("claim", ("group_id", "seq", "event", "token", "attempts", "published_at", "expires_at"))
NEXT_READY = Operation("next_ready", ("ready_in_seconds",), looks=True, since="0002")
ANNOUNCE = Operation("announce", NEXT_READY.columns, since="0002")
ACK = Operation("ack", ("group_id",), fenced=True, repeatable=False, waits_for_disk=True, wakes=True)
NACK = Operation("nack", ("group_id",), fenced=True, repeatable=False, waits_for_disk=True, wakes=True)
EXTEND = Operation("extend", ("expires_at",), fenced=True, waits_for_disk=True)
RELEASE = Operation("release", ("group_id",), repeatable=False, waits_for_disk=True, wakes=True, since="0002")
PURGE = Operation("purge", ("seq",), repeatable=False, waits_for_disk=True, since="0002")
PAUSE = Operation("pause", ("done",), repeatable=False, waits_for_disk=True, since="0002")
RESUME = Operation("resume", ("done",), repeatable=False, waits_for_disk=True, wakes=True, since="0002")
QUEUE_STATUS = Operation(
    "queue_status",
    ("queue", "groups", "ready", "in_flight", "parked", "messages", "oldest_seconds", "paused", "is_paused"),
    looks=True,
)
GROUP_STATUS = Operation(
    "group_status",
    ("group_id", "state", "priority", "depth", "oldest_seconds", "worker_id", "attempts", "ready_in_seconds"),
    looks=True,
)
MESSAGE_STATUS = Operation(
    "message_status",
    ("group_id", "seq", "state", "position", "attempts", "dedup_id", "published_at", "age_seconds", "event"),
    looks=True,
)
OPERATIONS = (
    PUBLISH,
    CLAIM,
    NEXT_READY,
    ACK,
    NACK,
    EXTEND,
    RELEASE,
    PURGE,
    PAUSE,
    RESUME,
    REVISION,
    QUEUE_STATUS,
    GROUP_STATUS,
    MESSAGE_STATUS,
)
"""The table of all stored operations. Executors, statements and tests use it instead of comparing names."""

PUBLISH_MANY = Operation(
    "publish_many", PUBLISH.columns, repeatable=False, waits_for_disk=True, adds=True, since="0002"
)
CLAIM_MANY = Operation("claim_many", CLAIM.columns, repeatable=False, since="0002")
ACK_MANY = Operation("ack_many", ("lost",), repeatable=False, waits_for_disk=True, since="0002")
ACK_AND_CLAIM = Operation(
    "ack_and_claim", CLAIM.columns, fenced=True, repeatable=False, waits_for_disk=True, since="0002"
)
WAITS = (ANNOUNCE,)
"""Stored operations for claims that wait, where the server can wake them."""

ANNOUNCED = 2.5
"""Seconds for which the announcement of a claim that waits counts. It is renewed about once a second."""

BATCHES = (PUBLISH_MANY, CLAIM_MANY, ACK_MANY, ACK_AND_CLAIM)
"""Stored operations for many messages at once, where a backend has them. None is repeatable: a second publish would
add messages without a dedup id again, and a second claim would lease other groups."""


@dataclass(slots=True)  # not frozen: a frozen one takes four times as long to make, and each operation makes one
class Call:
    """Request one stored operation, in one round trip. The answer is its rows.

    Attributes:
        ends: the deadline for the answer, by time.monotonic(), including all repetitions of the request. None means
            that the executor chooses the deadline.
    """

    operation: Operation
    arguments: Mapping[str, Any]
    ends: float | None = field(default=None, compare=False)


def lease_of(row: Row, leased: Leased[T]) -> Lease[T]:
    """Return the lease in the row of a claim."""
    group_id, event = row["group_id"], row["event"]
    if type(event) is bytes:
        group_id, event = as_text(group_id), event.decode("utf-8", "surrogateescape")
    published_at, expires_at = _published(row["published_at"]), instant(row["expires_at"])
    return leased(group_id, event, row["seq"], row["token"], row["attempts"], published_at, expires_at)


def as_text(value: Any) -> Any:
    """Return a text that may be sent as bytes. Bytes that are not UTF-8 become surrogates, which codecs refuse."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _published(microseconds: Any) -> datetime:
    """Return a stored time. If it is not a valid time, return the beginning of the epoch."""
    try:
        return instant(microseconds)
    except (ValueError, OverflowError, OSError):
        return instant(0)


def revision_in(row: Row) -> Revision:
    """Return the revision of a database. If `serves` was deleted, it serves clients of its own revision."""
    return Revision(found=row["revision"], serves=row["serves"] or row["revision"])


class ProcedureCore(Core[Call, Rows]):
    """Programs for backends whose operations are stored: each yields exactly one `Call`."""

    client_tokens: ClassVar[bool] = False
    """Whether the client makes the token of a claim. Needed if the server cannot, or may apply a request twice."""

    def send(self, request: Call) -> Program[Call, Rows, Rows]:
        """Send a request. A core overrides this if its server may answer "busy, nothing was done"."""
        return (yield request)

    def call(self, operation: Operation, arguments: Mapping[str, object] | None = None) -> Program[Call, Rows, Rows]:
        """Request one operation."""
        return self.send(Call(operation, arguments or {}))

    def revision(self) -> Program[Call, Rows, Revision | None]:
        rows = yield from self.call(REVISION)
        if not rows or not rows[0]["revision"]:
            return None
        return revision_in(rows[0])

    def publish(self, group_id: str, payload: str, priority: int, dedup_id: str | None) -> Program[Call, Rows, int]:
        rows = yield from self.send(Call(PUBLISH, self.publish_arguments(group_id, payload, priority, dedup_id)))
        return int(rows[0]["seq"])

    def publish_arguments(
        self, group_id: str, payload: str, priority: int, dedup_id: str | None
    ) -> dict[str, str | int | None]:
        """Return the arguments of a new publish."""
        return {"p_group_id": group_id, "p_event": payload, "p_priority": priority, "p_dedup_id": dedup_id}

    def claim(
        self, worker_id: str, visibility: float, min_priority: int, leased: Leased[T]
    ) -> Program[Call, Rows, Lease[T] | None]:
        rows = yield from self.send(Call(CLAIM, self.claim_arguments(worker_id, visibility, min_priority)))
        if not rows:
            return None
        if fault := self.claim_fault(rows[0]):
            raise (yield from self.set_aside(rows[0], *fault))
        return lease_of(rows[0], leased)

    def next_ready(self, min_priority: int, name: str | None) -> Program[Call, Rows, float | None]:
        rows = yield from self.call(NEXT_READY, {"p_min_priority": min_priority})
        return rows[0]["ready_in_seconds"] if rows else None

    def sound(self, rows: Rows) -> Program[Call, Rows, Rows]:
        """Set aside the damaged groups that were claimed, and return the rows of the others.

        Raises:
            QueueDamaged: all groups are damaged. If one is not, the error is only logged: the caller needs its lease.
        """
        found: list[Row] = []
        errors: list[FairlaneError] = []
        for row in rows:
            fault = self.claim_fault(row)
            if fault is None:
                found.append(row)
                continue
            try:
                errors.append((yield from self.set_aside(row, *fault)))
            except FairlaneError as error:
                errors.append(error)
        if errors and not found:
            raise errors[0]
        for each in errors:
            _log.error("%s", each)
        return found

    def claim_fault(self, row: Row) -> tuple[str, str] | None:
        """Return why the message of a claim cannot be delivered, and the remedy; None if it can be delivered."""
        if row["event"] is not None:
            return None
        found = f"group {as_text(row['group_id'])!r} begins with message {row['seq']!r}, which is not there"
        return found, f"`fairlane migrate --queue {self.queue}` repairs it"

    def claim_arguments(self, worker_id: str, visibility: float, min_priority: int) -> dict[str, object]:
        """Return the arguments of a new claim."""
        arguments = {"p_worker_id": worker_id, "p_visibility": visibility, "p_min_priority": min_priority}
        if self.client_tokens:
            arguments["p_token"] = urandom(16).hex()
        return arguments

    def park(self, row: Row) -> Program[Call, Rows, Rows]:
        """Park a leased group, whatever its head is. No row is returned if another worker has the group now."""
        arguments = {"p_group_id": row["group_id"], "p_token": row["token"], "p_delay": ASIDE_SECONDS}
        try:
            return (yield from self.call(NACK, arguments))
        except LeaseGone:
            return []

    def set_aside(self, row: Row, fault: str, remedy: str) -> Program[Call, Rows, QueueDamaged]:
        """Park a leased group that cannot be handed out, so that other groups are served. Return the error to raise."""
        parked = yield from self.park(row)
        done = "parked for an hour" if parked else "leased, so that others are served"
        return QueueDamaged(self.queue, f"{fault}; the group is {done}: {remedy}")

    def ack(self, lease: Lease[Any]) -> Program[Call, Rows, Any]:
        return self._fenced(ACK, lease, self.fence(lease))

    def nack(self, lease: Lease[Any], delay: float) -> Program[Call, Rows, Any]:
        return self._fenced(NACK, lease, {**self.fence(lease), "p_delay": delay})

    def extend(self, lease: Lease[Any], visibility: float) -> Program[Call, Rows, datetime]:
        rows = yield from self._fenced(EXTEND, lease, {**self.fence(lease), "p_visibility": visibility})
        return instant(rows[0]["expires_at"])

    def release(self, group_id: str) -> Program[Call, Rows, bool]:
        return bool((yield from self.call(RELEASE, {"p_group_id": group_id})))

    def purge(self, group_id: str) -> Program[Call, Rows, int]:
        purged = 0
        while True:
            rows = yield from self.call(PURGE, {"p_group_id": group_id, "p_limit": PURGED_AT_ONCE})
            purged += len(rows)
            if len(rows) < PURGED_AT_ONCE:
                return purged

    def pause(self, group_id: str | None) -> Program[Call, Rows, bool]:
        rows = yield from self.call(PAUSE, {"p_group_id": group_id})
        return bool(rows[0]["done"])

    def resume(self, group_id: str | None) -> Program[Call, Rows, bool]:
        rows = yield from self.call(RESUME, {"p_group_id": group_id})
        return bool(rows[0]["done"])

    def _fenced(
        self, operation: Operation, lease: Lease[Any], arguments: Mapping[str, Any]
    ) -> Program[Call, Rows, Rows]:
        """Call an operation that needs the token of the group."""
        try:
            rows = yield from self.send(Call(operation, arguments))
        except LeaseGone as gone:
            raise LeaseLost(lease.group_id, lease.seq) from gone.__cause__
        if not rows:
            raise LeaseLost(lease.group_id, lease.seq)
        return rows

    def fences(
        self, leases: Sequence[Lease[Any]]
    ) -> tuple[list[Lease[Any]], list[dict[str, object]], list[Lease[Any]]]:
        """Return the leases that may hold, the arguments that identify them, and the leases that cannot hold."""
        held, fences, lost = [], [], []
        for lease in leases:
            try:
                fences.append(self.fence(lease))
                held.append(lease)
            except LeaseLost:
                lost.append(lease)
        return held, fences, lost

    def fence(self, lease: Lease[Any]) -> dict[str, object]:
        """Return the arguments that identify a lease to a fenced operation.

        Raises:
            LeaseLost: no claim can have made this lease.
        """
        return {"p_group_id": lease.group_id, "p_token": lease.token}

    def queue_status(self) -> Program[Call, Rows, QueueStatus]:
        rows = yield from self.call(QUEUE_STATUS)
        return queue_status_of(rows[0])

    def group_status(self, limit: int) -> Program[Call, Rows, list[GroupStatus]]:
        rows = yield from self.call(GROUP_STATUS, {"p_limit": limit})
        return [_group(row) for row in rows]

    def message_status(self, group_id: str, limit: int) -> Program[Call, Rows, list[MessageStatus]]:
        rows = yield from self.call(MESSAGE_STATUS, {"p_group_id": group_id, "p_limit": limit})
        return [_message(row) for row in rows]


def _with_flags(row: Row, *names: str) -> dict[str, Any]:
    """Return a row with booleans. SQLite has 0 and 1, and backends that count everything lack some of the columns."""
    return {**row, **{name: bool(dict(row).get(name, False)) for name in names}}


def queue_status_of(row: Row) -> QueueStatus:
    """Return the figures in a row. A queue of an older revision lacks the last columns."""
    return QueueStatus(**_with_flags(row, "is_estimate", "is_paused"))


def _group(row: Row) -> GroupStatus:
    found = _with_flags(row, "depth_is_capped")
    found.update(group_id=as_text(found["group_id"]), worker_id=as_text(found["worker_id"]))
    return GroupStatus(**found)


def _message(row: Row) -> MessageStatus:
    found = {**row, "published_at": _published(row["published_at"])}
    found.update((name, as_text(found[name])) for name in ("group_id", "dedup_id", "event"))
    return MessageStatus(**found)
