"""The programs of the Postgres backend. Each calls a function of the queue's schema, in one round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from uuid import UUID

from fairlane.backends.postgres.errors import sequence_behind
from fairlane.backends.shared.batches import StoredBatches
from fairlane.backends.stored import ANNOUNCE, ANNOUNCED, BATCHES, OPERATIONS, Call, Operation, Rows
from fairlane.model import Lease
from fairlane.program import Program
from fairlane.templates import statement

SEQUENCE_LAG = Operation("sequence_lag", ("missing",), looks=True)
WAKE = Operation("wake", ("woken",), since="0002")


class PostgresCore(StoredBatches):
    """Calls the functions of the queue's schema."""

    def ack_many(self, leases: Sequence[Lease[Any]]) -> Program[Call, Rows, list[Lease[Any]]]:
        """See `StoredBatches`. A token that is no UUID never held, and would fail the others."""
        held: list[Lease[Any]] = []
        lost: list[Lease[Any]] = []
        for lease in leases:
            (held if _is_uuid(lease.token) else lost).append(lease)
        return lost + (yield from super().ack_many(held)) if held else lost

    def listed(self, values: Sequence[object]) -> object:
        return array(values)

    def next_ready(self, min_priority: int, name: str | None) -> Program[Call, Rows, float | None]:
        if name is None:
            return (yield from super().next_ready(min_priority, None))
        rows = yield from self.call(
            ANNOUNCE, {"p_min_priority": min_priority, "p_channel": name, "p_seconds": ANNOUNCED}
        )
        found: float | None = rows[0]["ready_in_seconds"]
        return found

    def fault(self) -> Program[Call, Rows, str | None]:
        rows = yield from self.call(SEQUENCE_LAG)
        return sequence_behind(self.queue) if rows and rows[0]["missing"] else None


@lru_cache(maxsize=256)
def statements(queue: str) -> Mapping[Operation, str]:
    """Return the statement of each operation, with psycopg's placeholders."""
    path = "procedures/postgres/calls/{}.sql.j2"
    return MappingProxyType(
        {
            each: statement(path.format(each.name), queue=queue)
            for each in (*OPERATIONS, *BATCHES, SEQUENCE_LAG, ANNOUNCE, WAKE)
        }
    )


def _is_uuid(token: str) -> bool:
    try:
        UUID(token)
    except ValueError:
        return False
    return True


def array(values: Sequence[object]) -> str:
    """Return values as the text of an array of PostgreSQL ("Array Input and Output Syntax" in its manual)."""
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: object) -> str:
    if value is None:
        return "null"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
