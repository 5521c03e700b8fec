"""Migrations of Postgres: Alembic connects to it itself."""

from __future__ import annotations

from typing import Any, ClassVar

import psycopg

from fairlane.backends.postgres.address import check_encoding, separated
from fairlane.backends.postgres.errors import for_migration
from fairlane.backends.postgres.sessions import Opening
from fairlane.backends.targets import Choices, SqlTarget
from fairlane.errors import ConfigurationError
from fairlane.templates import render
from fairlane.urls import host_of


class PostgresTarget(SqlTarget):
    """A queue in a schema of Postgres."""

    dialect: ClassVar[str] = "postgresql"
    engine: ClassVar[str] = "postgresql+psycopg://"
    mends: ClassVar[bool] = True

    def __init__(self, url: str, choices: Choices) -> None:
        self._url = url
        self._choices = choices

    def open(self, *, create: bool) -> psycopg.Connection[Any]:
        opening = Opening.at(*separated(self._url, {"prepare_threshold": None}))
        connection = psycopg.connect(opening.url, **{**opening.arguments, "autocommit": False})
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        try:
            check_encoding(connection)
        except ConfigurationError:
            connection.close()
            raise
        return connection

    def translate(self, error: BaseException | None) -> Exception | None:
        return for_migration(error, host_of(self._url)) if isinstance(error, psycopg.Error) else None

    def version_table(self) -> dict[str, Any]:
        return {"version_table": "alembic_version", "version_table_schema": self._choices.queue}

    def settings_table(self) -> tuple[str, str | None]:
        return "settings", self._choices.queue

    def namespace(self) -> str:
        return render(
            "schema/postgres/namespace.sql.j2", queue=self._choices.queue, owner_role=self._choices.owner_role
        )
