"""SQLite files: where a URL points, how a connection is opened, and what SQLite's errors mean."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fairlane.backends.shared import forks
from fairlane.backends.shared.options import read_options
from fairlane.backends.sqlite.options import OPTIONS
from fairlane.errors import BackendFull, BackendUnavailable, ConfigurationError, EventTooLarge, FairlaneError
from fairlane.urls import split_url

OLDEST = (3, 35, 0)
"""The first SQLite with RETURNING."""

MIGRATION_TIMEOUT = 60.0

IN_THE_WAY = "if something of another application has a name that the queue needs, choose another name for the queue"

PAUSE = (0.0003, 0.002)
"""Seconds between two tries, at random: waiters with even odds, where SQLite's own growing pauses starve some."""

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})


@dataclass(frozen=True, slots=True)
class Location:
    """A file and how to use it.

    Attributes:
        path: absolute, so that a later change of the working directory does not matter.
        synchronous, busy_timeout: see `OPTIONS`.
    """

    path: Path
    synchronous: str
    busy_timeout: float


def locate(url: str, options: dict[str, Any]) -> Location:
    """Read a URL: `sqlite:///relative.db`, `sqlite:////absolute.db`, with percent escapes and `?synchronous=…`.

    Raises:
        ConfigurationError: it names no file, or an option is wrong.
    """
    check_version()
    parts = split_url(url)
    name = unquote(parts.path.removeprefix("/"), errors="surrogateescape")
    if parts.netloc and parts.netloc != "localhost":
        raise ConfigurationError(
            f"an SQLite URL has no host, so its path begins with the third slash: sqlite:///{parts.netloc}{parts.path}"
            if "@" not in url
            else "an SQLite URL has no user and no host: sqlite:///relative.db, sqlite:////absolute.db"
        )
    if not name or name == ":memory:":
        raise ConfigurationError("an SQLite queue lives in a file, sqlite:///queue.db: for one in memory use memory://")
    if "\0" in name or name.endswith("/") or not _is_encodable(name):
        raise ConfigurationError(f"not the name of a file: {name!r}")
    return Location(Path(name).absolute(), **read_options("sqlite", OPTIONS, url, options))


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def check_version() -> None:
    """Refuse an SQLite that cannot run the statements.

    Raises:
        ConfigurationError: it is older than 3.35.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigurationError(
            f"fairlane needs SQLite 3.35 or newer, this Python has {sqlite3.sqlite_version}: use a newer Python or "
            "libsqlite3"
        )


class QueueConnection(sqlite3.Connection):
    """A connection to a queue's file, which lets only those operations wait for the disk that must outlive a power
    failure. A claim need not: its worker, on the same machine, does not outlive it either. So the message is claimable
    again at once, and what is lost of it is one of its attempts.

    Attributes:
        hurries: whether it does so. WAL alone keeps a file whole without a sync for each commit.
        waits: whether the next commit waits for the disk. Only if that is certain: a signal may come in between.
    """

    hurries = False
    waits = True

    def execute(self, sql: str, arguments: Any = (), /) -> sqlite3.Cursor:
        """Run a statement; only a claim names a worker."""
        if self.hurries and self.waits is ("p_worker_id" in arguments):
            # as scripts, since the driver keeps statements, and to run a kept pragma again does nothing
            if self.waits:
                self.waits = False
                self.executescript("pragma synchronous = normal")
            else:
                self.executescript("pragma synchronous = full")
                self.waits = True
        return _execute(self, sql, arguments)


_execute = sqlite3.Connection.execute


class Answer:
    """What is asked of a cursor whose statement has been carried out to its end."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows = cursor.fetchall()
        self.rowcount = cursor.rowcount
        cursor.close()

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        return self._rows

    def close(self) -> None:
        """Do nothing: it is done."""


