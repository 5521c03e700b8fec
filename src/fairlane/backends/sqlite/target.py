"""Migrations of SQLite files. Alembic connects to them directly."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, ClassVar

from fairlane.backends.shared.retry import Within, ask, retried
from fairlane.backends.sqlite.address import Location, locate
from fairlane.backends.sqlite.errors import for_migration, is_busy, is_missing, translate
from fairlane.backends.sqlite.file import open_file
from fairlane.backends.sqlite.wire import PAUSES
from fairlane.backends.targets import Choices, SqlTarget
from fairlane.program import Program, run
from fairlane.templates import split_sqlite
from fairlane.urls import host_of

TIMEOUT = 60.0
"""Seconds for which a migration waits for other connections."""


class SqliteTarget(SqlTarget):
    """A queue in an SQLite file as the target of migrations."""

    dialect: ClassVar[str] = "sqlite"
    engine: ClassVar[str] = "sqlite://"
    repairs: ClassVar[bool] = True
    looks_first: ClassVar[bool] = True

    def __init__(self, url: str, choices: Choices) -> None:
        self._url = url
        self._queue = choices.queue

    def open(self, *, create: bool) -> sqlite3.Connection:
        """Open the file. With `create` a missing file is made; without it, a missing file counts as empty.

        Raises:
            ConfigurationError: the folder of the file is missing, or the URL is wrong.
        """
        location = locate(self._url, {})
        if not create and is_missing(location.path):
            return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # SQLite does not wait if it detects a deadlock, for example of two connections that switch to WAL mode
        program: Program[Location, sqlite3.Connection, sqlite3.Connection] = retried(
            lambda: ask(location), Within(TIMEOUT, PAUSES, is_busy)
        )
        try:
            return run(program, lambda location: open_file(location, self._queue, create=create, timeout=TIMEOUT))
        except sqlite3.Error as error:
            raise translate(error, str(location.path)) or error from error

    def begin(self, *, writes: bool) -> str:
        # take the write lock before reading the version table, so that the next migration sees the result of this one
        return "begin immediate" if writes else "begin"

    def translate(self, error: BaseException | None) -> Exception | None:
        return for_migration(error, host_of(self._url))

    def version_table(self) -> dict[str, Any]:
        return {"version_table": f"{self._queue}_alembic_version"}

    def settings_table(self) -> tuple[str, str | None]:
        return f"{self._queue}_settings", None

    def statements(self, script: str) -> Iterable[str]:
        return split_sqlite(script)
