"""Run calls on the connections of a pool: wait for a connection, check an idle one, and return it."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Generic, Protocol

import psycopg

from fairlane.backends.base import Limit
from fairlane.backends.postgres.errors import NotSent
from fairlane.backends.postgres.pool import PAUSE, Pool
from fairlane.backends.postgres.sessions import Opening, OwnAsyncConnection, OwnConnection
from fairlane.backends.postgres.statements import Arguments
from fairlane.backends.postgres.waiters import (
    Attempt,
    ConnectionT,
    TaskAttempt,
    TaskWaiter,
    ThreadAttempt,
    ThreadWaiter,
    Waiter,
)
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


def _leave(pool: Pool[ConnectionT], waiter: Waiter[ConnectionT], error: BaseException) -> None:
    """End the waiting of a call after an error. A second exception out of a signal handler does not prevent it.

    Raises:
        NotSent: the error is one of the driver or of the pool.
    """
    try:
        pool.leave(waiter)
    except BaseException:
        pool.leave(waiter)
        raise
    if isinstance(error, psycopg.Error):
        raise NotSent(error) from error


class _Owner(forks.ForkAware, Generic[ConnectionT]):
    """Owns a pool, and a new one in a forked child."""

    def __init__(self, attempt: type[Attempt[ConnectionT]], opening: Opening, most: int, timeout: float) -> None:
        self.limit = Limit(timeout)
        self._attempt: type[Attempt[ConnectionT]] = attempt
        self._opening = opening
        self._most = most
        self._pool: Pool[ConnectionT] = self._new_pool()
        forks.register(self)

    def _new_pool(self) -> Pool[ConnectionT]:
        return Pool(self._most, partial(self._attempt, self._opening))

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`."""
        left, self._pool = self._pool, self._new_pool()
        return left


class OwnPool(_Owner[OwnConnection]):
    """Runs statements on its own connections. Any number of threads may use it at once."""

    def __init__(self, opening: Opening, most: int, timeout: float) -> None:
        super().__init__(ThreadAttempt, opening, most, timeout)

    def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement in its own transaction.

        Raises:
            NotSent: there was no connection.
            NoAnswer: there was no answer before the deadline.
        """
        pool, now = self._pool, time.monotonic()
        deadline = self.limit.deadline(now)
        connection = pool.take(deadline)
        try:
            if connection is None or now - connection.used_at > PING_AFTER:
                connection = self._connection(pool, connection, deadline)
            rows = connection.ask(text, arguments)
            pool.give(connection)
            return rows
        except BaseException as error:
            if connection is not None:
                pool.failed(connection, error)
            raise

    def _connection(
        self, pool: Pool[OwnConnection], connection: OwnConnection | None, deadline: float
    ) -> OwnConnection:
        """Check a connection that was idle for a long time. Wait for another one if it is broken or there is none."""
        try:
            while connection is None or not self._answers(connection, deadline):
                if connection is not None:
                    pool.drop(connection)
                connection = pool.take(deadline)
                if connection is None:
                    connection = self._waited(pool, deadline)
            connection.deadline = deadline
            return connection
        except BaseException:
            if connection is not None:
                pool.drop(connection)
            raise

    def _answers(self, connection: OwnConnection, deadline: float) -> bool:
        now = time.monotonic()
        if now - connection.used_at <= PING_AFTER:
            return True
        connection.deadline = min(now + PING_TIMEOUT, deadline)
        try:
            connection.ask(PING)
        except psycopg.Error:
            return False
        return True

    def _waited(self, pool: Pool[OwnConnection], deadline: float) -> OwnConnection:
        waiter = ThreadWaiter(deadline)
        try:
            while not waiter.has_outcome:
                pool.settle(waiter)
                left = deadline - time.monotonic()
                if not waiter.has_outcome:
                    if left <= 0:
                        raise pool.why_none()
                    waiter.wait(min(PAUSE, left))
            return waiter.outcome()
        except BaseException as error:
            _leave(pool, waiter, error)
            raise

    def close(self) -> None:
        """Close the idle connections now, and those in use when they are returned."""
        self._pool.close()


class AsyncOwnPool(_Owner[OwnAsyncConnection]):
    """Runs statements on its own connections. Any number of tasks of any event loops may use it at once."""

    def __init__(self, opening: Opening, most: int, timeout: float) -> None:
        super().__init__(TaskAttempt, opening, most, timeout)

    async def run(self, text: str, arguments: Arguments) -> Rows:
        """Run one statement in its own transaction. A cancelled caller does not wait for the server.

        Raises:
            NotSent: there was no connection.
            NoAnswer: there was no answer before the deadline.
        """
        pool, now = self._pool, time.monotonic()
        deadline = self.limit.deadline(now)
        connection = pool.take(deadline, asyncio.get_running_loop())
        try:
            if connection is None or now - connection.used_at > PING_AFTER:
                connection = await self._connection(pool, connection, deadline)
            rows = await connection.ask(text, arguments)
            pool.give(connection)
            return rows
        except BaseException as error:
            if connection is not None:
                pool.failed(connection, error)
            raise

    async def _connection(
        self, pool: Pool[OwnAsyncConnection], connection: OwnAsyncConnection | None, deadline: float
    ) -> OwnAsyncConnection:
        """Check a connection that was idle for a long time. Wait for another one if it is broken or there is none."""
        try:
            while connection is None or not await self._answers(connection, deadline):
                if connection is not None:
                    pool.drop(connection)
                connection = pool.take(deadline, asyncio.get_running_loop())
                if connection is None:
                    connection = await self._waited(pool, deadline)
            connection.deadline = deadline
            return connection
        except BaseException:
            if connection is not None:
                pool.drop(connection)
            raise

    async def _answers(self, connection: OwnAsyncConnection, deadline: float) -> bool:
        now = time.monotonic()
        if now - connection.used_at <= PING_AFTER:
            return True
        connection.deadline = min(now + PING_TIMEOUT, deadline)
        try:
            await connection.ask(PING)
        except psycopg.Error:
            return False
        return True

    async def _waited(self, pool: Pool[OwnAsyncConnection], deadline: float) -> OwnAsyncConnection:
        waiter = TaskWaiter(deadline)
        try:
            while not waiter.has_outcome:
                pool.settle(waiter)
                left = deadline - time.monotonic()
                if not waiter.has_outcome:
                    if left <= 0:
                        raise pool.why_none()
                    await waiter.wait(min(PAUSE, left))
            return waiter.outcome()
        except BaseException as error:
            _leave(pool, waiter, error)
            raise

    async def close(self) -> None:
        """Close the idle connections now, and those in use when they are returned."""
        attempt = self._pool.close()
        if isinstance(attempt, TaskAttempt):
            await attempt.stopped()
