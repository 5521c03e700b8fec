"""Connections to an SQLite file: how one is opened, and which of its commits wait for the disk."""

from __future__ import annotations

import os
import sqlite3
import threading
from typing import Any

from fairlane.backends.shared import forks
from fairlane.backends.sqlite.address import Location
from fairlane.backends.sqlite.errors import is_busy, is_read_only
from fairlane.backends.sqlite.wire import Statement

_execute = sqlite3.Connection.execute


class QueueConnection(sqlite3.Connection):
    """A connection to a queue's file, where only those operations wait for the disk that must outlive a power failure.

    Attributes:
        selective: whether it does so. Only in WAL mode: there a file stays whole without a sync for each commit.
        waits: whether the next commit waits for the disk. False only if that is certain: a signal may come in between.
    """

    selective = False
    waits = True

    def execute(self, text: str, arguments: Any = (), /) -> sqlite3.Cursor:
        """Run a statement."""
        if self.selective and isinstance(text, Statement) and self.waits is not text.waits_for_disk:
            # as scripts, since the driver keeps statements, and to run a kept pragma again does nothing
            if self.waits:
                self.waits = False
                self.executescript("pragma synchronous = normal")
            else:
                self.executescript("pragma synchronous = full")
                self.waits = True
        return _execute(self, text, arguments)


class FinishedCursor:
    """What is left of a cursor whose statement has been carried out to its end."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows = cursor.fetchall()
        self.rowcount = cursor.rowcount
        cursor.close()

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        return self._rows

    def close(self) -> None:
        """Do nothing: it is closed."""


class ThreadConnection(QueueConnection):
    """The same in a thread of aiosqlite's; another thread, which forks, can wait until no statement runs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._running = threading.Lock()

    def execute(self, text: str, arguments: Any = (), /) -> Any:
        """Run a statement to its end."""
        with self._running:
            return FinishedCursor(super().execute(text, arguments))

    def close_for_fork(self) -> None:
        """Close the file, when the statement that runs has ended."""
        if self._running.acquire(timeout=forks.FORK_TIMEOUT):
            try:
                self.close()
            finally:
                self._running.release()


def open_file(
    location: Location, *, create: bool = False, timeout: float = 0.0, kind: type[QueueConnection] = QueueConnection
) -> QueueConnection:
    """Open a connection that commits every statement by itself.

    Without `create` a missing file stays missing. The connection may move between threads, one at a time.
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
        _prefer_wal(connection)
        connection.execute(f"pragma synchronous = {location.synchronous}")
    except BaseException:
        connection.close()
        raise
    return connection


class Opener:
    """Opens connections to a file, and tells which file that is.

    One that was deleted or replaced lives on for whoever has it open, and what is published into it is seen by nobody
    else.
    """

    def __init__(self, location: Location, kind: type[QueueConnection] = QueueConnection) -> None:
        self._location = location
        self._kind = kind
        self._path = str(location.path)

    def __call__(self) -> QueueConnection:
        """Open a connection."""
        connection = open_file(self._location, kind=self._kind)
        if self._location.synchronous == "full":
            connection.selective = _journal_mode(connection) == "wal"
        connection.row_factory = sqlite3.Row
        return connection

    def identity(self) -> tuple[int, int] | None:
        """Return what is at the path now, None if nothing is."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - for every call, and a Path takes twice as long
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _prefer_wal(connection: sqlite3.Connection) -> None:
    """Let readers and the writer work side by side. A file that cannot be switched now works as well, only slower."""
    if _journal_mode(connection) == "wal":
        return
    try:
        connection.execute("pragma journal_mode = wal").fetchall()
    except sqlite3.OperationalError as error:
        if not is_busy(error) and not is_read_only(error):
            raise


def _journal_mode(connection: sqlite3.Connection) -> str:
    (row,) = connection.execute("pragma journal_mode").fetchall()
    return str(row[0])
