"""Pools and connections of the application. They stay open, and pools get their connections back as they were."""

from __future__ import annotations

import asyncio
import os

import psycopg
from psycopg.rows import dict_row

from fairlane.backends.postgres.address import check_encoding
from fairlane.backends.postgres.connections import Arguments, AsyncConnection, AsyncPool, Connection, Pool
from fairlane.backends.postgres.errors import broken
from fairlane.backends.shared import forks
from fairlane.backends.stored import Rows

OWN = "a pool or connection of its own"


def rows_of(connection: Connection, text: str, arguments: Arguments) -> Rows:
    """Run one statement, whatever rows the application likes to get."""
    return psycopg.Cursor(connection, row_factory=dict_row).execute(text, arguments).fetchall()


async def async_rows_of(connection: AsyncConnection, text: str, arguments: Arguments) -> Rows:
    """The same for asyncio."""
    cursor = psycopg.AsyncCursor(connection, row_factory=dict_row)
    await cursor.execute(text, arguments)
    return await cursor.fetchall()


class GivenConnection:
    """One connection of the application: what is done here becomes part of its transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._process = forks.OwnerProcess("postgres", OWN, os.getpid())

    def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement."""
        self._process.check()
        check_encoding(self._connection)
        return rows_of(self._connection, text, arguments)

    def close(self) -> None:
        """Do nothing: the connection belongs to the application."""


class AsyncGivenConnection:
    """The same for asyncio."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._process = forks.OwnerProcess("postgres", OWN, os.getpid())

    async def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement."""
        self._process.check()
        check_encoding(self._connection)
        return await async_rows_of(self._connection, text, arguments)

    async def close(self) -> None:
        """Do nothing: the connection belongs to the application."""


class GivenPool:
    """The application's pool. One that is opened only after a fork may be handed in before it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._process = forks.OwnerProcess("postgres", OWN)

    def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement, in autocommit mode: BEGIN and COMMIT would be two round trips more."""
        self._process.check()
        connection = self._pool.getconn()
        before = connection.autocommit
        try:
            check_encoding(connection)
            connection.autocommit = True
            return rows_of(connection, text, arguments)
        except psycopg.Error as error:
            if broken(error):
                self._pool.check()  # drops the other dead ones too
            raise
        finally:
            try:
                if not connection.closed and connection.autocommit != before:
                    connection.autocommit = before
            finally:
                self._pool.putconn(connection)

    def close(self) -> None:
        """Do nothing: the pool belongs to the application."""


class AsyncGivenPool:
    """The same for asyncio."""

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool
        self._process = forks.OwnerProcess("postgres", OWN)

    async def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement; the connection is given back also when the caller is cancelled."""
        self._process.check()
        connection = await self._pool.getconn()
        before = connection.autocommit
        try:
            check_encoding(connection)
            await connection.set_autocommit(True)
            return await async_rows_of(connection, text, arguments)
        except psycopg.Error as error:
            if broken(error):
                await self._pool.check()
            raise
        finally:
            await asyncio.shield(self._return(connection, before))

    async def _return(self, connection: AsyncConnection, before: bool) -> None:
        try:
            if not connection.closed and connection.autocommit != before:
                await connection.set_autocommit(before)
        finally:
            await self._pool.putconn(connection)

    async def close(self) -> None:
        """Do nothing: the pool belongs to the application."""
