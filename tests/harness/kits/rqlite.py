"""The kit of rqlite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fairlane.backends.stored import Call, Operation, Rows
from tests.harness.kits.base import EPOCH, Kit


class RqliteKit(Kit):
    backend = "rqlite"
    variable = "FAIRLANE_TEST_RQLITE_URL"

    def options(self, twin: str) -> dict[str, Any]:
        return {"timeout": 180.0}  # on a busy machine a hundred calls at once may take longer than a request may

    def send(self, queue: str, statements: Sequence[tuple[str, Any]], *, reads: bool = False) -> list[Rows]:
        """Send statements in one request. Return the rows of each."""
        from fairlane.backends.rqlite.executor import RqliteExecutor
        from fairlane.backends.shared.retry import delivered
        from fairlane.backends.shared.sent_twice import Batch
        from fairlane.program import run

        executor = RqliteExecutor.from_url(self.url(queue), queue, timeout=180)
        try:
            return run(delivered(Batch(tuple(statements), reads), repeatable=False), executor.together)
        finally:
            executor.close()

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        from fairlane.backends.shared.sqlite_statements import Statements

        statements = Statements(queue, "rqlite")
        answers: list[Rows] = []
        for start in range(0, len(calls), 200):  # all other requests wait for this one, so keep it short
            texts = [(statements[call], {"p_call_id": None, **call.arguments}) for call in calls[start : start + 200]]
            answers += self.send(queue, [(statements[Call(Operation("clock", ()), {})], {}), *texts])[1:]
        return answers

    def now(self, queue: str) -> datetime:
        # without an argument the leader reads its clock; with 'now' it would get a rounded time
        clock = "select cast((julianday() - 2440587.5) * 86400000000.0 as integer) as now"
        return EPOCH + timedelta(microseconds=self.send(queue, [(clock, {})], reads=True)[0][0]["now"])

    def leftovers(self, queue: str) -> dict[str, int]:
        tables = [f"{queue}_messages", f"{queue}_groups", f"{queue}_paused"]
        counts = self.send(queue, [(f'select count(*) as n from "{table}"', {}) for table in tables], reads=True)
        return {table: rows[0]["n"] for table, rows in zip(tables, counts, strict=True)}


class OwnRqliteKit(RqliteKit):
    """A private cluster of one test, which may be broken at the end of the test."""

    def __init__(self, url: str) -> None:
        self.server_url = url

    def options(self, twin: str) -> dict[str, Any]:
        return {}

    def drop(self, queue: str) -> None:
        """Do nothing: the cluster is removed after the test."""
