"""Where connections come from: pools opened here. Those of the application are in `postgres_given`.

Each lends a connection for one statement, which is a transaction of its own, without a round trip more (autocommit).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from typing import Any, Protocol

import psycopg
import psycopg_pool
from psycopg import conninfo
from psycopg.rows import tuple_row

from fairlane.backends.postgres_errors import broken, check_encoding
from fairlane.backends.values import count, seconds
from fairlane.errors import TransportClosed

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
Pool = psycopg_pool.ConnectionPool[Any]
AsyncPool = psycopg_pool.AsyncConnectionPool[Any]

CONNECT_TIMEOUT = 10
"""Seconds for one attempt to connect, unless the URL says otherwise."""

_inherited: list[object] = []
"""Pools of a parent process. A forked child must not use or close their connections, so they are kept."""


class OwnConnection(psycopg.Connection[Any]):
    """A connection of a pool opened here. It keeps one cursor, since a new one learns the columns of every answer anew,
    which takes a third of a call.
    """

    @cached_property
    def calls(self) -> psycopg.Cursor[Any]:
        return psycopg.Cursor(self, row_factory=tuple_row)


class OwnAsyncConnection(psycopg.AsyncConnection[Any]):
    """The same for asyncio."""

    @cached_property
    def calls(self) -> psycopg.AsyncCursor[Any]:
        return psycopg.AsyncCursor(self, row_factory=tuple_row)


def cursor_of(connection: Connection) -> psycopg.Cursor[Any]:
    """Return the cursor to run one statement with."""
    if isinstance(connection, OwnConnection):
        return connection.calls
    return psycopg.Cursor(connection, row_factory=tuple_row)


def async_cursor_of(connection: AsyncConnection) -> psycopg.AsyncCursor[Any]:
    """Return the cursor to run one statement with."""
    if isinstance(connection, OwnAsyncConnection):
        return connection.calls
    return psycopg.AsyncCursor(connection, row_factory=tuple_row)


class Lender(Protocol):
    """Lends connections to blocking code."""

    def lend(self) -> Any: ...
    def close(self) -> None: ...


class AsyncLender(Protocol):
    """Lends connections to asyncio code."""

    def lend(self) -> Any: ...
    async def close(self) -> None: ...


class Opening:
    """How the connections of an own pool are opened.

    Attributes:
        url: a libpq URL; libpq alone reads it.
        max_connections: the most at once; calls beyond that wait for one.
        timeout: seconds that a call waits for a free connection.
        prepare_threshold: executions after which a statement is prepared; None never prepares, for poolers that hand
            every transaction to another server connection.
    """

    def __init__(
        self,
        url: str,
        *,
        max_connections: int = 10,
        timeout: float = 30.0,
        prepare_threshold: int | None = 5,
    ) -> None:
        self.max_connections = count("max_connections", max_connections, smallest=1)
        self.timeout = seconds("timeout", timeout, smallest=0.001)
        if prepare_threshold is not None:
            count("prepare_threshold", prepare_threshold, smallest=0)
        self.url = url
        given = conninfo.conninfo_to_dict(url)
        # another encoding of the client, wherever it is set, could not hold every event
        self.arguments: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": prepare_threshold,
            "client_encoding": "UTF8",
        }
        defaults = {"connect_timeout": CONNECT_TIMEOUT, "fallback_application_name": "fairlane"}
        self.arguments |= {name: value for name, value in defaults.items() if name not in given}

    @property
    def pool(self) -> dict[str, Any]:
        """Arguments of a pool."""
        return {
            "kwargs": self.arguments,
            "min_size": 0,
            "max_size": self.max_connections,
            "timeout": self.timeout,
            "name": "fairlane",
            "open": False,
        }


class OwnPool:
    """A pool that is thrown away as a whole when a connection breaks, and opened anew by the next call.

    A server that went away took all connections with it, and a pool left alone would hand out every dead one. And
    before a pool is opened, one connection is, in the caller: so that whoever calls learns what is wrong, at once.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """Lend a connection."""
        pool, connection = self._borrow()
        try:
            yield connection
        except psycopg.Error as error:
            if broken(error) or connection.broken:
                self._discard(pool)
            raise
        finally:
            pool.putconn(connection)

    def _borrow(self) -> tuple[Pool, Connection]:
        while True:
            pool = self._opened()
            try:
                return pool, pool.getconn()
            except psycopg_pool.PoolClosed:
                continue  # discarded by another thread: the next one is not
            except psycopg_pool.PoolTimeout:
                if pool.get_stats().get("pool_size", 0) == pool.get_stats().get("pool_available", 0):
                    self._discard(pool)  # none is in use: the server cannot be reached
                raise

    def _opened(self) -> Pool:
        if self._owner != os.getpid():
            self._leave_to_parent()
        pool = self._pool
        if pool is not None:
            return pool
        with self._lock:
            if self._closed:
                raise TransportClosed()
            if self._pool is None:
                opening = self._opening
                with psycopg.connect(opening.url, **opening.arguments) as probe:
                    check_encoding(probe)
                pool = psycopg_pool.ConnectionPool(opening.url, connection_class=OwnConnection, **opening.pool)
                pool.open()
                self._pool = pool
            return self._pool

    def _discard(self, pool: Pool) -> None:
        with self._lock:
            if self._pool is pool:
                self._pool = None
        pool.close(timeout=1)

    def _leave_to_parent(self) -> None:
        _inherited.append(self._pool)
        self._pool, self._lock, self._owner = None, threading.Lock(), os.getpid()

    def close(self) -> None:
        """Close the connections; those lent out close when they come back."""
        if self._owner != os.getpid():
            self._leave_to_parent()
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class AsyncOwnPool:
    """The same for asyncio."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._owner = os.getpid()
        self._lock = asyncio.Lock()
        self._pool: AsyncPool | None = None
        self._closed = False

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection; it is given back also when the caller is cancelled."""
        pool, connection = await self._borrow()
        try:
            yield connection
        except psycopg.Error as error:
            if broken(error) or connection.broken:
                await self._discard(pool)
            raise
        finally:
            await asyncio.shield(pool.putconn(connection))

    async def _borrow(self) -> tuple[AsyncPool, AsyncConnection]:
        while True:
            pool = await self._opened()
            try:
                return pool, await pool.getconn()
            except psycopg_pool.PoolClosed:
                continue  # discarded by another task: the next one is not
            except psycopg_pool.PoolTimeout:
                if pool.get_stats().get("pool_size", 0) == pool.get_stats().get("pool_available", 0):
                    await self._discard(pool)  # none is in use: the server cannot be reached
                raise

    async def _opened(self) -> AsyncPool:
        if self._owner != os.getpid():
            self._leave_to_parent()
        pool = self._pool
        if pool is not None:
            return pool
        async with self._lock:
            if self._closed:
                raise TransportClosed()
            if self._pool is None:
                opening = self._opening
                async with await psycopg.AsyncConnection.connect(opening.url, **opening.arguments) as probe:
                    check_encoding(probe)
                pool = psycopg_pool.AsyncConnectionPool(
                    opening.url, connection_class=OwnAsyncConnection, **opening.pool
                )
                await pool.open()
                self._pool = pool
            return self._pool

    async def _discard(self, pool: AsyncPool) -> None:
        if self._pool is pool:
            self._pool = None
        await asyncio.shield(pool.close(timeout=1))

    def _leave_to_parent(self) -> None:
        _inherited.append(self._pool)
        self._pool, self._lock, self._owner = None, asyncio.Lock(), os.getpid()

    async def close(self) -> None:
        """Close the connections; those lent out close when they come back."""
        if self._owner != os.getpid():
            self._leave_to_parent()
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
