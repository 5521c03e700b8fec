"""The statements and rows of SQLite, and the meaning of its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import aiosqlite

from fairlane.backends.shared.retry import Pauses, Unanswered
from fairlane.backends.shared.sqlite_statements import Statements, last_seq_damaged
from fairlane.backends.sqlite.address import Location
from fairlane.backends.sqlite.errors import LOCKED, breaks_constraint, check_version, is_absent, is_busy, translate
from fairlane.backends.stored import ACK, NACK, PAUSE, RELEASE, RESUME, REVISION, Call, Operation, Rows
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import QueueDamaged, SchemaNotReady

_COUNTED = frozenset({ACK, NACK, PAUSE, RELEASE, RESUME})
"""Operations without rows. The number of changed rows is their result, which costs less than RETURNING."""

CHANGED: Rows = ({},)
"""The answer of a statement that has no rows and has changed something."""

PAUSES = Pauses(0.002, 0.002, growth=1.0, least=0.15)
"""Short random pauses between two tries give all waiting calls the same chance; SQLite's growing pauses do not."""


class Statement(str):
    """The text of a stored operation, with its properties.

    It is a str, since aiosqlite passes only the text to its thread.

    Attributes:
        waits_for_disk: whether its commit must survive a power failure.
        counts: whether the number of changed rows is its result.
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


Part: TypeAlias = tuple[Statement, Mapping[str, Any]]
"""A statement and its arguments."""


class Wire:
    """The statements of requests, and the meaning of errors. Both executors use it.

    Args:
        queue: its name.
        location: the file; None for the application's connection, which has its own timeout.
    """

    def __init__(self, queue: str, location: Location | None) -> None:
        check_version()
        self._queue = queue
        self._location = location
        self.statements = Statements(queue, "sqlite", Statement.of)

    def parts(self, batch: Call) -> list[Part]:
        """Return the statements of a batch with their arguments."""
        return [(self.statements[call], call.arguments) for call in batch.arguments["calls"]]

    def answer(self, error: sqlite3.Error, request: Call) -> Rows:
        """Return the rows that an error means, or raise another error for it.

        Raises:
            Unanswered: other connections locked the file.
        """
        location = self._location
        host = str(location.path) if location else "the application's connection"
        if is_absent(error, location.path if location else None):
            if request.operation is REVISION:
                return ()
            raise SchemaNotReady(self._queue, None, CLIENT_REVISION) from error
        if request.operation.adds and breaks_constraint(error):
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
    """Return all rows of a statement, since an incompletely read RETURNING keeps the write lock."""
    if statement.counts:
        return CHANGED if cursor.rowcount > 0 else ()
    return cursor.fetchall()


async def ask(connection: aiosqlite.Connection, statement: Statement, request: Call) -> Rows:
    """Run one statement, in one call to aiosqlite's thread."""
    if statement.counts:
        cursor = await connection.execute(statement, request.arguments)
        return CHANGED if cursor.rowcount > 0 else ()
    rows: Any = await connection.execute_fetchall(statement, request.arguments)
    return list(rows)


async def ask_together(connection: aiosqlite.Connection, parts: Sequence[Part], waits_for_disk: bool) -> list[Rows]:
    """Run statements in one transaction, in one call to aiosqlite's thread."""
    driver: Any = connection
    answers: list[Rows] = await driver._execute(driver._conn.together, parts, waits_for_disk)
    return answers
