"""Programs for many messages at once, where these operations are stored in the database: one request each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.backends.base import Draft, Leased, LeaseGone
from fairlane.backends.stored import (
    ACK_AND_CLAIM,
    ACK_MANY,
    CLAIM_MANY,
    PUBLISH_MANY,
    Call,
    ProcedureCore,
    Rows,
    lease_of,
)
from fairlane.errors import LeaseLost
from fairlane.model import Lease, T
from fairlane.program import Program


class StoredBatches(ProcedureCore):
    """Calls the operations in `stored.BATCHES`. Each is exactly one `Call`."""

    def listed(self, values: Sequence[object]) -> object:
        """Return a list of values as an argument."""
        return values

    def publish_many(self, drafts: Sequence[Draft]) -> Program[Call, Rows, list[int]]:
        arguments = {
            "p_group_ids": self.listed([draft[0] for draft in drafts]),
            "p_events": self.listed([draft[1] for draft in drafts]),
            "p_priorities": self.listed([draft[2] for draft in drafts]),
            "p_dedup_ids": self.listed([draft[3] for draft in drafts]),
        }
        rows = yield from self.call(PUBLISH_MANY, arguments)
        return [int(row["seq"]) for row in rows]

    def claim_many(
        self, worker_id: str, visibility: float, limit: int, min_priority: int
    ) -> Program[Call, Rows, list[Lease[Any]]]:
        arguments = {**self.claim_arguments(worker_id, visibility, min_priority), "p_limit": limit}
        rows = yield from self.call(CLAIM_MANY, arguments)
        return [lease_of(row, Lease) for row in (yield from self.sound(rows))]

    def ack_many(self, leases: Sequence[Lease[Any]]) -> Program[Call, Rows, list[Lease[Any]]]:
        held, fences, lost = self.fences(leases)
        if held:
            arguments = {
                "p_group_ids": self.listed([fence["p_group_id"] for fence in fences]),
                "p_tokens": self.listed([fence["p_token"] for fence in fences]),
            }
            rows = yield from self.call(ACK_MANY, arguments)
            lost += [held[row["lost"]] for row in rows]
        return lost

    def ack_and_claim(
        self, lease: Lease[Any], worker_id: str, visibility: float, min_priority: int, leased: Leased[T]
    ) -> Program[Call, Rows, Lease[T] | None]:
        arguments = self.claim_arguments(worker_id, visibility, min_priority)
        if self.client_tokens:
            arguments["p_new_token"] = arguments.pop("p_token")
        try:
            rows = yield from self.call(ACK_AND_CLAIM, {**arguments, **self.fence(lease)})
        except LeaseGone as gone:
            raise LeaseLost(lease.group_id, lease.seq) from gone.__cause__
        sound = yield from self.sound(rows)
        return lease_of(sound[0], leased) if sound else None
