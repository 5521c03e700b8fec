"""Migrations of Postgres. Alembic connects to it directly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import psycopg

from fairlane.backends.postgres.address import check_encoding, separated
from fairlane.backends.postgres.errors import CONTENDED, for_migration
from fairlane.backends.postgres.sessions import Opening
from fairlane.backends.targets import NOBODY, Choices, SqlTarget
from fairlane.errors import ConfigurationError
from fairlane.templates import ident, render
from fairlane.urls import host_of


class PostgresTarget(SqlTarget):
    """A queue in a schema of Postgres as the target of migrations."""

    dialect: ClassVar[str] = "postgresql"
    engine: ClassVar[str] = "postgresql+psycopg://"
    repairs: ClassVar[bool] = True

    def __init__(self, url: str, choices: Choices) -> None:
        self._url = url
        self._choices = choices

    def open(self, *, create: bool) -> psycopg.Connection[Any]:
        opening = Opening.at(*separated(self._url, {}))
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

    def locked(self) -> str:
        return self._as_owner("lock")

    def namespace(self) -> str:
        return self._as_owner("namespace")

    def configured(self) -> str:
        return self._as_owner("configured_later")

    def _as_owner(self, name: str) -> str:
        path = f"schema/postgres/{name}.sql.j2"
        return render(path, queue=self._choices.queue, owner_role=self._choices.owner_role)

    def is_contended(self, error: BaseException | None) -> bool:
        return isinstance(error, psycopg.Error) and error.sqlstate in CONTENDED

    def settled(self, look: Callable[[str], Sequence[Sequence[Any]]]) -> str | None:
        """Return the grants for the chosen roles, or else the previous roles; see `roles.sql.j2`."""
        queue = self._choices.queue
        settings: dict[str, str | None] = {row[0]: row[1] for row in look(f"table {ident(queue)}.settings")}
        found = look(f"table {ident(queue)}.alembic_version")
        revision = found[0][0] if found else ""  # after `stamp base` there is none
        there = {name for (name,) in look("select rolname from pg_catalog.pg_roles")}
        roles = {}
        for name, chosen in (("app_role", self._choices.app_role), ("reader_role", self._choices.reader_role)):
            before = settings.get(name)
            roles[name] = (before if before in there else None) if chosen is None else chosen
        former = sorted({role for name in roles if (role := settings.get(name)) is not None})
        roles = {name: None if role == NOBODY else role for name, role in roles.items()}
        path = "schema/postgres/roles.sql.j2"
        return render(path, as_of=revision or None, queue=queue, revision=revision, former=former, **roles)
