"""Connections to an SQLite file, each with a queue of users: threads take a lock, tasks wait for aiosqlite's thread."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import aiosqlite

from fairlane.backends.shared import forks
from fairlane.backends.sqlite.file import Opener, primary_code
from fairlane.backends.stored import Rows
from fairlane.errors import ConfigurationError, TransportClosed

_LASTING = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Errors after which a fresh connection may do better."""

LOOK_AGAIN = 0.05
"""Seconds for which the file at the path is taken to be the one that is open. Asking costs as much as half an ack."""


class Lane(Protocol):
    """A connection that threads use in turn. `answer_of` says what `counts` means."""

    def run(self, sql: str, arguments: Any, counts: bool) -> Rows: ...
    def close(self) -> None: ...


class AsyncLane(Protocol):
    """A connection that tasks use in turn."""

    async def run(self, sql: str, arguments: Any, counts: bool) -> Rows: ...
    async def close(self) -> None: ...


class OwnLane(forks.ForkAwareWithLock):
    """A connection opened when first used, and anew when another file is at its path.

    A process must not fork while it has a file open in SQLite, whose own notes of the locks it holds would go into
    the child, where they are wrong: the child would take none, and lose what it writes. So it is closed before.
    """

    def __init__(self, opener: Opener) -> None:
        super().__init__()
        self._opener = opener
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._look_at = 0.0
        self._closed = False

    def run(self, sql: str, arguments: Any, counts: bool) -> Rows:
        """Run one statement; it is committed when this returns."""
        with self._lock:
            if self._closed:
                raise TransportClosed()
            if time.monotonic() >= self._look_at:
                self._look()
            if self._connection is None:
                self._connection = self._opener()
            try:
                return answer_of(self._connection.execute(sql, arguments), counts)
            except sqlite3.Error as error:
                if primary_code(error) in _LASTING:
                    self._drop()
                raise

    def _look(self) -> None:
        file = self._opener.identity()
        if file != self._file:
            self._drop()
        self._file, self._look_at = file, time.monotonic() + LOOK_AGAIN

    def close(self) -> None:
        """Close the connection, once whoever uses it is done."""
        with self._lock:
            self._closed = True
            self._drop()

    def _drop(self) -> None:
        connection, self._connection, self._look_at = self._connection, None, 0.0
        if connection is not None:
            connection.close()

    def before_fork(self) -> None:
        """Close the connection, when the call that uses it has ended."""
        super().before_fork()
        if self._locked_for_fork:
            self._drop()

    def after_fork_in_child(self) -> object:
        """Keep one that could not be closed from being closed here."""
        super().after_fork_in_child()
        left, self._connection, self._look_at = self._connection, None, 0.0
        return left


class GivenLane:
    """A connection of the application. Operations join its open transaction; without one each commits by itself.

    Where Python begins transactions on its own (`isolation_level` is not None), one is begun for these operations
    too, and the application commits. The connection's own timeout says how long to wait for others.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        check_factories(connection)
        self._connection = connection
        self._lock = threading.Lock()
        self._process = forks.OwnerProcess("sqlite", "its own", os.getpid())

    def run(self, sql: str, arguments: Any, counts: bool) -> Rows:
        """Run one statement."""
        self._process.check()
        with self._lock, usable():
            begin = implicit_begin(self._connection)
            cursor = self._connection.cursor()
            cursor.row_factory = sqlite3.Row
            try:
                if begin:
                    cursor.execute(begin)
                return answer_of(cursor.execute(sql, arguments), counts)
            except BaseException:
                if begin and self._connection.in_transaction:
                    self._connection.rollback()
                raise

    def close(self) -> None:
        """Leave it open: it is the application's."""


