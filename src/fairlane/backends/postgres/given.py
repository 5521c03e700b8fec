"""The application's own pools and connections. They stay open. A pool gets its connections back with their settings."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, MutableMapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
import psycopg_pool
from psycopg.abc import PQGen
from psycopg.rows import dict_row

from fairlane.backends.base import Limit
from fairlane.backends.postgres.address import AnyConnection, check_encoding
from fairlane.backends.postgres.errors import NoAnswer
from fairlane.backends.postgres.sessions import AsyncConnection, Connection, until
from fairlane.backends.postgres.statements import Arguments
from fairlane.backends.postgres.wire import is_over
from fairlane.backends.shared import forks
from fairlane.backends.stored import Row, Rows

Pool = psycopg_pool.ConnectionPool[Any]
AsyncPool = psycopg_pool.AsyncConnectionPool[Any]
ResultT = TypeVar("ResultT")

OWN = "a pool or connection of its own"
PID = "select pg_backend_pid() as pid"

_prepares: MutableMapping[AnyConnection, bool | None] = WeakKeyDictionary()
"""The argument `prepare` for each connection: False behind a pooler, else None, so that the connection decides."""


class _Timed(psycopg.Cursor[Row]):
    """A cursor that waits until a deadline. Its rows have names, whatever row_factory the application uses."""

    deadline: float

    def _execute_gen(self, *arguments: Any, **keywords: Any) -> PQGen[None]:
        return until(super()._execute_gen(*arguments, **keywords), self.deadline)


class _AsyncTimed(psycopg.AsyncCursor[Row]):
    deadline: float

    def _execute_gen(self, *arguments: Any, **keywords: Any) -> PQGen[None]:
        return until(super()._execute_gen(*arguments, **keywords), self.deadline)


def rows_of(connection: Connection, text: str, arguments: Arguments, deadline: float) -> Rows:
    """Run one statement with a deadline. A connection without an answer is closed, since it cannot be used again."""
    check_encoding(connection)
    cursor = _Timed(connection, row_factory=dict_row)
    cursor.deadline = deadline
    try:
        if connection not in _prepares and connection.prepare_threshold is not None:
            found = cursor.execute(PID, prepare=False).fetchall()
            _prepares[connection] = _may_prepare(connection, found)
        return cursor.execute(text, arguments, prepare=_prepares.get(connection)).fetchall()
    except NoAnswer:
        connection.close()
        raise


async def async_rows_of(connection: AsyncConnection, text: str, arguments: Arguments, deadline: float) -> Rows:
    """The same for asyncio."""
    check_encoding(connection)
    cursor = _AsyncTimed(connection, row_factory=dict_row)
    cursor.deadline = deadline
    try:
        if connection not in _prepares and connection.prepare_threshold is not None:
            await cursor.execute(PID, prepare=False)
            _prepares[connection] = _may_prepare(connection, await cursor.fetchall())
        await cursor.execute(text, arguments, prepare=_prepares.get(connection))
        return await cursor.fetchall()
    except NoAnswer:
        await connection.close()
        raise


def _may_prepare(connection: AnyConnection, found: Rows) -> bool | None:
    """Return the argument `prepare`; see `learn` in `sessions.py` for poolers."""
    return None if found[0]["pid"] == connection.pgconn.backend_pid else False


class GivenConnection:
    """The application's connection. Operations are part of its transaction."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection = connection
        self.limit = Limit(timeout)
        self._process = forks.OwnerProcess("postgres", OWN, os.getpid())

    def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement."""
        self._process.check()
        return rows_of(self._connection, text, arguments, self.limit.deadline(time.monotonic()))

    def close(self) -> None:
        """Do nothing: the connection belongs to the application."""


class GivenPool:
    """The application's pool. A transport may be made from it before a fork if the pool is opened after the fork."""

    def __init__(self, pool: Pool, timeout: float) -> None:
        self._pool = pool
        self.limit = Limit(timeout)
        self._process = forks.OwnerProcess("postgres", OWN)

    def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement in autocommit mode, since BEGIN and COMMIT would need two more round trips."""
        self._process.check()
        deadline = self.limit.deadline(time.monotonic())
        connection = self._alive(deadline)
        before = connection.autocommit
        try:
            connection.autocommit = True
            return rows_of(connection, text, arguments, deadline)
        finally:
            try:
                if not connection.closed and connection.autocommit != before:
                    connection.autocommit = before
            finally:
                self._pool.putconn(connection)

    def _alive(self, deadline: float) -> Connection:
        """Take a connection from the pool. If its session has ended, return it, so that the pool replaces it."""
        while True:
            connection: Connection = self._pool.getconn(min(deadline - time.monotonic(), self._pool.timeout))
            if not is_over(connection.pgconn):
                return connection
            connection.close()
            self._pool.putconn(connection)

    def close(self) -> None:
        """Do nothing: the pool belongs to the application."""


class AsyncGivenConnection:
    """The application's connection, for asyncio."""

    def __init__(self, connection: AsyncConnection, timeout: float) -> None:
        self._connection = connection
        self.limit = Limit(timeout)
        self._process = forks.OwnerProcess("postgres", OWN, os.getpid())

    async def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement."""
        self._process.check()
        return await _at_once(async_rows_of(self._connection, text, arguments, self.limit.deadline(time.monotonic())))

    async def close(self) -> None:
        """Do nothing: the connection belongs to the application."""


class AsyncGivenPool:
    """The application's pool, for asyncio."""

    def __init__(self, pool: AsyncPool, timeout: float) -> None:
        self._pool = pool
        self.limit = Limit(timeout)
        self._process = forks.OwnerProcess("postgres", OWN)

    async def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement. The connection is returned to the pool also if the caller is cancelled."""
        self._process.check()
        return await _at_once(self._run(text, arguments))

    async def _run(self, text: str, arguments: Arguments) -> Rows:
        deadline = self.limit.deadline(time.monotonic())
        connection = await self._alive(deadline)
        before = connection.autocommit
        try:
            await connection.set_autocommit(True)
            return await async_rows_of(connection, text, arguments, deadline)
        finally:
            await asyncio.shield(self._return(connection, before))

    async def _return(self, connection: AsyncConnection, before: bool) -> None:
        try:
            if not connection.closed and connection.autocommit != before:
                await connection.set_autocommit(before)
        finally:
            await self._pool.putconn(connection)

    async def _alive(self, deadline: float) -> AsyncConnection:
        while True:
            connection: AsyncConnection = await self._pool.getconn(min(deadline - time.monotonic(), self._pool.timeout))
            if not is_over(connection.pgconn):
                return connection
            await connection.close()
            await asyncio.shield(self._pool.putconn(connection))

    async def close(self) -> None:
        """Do nothing: the pool belongs to the application."""


_ending: set[asyncio.Task[object]] = set()
"""Calls whose callers were cancelled. asyncio itself keeps only weak references to tasks."""


async def _at_once(call: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Await a call. If the caller is cancelled, it continues at once.

    The driver then asks the server to cancel the call, and waits for that up to ten seconds, without the caller.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            _ending.add(task)
            task.add_done_callback(_ended)
        raise


def _ended(task: asyncio.Task[object]) -> None:
    _ending.discard(task)
    if not task.cancelled():
        task.exception()  # marks it as retrieved: otherwise asyncio logs it
