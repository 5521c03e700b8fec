"""Real connections for Alembic, on the backends that it speaks to directly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import sqlalchemy as sa

from fairlane.backends import load
from fairlane.migrate.settings import Settings
from fairlane.urls import host_of

DIALECTS = {"postgres": "postgresql+psycopg://", "sqlite": "sqlite://"}


@contextmanager
def connected(settings: Settings, *, create: bool) -> Iterator[sa.Connection]:
    """Open one connection in one transaction, and turn driver errors into Fairlane's.

    The driver gets the URL as it is: SQLAlchemy reads some URLs differently, and a `%` in a password would have to
    survive two parsers more.
    """
    load(settings.backend)  # says which extra is missing
    module = import_module(f"fairlane.backends.{settings.backend}.executor")
    engine = sa.create_engine(
        DIALECTS[settings.backend],
        creator=lambda: module.open_for_migration(settings.url, create=create),
        poolclass=sa.pool.NullPool,
    )
    if settings.backend == "sqlite":
        # one writer from the first look at the version table on, so that the next migration sees the result
        sa.event.listen(engine, "begin", _begin_immediate if create else _begin)
    try:
        with engine.begin() as connection:
            yield connection
    except sa.exc.DBAPIError as error:
        translate = getattr(module, "for_migration", module.translate)
        known = translate(error.orig, host_of(settings.url))
        if known is None:
            raise
        raise known from error
    finally:
        engine.dispose()


def _begin_immediate(connection: Any) -> None:
    connection.exec_driver_sql("begin immediate")


def _begin(connection: Any) -> None:
    connection.exec_driver_sql("begin")
