"""How many connections there are, who waits for one, and what becomes of broken ones. Nothing here waits or sends.

Taking a connection and giving it back is one step each of a list, without a lock, which costs a call next to nothing.
Only calls that find none look further. Another connection is opened only then, one at a time, and beside the callers:
so a server that lets nobody in does not hold up a call that gets the connection of another one.
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
"""Seconds without use after which a connection is closed."""

PAUSE = 1.0
"""Seconds until a server that refused another connection is asked for one again."""

LOST_AFTER = 120.0
"""Seconds after which nobody waits any more for a connection that is being opened: its event loop may be gone."""

ConnectionT = TypeVar("ConnectionT", OwnConnection, OwnAsyncConnection)


class Waiter(Generic[ConnectionT]):
    """A call that waits for a connection. It is woken with a connection, with an error, or to look again."""

    def __init__(self) -> None:
        self.connection: ConnectionT | None = None
        self.error: BaseException | None = None

    def wake(self) -> bool:
        """Let it go on; False if it cannot any more."""
        raise NotImplementedError

    def outcome(self) -> ConnectionT | None:
        """Return the connection, None to look again.

        Raises:
            BaseException: why there will be none.
        """
        connection, self.connection = self.connection, None
        if connection is None and self.error is not None:
            raise self.error
        return connection


class Pool(Generic[ConnectionT]):
    """The connections of one transport, shared by its threads or event loops.

    Args:
        most: how many there may be.
        begin: begins to open a connection, without waiting for it; ends in a call of `opened` or `not_opened`.
    """

    def __init__(self, most: int, begin: Callable[[Pool[ConnectionT]], None]) -> None:
        self._most = most
        self._begin: Callable[[Pool[ConnectionT]], None] = begin
        self._lock = threading.Lock()
        self._idle: list[ConnectionT] = []
        self._waiters: deque[Waiter[ConnectionT]] = deque()
        self._open: WeakSet[ConnectionT] = WeakSet()  # weak: one that is lost by an interrupt does not count for ever
        self._opening = False
        self._began_at = 0.0
        self._failure: BaseException | None = None
        self._failed_at = float("-inf")
        self._trimmed_at = time.monotonic()
        self._closed = False

    def take(self) -> ConnectionT | None:
        """Return a connection that nobody uses. Those that the server has closed meanwhile are thrown away."""
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
        """Take a connection back."""
        now = connection.used_at = time.monotonic()
        self._idle.append(connection)
        if self._waiters or self._closed or now - self._trimmed_at > IDLE_SECONDS:
            self.settle()

    def join(self, waiter: Waiter[ConnectionT]) -> None:
        """Let a call wait.

        Raises:
            TransportClosed: in vain.
        """
        if self._closed:
            raise TransportClosed()
        self._waiters.append(waiter)
        self.settle()

    def leave(self, waiter: Waiter[ConnectionT]) -> None:
        """End the waiting of a call. A connection that it has not taken goes to somebody else."""
        with self._lock, suppress(ValueError):
            self._waiters.remove(waiter)
        if waiter.connection is not None:
            self.give(waiter.connection)

    def opened(self, connection: ConnectionT) -> None:
        """Take in a new connection."""
        with self._lock:
            self._open.add(connection)
            self._opening = False
            self._failure = None
        self.give(connection)

    def not_opened(self, error: BaseException | None) -> None:
        """Note that there is no new connection; None: whoever was to open it was stopped, so another call has to."""
        with self._lock:
            self._opening = False
            if error is not None:
                self._failure, self._failed_at = error, time.monotonic()
            # while others have connections, one will be given back
            while self._waiters and (not self._open or error is None):
                waiter = self._waiters.popleft()
                waiter.error = error
                waiter.wake()

    def drop(self, connection: ConnectionT, *, at_work: bool = False) -> None:
        """Throw a connection away; `at_work` says that the server may still be busy with a call."""
        if at_work:
            connection.abandon()
        else:
            connection.pgconn.finish()
        with self._lock:
            self._open.discard(connection)
        self.settle()

    def failed(self, connection: ConnectionT, error: BaseException) -> None:
        """Take a connection back after an error.

        A server that went away took all connections with it, so those at rest go too.
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
        """Say why a call got no connection in time."""
        in_use = len(self._open)
        if in_use == 0:
            why = "the server, or a pooler before it, does not let anybody in"
        elif self._failure is not None:
            why = f"{in_use} are in use, and the server refuses another one: {self._failure}"
        elif self._opening:
            why = f"{in_use} are in use, and the server, or a pooler before it, has no other one to give"
        else:
            why = f"all {in_use} are in use"
        return NoConnection(f"no connection became free in time: {why}")

    def close(self) -> None:
        """Close the connections; those in use close when they come back."""
        self._closed = True
        self.settle()

    def settle(self) -> None:
        """Give the connections at rest to those who wait, and open another one if that is not enough."""
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
        """Take out what has been at rest longest. Others may take connections at the same time."""
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
        """Close what nobody has used for long."""
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
