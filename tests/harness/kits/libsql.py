"""The kit of libSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fairlane.backends.stored import Call, Rows
from tests.harness.kits.base import EPOCH, Kit


class LibsqlKit(Kit):
    backend = "libsql"
    variable = "FAIRLANE_TEST_LIBSQL_URL"

    def options(self, twin: str) -> dict[str, Any]:
        return {"retry_seconds": 2.0}  # tests of a server that is down wait for this time, and do so often

    def send(self, queue: str, statements: Sequence[tuple[str, Any]], *, reads: bool = False) -> list[Rows]:
        """Send statements in one atomic batch, and repeat it while others write. Return the rows of each."""
        import asyncio

        from libsql_client import LibsqlError

        from fairlane.backends.libsql.address import locate
        from fairlane.backends.libsql.connections import Client

        async def send() -> list[Rows]:
            client = Client(locate(self.url(queue), {"timeout": 180}))
            try:
                for left in range(100, -1, -1):
                    try:
                        results = await client.run(statements, writes=not reads, seconds=60)
                        return [[row.asdict() for row in result.rows] for result in results]
                    except LibsqlError as error:
                        if error.code != "SQLITE_BUSY" or not left:
                            raise
                    await asyncio.sleep(0.02)
                raise AssertionError
            finally:
                await client.close()

        return asyncio.run(send())

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        from fairlane.backends.libsql.wire import Wire

        wire = Wire(queue)
        answers: list[Rows] = []
        for start in range(0, len(calls), 1000):
            part = [Call(call.operation, {"p_call_id": None, **call.arguments}) for call in calls[start : start + 1000]]
            answers += self.send(queue, [wire.parts(call)[0] for call in part])
        return answers

    def now(self, queue: str) -> datetime:
        clock = "select cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) * 1000 as now"
        return EPOCH + timedelta(microseconds=self.send(queue, [(clock, {})], reads=True)[0][0]["now"])

    def leftovers(self, queue: str) -> dict[str, int]:
        tables = [f"{queue}_messages", f"{queue}_groups", f"{queue}_paused"]
        counts = self.send(queue, [(f'select count(*) as n from "{table}"', {}) for table in tables], reads=True)
        return {table: rows[0]["n"] for table, rows in zip(tables, counts, strict=True)}
