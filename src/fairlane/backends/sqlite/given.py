"""The application's own connections. Operations are part of their open transaction."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiosqlite

from fairlane.backends.shared import forks
from fairlane.backends.sqlite.transaction import SAVEPOINT, TRANSACTION, Frame, together
from fairlane.backends.sqlite.wire import CHANGED, Part, Statement, rows_of
from fairlane.backends.stored import Call, Rows
from fairlane.errors import ConfigurationError


class GivenConnection:
    """The application's connection. Operations are part of its open transaction; without one, each operation commits.

    If Python begins transactions by itself (`isolation_level` is not None), an operation begins one too, and the
    application must commit. The connection's own timeout limits the wait for other connections.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        _check_factories(connection)
        self._connection = connection
        self._lock = threading.Lock()
        self._process = forks.OwnerProcess("sqlite", "its own", os.getpid())

    def run(self, statement: Statement, request: Call) -> Rows:
        """Run one statement."""
        self._process.check()
        with self._lock, _usable():
            begin = _implicit_begin(self._connection)
            cursor = self._connection.cursor()
            cursor.row_factory = sqlite3.Row
            try:
                if begin:
                    cursor.execute(begin)
                return rows_of(cursor.execute(statement, request.arguments), statement)
            except BaseException:
                cursor.close()
                if begin and self._connection.in_transaction:
                    self._connection.rollback()
                raise

    def together(self, parts: Sequence[Part], waits_for_disk: bool) -> list[Rows]:
        """Run statements, all or none, and return the rows of each. The application's settings choose the level."""
        self._process.check()
        with self._lock, _usable():
            return _together(self._connection, parts)

    def close(self) -> None:
        """Do nothing: the connection belongs to the application."""


class AsyncGivenConnection:
    """The same as `GivenConnection` for asyncio."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        try:
            _check_factories(connection)
        except ValueError as error:
            raise ConfigurationError("open the aiosqlite connection first: await aiosqlite.connect(…)") from error
        self._connection = connection
        self._lock = asyncio.Lock()
        self._process = forks.OwnerProcess("sqlite", "its own", os.getpid())

    async def run(self, statement: Statement, request: Call) -> Rows:
        """Run one statement."""
        self._process.check()
        # shielded, since a cancellation after the implicit begin would leave an empty open transaction
        return await asyncio.shield(self._run(statement, request))

    async def _run(self, statement: Statement, request: Call) -> Rows:
        with _usable():
            async with self._lock:
                return await self._run_in_turn(statement, request)

    async def _run_in_turn(self, statement: Statement, request: Call) -> Rows:
        begin = _implicit_begin(self._connection._conn)
        try:
            if begin:
                await self._connection.execute_fetchall(begin)
            async with self._connection.execute(statement, request.arguments) as cursor:
                cursor.row_factory = sqlite3.Row
                if statement.counts:
                    return CHANGED if cursor.rowcount > 0 else ()
                rows: Any = await cursor.fetchall()
                return list(rows)
        except BaseException:
            if begin and self._connection.in_transaction:
                await self._connection.rollback()
            raise

    async def together(self, parts: Sequence[Part], waits_for_disk: bool) -> list[Rows]:
        """Run statements, all or none, and return the rows of each. The application's settings choose the level."""
        self._process.check()
        return await asyncio.shield(self._together(parts))

    async def _together(self, parts: Sequence[Part]) -> list[Rows]:
        with _usable():
            async with self._lock:
                # one call to the thread, so that no other statement of the application comes between
                driver: Any = self._connection
                answers: list[Rows] = await driver._execute(_together, driver._conn, parts)
                return answers

    async def close(self) -> None:
        """Do nothing: the connection belongs to the application."""


@contextmanager
def _usable() -> Iterator[None]:
    """Turn the driver's error for an unusable connection into Fairlane's error.

    Raises:
        ConfigurationError: the connection is closed, or it belongs to another thread.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, ValueError) as error:
        raise ConfigurationError(
            f"the application's SQLite connection cannot be used: {error}; keep it open as long as the transport, and "
            "open it with check_same_thread=False if several threads use the transport"
        ) from error


def _implicit_begin(connection: sqlite3.Connection) -> str | None:
    """Return the statement that Python runs before an INSERT, since Python does not run it before `with … update`."""
    legacy = getattr(connection, "autocommit", -1) == -1
    if legacy and connection.isolation_level is not None and not connection.in_transaction:
        return f"begin {connection.isolation_level}"
    return None


def _together(connection: sqlite3.Connection, parts: Sequence[Part]) -> list[Rows]:
    """Run statements as part of the open transaction, or in a new one. Python's implicit transaction stays open."""
    if begin := _implicit_begin(connection):
        return together(connection, parts, Frame(begin, None))
    return together(connection, parts, SAVEPOINT if connection.in_transaction else TRANSACTION)


def _check_factories(connection: sqlite3.Connection | aiosqlite.Connection) -> None:
    """Refuse a connection that would change the values of rows.

    Raises:
        ConfigurationError: its text_factory is not str, or its row_factory is not None or sqlite3.Row.
    """
    if connection.text_factory is not str or connection.row_factory not in (None, sqlite3.Row):
        raise ConfigurationError("sqlite needs a connection with text_factory str and row_factory None or sqlite3.Row")
