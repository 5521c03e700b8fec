"""The core of libSQL and rqlite, where a request may be sent twice: it may be applied although its answer is lost."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import uuid4

from fairlane.backends.base import Leased
from fairlane.backends.shared.family import FamilyCore
from fairlane.backends.shared.retry import Refused, delivered
from fairlane.backends.shared.sqlite_statements import last_seq_damaged
from fairlane.backends.stored import (
    CLAIM,
    EXTEND,
    PUBLISH,
    REVISION,
    Call,
    Operation,
    Row,
    Rows,
    as_text,
    lease_of,
    revision_in,
)
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import LeaseLost, QueueDamaged, SchemaNotReady
from fairlane.model import Lease, MessageStatus, Revision, T
from fairlane.program import Program

FINISHED = Operation("finished", ("seq",), looks=True)
"""Returns the seq of a publish that was sent again after its message had been acked."""

EXISTS = Operation("exists", ("found",), looks=True)
"""Returns whether the queue exists. libSQL and rqlite have no error code for a missing table."""

MAX_BIGINT = 2**63 - 1
_GENERATED = "fairlane:"
_GENERATED_ID = re.compile(_GENERATED + "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A dedup id that this module made for a publish without one. Inspections do not show it."""


CLAIMS = 3
"""The number of tries of a claim if its answer arrives too late for its lease."""

Statement: TypeAlias = tuple[str, Mapping[str, object]]
"""SQL and its arguments."""


@dataclass(slots=True)
class Batch:
    """Several statements in one request: all of them are applied, or none. The answer is the rows of each statement.

    Attributes:
        reads: whether no statement changes anything.
        ends: the deadline, as in `Call`.
    """

    statements: tuple[Statement, ...]
    reads: bool = False
    ends: float | None = None


class SentTwiceCore(FamilyCore):
    """The stored operations for servers that may apply a request although its answer is lost.

    A request without an answer is sent again, so the server may apply it twice. A claim has a token that the client
    made: the second claim finds the lease of the first one. A publish finds its message by its dedup id. If that
    message was acked in the meantime, the publish finds its seq by the id of the call: the queue stores the ids of the
    last 10,000 finished calls. An extend that is applied twice extends twice, and its last answer has the true end of
    the lease. A fenced operation also names its message, because a claim that is applied twice can lease another
    message under the same token.
    """

    client_tokens = True

    def call(self, operation: Operation, arguments: Mapping[str, object] | None = None) -> Program[Call, Rows, Rows]:
        return self._answered(Call(operation, arguments or {}))

    def _answered(self, request: Call) -> Program[Call, Rows, Rows]:
        for _ in range(2):
            try:
                rows: Rows = yield from delivered(request, repeatable=request.operation.repeatable)
                return rows
            except Refused as refused:
                error, constraint = refused.error, refused.constraint
            if not (yield from self._is_there(request)):
                raise SchemaNotReady(self.queue, None, CLIENT_REVISION) from error
            # the queue may have been created just now; the refused request changed nothing, so send it once more
        if constraint and request.operation is PUBLISH:
            raise QueueDamaged(self.queue, last_seq_damaged(self.queue)) from error
        raise error

    def revision(self) -> Program[Call, Rows, Revision | None]:
        request = Call(REVISION, {})
        for _ in range(2):
            try:
                # no repetitions here: at start-up `Operations.start` repeats the check
                rows: Rows = yield from delivered(request, repeatable=True, seconds=0.0)
            except Refused as refused:
                error = refused.error
            else:
                return revision_in(rows[0]) if rows and rows[0]["revision"] else None
            if not (yield from self._is_there(request)):
                return None
        raise error

    def _is_there(self, refused: Call) -> Program[Call, Rows, bool]:
        """Ask whether the queue exists, since libSQL and rqlite have no error code for a missing table."""
        rows: Rows = yield from delivered(Call(EXISTS, {}, refused.ends), repeatable=True)
        return bool(rows[0]["found"])

    def publish(self, group_id: str, payload: str, priority: int, dedup_id: str | None) -> Program[Call, Rows, int]:
        call_id = str(uuid4())
        arguments = {
            "p_group_id": group_id,
            "p_event": payload,
            "p_priority": priority,
            "p_dedup_id": dedup_id or f"{_GENERATED}{call_id}",
            "p_call_id": call_id,
        }
        rows = yield from self.call(PUBLISH, arguments)
        if not rows:  # the publish was applied before, and its message was acked in the meantime
            rows = yield from self.call(FINISHED, {"p_call_id": call_id})
        return int(rows[0]["seq"]) if rows else 0  # 0 if more than 10,000 calls were finished since

    def claim(
        self, worker_id: str, visibility: float, min_priority: int, leased: Leased[T]
    ) -> Program[Call, Rows, Lease[T] | None]:
        """Lease a message so that at least half of the lease is left when the caller gets it.

        rqlite gives a request its time when it arrives. If the request waits behind other writes, or if its answer is
        late, the lease may have expired when the answer arrives. Then the lease is extended. If another worker has
        claimed the group by then, another message is claimed.
        """
        ends: float | None = None
        for _ in range(CLAIMS):
            arguments = self.claim_arguments(worker_id, visibility, min_priority)
            request, began = Call(CLAIM, arguments, ends), time.monotonic()
            rows = yield from self._answered(request)
            if not rows:
                break
            if fault := self.claim_fault(rows[0]):
                yield from self.set_aside(rows[0], *fault)
            row: Row | None = rows[0]
            if time.monotonic() - began >= visibility / 2:
                ends = request.ends
                row = yield from self._extended(rows[0], visibility, ends)
            if row is not None:
                return lease_of(row, leased)
        return None

    def _extended(self, claimed: Row, visibility: float, ends: float | None) -> Program[Call, Rows, Row | None]:
        """Extend a lease; return None if another worker has claimed the group."""
        arguments = {
            "p_group_id": as_text(claimed["group_id"]),
            "p_token": claimed["token"],
            "p_seq": claimed["seq"],
            "p_visibility": visibility,
        }
        rows = yield from self._answered(Call(EXTEND, arguments, ends))
        return {**claimed, "expires_at": rows[0]["expires_at"]} if rows else None

    def fence(self, lease: Lease[Any]) -> dict[str, object]:
        if lease.seq > MAX_BIGINT:
            raise LeaseLost(lease.group_id, lease.seq)
        return {**super().fence(lease), "p_seq": lease.seq}

    def message_status(self, group_id: str, limit: int) -> Program[Call, Rows, list[MessageStatus]]:
        messages = yield from super().message_status(group_id, limit)
        return [
            replace(message, dedup_id=None) if _GENERATED_ID.fullmatch(message.dedup_id or "") else message
            for message in messages
        ]
