"""Database sessions that take single steps on a queue, so that a test can run the steps in any order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

PATIENCE = 20.0
"""Seconds after which a step that has not happened yet fails the test."""


class Lane:
    """A queue, and the sessions that a test opened on its database. `@` in a statement means the queue's schema."""

    def __init__(self, url: str, queue: str) -> None:
        self.url = url
        self.queue = queue
        self._sessions: list[Session] = []
        self.watcher = self.session()

    def session(self) -> Session:
        made = Session(self)
        self._sessions.append(made)
        return made

    def rows(self, statement: str, *arguments: Any) -> list[Any]:
        """Run a statement in its own transaction, and return the rows."""
        return self.watcher.rows(statement, *arguments)

    def one(self, statement: str, *arguments: Any) -> Any:
        return self.watcher.one(statement, *arguments)

    @property
    def groups(self) -> set[str]:
        return {row.group_id for row in self.rows("select group_id from @.groups")}

    @property
    def messages(self) -> int:
        return int(self.one("select count(*) from @.messages"))

    def close(self) -> None:
        for session in self._sessions:
            session.close()


class Session:
    """One connection with its own thread. Outside of `transaction`, each call is one transaction."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.connection = psycopg.connect(lane.url, autocommit=True, row_factory=namedtuple_row)
        self._thread = ThreadPoolExecutor(1)

    def rows(self, statement: str, *arguments: Any) -> list[Any]:
        cursor = self.connection.execute(self._text(statement), arguments or None)
        return cursor.fetchall() if cursor.description else []

    def one(self, statement: str, *arguments: Any) -> Any:
        """Return the only column of the only row."""
        ((value,),) = self.rows(statement, *arguments)
        return value

    def _text(self, statement: str) -> str:
        return statement.replace("@", f'"{self._lane.queue}"')

    @contextmanager
    def transaction(self, *, isolation: str = "read committed") -> Iterator[None]:
        """Open a transaction. A test may end it by `commit` or `rollback`; else the end of the block commits."""
        self.rows(f"begin isolation level {isolation}")
        try:
            yield
        except BaseException:
            self.rows("rollback")
            raise
        if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.rows("commit")

    def begin(self) -> None:
        self.rows("begin")

    def commit(self) -> None:
        self.rows("commit")

    def rollback(self) -> None:
        self.rows("rollback")

    # The operations

    def publish(self, group_id: str, event: str = "1", priority: int = 0, dedup_id: str | None = None) -> int:
        return int(self.one("select @.publish(%s, %s, %s, %s)", group_id, event, priority, dedup_id))

    def claim(self, min_priority: int = 0, visibility: float = 60.0) -> Any:
        """Return the row of the lease, or None if there is no lease."""
        rows = self.rows("select * from @.claim('worker', %s, %s)", visibility, min_priority)
        return rows[0] if rows else None

    def ack(self, lease: Any) -> None:
        self.rows("select @.ack(%s, %s)", lease.group_id, lease.token)

    def nack(self, lease: Any, delay: float = 0.0) -> None:
        self.rows("select @.nack(%s, %s, %s)", lease.group_id, lease.token, delay)

    def extend(self, lease: Any, visibility: float = 60.0) -> Any:
        return self.one("select @.extend(%s, %s, %s)", lease.group_id, lease.token, visibility)

    # Steps that may have to wait for another session

    def start(self, method: Any, *arguments: Any, **named: Any) -> Future[Any]:
        """Begin a call of this session, and do not wait for its end."""
        return self._thread.submit(method, *arguments, **named)

    def blocked(self, method: Any, *arguments: Any, **named: Any) -> Future[Any]:
        """Begin a call, and return when the server says that the call waits for a lock."""
        call = self.start(method, *arguments, **named)
        pid, end = self.connection.info.backend_pid, time.monotonic() + PATIENCE
        while self._lane.one("select wait_event_type from pg_stat_activity where pid = %s", pid) != "Lock":
            assert not call.done(), f"should have waited, but gave {call.exception() or call.result()!r}"
            assert time.monotonic() < end, "neither waits for a lock nor ends"
            time.sleep(0.005)
        return call

    def close(self) -> None:
        self.connection.cancel()
        self._thread.shutdown()
        self.connection.close()


def expire(lane: Lane, lease: Any) -> None:
    """Let a lease expire now."""
    lane.rows("update @.groups set ready_at = clock_timestamp() where group_id = %s", lease.group_id)
