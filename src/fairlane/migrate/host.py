"""Find the tables of queues, so that the application's own Alembic can ignore them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import sqlalchemy as sa

from fairlane.errors import ConfigurationError

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext

_COLUMNS = {
    "settings": {"name", "value"},
    "groups": {"group_id", "priority", "ready_at", "token", "worker_id", "attempts"},
    "messages": {"group_id", "seq", "event", "dedup_id", "published_at"},
}
"""Tables that every queue has, and columns that they have in every revision."""

_OTHER_TABLES = ("alembic_version", "finished", "paused")
"""The other tables of a queue that is a prefix. If a queue is a schema, all tables of the schema are its tables."""

_found: weakref.WeakKeyDictionary[MigrationContext, Queues] = weakref.WeakKeyDictionary()


def belongs_to_queue(table: sa.Table) -> bool:
    """Return whether a table belongs to a queue, in the database that the running Alembic command is connected to.

    Raises:
        ConfigurationError: no Alembic command is running, or it is not connected.
    """
    from alembic import context

    try:
        migration = context.get_context()
    except (NameError, AttributeError):  # Alembic raises these if no command is running
        migration = None
    if migration is None or migration.connection is None:
        raise ConfigurationError("include_object needs a running Alembic command with a connection, as in env.py")
    queues = _found.get(migration)
    if queues is None:
        queues = _found[migration] = Queues(migration.connection)
    return queues.own(table.name, table.schema)


class Queues:
    """The queues of one database. Tables and columns identify them: every role may read these from the catalogue."""

    def __init__(self, connection: sa.Connection) -> None:
        self._inspector = sa.inspect(connection)
        self._names: dict[str | None, set[str]] = {}

    def own(self, table: str, schema: str | None) -> bool:
        """Return whether a table belongs to a queue."""
        schema = schema or self._inspector.default_schema_name
        if schema not in self._names:
            self._names[schema] = self._of_queues(schema)
        return table in self._names[schema]

    def _of_queues(self, schema: str | None) -> set[str]:
        tables = set(self._inspector.get_table_names(schema=schema))
        if self._is_queue("", tables, schema):
            return tables
        prefixes = {name.removesuffix("settings") for name in tables if name.endswith("_settings")}
        queues = [prefix for prefix in prefixes if self._is_queue(prefix, tables, schema)]
        return {f"{prefix}{name}" for prefix in queues for name in (*_COLUMNS, *_OTHER_TABLES)}

    def _is_queue(self, prefix: str, tables: set[str], schema: str | None) -> bool:
        return all(
            f"{prefix}{name}" in tables and columns <= self._columns(f"{prefix}{name}", schema)
            for name, columns in _COLUMNS.items()
        )

    def _columns(self, table: str, schema: str | None) -> set[str]:
        return {column["name"] for column in self._inspector.get_columns(table, schema=schema)}
