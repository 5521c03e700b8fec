"""Migrations of SQLite files: Alembic connects to them itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, ClassVar

from fairlane.backends.sqlite.file import for_migration, open_for_migration
from fairlane.backends.targets import Choices, SqlTarget
from fairlane.templates import split_sqlite
from fairlane.urls import host_of


class SqliteTarget(SqlTarget):
    """A queue in an SQLite file."""

    dialect: ClassVar[str] = "sqlite"
    engine: ClassVar[str] = "sqlite://"

    def __init__(self, url: str, choices: Choices) -> None:
        self._url = url
        self._queue = choices.queue

    def open(self, *, create: bool) -> sqlite3.Connection:
        return open_for_migration(self._url, create=create)

    def begin(self, *, create: bool) -> str:
        # one writer from the first look at the version table on, so that the next migration sees the result
        return "begin immediate" if create else "begin"

    def translate(self, error: BaseException | None) -> Exception | None:
        return for_migration(error, host_of(self._url))

    def version_table(self) -> dict[str, Any]:
        return {"version_table": f"{self._queue}_alembic_version"}

    def settings_table(self) -> tuple[str, str | None]:
        return f"{self._queue}_settings", None

    def statements(self, script: str) -> Iterable[str]:
        return split_sqlite(script)
