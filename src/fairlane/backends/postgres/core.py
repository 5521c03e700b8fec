"""The programs of the Postgres backend. Each calls a function of the queue's schema, in one round trip."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from fairlane.backends.postgres.errors import sequence_behind
from fairlane.backends.stored import OPERATIONS, Call, Operation, ProcedureCore, Rows
from fairlane.program import Program
from fairlane.templates import statement

SEQUENCE_LAG = Operation("sequence_lag", ("missing",), looks=True)


class PostgresCore(ProcedureCore):
    """Calls the functions of the queue's schema."""

    def fault(self) -> Program[Call, Rows, str | None]:
        rows = yield from self.call(SEQUENCE_LAG)
        return sequence_behind(self.queue) if rows and rows[0]["missing"] else None


@lru_cache(maxsize=256)
def statements(queue: str) -> Mapping[Operation, str]:
    """Return the statement of each operation, with psycopg's placeholders."""
    path = "procedures/postgres/calls/{}.sql.j2"
    return MappingProxyType(
        {each: statement(path.format(each.name), queue=queue) for each in (*OPERATIONS, SEQUENCE_LAG)}
    )
