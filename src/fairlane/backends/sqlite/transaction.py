"""Run several statements in one transaction: all of them are carried out, or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from fairlane.backends.sqlite.wire import Part, rows_of
from fairlane.backends.stored import Rows


@dataclass(frozen=True, slots=True)
class Frame:
    """The statements around others that belong together.

    Attributes:
        begin: runs before them.
        end: runs after them; None leaves the transaction open.
        undo: run in place of `end` if one of them fails.
    """

    begin: str
    end: str | None
    undo: tuple[str, ...] = ("rollback",)


# immediate, since a transaction that reads first may fail at its first write
TRANSACTION = Frame("begin immediate", "commit")

SAVEPOINT = Frame(
    "savepoint fairlane_batch", "release fairlane_batch", ("rollback to fairlane_batch", "release fairlane_batch")
)
"""For an open transaction of the application, which is not ended."""


def together(connection: sqlite3.Connection, parts: Sequence[Part], frame: Frame = TRANSACTION) -> list[Rows]:
    """Run statements, and return the rows of each.

    After any exception nothing is changed, and no transaction that began here is open. A signal handler may raise the
    exception between two statements.
    """
    cursor = connection.cursor()
    try:
        cursor.row_factory = sqlite3.Row
        cursor.execute(frame.begin)
        answers = [rows_of(cursor.execute(statement, arguments), statement) for statement, arguments in parts]
        if frame.end:
            cursor.execute(frame.end)
        return answers
    except BaseException:
        cursor.close()  # at once: a traceback would keep the cursor open
        if connection.in_transaction:
            _undo(connection, frame)
        raise


def _undo(connection: sqlite3.Connection, frame: Frame) -> None:
    # a savepoint that is not there, since the exception came before it or after its release, needs no rollback
    with suppress(sqlite3.Error):
        for each in frame.undo:
            connection.cursor().execute(each).close()
