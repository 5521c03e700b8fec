"""The pool: it counts connections, has the list of waiting calls, and removes broken connections. It never waits.

To take or return a connection is a single list operation without a lock, which takes almost no time. Only a call that
finds no idle connection does more. Only then another connection is opened, one at a time, and not by the calls
themselves. So a server that accepts no new connection does not delay a call that gets a returned one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.pq import ConnStatus

from fairlane.backends.postgres.errors import NoConnection, broken
from fairlane.backends.postgres.sessions import OwnAsyncConnection, OwnConnection
from fairlane.errors import TransportClosed

IDLE_SECONDS = 600.0
"""Idle seconds after which a connection is closed."""

PAUSE = 1.0
"""Seconds before another connection is opened after the server has refused one."""

LOST_AFTER = 120.0
"""Seconds after which an unfinished opening is ignored, since its event loop may have ended."""

ConnectionT = TypeVar("ConnectionT", OwnConnection, OwnAsyncConnection)


class Waiter(Generic[ConnectionT]):
    """A call that waits for a connection. It is woken with a connection, with an error, or to try again."""

    def __init__(self) -> None:
        self.connection: ConnectionT | None = None
        self.error: BaseException | None = None

    def wake(self) -> bool:
        """Wake the call; return False if that is not possible any more."""
        raise NotImplementedError

    def outcome(self) -> ConnectionT | None:
        """Return the connection, or None to try again.

        Raises:
            BaseException: the reason why there is no connection.
        """
        connection, self.connection = self.connection, None
        if connection is None and self.error is not None:
            raise self.error
        return connection


class Pool(Generic[ConnectionT]):
    """The connections of one transport. Its threads or event loops share them.

    Args:
        most: the largest number of connections.
        begin: begins to open a connection, without waiting for it. Later it calls `opened` or `not_opened`.
    """

    def __init__(self, most: int, begin: Callable[[Pool[ConnectionT]], None]) -> None:
        self._most = most
        self._begin: Callable[[Pool[ConnectionT]], None] = begin
        self._lock = threading.Lock()
        self._idle: list[ConnectionT] = []
        self._waiters: deque[Waiter[ConnectionT]] = deque()
        self._open: WeakSet[ConnectionT] = WeakSet()  # weak, since an interrupted call may lose its connection
        self._opening = False
        self._began_at = 0.0
        self._failure: BaseException | None = None
        self._failed_at = float("-inf")
        self._trimmed_at = time.monotonic()
        self._closed = False

    def take(self) -> ConnectionT | None:
        """Return an idle connection, or None. Connections that the server has closed are removed."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            try:
                if connection.is_fit():
                    return connection
            except BaseException:
                self.drop(connection)
                raise
            self.drop(connection)

    def give(self, connection: ConnectionT) -> None:
        """Return a connection to the pool."""
        now = connection.used_at = time.monotonic()
        self._idle.append(connection)
        if self._waiters or self._closed or now - self._trimmed_at > IDLE_SECONDS:
            self.settle()

    def join(self, waiter: Waiter[ConnectionT]) -> None:
        """Add a call to the waiting ones.

        Raises:
            TransportClosed: the pool is closed.
        """
        if self._closed:
            raise TransportClosed()
        self._waiters.append(waiter)
        self.settle()

    def leave(self, waiter: Waiter[ConnectionT]) -> None:
        """Remove a call from the waiting ones. A connection that it has not taken is returned to the pool."""
        with self._lock, suppress(ValueError):
            self._waiters.remove(waiter)
        if waiter.connection is not None:
            self.give(waiter.connection)

    def opened(self, connection: ConnectionT) -> None:
        """Add a new connection."""
        with self._lock:
            self._open.add(connection)
            self._opening = False
            self._failure = None
        self.give(connection)

    def not_opened(self, error: BaseException | None) -> None:
        """Record that opening a connection failed. None means that it was cancelled, so another call must try."""
        with self._lock:
            self._opening = False
            if error is not None:
                self._failure, self._failed_at = error, time.monotonic()
            # if there are other connections, the waiting calls get one that is returned
            while self._waiters and (not self._open or error is None):
                waiter = self._waiters.popleft()
                waiter.error = error
                waiter.wake()

    def drop(self, connection: ConnectionT, *, at_work: bool = False) -> None:
        """Remove and close a connection; `at_work` means that the server may still carry out a call."""
        if at_work:
            connection.abandon()
        else:
            connection.pgconn.finish()
        with self._lock:
            self._open.discard(connection)
        self.settle()

    def failed(self, connection: ConnectionT, error: BaseException) -> None:
        """Return a connection to the pool after an error, or remove it.

        If the connection is broken, the server has probably ended all connections, so all idle ones are removed.
        """
        if connection.pgconn.status != ConnStatus.OK or (isinstance(error, psycopg.Error) and broken(error)):
            with suppress(IndexError):
                while True:
                    self.drop(self._idle.pop())
            self.drop(connection)
        elif connection.at_rest:
            self.give(connection)
        else:
            self.drop(connection, at_work=True)

    def why_none(self) -> NoConnection:
        """Return the error for a call that got no connection in time."""
        in_use = len(self._open)
        if in_use == 0:
            reason = "the server or a pooler accepts no connection"
        elif self._failure is not None:
            reason = f"{in_use} are in use, and the server refuses another one: {self._failure}"
        elif self._opening:
            reason = f"{in_use} are in use, and the server or a pooler gives no other one"
        else:
            reason = f"all {in_use} are in use"
        return NoConnection(f"no connection became free in time: {reason}")

    def close(self) -> None:
        """Close the idle connections now, and those in use when they are returned."""
        self._closed = True
        self.settle()

    def settle(self) -> None:
        """Give idle connections to waiting calls, and open another connection if there are too few."""
        with self._lock:
            if self._closed:
                self._end()
            self._trim()
            while self._waiters and (connection := self._oldest()) is not None:
                waiter = self._waiters.popleft()
                waiter.connection = connection
                if not waiter.wake():
                    waiter.connection = None
                    self._idle.append(connection)
            now = time.monotonic()
            opening = self._opening and now - self._began_at < LOST_AFTER
            if not self._waiters or opening or len(self._open) >= self._most:
                return
            if self._open and now - self._failed_at < PAUSE:
                return
            self._opening, self._began_at = True, now
        self._begin(self)

    def _oldest(self) -> ConnectionT | None:
        """Take the connection that was idle longest. Other threads may take connections at the same time."""
        try:
            return self._idle.pop(0)
        except IndexError:
            return None

    def _end(self) -> None:
        while (connection := self._oldest()) is not None:
            connection.pgconn.finish()
            self._open.discard(connection)
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.error = TransportClosed()
            waiter.wake()

    def _trim(self) -> None:
        """Close connections that were idle for too long."""
        now = time.monotonic()
        if now - self._trimmed_at <= IDLE_SECONDS:
            return
        self._trimmed_at = now
        while (connection := self._oldest()) is not None:
            if now - connection.used_at <= IDLE_SECONDS:
                self._idle.insert(0, connection)
                break
            connection.pgconn.finish()
            self._open.discard(connection)