class OwnAsyncLane(forks.ForkAware):
    """The same as `OwnLane` for asyncio.

    Each statement is one call to aiosqlite, which runs it in the connection's thread to its end. So a cancelled task
    leaves nothing half-done behind: its statement ends as usual, and nobody reads the answer.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._opening: asyncio.Task[aiosqlite.Connection] | None = None
        self._ended: list[aiosqlite.Connection] = []  # their files were closed for a fork; their threads still run
        self._file: tuple[int, int] | None = None
        self._look_at = 0.0
        self._closed = False
        forks.register(self)

    async def run(self, sql: str, arguments: Any, counts: bool) -> Rows:
        """Run one statement; it is committed when this returns."""
        connection = await self._connected()
        try:
            return await answered(connection, sql, arguments, counts)
        except sqlite3.Error as error:
            if connection in self._ended:
                return await self.run(sql, arguments, counts)  # there was a fork before it got its turn
            if primary_code(error) in _LASTING:
                await self._drop()
            raise

    async def _connected(self) -> aiosqlite.Connection:
        if self._closed:
            raise TransportClosed()
        if self._opening is None or time.monotonic() >= self._look_at:
            file = self._opener.identity()
            if self._opening is not None and file != self._file:
                await self._drop()
            self._file, self._look_at = file, time.monotonic() + LOOK_AGAIN
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.create_task(self._open())
            opening.add_done_callback(self._opened)
        # a cancelled caller must not take the connection from the others
        return opening.result() if opening.done() else await asyncio.shield(opening)

    async def _open(self) -> aiosqlite.Connection:
        connection = aiosqlite.Connection(self._opener, iter_chunk_size=64)
        thread: Any = getattr(connection, "_thread", connection)  # older ones are a thread themselves
        thread.daemon = True  # a program that forgot close() must still be able to end
        try:
            return await connection
        except BaseException:
            # aiosqlite has told its thread to stop, which reports to the event loop: that must still be there
            for _ in range(1000):
                if not thread.is_alive():
                    break
                await asyncio.sleep(0.001)
            raise

    def _opened(self, opening: asyncio.Task[aiosqlite.Connection]) -> None:
        if (opening.cancelled() or opening.exception()) and self._opening is opening:
            self._opening = None

    def before_fork(self) -> None:
        """Close the file, when the statement that uses it has ended; what waits for it goes to the next connection."""
        opening = self._opening
        if opening is None or not opening.done():
            return
        self._opening, self._look_at = None, 0.0
        connection = opening.result()
        self._ended.append(connection)
        file: Any = connection._conn
        file.close_for_fork()

    def after_fork_in_child(self) -> object:
        """Begin anew: the connections' threads are not here."""
        left = self._opening, self._ended
        self._opening, self._ended = None, []
        return left

    async def close(self) -> None:
        """Close the connection after the statements that wait for it."""
        self._closed = True
        await self._drop()

    async def _drop(self) -> None:
        opening, self._opening = self._opening, None
        while self._ended:
            await asyncio.shield(self._ended.pop().close())
        if opening is None:
            return
        try:
            connection = await asyncio.shield(opening)
        except Exception:
            return  # whoever opened it was told
        await asyncio.shield(connection.close())


class GivenAsyncLane:
    """The same as `GivenLane` for asyncio."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        try:
            check_factories(connection)
        except ValueError as error:
            raise ConfigurationError("open the aiosqlite connection first: await aiosqlite.connect(…)") from error
        self._connection = connection
        self._lock = asyncio.Lock()
        self._process = forks.OwnerProcess("sqlite", "its own", os.getpid())

    async def run(self, sql: str, arguments: Any, counts: bool) -> Rows:
        """Run one statement."""
        self._process.check()
        # shielded: a transaction that was begun for a statement must not be left without it
        return await asyncio.shield(self._run(sql, arguments, counts))

    async def _run(self, sql: str, arguments: Any, counts: bool) -> Rows:
        with usable():
            async with self._lock:
                return await self._run_in_turn(sql, arguments, counts)

    async def _run_in_turn(self, sql: str, arguments: Any, counts: bool) -> Rows:
        begin = implicit_begin(self._connection._conn)
        try:
            if begin:
                await self._connection.execute_fetchall(begin)
            async with self._connection.execute(sql, arguments) as cursor:
                cursor.row_factory = sqlite3.Row
                if counts:
                    return [{"changes": cursor.rowcount}] if cursor.rowcount > 0 else ()
                rows: Any = await cursor.fetchall()
                return list(rows)
        except BaseException:
            if begin and self._connection.in_transaction:
                await self._connection.rollback()
            raise

    async def close(self) -> None:
        """Leave it open: it is the application's."""


@contextmanager
def usable() -> Iterator[None]:
    """Say that the driver refuses to use a connection of the application.

    Raises:
        ConfigurationError: it is closed, or belongs to another thread.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, ValueError) as error:
        raise ConfigurationError(
            f"the given SQLite connection cannot be used: {error}; keep it open as long as the transport, and open it "
            "with check_same_thread=False if other threads use that"
        ) from error


def answer_of(cursor: sqlite3.Cursor, counts: bool) -> Rows:
    """Return all rows of a statement, since a half-read RETURNING keeps the write lock.

    A statement that `counts` has none; if it changed something, it is answered with one row that holds the number.
    """
    try:
        if counts:
            return [{"changes": cursor.rowcount}] if cursor.rowcount > 0 else ()
        return cursor.fetchall()
    except BaseException:
        cursor.close()  # now, and not when the last frame of a traceback goes
        raise


async def answered(connection: aiosqlite.Connection, sql: str, arguments: Any, counts: bool) -> Rows:
    """Run one statement in one call, and return what `answer_of` says."""
    if counts:
        cursor = await connection.execute(sql, arguments)
        return [{"changes": cursor.rowcount}] if cursor.rowcount > 0 else ()
    rows: Any = await connection.execute_fetchall(sql, arguments)
    return list(rows)


def implicit_begin(connection: sqlite3.Connection) -> str | None:
    """Return what Python would run before an INSERT; it does not notice that `with … update` writes as well."""
    legacy = getattr(connection, "autocommit", -1) == -1
    if legacy and connection.isolation_level is not None and not connection.in_transaction:
        return f"begin {connection.isolation_level}"
    return None


def check_factories(connection: sqlite3.Connection | aiosqlite.Connection) -> None:
    """Refuse a connection whose rows would not be what the statements return.

    Raises:
        ConfigurationError: its factories make something else than str and rows that can be indexed.
    """
    if connection.text_factory is not str or connection.row_factory not in (None, sqlite3.Row):
        raise ConfigurationError("give sqlite a connection with text_factory str and row_factory None or sqlite3.Row")
