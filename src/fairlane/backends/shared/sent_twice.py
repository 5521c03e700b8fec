"""The core of libSQL and rqlite, where a request may be sent twice: it may be applied although its answer is lost."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import uuid4

from fairlane.backends.base import Draft, Leased
from fairlane.backends.shared.family import FamilyCore
from fairlane.backends.shared.family_batches import EXTEND_MANY, FINISHED_MANY, PUBLISH_MANY
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

    def send(self, request: Call) -> Program[Call, Rows, Rows]:
        for _ in range(2):
            try:
                rows: Rows = yield from delivered(request, repeatable=request.operation.repeatable)
                return rows
            except Refused as refused:
                error, constraint = refused.error, refused.constraint
            if not (yield from self._is_there(request)):
                raise SchemaNotReady(self.queue, None, CLIENT_REVISION) from error
            # the queue may have been created just now; the refused request changed nothing, so send it once more
        if constraint and request.operation.adds:
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
        arguments = self.publish_arguments(group_id, payload, priority, dedup_id)
        rows = yield from self.call(PUBLISH, arguments)
        if not rows:  # the publish was applied before, and its message was acked in the meantime
            rows = yield from self.call(FINISHED, {"p_call_id": arguments["p_call_id"]})
        return int(rows[0]["seq"]) if rows else 0  # 0 if more than 10,000 calls were finished since

    def publish_arguments(
        self, group_id: str, payload: str, priority: int, dedup_id: str | None
    ) -> dict[str, str | int | None]:
        call_id = str(uuid4())
        sent_id = dedup_id or f"{_GENERATED}{call_id}"
        return {**super().publish_arguments(group_id, payload, priority, sent_id), "p_call_id": call_id}

    def publish_many(self, drafts: Sequence[Draft]) -> Program[Call, Rows, list[int]]:
        batch = [self.publish_arguments(*draft) for draft in drafts]
        # messages with one dedup id are one call: if the batch is sent again after the first one was acked, the second
        # one must not be added
        ids = {arguments["p_dedup_id"]: arguments["p_call_id"] for arguments in batch}
        calls = [Call(PUBLISH, {**arguments, "p_call_id": ids[arguments["p_dedup_id"]]}) for arguments in batch]
        answers = yield from self.together(PUBLISH_MANY, calls)
        done = {call.arguments["p_call_id"]: rows for call, rows in zip(calls, answers, strict=True)}
        finished = [Call(FINISHED, {"p_call_id": call_id}) for call_id, rows in done.items() if not rows]
        found = yield from self.together(FINISHED_MANY, finished)
        done |= {call.arguments["p_call_id"]: rows for call, rows in zip(finished, found, strict=True)}
        seqs = [done[call.arguments["p_call_id"]] for call in calls]
        return [int(rows[0]["seq"]) if rows else 0 for rows in seqs]

    def claim(
        self, worker_id: str, visibility: float, min_priority: int, leased: Leased[T]
    ) -> Program[Call, Rows, Lease[T] | None]:
        """Lease a message so that at least half of the lease is left when the caller gets it."""
        rows = yield from self.claimed_in_time(
            lambda ends: Call(CLAIM, self.claim_arguments(worker_id, visibility, min_priority), ends), visibility
        )
        return lease_of(rows[0], leased) if rows else None

    def in_time(self, rows: Rows, visibility: float, began: float, request: Call) -> Program[Call, Rows, Rows]:
        """Return the rows of a claim after extending leases of which less than half may be left.

        rqlite gives a request its time when it arrives. If the request waits behind other writes, or if its answer is
        late, the leases may have expired when the answer arrives. Then they are extended, in one request. A row is left
        out if another worker has claimed its group by then.
        """
        if not rows or time.monotonic() - began < visibility / 2:
            return rows
        calls = [Call(EXTEND, {**_fence_of(row), "p_visibility": visibility}) for row in rows]
        answers = yield from self.together(EXTEND_MANY, calls, request.ends)
        return [
            {**row, "expires_at": extended[0]["expires_at"]}
            for row, extended in zip(rows, answers, strict=True)
            if extended
        ]

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


def _fence_of(row: Row) -> dict[str, object]:
    """Return the arguments that identify the lease in the row of a claim."""
    return {"p_group_id": as_text(row["group_id"]), "p_token": row["token"], "p_seq": row["seq"]}
