"""The connections of one transport: which are idle, which calls wait, and which connections are broken.

No function here waits or sends. Taking a connection and returning it is one step of a list each, without a lock. Only a
call that finds no idle connection does more. Another connection is opened only then, one at a time, in a thread or task
of its own. So a server that accepts no connection does not delay a call that gets an existing one.

A connection has one of these states. From each state it goes on to a later one, or back to idle:

    opening        an attempt opens it, in a thread or a task
    idle           in `_idle`; its deadline is NO_CALL
    handed over    to a waiter that has not taken it yet; its deadline is that of the waiter's call
    in use         by a call; its deadline is that of the call
    dropped        it does not count any more, and the code that has it closes it

A call, a task or an event loop may end without returning its connection, for example by an exception out of a signal
handler, or when a loop is closed. A connection that no running code can return is dropped when a waiting call needs it,
and so is an attempt. This is always safe: code that returns a dropped connection, or one beyond the limit, closes it.
"""

from __future__ import annotations

import threading
import time
import weakref
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Generic, TypeAlias

import psycopg
from psycopg.pq import ConnStatus

from fairlane.backends.postgres.errors import NoConnection, broken
from fairlane.backends.postgres.waiters import NO_CALL, Attempt, ConnectionT, Waiter, is_lost
from fairlane.errors import TransportClosed

IDLE_SECONDS = 600.0
"""Idle seconds after which a connection is closed."""

PAUSE = 1.0
"""Seconds until the next attempt if the server refused another connection, and between two checks of a waiter."""

LOST_AFTER = 120.0
"""Seconds after which an attempt to open a connection is given up."""

Make: TypeAlias = Callable[[Callable[[Attempt[ConnectionT]], None]], Attempt[ConnectionT]]
"""Makes an attempt. The attempt calls the argument when it has ended."""


