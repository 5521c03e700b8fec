"""Turn errors of SQLite into Fairlane's errors, by their result codes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fairlane.errors import BackendFull, BackendUnavailable, ConfigurationError, EventTooLarge, FairlaneError

OLDEST = (3, 35, 0)
"""The first SQLite with RETURNING."""

LOCKED = "another connection keeps the file locked"

_NAME_IN_USE = "if another application uses a name that the queue needs, choose another name for the queue"
_DAMAGED = "the file is damaged: restore a backup, or save what `.recover` of the sqlite3 shell finds in it"
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_CONNECTION_LOST = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def check_version() -> None:
    """Refuse a version of SQLite that cannot run the statements.

    Raises:
        ConfigurationError: it is older than 3.35.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigurationError(
            f"fairlane needs SQLite 3.35 or newer, this Python has {sqlite3.sqlite_version}: use a newer Python or "
            "libsqlite3"
        )


def primary_code(error: BaseException) -> int | None:
    """Return SQLite's primary result code, or None if the error does not come from SQLite itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_busy(error: BaseException) -> bool:
    """Return whether a lock of another connection prevented the statement. Then it has changed nothing."""
    return primary_code(error) in _BUSY


def is_read_only(error: BaseException) -> bool:
    """Return whether the file cannot be written."""
    return primary_code(error) == sqlite3.SQLITE_READONLY


def needs_new_connection(error: BaseException) -> bool:
    """Return whether a new connection may succeed."""
    return primary_code(error) in _CONNECTION_LOST


def is_absent(error: BaseException, path: Path | None) -> bool:
    """Return whether the file, or the queue in it, does not exist.

    Args:
        path: the path of the file; None for the application's connection.
    """
    code = primary_code(error)
    if code == sqlite3.SQLITE_CANTOPEN and path is not None:
        return is_missing(path)
    return code == sqlite3.SQLITE_ERROR  # SQLite has no special code for a missing table


def breaks_constraint(error: BaseException) -> bool:
    """Return whether a constraint refused a row. The arguments were checked before, so stored data are the cause."""
    return primary_code(error) == sqlite3.SQLITE_CONSTRAINT


def is_missing(path: Path) -> bool:
    """Return whether a file does not exist but its folder does."""
    try:
        path.stat()
    except FileNotFoundError:
        return path.parent.is_dir()
    except OSError:
        return False  # without the right to look, it may exist
    return False


def translate(error: BaseException | None, host: str) -> FairlaneError | None:
    """Return Fairlane's error for an error of SQLite, by code, or None if there is none. `host` is the file."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = primary_code(error)
    if code in _BUSY:
        return BackendUnavailable("sqlite", host, f"{LOCKED} (nothing was changed)")
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
    if code == sqlite3.SQLITE_CORRUPT:
        return BackendUnavailable("sqlite", host, str(error), _DAMAGED)
    if code == sqlite3.SQLITE_IOERR:
        return BackendUnavailable("sqlite", host, str(error))
    return None


def for_migration(error: BaseException | None, host: str) -> FairlaneError | None:
    """Return Fairlane's error for an error in a migration, or None to let it pass."""
    if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_ERROR:
        return ConfigurationError(f"{host}: {error}; nothing was changed: {_NAME_IN_USE}")
    return translate(error, host)


def _cannot_open(host: str) -> FairlaneError:
    path = Path(host)
    try:
        if not path.parent.is_dir():
            return ConfigurationError(f"the folder {path.parent} of the SQLite file {path.name} does not exist")
        if path.is_dir():
            return ConfigurationError(f"{host} is a folder, not an SQLite file: name a file in it")
    except OSError:
        pass  # without the right to look, rights are the cause
    return ConfigurationError(f"{host} cannot be opened: check the rights on the file and its folder")