class ThreadConnection(QueueConnection):
    """The same in a thread of aiosqlite's, which another thread may have to keep out of SQLite."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._guard = threading.Lock()

    def execute(self, sql: str, arguments: Any = (), /) -> Any:
        """Run a statement to its end."""
        with self._guard:
            return Answer(super().execute(sql, arguments))

    def close_for_fork(self) -> None:
        """Close the file, when the statement that runs has ended."""
        if self._guard.acquire(timeout=forks.FORK_TIMEOUT):
            try:
                self.close()
            finally:
                self._guard.release()


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
    """Opens connections to a file, and tells which file that is: one that was deleted or replaced lives on for
    whoever has it open, and what is published into it is seen by nobody else.
    """

    def __init__(self, location: Location, kind: type[QueueConnection] = QueueConnection) -> None:
        self._location = location
        self._kind = kind
        self._path = str(location.path)

    def __call__(self) -> QueueConnection:
        """Open a connection."""
        connection = open_file(self._location, kind=self._kind)
        if self._location.synchronous == "full":
            connection.hurries = connection.execute("pragma journal_mode").fetchall()[0][0] == "wal"
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
    if connection.execute("pragma journal_mode").fetchall()[0][0] == "wal":
        return
    try:
        connection.execute("pragma journal_mode = wal").fetchall()
    except sqlite3.OperationalError as error:
        if primary_code(error) not in (*_BUSY, sqlite3.SQLITE_READONLY):
            raise


def open_for_migration(url: str, *, create: bool) -> sqlite3.Connection:
    """Open the file that a URL names for Alembic. A missing one is made, or, to be only looked at, taken as empty.

    Raises:
        ConfigurationError: its folder is missing, or the URL is wrong.
    """
    location = locate(url, {})
    if not create and is_missing(location.path):
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    deadline = time.monotonic() + MIGRATION_TIMEOUT
    while True:
        try:
            return open_file(location, create=create, timeout=MIGRATION_TIMEOUT)
        except sqlite3.Error as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise _or_same(error, location) from error
        time.sleep(random.uniform(*PAUSE))


def _or_same(error: sqlite3.Error, location: Location) -> Exception:
    return translate(error, str(location.path)) or error


def primary_code(error: BaseException) -> int | None:
    """Return SQLite's primary result code, None when the error does not come from SQLite itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_busy(error: BaseException) -> bool:
    """Tell whether the statement was refused because of other connections; it has changed nothing then."""
    return primary_code(error) in _BUSY


def translate(error: BaseException | None, host: str) -> FairlaneError | None:
    """Turn SQLite's errors into Fairlane's, by code; None when there is nothing better to say. `host` is the file."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = primary_code(error)
    if code in _BUSY:
        return BackendUnavailable("sqlite", host, "another connection keeps it locked (nothing was changed)")
    if code == sqlite3.SQLITE_FULL:
        return BackendFull("sqlite", host, "the disk or the file's page limit is reached")
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigurationError(f"{host} is not an SQLite database: check the path in the URL")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return ConfigurationError(f"{host} cannot be written: make the file and its folder writable for this user")
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(host)
    if code == sqlite3.SQLITE_TOOBIG:
        return EventTooLarge(None, None)
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT):
        return BackendUnavailable("sqlite", host, str(error))
    return None


def for_migration(error: BaseException | None, host: str) -> FairlaneError | None:
    """Return what an error means in a migration, None to let it through."""
    if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_ERROR:
        return ConfigurationError(f"{host}: {error}; nothing was changed: {IN_THE_WAY}")
    return translate(error, host)


def is_missing(path: Path) -> bool:
    """Tell whether a file is not there, in a folder that is."""
    try:
        path.stat()
    except FileNotFoundError:
        return path.parent.is_dir()
    except OSError:
        return False  # who may not look cannot tell
    return False


def _cannot_open(host: str) -> FairlaneError:
    path = Path(host)
    try:
        if not path.parent.is_dir():
            return ConfigurationError(f"the folder {path.parent} of the SQLite file {path.name} does not exist")
        if path.is_dir():
            return ConfigurationError(f"{host} is a folder, not an SQLite file: name a file in it")
    except OSError:
        pass  # no right to look: so it is a matter of rights
    return ConfigurationError(f"{host} cannot be opened: check the rights on the file and its folder")