class Pool(Generic[ConnectionT]):
    """The connections of one transport, at most `most`. `make` makes an attempt to open another one."""

    def __init__(self, most: int, make: Make[ConnectionT]) -> None:
        self._most = most
        self._make: Make[ConnectionT] = make
        self._lock = threading.RLock()  # the garbage collector or a signal handler may call `settle` while it runs
        self._settling = threading.Lock()
        self._unsettled = False
        self._idle: list[ConnectionT] = []
        self._waiters: deque[Waiter[ConnectionT]] = deque()
        self._made: list[weakref.ref[ConnectionT]] = []  # connections that were collected do not count
        self._attempt: Attempt[ConnectionT] | None = None
        self._ended: deque[Attempt[ConnectionT]] = deque()
        self._failure: BaseException | None = None
        self._failed_at = -inf
        self._trimmed_at = time.monotonic()
        self._closed = False

    def take(self, deadline: float = inf, loop: AbstractEventLoop | None = None) -> ConnectionT | None:
        """Return an idle connection, or None. Drop idle connections that the server has closed.

        Args:
            deadline: of the call, by time.monotonic().
            loop: the event loop of the call; None for threads.
        """
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            try:
                connection.deadline, connection.loop = deadline, loop
                if connection.is_fit():
                    return connection
                self.drop(connection)
            except BaseException:
                self.drop(connection)
                raise

    def give(self, connection: ConnectionT) -> None:
        """Return a connection to the pool."""
        if connection.dropped:
            connection.pgconn.finish()
            return
        now = connection.used_at = time.monotonic()
        self._rest(connection)
        if self._waiters or self._closed or now - self._trimmed_at > IDLE_SECONDS:
            self.settle()

    def leave(self, waiter: Waiter[ConnectionT]) -> None:
        """Stop the waiting of a call. A connection that it was given and has not taken is returned."""
        waiter.gone = True
        with suppress(ValueError):
            self._waiters.remove(waiter)
        connection = waiter.taken()
        if connection is not None:
            self.give(connection)

    def drop(self, connection: ConnectionT, *, at_work: bool = False) -> None:
        """Remove and close a connection; `at_work` means that the server may still carry out a call."""
        connection.dropped = True
        try:
            if at_work:
                connection.abandon()
            else:
                connection.pgconn.finish()
        finally:
            self.settle()

    def failed(self, connection: ConnectionT, error: BaseException) -> None:
        """Take a connection back after an error, unless it was returned before.

        If the connection is broken, the server has probably ended all connections, so all idle ones are removed.
        """
        if connection.dropped or connection.deadline == NO_CALL:
            return
        try:
            if connection.pgconn.status != ConnStatus.OK or (isinstance(error, psycopg.Error) and broken(error)):
                while (other := self._oldest()) is not None:
                    self.drop(other)
                self.drop(connection)
            elif connection.at_rest:
                self.give(connection)
            else:
                self.drop(connection, at_work=True)
        except BaseException:
            connection.dropped = True
            raise

    def why_none(self) -> NoConnection:
        """Return the error for a call that got no connection in time."""
        in_use = len(self._counted())
        if in_use == 0:
            reason = "the server or a pooler accepts no connection"
        elif self._failure is not None:
            reason = f"{in_use} are in use, and another one could not be opened: {self._failure}"
        elif self._attempt is not None:
            reason = f"{in_use} are in use, and the server or a pooler gives no other one"
        else:
            reason = f"all {in_use} are in use"
        return NoConnection(f"no connection became free in time: {reason}")

    def close(self) -> Attempt[ConnectionT] | None:
        """Close idle connections now, and those in use when they are returned. Return the attempt that was stopped."""
        self._closed = True
        attempt = self._attempt
        self.settle()
        if attempt is not None:
            attempt.stop()
        return attempt

    def settle(self, waiter: Waiter[ConnectionT] | None = None) -> None:
        """Give the idle connections to waiting calls. Open another connection if one is needed.

        Args:
            waiter: the caller, if it waits. Only a waiter opens a connection: other callers may have no event loop.
        """
        self._unsettled = True
        with self._lock:
            if self._settling.locked():
                return  # called while it runs: the loop below does the work
            with self._settling:
                while self._unsettled:
                    self._unsettled = False
                    self._settle(waiter)

    def _settle(self, waits: Waiter[ConnectionT] | None) -> None:
        if waits is not None and not waits.has_outcome and waits not in self._waiters:
            self._waiters.append(waits)
        self._look_at_attempts()
        if self._closed:
            self._end()
        self._trim()
        while self._waiters and (connection := self._oldest()) is not None:
            waiter = self._waiters.popleft()
            try:
                connection.deadline, connection.loop = waiter.deadline, waiter.loop
                handed = waiter.hand(connection)
            except BaseException:  # out of a signal handler; it is not known who has the connection now
                connection.dropped = True
                raise
            if not handed:
                self._rest(connection)
        if self._waiters and self._attempt is None and self._has_room():
            if waits is not None:
                self._begin()
            else:
                while self._waiters and not self._waiters[0].wake():
                    self._waiters.popleft()

    def _look_at_attempts(self) -> None:
        """Handle attempts that have ended, and give up an attempt whose thread or task does not run any more."""
        while self._ended:
            attempt = self._ended.popleft()
            if attempt is self._attempt:
                self._attempt = None
            if attempt.connection is not None:
                self._take_in(attempt.connection)
            elif attempt.error is not None:
                self._failure, self._failed_at = attempt.error, time.monotonic()
                while self._waiters and not self._counted():  # otherwise one will be returned
                    waiter = self._waiters.popleft()
                    waiter.error = attempt.error
                    waiter.wake()
        under_way = self._attempt
        if under_way is not None:
            too_late = time.monotonic() - under_way.began_at > LOST_AFTER
            if (too_late or not under_way.goes_on()) and under_way not in self._ended:
                self._attempt = None
                under_way.stop()

    def _take_in(self, connection: ConnectionT) -> None:
        """Add a new connection. It may be one too many, if its attempt was given up before."""
        self._failure = None
        if len(self._counted()) >= self._most:
            connection.pgconn.finish()
            return
        self._made = [ref for ref in self._made if (each := ref()) is not None and not each.dropped]
        try:
            self._made.append(weakref.ref(connection))
            connection.used_at = time.monotonic()
            self._rest(connection)
        except BaseException:
            connection.dropped = True  # a signal handler has raised, and a traceback may keep the connection alive
            raise

    def _rest(self, connection: ConnectionT) -> None:
        connection.deadline, connection.loop = NO_CALL, None
        self._idle.append(connection)

    def _has_room(self) -> bool:
        """Return whether another connection may be opened now."""
        self._drop_lost()
        counted = len(self._counted())
        return counted < self._most and (counted == 0 or time.monotonic() - self._failed_at >= PAUSE)

    def _drop_lost(self) -> None:
        now = time.monotonic()
        for each in self._counted():
            if is_lost(each, now) and each not in self._idle:
                each.dropped = True
                if each.loop is not None and each.loop.is_closed():
                    each.abandon()  # its loop is closed, so no call uses it

    def _counted(self) -> list[ConnectionT]:
        """Return all connections that count."""
        return [each for ref in self._made if (each := ref()) is not None and not each.dropped]

    def _begin(self) -> None:
        attempt = self._attempt = self._make(self._report)
        try:
            attempt.begin()
        except Exception as error:
            attempt.error = error
            self._report(attempt)

    def _report(self, attempt: Attempt[ConnectionT]) -> None:
        self._ended.append(attempt)
        self.settle()

    def _oldest(self) -> ConnectionT | None:
        """Take the connection that was idle longest, or None. Other threads may take connections at the same time."""
        while True:
            try:
                connection = self._idle.pop(0)
            except IndexError:
                return None
            if not connection.dropped:
                return connection
            connection.pgconn.finish()

    def _end(self) -> None:
        while (connection := self._oldest()) is not None:
            connection.dropped = True
            connection.pgconn.finish()
        self._drop_lost()
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.error = TransportClosed()
            waiter.wake()

    def _trim(self) -> None:
        """Close connections that were idle for long, and dropped ones."""
        now = time.monotonic()
        if now - self._trimmed_at <= IDLE_SECONDS:
            return
        self._trimmed_at = now
        while (connection := self._oldest()) is not None:
            if now - connection.used_at <= IDLE_SECONDS:
                self._idle.insert(0, connection)
                break
            connection.dropped = True
            connection.pgconn.finish()
