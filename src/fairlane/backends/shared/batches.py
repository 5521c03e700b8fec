"""The programs for many messages at once, on backends that have stored procedures for them."""

from __future__ import annotations

from collections.abc import Sequence
from os import urandom
from typing import Any

from fairlane.backends.base import Draft, Leased, LeaseGone
from fairlane.backends.stored import (
    ACK_AND_CLAIM,
    ACK_MANY,
    CLAIM_MANY,
    PUBLISH_MANY,
    Call,
    ProcedureCore,
    Row,
    Rows,
    lease_of,
)
from fairlane.errors import LeaseLost
from fairlane.model import Lease, T
from fairlane.program import Program


class StoredBatches(ProcedureCore):
    """The operations on many messages, each in one round trip."""

    def listed(self, values: Sequence[object]) -> object:
        """Return a list of values as an argument."""
        return values

    def publish_many(self, drafts: Sequence[Draft]) -> Program[Call, Rows, list[int]]:
        names = ("p_group_ids", "p_events", "p_priorities", "p_dedup_ids")
        columns = zip(*drafts, strict=True)
        arguments = {name: self.listed(values) for name, values in zip(names, columns, strict=True)}
        rows = yield from self.call(PUBLISH_MANY, arguments)
        return [int(row["seq"]) for row in rows]

    def claim_many(
        self, worker_id: str, visibility: float, limit: int, min_priority: int
    ) -> Program[Call, Rows, list[Lease[Any]]]:
        arguments = {**self.claim_arguments(worker_id, visibility, min_priority), "p_limit": limit}
        rows = yield from self.call(CLAIM_MANY, arguments)
        leases = []
        for row in rows:
            leases.append((yield from self._delivered(row, Lease)))
        return leases

    def ack_many(self, leases: Sequence[Lease[Any]]) -> Program[Call, Rows, list[Lease[Any]]]:
        arguments = {
            "p_group_ids": self.listed([lease.group_id for lease in leases]),
            "p_tokens": self.listed([lease.token for lease in leases]),
        }
        rows = yield from self.call(ACK_MANY, arguments)
        return [leases[row["lost"]] for row in sorted(rows, key=lambda row: row["lost"])]

    def ack_and_claim(
        self, lease: Lease[Any], worker_id: str, visibility: float, min_priority: int, leased: Leased[T]
    ) -> Program[Call, Rows, Lease[T] | None]:
        arguments = {
            **self.fence(lease),
            "p_worker_id": worker_id,
            "p_visibility": visibility,
            "p_min_priority": min_priority,
        }
        if self.client_tokens:
            arguments["p_new_token"] = urandom(16).hex()
        try:
            rows = yield from self.call(ACK_AND_CLAIM, arguments)
        except LeaseGone as gone:
            raise LeaseLost(lease.group_id, lease.seq) from gone.__cause__
        return (yield from self._delivered(rows[0], leased)) if rows else None

    def _delivered(self, row: Row, leased: Leased[T]) -> Program[Call, Rows, Lease[T]]:
        if fault := self.claim_fault(row):
            yield from self.set_aside(row, *fault)
        return lease_of(row, leased)
