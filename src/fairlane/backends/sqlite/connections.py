"""Connections to an SQLite file that Fairlane opens itself. Each runs one statement or one transaction at a time.

A lock makes threads take turns. Tasks take turns in the queue of aiosqlite's thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import aiosqlite

from fairlane.backends.shared import forks
from fairlane.backends.sqlite.errors import needs_new_connection
from fairlane.backends.sqlite.file import Opener, QueueConnection
from fairlane.backends.sqlite.wire import Part, Statement, ask, ask_together, rows_of
from fairlane.backends.stored import Call, Rows
from fairlane.errors import TransportClosed

AnswerT = TypeVar("AnswerT")

LOOK_INTERVAL = 0.001
"""Seconds between two looks whether another event loop has opened the connection."""

CHECK_INTERVAL = 0.05
"""Seconds between two checks whether the path still has the open file. A check takes half as long as an ack."""


VERSION = "pragma data_version"
"""See https://www.sqlite.org/pragma.html#pragma_data_version."""


class Connection(Protocol):
    """A connection that threads use in turn."""

    def run(self, statement: Statement, request: Call) -> Rows: ...
    def together(self, parts: Sequence[Part], waits_for_disk: bool) -> list[Rows]: ...
    def close(self) -> None: ...


class AsyncConnection(Protocol):
    """A connection that tasks use in turn."""

    async def run(self, statement: Statement, request: Call) -> Rows: ...
    async def together(self, parts: Sequence[Part], waits_for_disk: bool) -> list[Rows]: ...
    async def close(self) -> None: ...


