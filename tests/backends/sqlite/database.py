"""A queue in SQLite for tests that call the statements directly, without a transport and with a clock of their own."""

from __future__ import annotations

import runpy
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from fairlane.backends.stored import as_text
from fairlane.templates import render, split_sqlite, statement

ROOT = Path(__file__).parents[3]
DIALECTS = ("sqlite", "libsql", "rqlite")
OPERATIONS = (
    "publish",
    "claim",
    "claim_next",
    "ack",
    "nack",
    "extend",
    "release",
    "purge",
    "pause",
    "resume",
    "revision",
    "queue_status",
    "group_status",
    "message_status",
)
REVISIONS = [runpy.run_path(str(path)) for path in sorted((ROOT / "schema" / "versions").glob("[0-9]*.py"))]
TICK = {"sqlite": 1000, "libsql": 1000, "rqlite": 86400}
NOON = 1_800_000_000_000_000 // 86_400_000 * 86_400_000  # a tick begins here in every dialect


def text_of(operation: str, dialect: str, *, queue: str = "q", floor: int = 0) -> str:
    extra = {"floor": floor} if operation in ("claim", "claim_next") else {}
    return statement(f"procedures/sqlite/{operation}.sql.j2", queue=queue, dialect=dialect, **extra)


def layout(dialect: str, head_start: str = "1", queue: str = "q") -> Iterator[str]:
    """Yield the statements that make a queue of the newest revision."""
    for step in REVISIONS:
        names = {"queue": queue, "dialect": dialect, "head_start": head_start, "revision": step["revision"]}
        for path in step["FILES"]["sqlite"].up:
            yield from split_sqlite(render(path, serves=step["SERVES"], **names))


def install(connection: sqlite3.Connection, dialect: str, head_start: str = "1", queue: str = "q") -> None:
    for each in layout(dialect, head_start, queue):
        connection.execute(each)


class Database:
    """One queue, called as the executors call it. Its clock stands still at `now`; with `runs` it is the real clock."""

    def __init__(self, dialect: str, head_start: str = "1", path: str = ":memory:") -> None:
        self.dialect = dialect
        self.tick = TICK[dialect]
        self.now = NOON
        self.runs = False
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.wall = sqlite3.connect(":memory:")
        self.connection.create_function("julianday", 1, self._julianday)
        self.connection.create_function("julianday", 0, self._julianday)
        install(self.connection, dialect, head_start)

    def _julianday(self, _now: str = "now") -> float:
        if self.runs:
            day: float = self.wall.execute("select julianday('now')").fetchone()[0]
            return day
        return self.now / 86_400_000_000 + 2440587.5

    def close(self) -> None:
        self.connection.close()
        self.wall.close()

    def call(self, operation: str, *, floor: int = 0, **arguments: Any) -> list[tuple[Any, ...]]:
        """Run an operation and return its rows. An ack or nack that changed a group returns one row."""
        values = {f"p_{name}": self._value(value) for name, value in arguments.items()}
        if self.dialect == "rqlite":
            self.connection.execute(text_of("clock", self.dialect))
        cursor = self.connection.execute(text_of(operation, self.dialect, floor=floor), values)
        rows = [tuple(as_text(value) for value in row) for row in cursor.fetchall()]
        if cursor.description is None:
            return [(cursor.rowcount,)] if cursor.rowcount else []
        return rows

    def _value(self, value: Any) -> Any:
        return f"s{value}" if self.dialect == "rqlite" and isinstance(value, str) else value

    def publish(self, group_id: str, event: str = "1", priority: int = 0, dedup_id: str | None = None) -> int:
        extra: dict[str, Any] = {} if self.dialect == "sqlite" else {"call_id": str(uuid4())}
        rows = self.call("publish", group_id=group_id, event=event, priority=priority, dedup_id=dedup_id, **extra)
        seq: int = rows[0][0]
        return seq

    def claim(self, visibility: float = 30.0, floor: int = 0, token: str | None = None) -> dict[str, Any] | None:
        extra: dict[str, Any] = {} if self.dialect == "sqlite" else {"token": token or str(uuid4())}
        rows = self.call("claim", worker_id="w", visibility=visibility, floor=floor, **extra)
        names = ("group_id", "seq", "event", "token", "attempts", "published_at", "expires_at")
        return dict(zip(names, rows[0], strict=False)) if rows else None

    def must_claim(self, visibility: float = 30.0, floor: int = 0) -> dict[str, Any]:
        lease = self.claim(visibility, floor)
        assert lease is not None
        return lease

    @staticmethod
    def fence(lease: dict[str, Any]) -> dict[str, Any]:
        """The arguments that prove a lease. On SQLite itself `seq` is not checked."""
        return {"group_id": lease["group_id"], "token": lease["token"], "seq": lease["seq"]}

    def ack(self, lease: dict[str, Any]) -> bool:
        return bool(self.call("ack", **self.fence(lease)))

    def nack(self, lease: dict[str, Any], delay: float = 0.0) -> bool:
        return bool(self.call("nack", **self.fence(lease), delay=delay))

    def extend(self, lease: dict[str, Any], visibility: float = 30.0) -> int | None:
        rows = self.call("extend", **self.fence(lease), visibility=visibility)
        return rows[0][0] if rows else None

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def line(self) -> list[str]:
        """Claim all claimable groups one by one, and return them in this order."""
        found = []
        while (lease := self.claim(3600)) is not None:
            found.append(lease["group_id"])
        return found
