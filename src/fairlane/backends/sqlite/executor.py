"""The executors of the SQLite backend.

SQLite lets only one connection write at a time. So an executor has one connection for all writes, and its threads or
tasks take turns. This is faster and fairer than several connections that lock each other out. A second connection is
for inspections, so that a long inspection does not delay other calls.
"""

from __future__ import annotations

import sqlite3
from typing import Self

import aiosqlite

from fairlane.backends.shared.family_batches import BATCHES, answer_of
from fairlane.backends.shared.options import read_options
from fairlane.backends.shared.waiting import Room
from fairlane.backends.sqlite.address import locate
from fairlane.backends.sqlite.connections import AsyncConnection, AsyncOwnConnection, Connection, OwnConnection
from fairlane.backends.sqlite.file import Opener, ThreadConnection
from fairlane.backends.sqlite.given import AsyncGivenConnection, GivenConnection
from fairlane.backends.sqlite.options import OPTIONS
from fairlane.backends.sqlite.room import SqliteRoom
from fairlane.backends.sqlite.wire import Wire
from fairlane.backends.stored import OPERATIONS, REVISION, Call, Rows
from fairlane.errors import ConfigurationError

_READS = frozenset(operation for operation in OPERATIONS if operation.looks and operation is not REVISION)
"""The operations that may take long. `revision` is not one of them: a transport asks for it once, before it writes."""


class SqliteExecutor:
    """Sends requests to SQLite with the driver of the standard library."""

    def __init__(self, wire: Wire, writer: Connection, reader: Connection, room: Room) -> None:
        self.room = room
        self._wire = wire
        self._writer = writer
        self._reader = reader

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the file that a URL names; `locate` documents URLs, and `OPTIONS` the options."""
        location = locate(url, options)
        opener = Opener(location, queue)
        return cls(Wire(queue, location), OwnConnection(opener), OwnConnection(opener), SqliteRoom.of(location, queue))

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the application's open `sqlite3.Connection`; see `GivenConnection`."""
        read_options("sqlite", OPTIONS, None, options)
        if not isinstance(client, sqlite3.Connection):
            raise ConfigurationError(f"sqlite needs a sqlite3.Connection here, not {type(client).__name__}")
        connection = GivenConnection(client)
        return cls(Wire(queue, None), connection, connection, Room())

    def execute(self, request: Call) -> Rows:
        """Run one statement and return its rows, or a batch of statements in one transaction."""
        operation = request.operation
        connection = self._reader if operation in _READS else self._writer
        try:
            if operation in BATCHES:
                parts = self._wire.parts(request)
                rows = answer_of(connection.together(parts, operation.waits_for_disk))
            else:
                rows = connection.run(self._wire.statements[request], request)
        except sqlite3.Error as error:
            return self._wire.answer(error, request)
        if operation.wakes and rows and self.room.floors:
            self.room.ring()
        return rows

    def close(self) -> None:
        """Close the connections that this executor opened."""
        self._writer.close()
        self._reader.close()
        self.room.close()


class AsyncSqliteExecutor:
    """Sends requests to SQLite with aiosqlite."""

    def __init__(self, wire: Wire, writer: AsyncConnection, reader: AsyncConnection, room: Room) -> None:
        self.room = room
        self._wire = wire
        self._writer = writer
        self._reader = reader

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the file that a URL names."""
        location = locate(url, options)
        writer, reader = (AsyncOwnConnection(Opener(location, queue, ThreadConnection)) for _ in range(2))
        return cls(Wire(queue, location), writer, reader, SqliteRoom.of(location, queue))

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the application's open `aiosqlite.Connection`; see `GivenConnection`."""
        read_options("sqlite", OPTIONS, None, options)
        if not isinstance(client, aiosqlite.Connection):
            raise ConfigurationError(f"sqlite needs an aiosqlite.Connection here, not {type(client).__name__}")
        connection = AsyncGivenConnection(client)
        return cls(Wire(queue, None), connection, connection, Room())

    async def execute(self, request: Call) -> Rows:
        """Run one statement and return its rows, or a batch of statements in one transaction."""
        operation = request.operation
        connection = self._reader if operation in _READS else self._writer
        try:
            if operation in BATCHES:
                parts = self._wire.parts(request)
                rows = answer_of(await connection.together(parts, operation.waits_for_disk))
            else:
                rows = await connection.run(self._wire.statements[request], request)
        except sqlite3.Error as error:
            return self._wire.answer(error, request)
        if operation.wakes and rows and self.room.floors:
            self.room.ring()
        return rows

    async def close(self) -> None:
        """Close the connections that this executor opened."""
        await self._writer.close()
        await self._reader.close()
        self.room.close()