class OwnConnection(forks.ForkAwareWithLock):
    """A connection that is opened when it is first used, and again if its path has another file.

    It is closed before a fork, since a process must not fork while it has a file open in SQLite. SQLite keeps a list of
    its locks in memory. This list would be copied into the child and be wrong there: the child would take no locks, and
    its writes could be lost.
    """

    def __init__(self, opener: Opener) -> None:
        super().__init__()
        self._opener = opener
        self._connection: QueueConnection | None = None
        self._file: tuple[int, int] | None = None
        self._check_at = 0.0
        self._closed = False

    def run(self, statement: Statement, request: Call) -> Rows:
        """Run one statement, and commit it."""
        with self._lock:
            connection = self._connection
            if connection is None or time.monotonic() >= self._check_at:
                connection = self._checked()
            try:
                cursor = connection.perform(statement, request.arguments)
                try:
                    return rows_of(cursor, statement)
                except BaseException:
                    cursor.close()  # at once: a traceback would keep the cursor open
                    raise
            except sqlite3.Error as error:
                if needs_new_connection(error):
                    self._drop()
                raise

    def together(self, parts: Sequence[Part], waits_for_disk: bool) -> list[Rows]:
        """Run statements in one transaction, and return the rows of each."""
        with self._lock:
            connection = self._checked()
            try:
                return connection.together(parts, waits_for_disk)
            except BaseException as error:
                if connection.in_transaction or needs_new_connection(error):
                    self._drop()
                raise

    def _checked(self) -> QueueConnection:
        """Return the connection to the file that the path has now."""
        if self._closed:
            raise TransportClosed()
        file = self._opener.identity()
        if file != self._file:
            self._drop()
        self._file, self._check_at = file, time.monotonic() + CHECK_INTERVAL
        if self._connection is None:
            self._connection = self._opener()
        return self._connection

    def close(self) -> None:
        """Close the connection, after a running statement has ended."""
        with self._lock:
            self._closed = True
            self._drop()

    def version(self) -> int:
        """Return a number that changes with each commit of another connection, in two microseconds."""
        with self._lock:
            connection = self._connection
            if connection is None or time.monotonic() >= self._check_at:
                connection = self._checked()
            try:
                found: int = connection.execute(VERSION).fetchone()[0]
            except sqlite3.Error as error:
                if needs_new_connection(error):
                    self._drop()
                raise
            return found

    def rest(self) -> None:
        """Close the file until the next statement."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection, self._check_at = self._connection, None, 0.0
        if connection is not None:
            connection.close()

    def before_fork(self) -> None:
        """Close the connection, after a running statement has ended."""
        super().before_fork()
        if self._locked_for_fork:
            self._drop()

    def after_fork_in_child(self) -> object:
        """Forget a connection that could not be closed before the fork; see `forks`."""
        super().after_fork_in_child()
        left, self._connection, self._check_at = self._connection, None, 0.0
        return left


class _Answer:
    """Receives an answer from aiosqlite's thread.

    The loop that asked may be closed by then. That error would end the thread, and so the connection of other loops.
    """

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def get_loop(self) -> _Answer:
        return self

    def call_soon_threadsafe(self, callback: Callable[..., object], _: _Answer, answer: object) -> None:
        with suppress(RuntimeError):
            self._future.get_loop().call_soon_threadsafe(callback, self._future, answer)


class _AsyncConnection(aiosqlite.Connection):
    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._running or self._connection is None:
            raise ValueError("Connection closed")
        future = asyncio.get_running_loop().create_future()
        queue: Any = self._tx
        queue.put_nowait((_Answer(future), partial(fn, *args, **kwargs)))
        return await future


class AsyncOwnConnection(forks.ForkAware):
    """The same as `OwnConnection` for asyncio.

    Each statement, and each transaction, is one call to aiosqlite, which runs it in the connection's thread to its end.
    So it is also completed if its task is cancelled; then its result is ignored.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._opening: asyncio.Task[aiosqlite.Connection] | None = None
        self._ended: list[aiosqlite.Connection] = []  # their files were closed before a fork, their threads still run
        self._file: tuple[int, int] | None = None
        self._check_at = 0.0
        self._closed = False
        forks.register(self)

    async def run(self, statement: Statement, request: Call) -> Rows:
        """Run one statement, and commit it."""
        return await self._through(ask, statement, request)

    async def together(self, parts: Sequence[Part], waits_for_disk: bool) -> list[Rows]:
        """Run statements in one transaction, and return the rows of each."""
        return await self._through(ask_together, parts, waits_for_disk)

    async def _through(self, send: Callable[..., Awaitable[AnswerT]], *arguments: object) -> AnswerT:
        connection = await self._connected()
        try:
            return await send(connection, *arguments)
        except sqlite3.Error as error:
            if connection in self._ended:
                return await self._through(send, *arguments)  # a fork has closed the connection before this ran
            if needs_new_connection(error):
                await self._drop()
            raise

    async def _connected(self) -> aiosqlite.Connection:
        if self._closed:
            raise TransportClosed()
        if self._opening is None or time.monotonic() >= self._check_at:
            file = self._opener.identity()
            if self._opening is not None and file != self._file:
                await self._drop()
            self._file, self._check_at = file, time.monotonic() + CHECK_INTERVAL
        while (opening := self._opening) is not None and _is_of_another_loop(opening):
            if not opening.get_loop().is_running():  # a stopped loop does not continue the opening
                self._opening = None
            await asyncio.sleep(LOOK_INTERVAL)
        if opening is None:
            opening = self._opening = asyncio.create_task(self._open())
            opening.add_done_callback(self._opened)
        # shielded, since a cancelled caller must not cancel the opening for other callers
        return opening.result() if opening.done() else await asyncio.shield(opening)

    async def _open(self) -> aiosqlite.Connection:
        connection = _AsyncConnection(self._opener, iter_chunk_size=64)
        thread: Any = getattr(connection, "_thread", connection)  # in older releases a connection is a thread
        thread.daemon = True  # so that a program without close() can end
        try:
            return await connection
        except BaseException:
            # aiosqlite has asked its thread to stop. The thread then uses the event loop, so wait before that may close
            for _ in range(1000):
                if not thread.is_alive():
                    break
                await asyncio.sleep(0.001)
            raise

    def _opened(self, opening: asyncio.Task[aiosqlite.Connection]) -> None:
        if (opening.cancelled() or opening.exception()) and self._opening is opening:
            self._opening = None

    def before_fork(self) -> None:
        """Close the file after a running statement. Waiting statements run again on the next connection."""
        opening = self._opening
        if opening is None or not opening.done():
            return
        self._opening, self._check_at = None, 0.0
        connection = opening.result()
        self._ended.append(connection)
        file: Any = connection._conn
        file.close_for_fork()

    def after_fork_in_child(self) -> object:
        """Forget the parent's connections, whose threads do not exist in the child; see `forks`."""
        left = self._opening, self._ended
        self._opening, self._ended = None, []
        return left

    async def close(self) -> None:
        """Close the connection, after the waiting statements have run."""
        self._closed = True
        await self._drop()

    async def _drop(self) -> None:
        opening, self._opening = self._opening, None
        while self._ended:
            await asyncio.shield(self._ended.pop().close())
        if opening is None or _is_of_another_loop(opening):
            return
        try:
            connection = await asyncio.shield(opening)
        except sqlite3.Error:
            return  # the call that opened the connection has raised this error
        await asyncio.shield(connection.close())


def _is_of_another_loop(opening: asyncio.Task[aiosqlite.Connection]) -> bool:
    """Return whether a task still runs in another event loop, so that it cannot be awaited here."""
    return not opening.done() and opening.get_loop() is not asyncio.get_running_loop()
