"""The part of the cores of SQLite, libSQL and rqlite that handles damaged records."""

from __future__ import annotations

from fairlane.backends.shared.family_batches import BatchCore
from fairlane.backends.shared.sqlite_statements import last_seq_damaged
from fairlane.backends.stored import ASIDE_SECONDS, Call, Operation, Row, Rows, as_text
from fairlane.program import Program

ASIDE = Operation("aside", ("head_seq",))
"""Parks a group that a claim has leased. A nack could not, since the name of the group or its message may be wrong."""

FAULTS = Operation("faults", ("kind", "group_id", "seq"), looks=True)
"""Finds one damaged record."""


class FamilyCore(BatchCore):
    """The stored operations of the SQLite family."""

    def claim_fault(self, row: Row) -> tuple[str, str] | None:
        if row["event"] is None:
            return super().claim_fault(row)
        group_id = row["group_id"]
        if not group_id.isascii() and isinstance(group_id, bytes):  # a text on rqlite
            try:
                group_id.decode()
            except UnicodeDecodeError:
                return (
                    f"the id {group_id!r} of a group is no UTF-8",
                    "change the id by SQL, then run `fairlane migrate`",
                )
        return None

    def park(self, row: Row) -> Program[Call, Rows, Rows]:
        arguments = {"p_token": row["token"], "p_expires_at": row["expires_at"], "p_delay": ASIDE_SECONDS}
        return (yield from self.call(ASIDE, arguments))

    def fault(self) -> Program[Call, Rows, str | None]:
        rows = yield from self.call(FAULTS)
        if not rows:
            return None
        kind, group_id, seq = rows[0]["kind"], as_text(rows[0]["group_id"]), rows[0]["seq"]
        if kind == "last_seq":
            return last_seq_damaged(self.queue)
        found = {
            "group": f"group {group_id!r} begins with message {seq!r}, which is not its first one",
            "parked": f"group {group_id!r} is parked for longer than a delay can be",
            "message": f"message {seq!r} of group {group_id!r} is in no line, since the group is missing",
        }[kind]
        return f"{found}: `fairlane migrate --queue {self.queue}` repairs it"
