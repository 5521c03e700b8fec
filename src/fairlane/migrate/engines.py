"""Connections for Alembic, to the backends that it can connect to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import sqlalchemy as sa

from fairlane.backends.targets import SqlTarget


@contextmanager
def connected(target: SqlTarget, *, create: bool) -> Iterator[sa.Connection]:
    """Open one connection in one transaction, and turn driver errors into Fairlane's.

    The target connects with its own URL, and SQLAlchemy does not parse it. SQLAlchemy reads some URLs differently, and
    it decodes a `%` in a password again.
    """
    engine = sa.create_engine(target.engine, creator=partial(target.open, create=create), poolclass=sa.pool.NullPool)
    begin = target.begin(create=create)
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
