"""The kit of Postgres."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from fairlane.backends.stored import ACK, CLAIM, NACK, PUBLISH, Call, Operation, Rows
from tests.harness.kits.base import Kit


class PostgresKit(Kit):
    backend = "postgres"
    variable = "FAIRLANE_TEST_POSTGRES_URL"

    def connection(self, queue: str, twin: str) -> Any:
        import psycopg

        kind = psycopg.Connection if twin == "sync" else psycopg.AsyncConnection
        return kind.connect(self.url(queue))

    def connect(self, queue: str) -> Any:
        import psycopg

        return psycopg.connect(self.url(queue), autocommit=True)

    def options(self, twin: str) -> dict[str, Any]:
        return {"max_connections": 16}

    def drop(self, queue: str) -> None:
        with self.connect(queue) as connection:
            connection.execute(f'drop schema if exists "{queue}" cascade')

    # Consecutive calls of one kind become one statement. The claim uses `n`, otherwise it would be carried out only
    # once.
    BATCHES: ClassVar[dict[Operation, tuple[tuple[str, str], ...]]] = {
        PUBLISH: (("p_group_id", "text"), ("p_event", "json"), ("p_priority", "int"), ("p_dedup_id", "text")),
        CLAIM: (("p_worker_id", "text"), ("p_visibility", "float"), ("p_min_priority", "int")),
        ACK: (("p_group_id", "text"), ("p_token", "uuid")),
        NACK: (("p_group_id", "text"), ("p_token", "uuid"), ("p_delay", "float")),
    }

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        import psycopg
        from psycopg.rows import dict_row

        answers: list[Rows] = []
        with self.connect(queue) as connection:
            for start in range(0, len(calls), 500):
                part = calls[start : start + 500]
                operation = part[0].operation
                parameters = self.BATCHES[operation]
                arrays = ", ".join(f"%s::{kind}[]" for _, kind in parameters)
                names = ", ".join(name for name, _ in parameters)
                source = f"unnest({arrays}) with ordinality as c ({names}, n)"
                if operation is CLAIM:
                    call = f'lateral "{queue}".claim(left(n::text, 0) || {names}) as r'
                    text = f"select r.group_id, r.seq, r.event::text, r.token from {source}, {call} order by n"
                else:
                    text = f'select "{queue}".{operation.name}({names}) from {source}'
                values = [[call.arguments[name] for call in part] for name, _ in parameters]
                cursor = psycopg.Cursor(connection, row_factory=dict_row)
                answers += [[row] for row in cursor.execute(text, values).fetchall()]
        return answers

    def settle(self, queue: str) -> None:
        """Vacuum and analyze, as autovacuum would within a minute."""
        with self.connect(queue) as connection:
            connection.execute(f'vacuum analyze "{queue}".messages, "{queue}".groups, "{queue}".group_ids')

    def now(self, queue: str) -> datetime:
        with self.connect(queue) as connection:
            now: datetime = connection.execute("select clock_timestamp()").fetchone()[0]
        return now.astimezone(UTC)

    def leftovers(self, queue: str) -> dict[str, int]:
        with self.connect(queue) as connection:
            return {
                table: connection.execute(f'select count(*) from "{queue}".{table}').fetchone()[0]
                for table in ("messages", "groups", "group_ids")
            }


class PgBouncerKit(PostgresKit):
    """Postgres behind PgBouncer with transaction pooling and 2 server connections for each worker of the suite."""

    variable = "FAIRLANE_TEST_PGBOUNCER_URL"

    def url(self, queue: str) -> str:
        """Return the same database under a name that no other worker uses."""
        return self.under(os.environ.get("PYTEST_XDIST_WORKER", "postgres"))

    def under(self, name: str) -> str:
        """Return the URL of the one database under a name; see `tests/servers/pgbouncer.py`."""
        return f"{super().url('').rpartition('/')[0]}/{name}"

    def connect(self, queue: str) -> Any:
        """Connect without the pool of 2 connections, since a test's own transactions would use them all."""
        import psycopg

        return psycopg.connect(self.under("direct"), autocommit=True)


class PgBouncerSessionKit(PgBouncerKit):
    """Postgres behind PgBouncer with session pooling. There a client keeps its server connection, so a suite with many
    clients needs many; `test_poolers` shows what happens with 2."""

    def url(self, queue: str) -> str:
        return self.under("direct")
