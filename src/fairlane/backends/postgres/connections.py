"""Where connections come from: pools opened here. Those of the application are in `postgres_given`.

Each runs a statement as a transaction of its own, without a round trip more (autocommit).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import psycopg
import psycopg_pool
from psycopg import conninfo

from fairlane.backends.postgres.address import check_encoding
from fairlane.backends.postgres.errors import broken
from fairlane.backends.postgres.spares import OwnAsyncConnection, OwnConnection, Spares
from fairlane.backends.shared import forks
from fairlane.backends.stored import Rows
from fairlane.errors import TransportClosed

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
Pool = psycopg_pool.ConnectionPool[Any]
AsyncPool = psycopg_pool.AsyncConnectionPool[Any]
Arguments = Mapping[str, Any]

CONNECT_TIMEOUT = 10
"""Seconds for one attempt to connect, unless the URL says otherwise."""


class Lender(Protocol):
    """Runs one statement of blocking code on a connection, and returns all of its rows."""

    def run(self, text: str, arguments: Arguments) -> Rows: ...
    def close(self) -> None: ...


class AsyncLender(Protocol):
    """The same for asyncio."""

    async def run(self, text: str, arguments: Arguments) -> Rows: ...
    async def close(self) -> None: ...


class Opening:
    """How the connections of an own pool are opened.

    Attributes:
        url: a libpq URL; libpq alone reads it.
        max_connections, timeout: the options of these names.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.max_connections: int = options["max_connections"]
        self.timeout: float = options["timeout"]
        self.url = url
        given = conninfo.conninfo_to_dict(url)
        # another encoding of the client, wherever it is set, could not hold every event
        self.arguments: dict[str, Any] = {
            "autocommit": True,
            "prepare_threshold": options["prepare_threshold"],
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


class OwnPool(forks.ForkAware):
    """A pool that is thrown away as a whole when a connection breaks, and opened anew by the next call.

    A server that went away took all connections with it, and a pool left alone would hand out every dead one. And
    before a pool is opened, one connection is, in the caller: so that whoever calls learns what is wrong, at once.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._spares: Spares[OwnConnection] = Spares()
        self._closed = False
        forks.register(self)

    def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement, which is a transaction of its own."""
        connection = None
        try:
            connection = self._spares.take()
            if connection is None:
                connection = self._borrow()
            elif self._spares.is_stale(connection, self._pool):
                connection = self._renewed(connection)
            rows = connection.calls.execute(text, arguments).fetchall()
            kept = self._spares.put(connection, self._pool)
        except BaseException as error:
            if connection is not None:
                self._failed(connection, error)
            raise
        if not kept:
            connection.home.putconn(connection)
        elif self._spares.asking or self._pool is not connection.home:
            self._put_back()
        return rows

    def _failed(self, connection: OwnConnection, error: BaseException) -> None:
        """Give the pool a connection back that may be of no use any more."""
        self._spares.forget(connection)
        if isinstance(error, psycopg.Error) and (broken(error) or connection.broken):
            self._discard(connection.home)
        connection.home.putconn(connection)

    def _put_back(self) -> None:
        """Give the pool what lies outside of it."""
        while connection := self._spares.take():
            connection.home.putconn(connection)

    def _renewed(self, connection: OwnConnection) -> OwnConnection:
        connection.close()
        connection.home.putconn(connection)
        return self._borrow()

    def _borrow(self) -> OwnConnection:
        self._spares.asking.append(None)
        try:
            connection = self._spares.take()
            if connection is not None:
                return connection
            pool, connection = self._ask()
        finally:
            self._spares.asking.pop()
        connection.came_from(pool)
        return connection

    def _ask(self) -> tuple[Pool, OwnConnection]:
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
        self._put_back()
        pool.close(timeout=1)

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`."""
        left = self._pool, self._spares
        self._pool, self._spares, self._lock = None, Spares(), threading.Lock()
        return left

    def close(self) -> None:
        """Close the connections; those lent out close when they come back."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        self._put_back()
        if pool is not None:
            pool.close()


class AsyncOwnPool(forks.ForkAware):
    """The same for asyncio."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._lock = asyncio.Lock()
        self._pool: AsyncPool | None = None
        self._spares: Spares[OwnAsyncConnection] = Spares()
        self._closed = False
        forks.register(self)

    async def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement, which is a transaction of its own; its connection survives a cancelled caller."""
        connection = self._spares.take()
        if connection is None:
            connection = await self._borrow()
        elif self._spares.is_stale(connection, self._pool):
            connection = await self._renewed(connection)
        try:
            cursor = await connection.calls.execute(text, arguments)
            rows = await cursor.fetchall()
        except BaseException as error:
            if isinstance(error, psycopg.Error) and (broken(error) or connection.broken):
                await self._discard(connection.home)
            await asyncio.shield(connection.home.putconn(connection))
            raise
        if not self._spares.put(connection, self._pool):
            await asyncio.shield(connection.home.putconn(connection))
        return rows

    async def _put_back(self) -> None:
        """Give the pool what lies outside of it."""
        while connection := self._spares.take():
            await connection.home.putconn(connection)

    async def _renewed(self, connection: OwnAsyncConnection) -> OwnAsyncConnection:
        await connection.close()
        await asyncio.shield(connection.home.putconn(connection))
        return await self._borrow()

    async def _borrow(self) -> OwnAsyncConnection:
        self._spares.asking.append(None)
        try:
            pool, connection = await self._ask()
        finally:
            self._spares.asking.pop()
        connection.came_from(pool)
        return connection

    async def _ask(self) -> tuple[AsyncPool, OwnAsyncConnection]:
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
                if self._closed:  # meanwhile
                    await pool.close()
                    raise TransportClosed()
                self._pool = pool
            return self._pool

    async def _discard(self, pool: AsyncPool) -> None:
        if self._pool is pool:
            self._pool = None
        await asyncio.shield(self._close(pool, timeout=1))

    async def _close(self, pool: AsyncPool, timeout: float = 5) -> None:
        await self._put_back()
        await pool.close(timeout)

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`."""
        left = self._pool, self._spares
        self._pool, self._spares, self._lock = None, Spares(), asyncio.Lock()
        return left

    async def close(self) -> None:
        """Close the connections; those lent out close when they come back."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await self._close(pool)
