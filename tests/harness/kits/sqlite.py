"""The kit of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fairlane.backends.stored import Call, Rows
from tests.harness.kits.base import Kit


class SqliteKit(Kit):
    backend = "sqlite"

    def url(self, queue: str) -> str:
        return f"sqlite:///{self.folder}/queue.db"

    def drop(self, queue: str) -> None:
        """Do nothing: the file is removed with the test's folder."""

    def connection(self, queue: str, twin: str) -> Any:
        import aiosqlite

        path = self.folder / "queue.db"
        return sqlite3.connect(path, check_same_thread=False) if twin == "sync" else aiosqlite.connect(path)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "queue.db", isolation_level=None, timeout=30)

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        from fairlane.backends.shared.sqlite_statements import Statements

        statements = Statements(queue, "sqlite")
        connection = self.connect()
        connection.row_factory = sqlite3.Row
        connection.execute("begin immediate")
        answers: list[Rows] = [connection.execute(statements[call], call.arguments).fetchall() for call in calls]
        connection.execute("commit")
        connection.close()
        return answers

    def now(self, queue: str) -> datetime:
        return datetime.now(UTC)

    def leftovers(self, queue: str) -> dict[str, int]:
        connection = self.connect()
        tables = [f"{queue}_messages", f"{queue}_groups", f"{queue}_paused"]
        counts = {table: connection.execute(f'select count(*) from "{table}"').fetchone()[0] for table in tables}
        connection.close()
        return counts
