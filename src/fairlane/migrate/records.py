"""Record the revision in the queue after each step, for clients, on the backends that Alembic connects to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from fairlane.backends.targets import SqlTarget
from fairlane.migrate.configuring import changes_of, configure_sql, qualified, stored_in
from fairlane.migrate.settings import Settings
from fairlane.templates import render

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext, MigrationInfo


class Records:
    """Records the steps of one migration."""

    def __init__(
        self,
        settings: Settings,
        target: SqlTarget,
        execute: Callable[[str], None],
        connection: sa.Connection | None = None,
        *,
        existing: bool = False,
    ) -> None:
        """Keep the arguments; `connection` is None offline. `existing` says whether the queue was there before."""
        self._existing = existing
        self._settings = settings
        self._target = target
        self._execute = execute
        self._connection = connection
        self._removed = False
        self.configured = False
        """Whether `finish` has changed settings of an existing queue."""

    def on_version_apply(
        self, ctx: MigrationContext, step: MigrationInfo, heads: Collection[str], run_args: object
    ) -> None:
        """Record the revision. Alembic calls this after each step, in the transaction of the step."""
        revision = next(iter(heads), None)
        self._removed = revision is None and not step.is_stamp
        if not self._removed and self._is_there():
            self._render("recorded", revision=revision, serves=serves_of(step, revision))

    def finish(self) -> None:
        """Apply the choices to the queue. If the queue was removed, remove its version table too.

        Called after the last step, also if there was no step.
        """
        if self._removed:
            self._render("removed")
        elif self._connection is not None and self._is_there():
            script = self._target.settled(self._look)
            if script is not None:
                self._execute(script)
            self._configure()

    def _configure(self) -> None:
        """Change the settings that the DBA has chosen, if the queue was there before and has others."""
        changes = changes_of(self._settings)
        if self._existing and changes:
            assert self._connection is not None, "nothing is repaired offline"
            stored = stored_in(self._connection, self._target, self._settings) or {}
            configure_sql(self._settings, stored, changes, self._execute)
            self.configured = True

    @property
    def repairable(self) -> bool:
        """Whether the target has repairs, and there is still a queue."""
        return self._target.repairs and not self._removed

    def repair(self) -> None:
        """Repair damage in the queue. Called after `finish`, in a transaction of its own."""
        if self._is_there():
            self._render("repaired", as_of=self._found())

    def is_damaged(self) -> bool:
        """Return whether a repair would change something."""
        if not self._is_there():
            return False
        query = self._text("damaged", as_of=self._found())
        return bool(self._look(query)[0][0])

    def _found(self) -> str | None:
        """Return the revision of the queue. Another migration may have changed it since the last step."""
        names = self._target.version_table()
        table = qualified(names["version_table"], names.get("version_table_schema"))
        rows = self._look(f"select version_num from {table}")
        return str(rows[0][0]) if rows else None

    def _look(self, query: str) -> Sequence[Sequence[Any]]:
        assert self._connection is not None, "there are no queries offline"
        return self._connection.exec_driver_sql(query).fetchall()

    def _is_there(self) -> bool:
        """Return whether the queue exists. A `stamp` may run before the queue is created."""
        if self._connection is None:
            return True
        table, schema = self._target.settings_table()
        return sa.inspect(self._connection).has_table(table, schema=schema)

    def _render(self, name: str, *, as_of: str | None = None, **variables: object) -> None:
        self._execute(self._text(name, as_of=as_of, **variables))

    def _text(self, name: str, *, as_of: str | None = None, **variables: object) -> str:
        manifest = self._settings.manifest
        path = f"schema/{manifest.dialect}/{name}.sql.j2"
        names = {"queue": self._settings.choices.queue, "dialect": manifest.name}
        return render(path, as_of=as_of, **names, **variables)


def serves_of(step: Any, revision: str | None) -> str | None:
    """Return the oldest revision whose clients a revision serves, from the revision's file."""
    if revision is None:
        return None
    serves: str = step.revision_map.get_revision(revision).module.SERVES
    return serves
