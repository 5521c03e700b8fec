"""Open connections to an SQLite file, and choose which of their commits wait for the disk."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.backends.shared import forks
from fairlane.backends.sqlite.address import Location
from fairlane.backends.sqlite.errors import is_busy, is_read_only
from fairlane.backends.sqlite.transaction import together
from fairlane.backends.sqlite.wire import Part, Statement
from fairlane.backends.stored import Rows

_execute = sqlite3.Connection.execute

CHECKPOINT_PAGES = 4000
"""Pages in the WAL after which SQLite copies them to the file; its default is 1,000. A queue changes the same pages
again and again, and a checkpoint writes each of them once. So fewer checkpoints save writes. The WAL has 16 MB."""


class QueueConnection(sqlite3.Connection):
    """A connection to a queue's file. Only operations that must survive a power failure wait for the disk.

    Attributes:
        selective: whether other operations do not wait. Only in WAL mode: there a file needs no sync for each commit to
            stay consistent.
        waits: whether the next commit waits for the disk. It is False only if that is certain, since a signal handler
            may raise between two statements.
    """

    selective = False
    waits = True

    def perform(self, statement: Statement, arguments: Mapping[str, Any]) -> sqlite3.Cursor:
        """Run an operation."""
        if self.selective and self.waits is not statement.waits_for_disk:
            self._change_level()
        return _execute(self, statement, arguments)

    def together(self, parts: Sequence[Part], waits_for_disk: bool) -> list[Rows]:
        """Run statements in one transaction, and return the rows of each.

        The level is chosen before the transaction, since SQLite does not change it inside.
        """
        if self.selective and self.waits is not waits_for_disk:
            self._change_level()
        return together(self, parts)

    def _change_level(self) -> None:
        # executescript, since the driver caches statements and a cached pragma has no effect
        if self.waits:
            self.waits = False
            self.executescript("pragma synchronous = normal")
        else:
            self.executescript("pragma synchronous = full")
            self.waits = True


class FinishedCursor:
    """The rows of a statement that has run to its end."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows = cursor.fetchall()
        self.rowcount = cursor.rowcount
        cursor.close()

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        return self._rows

    def close(self) -> None:
        """Do nothing: the cursor is closed already."""


class ThreadConnection(QueueConnection):
    """The same for a thread of aiosqlite. Another thread that forks can wait until no statement runs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._running = threading.Lock()

    def execute(self, text: str, arguments: Any = (), /) -> Any:
        """Run a statement to its end."""
        with self._running:
            cursor = self.perform(text, arguments) if isinstance(text, Statement) else super().execute(text, arguments)
            return FinishedCursor(cursor)

    def together(self, parts: Sequence[Part], waits_for_disk: bool) -> list[Rows]:
        """Run statements in one transaction to its end."""
        with self._running:
            return super().together(parts, waits_for_disk)

    def close_for_fork(self) -> None:
        """Close the file, after the running statement has ended."""
        if self._running.acquire(timeout=forks.FORK_TIMEOUT):
            try:
                self.close()
            finally:
                self._running.release()


def open_file(
    location: Location,
    queue: str,
    *,
    create: bool = False,
    timeout: float = 0.0,
    kind: type[QueueConnection] = QueueConnection,
) -> QueueConnection:
    """Open a connection that commits every statement. Several threads may use it, one at a time.

    Without `create` a missing file is an error. A file without the queue is not changed: it may belong to another
    application.
    """
    uri = f"{location.path.as_uri()}?mode={'rwc' if create else 'rw'}"
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=kind,
    )
    try:
        if _journal_mode(connection) != "wal" and (create or _holds(connection, queue)):
            _prefer_wal(connection)
        connection.execute(f"pragma synchronous = {location.synchronous}")
    except BaseException:
        connection.close()
        raise
    return connection


class Opener:
    """Opens connections to a file, and identifies the file.

    A connection to a file that was deleted or replaced still works, but no other process sees what it publishes.
    """

    def __init__(self, location: Location, queue: str, kind: type[QueueConnection] = QueueConnection) -> None:
        self._location = location
        self._queue = queue
        self._kind = kind
        self._path = str(location.path)

    def __call__(self) -> QueueConnection:
        """Open a connection."""
        connection = open_file(self._location, self._queue, kind=self._kind)
        if self._location.synchronous == "full":
            connection.selective = _journal_mode(connection) == "wal"
        connection.execute(f"pragma wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.row_factory = sqlite3.Row
        return connection

    def identity(self) -> tuple[int, int] | None:
        """Return the identity of the file that is at the path now, or None if there is none."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - a Path takes twice as long
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _holds(connection: sqlite3.Connection, queue: str) -> bool:
    found = connection.execute("select 1 from sqlite_master where name = ?", (f"{queue}_settings",)).fetchall()
    return bool(found)


def _prefer_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode, so that readers and the writer do not block each other.

    If that is not possible now, the file works in its own mode, but slower.
    """
    try:
        connection.execute("pragma journal_mode = wal").fetchall()
    except sqlite3.OperationalError as error:
        if not is_busy(error) and not is_read_only(error):
            raise


def _journal_mode(connection: sqlite3.Connection) -> str:
    (row,) = connection.execute("pragma journal_mode").fetchall()
    return str(row[0])
