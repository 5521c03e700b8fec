"""The SQLite backend: one file, shared by the threads and processes of one machine.

SQLite lets one connection write at a time. So an executor writes through one connection, which its threads or tasks
take in turn: that is faster and more even than several that keep each other out. A second one serves whoever looks
at the queue, so that a long look holds nobody up.
"""

from __future__ import annotations

import random
import sqlite3
import time
from typing import Any, Self

import aiosqlite

from fairlane.backends.shared.options import read_options
from fairlane.backends.shared.sqlite_statements import Statements
from fairlane.backends.sqlite.connections import AsyncLane, GivenAsyncLane, GivenLane, Lane, OwnAsyncLane, OwnLane
from fairlane.backends.sqlite.file import (
    PAUSE,
    Location,
    Opener,
    ThreadConnection,
    check_version,
    is_busy,
    is_missing,
    locate,
    primary_code,
    translate,
)
from fairlane.backends.sqlite.options import OPTIONS
from fairlane.backends.stored import ACK, NACK, OPERATIONS, REVISION, Call, ProcedureCore, Rows
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import ConfigurationError, SchemaNotReady
from fairlane.program import Program, Sleep, run, run_async

_LOOKS = frozenset(operation for operation in OPERATIONS if operation.looks and operation is not REVISION)
"""What may take long. The revision is asked for once, and who asks is about to write."""

_COUNTED = frozenset({ACK, NACK})
"""They return no rows; what they changed is counted, which costs less than RETURNING."""


class SqliteCore(ProcedureCore):
    """The stored operations of a queue in an SQLite file. It makes the tokens, since no request is sent twice."""


class _Requests:
    """What the two executors share: the statement of a request, and what SQLite's errors mean for it."""

    def __init__(self, queue: str, location: Location | None) -> None:
        check_version()
        self._queue = queue
        self._location = location
        self.statements = Statements(queue, "sqlite")

    def insist(self, request: Call, error: sqlite3.Error) -> Program[Call, Rows, Rows]:
        """Send a request again that was refused because others had the file; tell what any other error means."""
        began = time.monotonic()
        while is_busy(error) and self._location and time.monotonic() - began < self._location.busy_timeout:
            yield Sleep(random.uniform(*PAUSE))
            try:
                rows: Rows = yield request
            except sqlite3.Error as again:
                error = again
            else:
                return rows
        return self._answer(error, request)

    def _answer(self, error: sqlite3.Error, request: Call) -> Rows:
        """Return the answer that an error amounts to, or raise what to raise in its place."""
        if self._absent(error):
            if request.operation is REVISION:
                return ()
            raise SchemaNotReady(self._queue, None, CLIENT_REVISION) from error
        host = str(self._location.path) if self._location else "the given connection"
        known = translate(error, host)
        if known is None:
            raise error
        raise known from error

    def _absent(self, error: sqlite3.Error) -> bool:
        """Tell whether the file, or the queue in it, is simply not there."""
        if primary_code(error) == sqlite3.SQLITE_CANTOPEN and self._location:
            return is_missing(self._location.path)
        return primary_code(error) == sqlite3.SQLITE_ERROR


class SqliteExecutor:
    """Carries requests to SQLite with the standard library's driver."""

    def __init__(self, requests: _Requests, writer: Lane, looker: Lane) -> None:
        self._requests = requests
        self._statements = requests.statements
        self._writer = writer
        self._looker = looker

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Use the file that a URL names; `sqlite_file.locate` says how URLs look and which options there are."""
        location = locate(url, options)
        writer, looker = (OwnLane(Opener(location)) for _ in range(2))
        return cls(_Requests(queue, location), writer, looker)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use an open `sqlite3.Connection` of the application, as `GivenLane` says."""
        read_options("sqlite", OPTIONS, None, options)
        if not isinstance(client, sqlite3.Connection):
            raise ConfigurationError(f"sqlite takes a sqlite3.Connection, not {type(client).__name__}")
        lane = GivenLane(client)
        return cls(_Requests(queue, None), lane, lane)

    def execute(self, request: Call) -> Rows:
        """Run one statement and return its rows."""
        try:
            return self._attempt(request)
        except sqlite3.Error as error:
            program = self._requests.insist(request, error)
        return run(program, self._attempt)

    def _attempt(self, request: Call) -> Rows:
        lane = self._looker if request.operation in _LOOKS else self._writer
        return lane.run(self._statements[request], request.arguments, request.operation in _COUNTED)

    def close(self) -> None:
        """Close the connections that were opened here."""
        self._writer.close()
        self._looker.close()


class AsyncSqliteExecutor:
    """Carries requests to SQLite with aiosqlite."""

    def __init__(self, requests: _Requests, writer: AsyncLane, looker: AsyncLane) -> None:
        self._requests = requests
        self._statements = requests.statements
        self._writer = writer
        self._looker = looker

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Use the file that a URL names."""
        location = locate(url, options)
        writer, looker = (OwnAsyncLane(Opener(location, ThreadConnection)) for _ in range(2))
        return cls(_Requests(queue, location), writer, looker)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use an open `aiosqlite.Connection` of the application, as `GivenLane` says."""
        read_options("sqlite", OPTIONS, None, options)
        if not isinstance(client, aiosqlite.Connection):
            raise ConfigurationError(f"sqlite takes an aiosqlite.Connection here, not {type(client).__name__}")
        lane = GivenAsyncLane(client)
        return cls(_Requests(queue, None), lane, lane)

    async def execute(self, request: Call) -> Rows:
        """Run one statement and return its rows."""
        try:
            return await self._attempt(request)
        except sqlite3.Error as error:
            program = self._requests.insist(request, error)
        return await run_async(program, self._attempt)

    async def _attempt(self, request: Call) -> Rows:
        lane = self._looker if request.operation in _LOOKS else self._writer
        return await lane.run(self._statements[request], request.arguments, request.operation in _COUNTED)

    async def close(self) -> None:
        """Close the connections that were opened here."""
        await self._writer.close()
        await self._looker.close()
