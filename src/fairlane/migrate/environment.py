"""Connect Alembic to the database or to a ledger, and migrate in one transaction; `schema/env.py` calls `run`."""

from __future__ import annotations

import io
from collections.abc import Callable
from logging.config import fileConfig
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from alembic.util import CommandError

from fairlane.backends.targets import LedgerTarget, SqlTarget
from fairlane.errors import FairlaneError
from fairlane.migrate import engines
from fairlane.migrate.configuring import changes_of, configure_ledger, stored_in
from fairlane.migrate.dropping import contents
from fairlane.migrate.ledger import LEDGER, Ledger
from fairlane.migrate.records import Records
from fairlane.migrate.settings import Settings, from_arguments
from fairlane.templates import render

if TYPE_CHECKING:
    from alembic.runtime.environment import EnvironmentContext


def run(context: Any) -> None:
    """Migrate as the running Alembic command asks.

    `fairlane.migrate` puts the settings into the attributes of the config. The command `alembic` has them as its `-x`
    arguments; then the logging settings of alembic.ini apply too.
    """
    settings = context.config.attributes.get("fairlane_settings")
    if settings is not None:
        _migrate(context, settings)
        return
    fileConfig(context.config.config_file_name, disable_existing_loggers=False)
    try:
        _migrate(context, from_arguments(context.get_x_argument(as_dictionary=True), _default_url()))
    except (FairlaneError, ValueError) as error:
        raise CommandError(str(error)) from error  # Alembic prints such an error as one line


def _migrate(context: EnvironmentContext, settings: Settings) -> None:
    offline = context.is_offline_mode()
    target = settings.target()
    if isinstance(target, SqlTarget):
        (_offline_sql if offline else _online_sql)(context, settings, target)
    else:
        _through_ledger(context, settings, target, offline)


def _default_url() -> str | None:
    from fairlane.environ import url_from

    return url_from()


def _mutates(context: EnvironmentContext) -> bool:
    """Return whether the command changes the database."""
    try:
        context.get_revision_argument()
    except KeyError:
        return False
    return True


def _online_sql(context: EnvironmentContext, settings: Settings, target: SqlTarget) -> None:
    """Migrate in one transaction, and repair the queue in another.

    A step may change tables, and then it keeps claims waiting until its transaction ends. A repair reads the whole
    queue, so it must not belong to this transaction.
    """
    writing = _mutates(context)
    records = engines.retried(target, lambda: _migrate_sql(context, settings, target, writing))
    if records.configured:
        engines.after_change(target)
    if writing and records.repairable and _needs_repair(settings, target):
        engines.retried(target, lambda: _repair(settings, target))


def _migrate_sql(context: EnvironmentContext, settings: Settings, target: SqlTarget, writing: bool) -> Records:
    with engines.connected(target, create=writing) as connection:
        execute = engines.executes(connection, target)
        namespace = target.namespace()
        if writing and namespace is not None:
            execute(namespace)
        held = render(f"schema/{settings.manifest.dialect}/held.sql.j2", queue=settings.choices.queue)
        stored = stored_in(connection, target, settings) if writing else None
        settings = settings.of_queue(stored)
        records = Records(settings, target, execute, connection, existing=stored is not None)
        context.configure(
            connection=connection,
            transactional_ddl=True,
            on_version_apply=records.on_version_apply,
            fairlane_settings=settings,
            fairlane_sink=execute,
            # on this connection: earlier steps of the transaction may have locked the tables against others
            fairlane_held=lambda: connection.exec_driver_sql(held).scalar_one(),
            **target.version_table(),
        )
        with context.begin_transaction():
            context.run_migrations()
            if writing:
                records.finish()
    return records


def _needs_repair(settings: Settings, target: SqlTarget) -> bool:
    """Return whether the queue has to be repaired; True if only the repair itself can tell."""
    if not target.looks_first:
        return True
    with engines.connected(target, create=False) as connection:
        return Records(settings, target, engines.executes(connection, target), connection).is_damaged()


def _repair(settings: Settings, target: SqlTarget) -> None:
    with engines.connected(target, create=False, writes=True) as connection:
        execute = engines.executes(connection, target)
        lock = target.locked()
        if lock is not None:
            execute(lock)
        Records(settings, target, execute, connection).repair()


def _offline_sql(context: EnvironmentContext, settings: Settings, target: SqlTarget) -> None:
    records = Records(settings, target, context.static_output)
    context.configure(
        dialect_name=target.dialect,
        transactional_ddl=True,
        on_version_apply=records.on_version_apply,
        fairlane_settings=settings,
        fairlane_sink=context.static_output,
        **target.version_table(),
    )
    with context.begin_transaction():
        namespace = target.namespace()
        if namespace is not None:
            context.static_output(namespace)
        context.run_migrations()
        records.finish()


def _through_ledger(context: EnvironmentContext, settings: Settings, target: LedgerTarget, offline: bool) -> None:
    try:
        if offline:
            _ledger_offline(context, settings, target)
        elif _mutates(context):
            with target.lock():
                _ledger_migrated(context, settings, target)
        else:
            _ledger_online(context, settings, target)
    finally:
        target.close()


def _ledger_migrated(context: EnvironmentContext, settings: Settings, target: LedgerTarget) -> None:
    # without templates and choices nothing depends on what is stored, and the request is saved
    stored = target.stored() if settings.manifest.dialect or settings.chosen else None
    settings = settings.of_queue(stored)
    _ledger_online(context, settings, target)
    target.repair()
    changes = changes_of(settings)
    if stored is not None and changes:
        configure_ledger(settings, target, {**stored, "revision": target.read()}, changes)


def _ledger_online(context: EnvironmentContext, settings: Settings, target: LedgerTarget) -> None:
    engine = sa.create_engine(LEDGER)
    found = target.read()
    with engine.begin() as connection:
        ledger = Ledger(target)
        if found is not None:
            connection.exec_driver_sql("create table alembic_version (version_num varchar(32) primary key not null)")
            connection.exec_driver_sql("insert into alembic_version values (?)", (found,))
        _configure_ledger(context, settings, ledger, connection=connection)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


def _ledger_offline(context: EnvironmentContext, settings: Settings, target: LedgerTarget) -> None:
    # Alembic's own statements are for a version table that the target does not have, so they are not printed
    output = _output(context)
    ledger = Ledger(target, emit=lambda text: output(text))
    _configure_ledger(
        context, settings, ledger, dialect_name=sa.make_url(LEDGER).get_backend_name(), output_buffer=io.StringIO()
    )
    with context.begin_transaction():
        context.run_migrations()


def _output(context: EnvironmentContext) -> Callable[[str], None]:
    buffer = context.config.output_buffer or context.config.stdout
    return lambda text: print(text, file=buffer)


def _messages_in(settings: Settings) -> int | None:
    """Return the number of messages; None if they cannot be counted."""
    held = contents(settings)
    return None if held is None else held.messages


def _configure_ledger(context: EnvironmentContext, settings: Settings, ledger: Ledger, **where: Any) -> None:
    context.configure(
        transactional_ddl=True,
        on_version_apply=ledger.on_version_apply,
        fairlane_settings=settings,
        fairlane_sink=ledger.sink,
        fairlane_held=lambda: _messages_in(settings),
        **where,
    )
