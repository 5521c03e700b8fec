"""Read the settings of a queue, and change them, under the lock of migrations.

`fairlane queue set` and a migration of an existing queue change settings in this one way: the stored procedures that
contain a setting are installed again, and the setting is stored, in one transaction or one request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fairlane.backends.targets import LedgerTarget, SqlTarget, shown
from fairlane.errors import ConfigurationError, SchemaNotReady
from fairlane.migrate.settings import Settings
from fairlane.migrate.stored_settings import CHANGEABLE, SETTINGS
from fairlane.templates import bundle_root, ident, render, uses

if TYPE_CHECKING:
    import sqlalchemy as sa
    from alembic.script import ScriptDirectory

    from fairlane.migrate.engines import Execute

Stored = Mapping[str, str | None]
"""What a queue stores: settings by name, and its revision."""

PROCEDURES = ("procedures/", "lua/")
"""The folders of the templates that may be installed again. A layout is made only once."""


def read(settings: Settings) -> dict[str, str | None]:
    """Return the settings that the queue stores, with its revision.

    Raises:
        SchemaNotReady: the queue is not there.
    """
    from fairlane.migrate import engines

    target = settings.target()
    if isinstance(target, SqlTarget):
        with engines.connected(target, create=False) as connection:
            found = stored_in(connection, target, settings)
    else:
        try:
            found = target.stored()
        finally:
            target.close()
    return _present(settings, found)


def change(settings: Settings) -> tuple[Stored, Stored]:
    """Change the chosen settings of an existing queue. Return what it stored before, and what it stores now.

    Raises:
        SchemaNotReady: the queue is not there, or not at the revision of this version of the package.
    """
    target = settings.target()
    if isinstance(target, SqlTarget):
        before = _change_sql(settings, target)
    else:
        try:
            with target.lock():
                before = _present(settings, target.stored())
                target.read()  # the steps of some targets begin where the last reading was
                configure_ledger(settings, target, before, settings.chosen)
        finally:
            target.close()
    return before, {**before, **settings.chosen}


def _change_sql(settings: Settings, target: SqlTarget) -> dict[str, str | None]:
    from fairlane.migrate import engines

    with engines.connected(target, create=False, writes=True) as connection:
        execute = engines.executes(connection, target)
        lock = target.locked()
        if lock is not None:
            execute(lock)
        before = _present(settings, stored_in(connection, target, settings))
        configure_sql(settings, before, settings.chosen, execute)
    engines.after_change(target)
    return before


def changes_of(settings: Settings) -> dict[str, str]:
    """Return the chosen settings that are not those of the queue so far."""
    return {name: text for name, text in settings.chosen.items() if settings.kept.get(name) != text}


def configure_sql(settings: Settings, stored: Stored, changes: Mapping[str, str], execute: Execute) -> None:
    """Change settings in the running transaction of a migration."""
    manifest, queue = settings.manifest, settings.choices.queue
    for script in _procedures(settings, stored, changes):
        execute(script)
    execute(render(f"schema/{manifest.dialect}/configured.sql.j2", queue=queue, changes=changes))


def configure_ledger(settings: Settings, target: LedgerTarget, stored: Stored, changes: Mapping[str, str]) -> None:
    """Change settings through a ledger's target, whose lock is held."""
    target.configure(changes, list(_procedures(settings, stored, changes)))


def stored_in(connection: sa.Connection, target: SqlTarget, settings: Settings) -> dict[str, str | None] | None:
    """Return the settings that the queue stores, with its revision. None if it is not there.

    Bytes that are not UTF-8 become replacement characters, so a damaged value is none that can be chosen.
    """
    import sqlalchemy as sa

    table, schema = target.settings_table()
    found = sa.inspect(connection)
    if not found.has_table(table, schema=schema):
        return None
    manifest = settings.manifest
    query = render(f"schema/{manifest.dialect}/stored.sql.j2", queue=settings.choices.queue, dialect=manifest.name)
    stored = {
        str(name): None if value is None else shown(value)
        for name, value in connection.exec_driver_sql(query).fetchall()
    }
    versions = target.version_table()
    table, schema = versions["version_table"], versions.get("version_table_schema")
    revision = None
    if found.has_table(table, schema=schema):
        revision = connection.exec_driver_sql(f"select version_num from {qualified(table, schema)}").scalar()
    return {**stored, "revision": revision}


def qualified(table: str, schema: str | None) -> str:
    """Return the quoted name of a table, with that of its schema if it has one."""
    return ident(table) if schema is None else f"{ident(schema)}.{ident(table)}"


def _procedures(settings: Settings, stored: Stored, changes: Mapping[str, str]) -> Iterator[str]:
    """Yield the stored procedures that contain one of these settings, rendered with the chosen ones.

    Raises:
        SchemaNotReady: the queue has the procedures of another revision.
    """
    steps = _steps()
    newest, revision = steps.get_current_head(), stored.get("revision")
    if newest is None or revision != newest:
        raise SchemaNotReady(settings.choices.queue, revision, newest or "", stored.get("serves"))
    settings = settings.of_queue(stored)
    variables = settings.variables(revision, str(stored.get("serves")))
    files = [step.module.FILES.get(settings.manifest.dialect) for step in steps.walk_revisions()]
    paths = [path for each in reversed(files) if each is not None for path in each.up if path.startswith(PROCEDURES)]
    for path in dict.fromkeys(paths):
        if any(uses(path, name, **variables) for name in changes):
            yield render(path, **variables)


def check_known(settings: Settings, revision: str | None, serves: str | None) -> None:
    """Refuse a queue of a revision that this version of the package does not know, and so cannot migrate.

    Raises:
        SchemaNotReady: it is newer.
    """
    newest = _steps().get_current_head()
    if revision is not None and newest is not None and revision > newest:
        raise SchemaNotReady(settings.choices.queue, revision, newest, serves)


def check_kept(settings: Settings) -> None:
    """Refuse a backend whose queues are made by their first transport, and store no settings.

    Raises:
        ConfigurationError: the queue cannot be looked at or changed by another process.
    """
    if settings.manifest.target is None:
        raise ConfigurationError(
            f"a {settings.manifest.schemes[0]}:// queue lives in one process, and its settings are arguments of what "
            "makes it: name a database, such as sqlite:///queue.db"
        )


def check_chosen(settings: Settings) -> None:
    """Refuse a change of nothing.

    Raises:
        ConfigurationError: no setting was chosen.
    """
    if not settings.chosen:
        options = ", ".join(setting.option for setting in SETTINGS if setting.name in CHANGEABLE)
        raise ConfigurationError(f"name a setting and its new value: {options}")


def _present(settings: Settings, stored: dict[str, str | None] | None) -> dict[str, str | None]:
    if stored is None or stored.get("revision") is None:
        raise SchemaNotReady(settings.choices.queue, None, _steps().get_current_head() or "")
    return stored


def _steps() -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(bundle_root() / "schema"))
