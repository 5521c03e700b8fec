"""The programs of the Postgres backend: functions in the queue's schema, one round trip each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from fairlane.backends.stored import OPERATIONS, Operation, ProcedureCore
from fairlane.templates import statement


class PostgresCore(ProcedureCore):
    """The functions of the queue's schema."""


@lru_cache(maxsize=256)
def statements(queue: str) -> Mapping[Operation, str]:
    """Return what is sent for each operation, with psycopg's placeholders."""
    path = "procedures/postgres/calls/{}.sql.j2"
    return MappingProxyType({each: statement(path.format(each.name), queue=queue) for each in OPERATIONS})
