"""Connections for Alembic, to the backends that it can connect to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias

import sqlalchemy as sa

from fairlane.backends.shared import retry
from fairlane.backends.targets import SqlTarget
from fairlane.errors import FairlaneError
from fairlane.program import ResultT, run

CONTENDED_SECONDS = 60.0
"""Seconds for which a migration tries again while other transactions have a lock that it needs."""

CONTENDED_PAUSES = retry.Pauses(0.1, 1.0)
"""Pauses between these tries. In a pause, whatever has waited behind the migration goes on."""

_log = logging.getLogger("fairlane.migrate")

Execute: TypeAlias = Callable[[str], None]
"""Executes a script in the transaction of a migration."""


def executes(connection: sa.Connection, target: SqlTarget) -> Execute:
    """Return the function that executes scripts on a connection."""

    def execute(script: str) -> None:
        for statement in target.statements(script):
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})

    return execute


def after_change(target: SqlTarget) -> None:
    """Run what a target wants to run after a change of settings, in a transaction of its own.

    The change is made. So an error is only logged: raised, it would say that nothing was changed.
    """
    script = target.configured()
    if script is None:
        return
    try:
        with connected(target, create=False, writes=True) as connection:
            executes(connection, target)(script)
    except FairlaneError as error:
        _log.warning("the settings are changed, but their last step failed; `fairlane migrate` repeats it: %s", error)


def retried(target: SqlTarget, transaction: Callable[[], ResultT]) -> ResultT:
    """Carry out a transaction, and try it again while other transactions have a lock that it needs."""

    def is_contended(error: Exception) -> bool:
        cause = error if isinstance(error, sa.exc.DBAPIError) else error.__cause__
        return isinstance(cause, sa.exc.DBAPIError) and target.is_contended(cause.orig)

    policy = retry.Within(CONTENDED_SECONDS, CONTENDED_PAUSES, is_contended)
    return run(retry.retried(lambda: retry.ask(transaction), policy), lambda request: request())


@contextmanager
def connected(target: SqlTarget, *, create: bool, writes: bool | None = None) -> Iterator[sa.Connection]:
    """Open one connection in one transaction, and turn driver errors into Fairlane's.

    The target connects with its own URL, and SQLAlchemy does not parse it. SQLAlchemy reads some URLs differently, and
    it decodes a `%` in a password again.

    Args:
        target: what to connect to.
        create: whether connecting may make a database that does not exist.
        writes: whether the transaction changes anything; None: if it may create.
    """
    engine = sa.create_engine(target.engine, creator=partial(target.open, create=create), poolclass=sa.pool.NullPool)
    begin = target.begin(writes=create if writes is None else writes)
    if begin is not None:
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    try:
        with engine.begin() as connection:
            yield connection
    except sa.exc.DBAPIError as error:
        known = target.translate(error.orig)
        if known is None:
            raise
        raise known from error
    finally:
        engine.dispose()
