"""Run calls on the connections of a pool: wait for a connection, check an idle one, and return it."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Protocol

import psycopg

from fairlane.backends.base import Limit
from fairlane.backends.postgres.errors import NotSent
from fairlane.backends.postgres.pool import PAUSE, Pool, Waiter
from fairlane.backends.postgres.sessions import Arguments, Opening, OwnAsyncConnection, OwnConnection
from fairlane.backends.shared import forks
from fairlane.backends.stored import Rows

PING_AFTER = 30.0
"""Idle seconds after which a connection is checked before a call uses it, since a firewall may have dropped it."""

PING_TIMEOUT = 5.0
"""Seconds to wait for the answer to this check."""

PING = "select 1"


class Source(Protocol):
    """Runs one statement on a connection with blocking calls, and returns all its rows."""

    limit: Limit

    def run(self, text: str, arguments: Arguments) -> Rows: ...
    def close(self) -> None: ...


class AsyncSource(Protocol):
    """The same for asyncio."""

    limit: Limit

    async def run(self, text: str, arguments: Arguments) -> Rows: ...
    async def close(self) -> None: ...


class _Thread(Waiter[OwnConnection]):
    def __init__(self) -> None:
        super().__init__()
        self.woken = threading.Event()

    def wake(self) -> bool:
        self.woken.set()
        return True


class OwnPool(forks.ForkAware):
    """Runs statements on its own connections. Any number of threads may use it at once."""

    def __init__(self, opening: Opening, most: int, timeout: float) -> None:
        self._opening = opening
        self._most = most
        self.limit = Limit(timeout)
        self._pool = Pool(most, self._begin)
        forks.register(self)

    def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement in its own transaction.

        Raises:
            NotSent: there was no connection.
            NoAnswer: there was no answer before the deadline.
        """
        pool, now = self._pool, time.monotonic()
        deadline = self.limit.deadline(now)
        connection = pool.take()
        if connection is None or now - connection.used_at > PING_AFTER:
            connection = self._connection(pool, connection, deadline)
        connection.deadline = deadline
        try:
            rows = connection.ask(text, arguments)
        except BaseException as error:
            pool.failed(connection, error)
            raise
        pool.give(connection)
        return rows

    def _connection(
        self, pool: Pool[OwnConnection], connection: OwnConnection | None, deadline: float
    ) -> OwnConnection:
        """Check a connection that was idle for a long time. Wait for another one if it is broken or there is none."""
        while connection is None or not self._answers(pool, connection, deadline):
            connection = pool.take() or self._waited(pool, deadline)
        return connection

    def _answers(self, pool: Pool[OwnConnection], connection: OwnConnection, deadline: float) -> bool:
        now = time.monotonic()
        if now - connection.used_at <= PING_AFTER:
            return True
        connection.deadline = min(now + PING_TIMEOUT, deadline)
        try:
            connection.ask(PING)
        except psycopg.Error:
            pool.drop(connection)
            return False
        except BaseException:
            pool.drop(connection)
            raise
        return True

    def _waited(self, pool: Pool[OwnConnection], deadline: float) -> OwnConnection | None:
        waiter = _Thread()
        pool.join(waiter)
        try:
            while not waiter.woken.wait(max(0.0, min(PAUSE, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    raise pool.why_none()
                pool.settle()
            return waiter.outcome()
        except psycopg.Error as error:
            raise NotSent(error) from error
        finally:
            pool.leave(waiter)

    def _begin(self, pool: Pool[OwnConnection]) -> None:
        threading.Thread(target=self._open, args=(pool,), name="fairlane-connect", daemon=True).start()

    def _open(self, pool: Pool[OwnConnection]) -> None:
        try:
            connection = OwnConnection.opened(self._opening)
        except BaseException as error:
            pool.not_opened(error)
        else:
            pool.opened(connection)

    def after_fork_in_child(self) -> object:
        left, self._pool = self._pool, Pool(self._most, self._begin)
        return left

    def close(self) -> None:
        """Close the idle connections now, and those in use when they are returned."""
        self._pool.close()


class _Task(Waiter[OwnAsyncConnection]):
    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.woken = self._loop.create_future()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class AsyncOwnPool(forks.ForkAware):
    """Runs statements on its own connections. Any number of tasks of any event loops may use it at once."""

    def __init__(self, opening: Opening, most: int, timeout: float) -> None:
        self._opening = opening
        self._most = most
        self.limit = Limit(timeout)
        self._pool = Pool(most, self._begin)
        self._tasks: set[asyncio.Task[OwnAsyncConnection]] = set()  # asyncio itself keeps only weak references
        forks.register(self)

    async def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement in its own transaction. A cancelled caller does not wait for the server.

        Raises:
            NotSent: there was no connection.
            NoAnswer: there was no answer before the deadline.
        """
        pool, now = self._pool, time.monotonic()
        deadline = self.limit.deadline(now)
        connection = pool.take()
        if connection is None or now - connection.used_at > PING_AFTER:
            connection = await self._connection(pool, connection, deadline)
        connection.deadline = deadline
        try:
            rows = await connection.ask(text, arguments)
        except BaseException as error:
            pool.failed(connection, error)
            raise
        pool.give(connection)
        return rows

    async def _connection(
        self, pool: Pool[OwnAsyncConnection], connection: OwnAsyncConnection | None, deadline: float
    ) -> OwnAsyncConnection:
        """Check a connection that was idle for a long time. Wait for another one if it is broken or there is none."""
        while connection is None or not await self._answers(pool, connection, deadline):
            connection = pool.take() or await self._waited(pool, deadline)
        return connection

    async def _answers(self, pool: Pool[OwnAsyncConnection], connection: OwnAsyncConnection, deadline: float) -> bool:
        now = time.monotonic()
        if now - connection.used_at <= PING_AFTER:
            return True
        connection.deadline = min(now + PING_TIMEOUT, deadline)
        try:
            await connection.ask(PING)
        except psycopg.Error:
            pool.drop(connection)
            return False
        except BaseException:
            pool.drop(connection)
            raise
        return True

    async def _waited(self, pool: Pool[OwnAsyncConnection], deadline: float) -> OwnAsyncConnection | None:
        waiter = _Task()
        pool.join(waiter)
        try:
            while not waiter.woken.done():
                await asyncio.wait([waiter.woken], timeout=max(0.0, min(PAUSE, deadline - time.monotonic())))
                if time.monotonic() >= deadline and not waiter.woken.done():
                    raise pool.why_none()
                pool.settle()
            return waiter.outcome()
        except psycopg.Error as error:
            raise NotSent(error) from error
        finally:
            pool.leave(waiter)

    def _begin(self, pool: Pool[OwnAsyncConnection]) -> None:
        task = asyncio.get_running_loop().create_task(OwnAsyncConnection.opened(self._opening))
        self._tasks.add(task)
        task.add_done_callback(partial(self._opened, pool))

    def _opened(self, pool: Pool[OwnAsyncConnection], task: asyncio.Task[OwnAsyncConnection]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # its loop ends, but calls of other loops may wait for this connection
            pool.not_opened(None)
        elif (error := task.exception()) is not None:
            pool.not_opened(error)
        else:
            pool.opened(task.result())

    def after_fork_in_child(self) -> object:
        left, self._pool, self._tasks = (self._pool, self._tasks), Pool(self._most, self._begin), set()
        return left

    async def close(self) -> None:
        """Close the idle connections now, and those in use when they are returned."""
        self._pool.close()
