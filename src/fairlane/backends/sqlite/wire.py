"""A request as SQLite gets it, and its answer as rows."""

from __future__ import annotations

import sqlite3
from typing import Any

import aiosqlite

from fairlane.backends.shared.retry import Pauses, Unanswered
from fairlane.backends.shared.sqlite_statements import Statements, last_seq_damaged
from fairlane.backends.sqlite.address import Location
from fairlane.backends.sqlite.errors import LOCKED, breaks_constraint, check_version, is_absent, is_busy, translate
from fairlane.backends.stored import ACK, NACK, PUBLISH, REVISION, Call, Operation, Row, Rows
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import QueueDamaged, SchemaNotReady

_COUNTED = frozenset({ACK, NACK})
"""They return no rows; what they changed is counted, which costs less than RETURNING."""

PAUSES = Pauses(0.002, 0.002, growth=1.0, least=0.15)
"""Between two tries: waiters with even odds, where SQLite's own growing pauses starve some."""


class Statement(str):
    """The text of a stored operation, and what its connection must know of it.

    A kind of str, since aiosqlite hands nothing else over to its thread.

    Attributes:
        waits_for_disk: its commit must survive a power failure.
        counts: it has no rows; if it changed something, it is answered with one row.
    """

    __slots__ = ("counts", "waits_for_disk")
    waits_for_disk: bool
    counts: bool

    @classmethod
    def of(cls, text: str, operation: Operation) -> Statement:
        """Return the text of an operation."""
        made = cls(text)
        made.waits_for_disk = operation.waits_for_disk
        made.counts = operation in _COUNTED
        return made


class Wire:
    """What the two executors share: the statement of a request, and what SQLite's errors mean for it.

    Args:
        queue: its name.
        location: of the file; None for a connection of the application, whose own timeout says how long it waits.
    """

    def __init__(self, queue: str, location: Location | None) -> None:
        check_version()
        self._queue = queue
        self._location = location
        self.statements = Statements(queue, "sqlite", Statement.of)

    def answer(self, error: sqlite3.Error, request: Call) -> Rows:
        """Return the answer that an error amounts to, or raise what to raise in its place.

        Raises:
            Unanswered: other connections had the file.
        """
        location = self._location
        host = str(location.path) if location else "the given connection"
        if is_absent(error, location.path if location else None):
            if request.operation is REVISION:
                return ()
            raise SchemaNotReady(self._queue, None, CLIENT_REVISION) from error
        if request.operation is PUBLISH and breaks_constraint(error):
            raise QueueDamaged(self._queue, last_seq_damaged(self._queue)) from error
        if location and is_busy(error):
            raise Unanswered(
                "sqlite", host, LOCKED, uncertain=False, seconds=location.busy_timeout, pauses=PAUSES
            ) from error
        known = translate(error, host)
        if known is None:
            raise error
        raise known from error


def rows_of(cursor: sqlite3.Cursor, statement: Statement) -> Rows:
    """Return all rows of a statement, since a half-read RETURNING keeps the write lock."""
    return changes(cursor.rowcount) if statement.counts else cursor.fetchall()


def changes(count: int) -> list[Row]:
    """Return the answer of a statement that has no rows."""
    return [{"changes": count}] if count > 0 else []


async def ask(connection: aiosqlite.Connection, statement: Statement, request: Call) -> Rows:
    """Run one statement, in one call to aiosqlite's thread."""
    if statement.counts:
        cursor = await connection.execute(statement, request.arguments)
        return changes(cursor.rowcount)
    rows: Any = await connection.execute_fetchall(statement, request.arguments)
    return list(rows)
