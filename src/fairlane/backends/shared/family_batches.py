"""The programs of SQLite, libSQL and rqlite for many messages. Their operations go into one request.

The operations of a batch are carried out in their order and in one transaction. They use the statements of single
operations, so that each rule is in one place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairlane.backends.base import Draft, Leased
from fairlane.backends.stored import (
    ACK,
    CLAIM,
    PAUSE,
    PUBLISH,
    RESUME,
    Call,
    Operation,
    ProcedureCore,
    Row,
    Rows,
    lease_of,
)
from fairlane.errors import FairlaneError, LeaseLost
from fairlane.model import Lease, T
from fairlane.program import Program

PUBLISH_MANY = Operation("publish_many", ("rows",), waits_for_disk=True, adds=True, wakes=True)
CLAIM_MANY = Operation("claim_many", ("rows",))
ACK_MANY = Operation("ack_many", ("rows",), repeatable=False, waits_for_disk=True, wakes=True)
ACK_AND_CLAIM = Operation("ack_and_claim", ("rows",), repeatable=False, waits_for_disk=True, wakes=True)
EXTEND_MANY = Operation("extend_many", ("rows",), waits_for_disk=True)
PAUSING = Operation("pausing", ("rows",), repeatable=False, waits_for_disk=True)
FINISHED_MANY = Operation("finished_many", ("rows",), looks=True)

BATCHES = frozenset({PUBLISH_MANY, CLAIM_MANY, ACK_MANY, ACK_AND_CLAIM, EXTEND_MANY, FINISHED_MANY, PAUSING})
"""Requests with several calls, in the argument `calls`. The answer has one row for each call, with its rows."""

PAUSING_TRIGGERS = tuple(Operation(f"pausing_{name}", (), repeatable=False) for name in ("moves", "starts", "claims"))
"""They create the triggers that keep paused groups out of the line. The first pause of a queue needs them."""

CLAIM_NEXT = Operation("claim_next", CLAIM.columns, repeatable=False)
"""A claim in the same request as an ack, directly after it. It leases nothing if the ack has found no lease."""

CLAIMS = 3
"""The number of tries of a claim if its answer arrives too late for its lease."""


def answer_of(answers: Iterable[Rows]) -> Rows:
    """Return the answer of a batch, from the rows of its calls."""
    return [{"rows": rows} for rows in answers]


class BatchCore(ProcedureCore):
    """The programs for many messages, and the claim on which they rely."""

    def together(
        self, operation: Operation, calls: Sequence[Call], ends: float | None = None
    ) -> Program[Call, Rows, list[Rows]]:
        """Send calls in one request, and return the rows of each. Without calls, send nothing."""
        if not calls:
            return []
        answer = yield from self.send(Call(operation, {"calls": calls}, ends))
        return [each["rows"] for each in answer]

    def publish_many(self, drafts: Sequence[Draft]) -> Program[Call, Rows, list[int]]:
        calls = [Call(PUBLISH, self.publish_arguments(*draft)) for draft in drafts]
        answers = yield from self.together(PUBLISH_MANY, calls)
        return [int(rows[0]["seq"]) for rows in answers]

    def claim_many(
        self, worker_id: str, visibility: float, limit: int, min_priority: int
    ) -> Program[Call, Rows, list[Lease[Any]]]:
        def request(ends: float | None) -> Call:
            calls = [Call(CLAIM, self.claim_arguments(worker_id, visibility, min_priority)) for _ in range(limit)]
            return Call(CLAIM_MANY, {"calls": calls}, ends)

        rows = yield from self.claimed_in_time(request, visibility)
        return [lease_of(row, Lease) for row in rows]

    def claimed_in_time(
        self, request_with: Callable[[float | None], Call], visibility: float
    ) -> Program[Call, Rows, Sequence[Row]]:
        """Claim, and return a row for each lease.

        If all leases were taken over by other workers before the answer arrived, claim again.

        Args:
            request_with: makes a new request, with this deadline.
        """
        ends: float | None = None
        for _ in range(CLAIMS):
            request, began = request_with(ends), time.monotonic()
            rows = yield from self.send(request)
            if request.operation in BATCHES:
                rows = [row for each in rows for row in each["rows"]]
            sound = yield from self.sound(rows)
            if not sound:
                break
            held = yield from self.in_time(sound, visibility, began, request)
            if held:
                return held
            ends = request.ends
        return []

    def in_time(self, rows: Rows, visibility: float, began: float, request: Call) -> Program[Call, Rows, Rows]:
        """Return the rows of a claim whose leases still hold when its answer arrives.

        Args:
            began: when the request was sent, by time.monotonic().
        """
        return rows
        yield  # pragma: no cover - the yield makes this method a program

    def pause(self, group_id: str | None) -> Program[Call, Rows, bool]:
        triggers = [Call(each, {}) for each in PAUSING_TRIGGERS]
        answers = yield from self.together(PAUSING, [*triggers, Call(PAUSE, {"p_group_id": group_id or ""})])
        return bool(answers[-1])

    def resume(self, group_id: str | None) -> Program[Call, Rows, bool]:
        return bool((yield from self.call(RESUME, {"p_group_id": group_id or ""})))

    def ack_many(self, leases: Sequence[Lease[Any]]) -> Program[Call, Rows, list[Lease[Any]]]:
        held, fences, lost = self.fences(leases)
        answers = yield from self.together(ACK_MANY, [Call(ACK, fence) for fence in fences])
        return lost + [lease for lease, rows in zip(held, answers, strict=True) if not rows]

    def ack_and_claim(
        self, lease: Lease[Any], worker_id: str, visibility: float, min_priority: int, leased: Leased[T]
    ) -> Program[Call, Rows, Lease[T] | None]:
        claim = Call(CLAIM_NEXT, self.claim_arguments(worker_id, visibility, min_priority))
        request = Call(ACK_AND_CLAIM, {"calls": [Call(ACK, self.fence(lease)), claim]})
        began = time.monotonic()
        acked, claimed = yield from self.send(request)
        if not acked["rows"]:
            raise LeaseLost(lease.group_id, lease.seq)
        try:
            sound = yield from self.sound(claimed["rows"])
            rows = yield from self.in_time(sound, visibility, began, request)
            if sound and not rows:  # another worker has claimed the group since
                return (yield from self.claim(worker_id, visibility, min_priority, leased))
        except FairlaneError as error:
            error.add_note(f"The message {lease.seq} of group {lease.group_id!r} was acked.")
            raise
        return lease_of(rows[0], leased) if rows else None
