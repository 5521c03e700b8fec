"""Connections of our own to one server: how they are kept and given back. Each request is sent exactly once.

The driver's pools and clients are not used: their way takes longer than the server needs for a call, and the clients
repeat what got no answer unless told otherwise.
"""

from __future__ import annotations

import asyncio
import queue
import time
from collections import deque

import redis

from fairlane.backends.redis.address import Address, Node
from fairlane.backends.redis.errors import AllBusy, NotSent, code_of
from fairlane.backends.redis.streams import AsyncConnection, Connection, Reply
from fairlane.backends.redis.wire import Calls
from fairlane.backends.shared import forks
from fairlane.backends.stored import Call
from fairlane.errors import TransportClosed

FRESH = 0.02
"""Seconds for which a connection is used again without looking whether the server has closed it meanwhile."""

_FAILURES = (OSError, redis.exceptions.RedisError)


def answer_of(replies: list[Reply]) -> Reply:
    """Return the first reply, or raise it if it is an error."""
    reply = replies[0]
    if isinstance(reply, redis.exceptions.ResponseError):
        raise reply
    return reply


def _is_spoilt(replies: list[Reply]) -> bool:
    """Tell whether a connection must not be used again: after a failover another server may have the same name."""
    first = replies[0]
    return isinstance(first, redis.exceptions.ResponseError) and code_of(first) == "READONLY"


class Connections(forks.ForkAware):
    """Blocking connections to one server. Many threads use them at once."""

    def __init__(self, address: Address, node: Node) -> None:
        self._address = address
        self._node = node
        self._closed = False
        self._start()
        forks.register(self)

    def _start(self) -> None:
        self._free: deque[tuple[Connection, float]] = deque()  # and since when it is idle
        self._permits: queue.SimpleQueue[None] = queue.SimpleQueue()  # faster than a semaphore
        for _ in range(self._address.max_connections):
            self._permits.put(None)

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`."""
        left = self._free
        self._start()
        return left

    def send(self, packed: bytes, deadline: float, count: int = 1) -> list[Reply]:
        """Send a packed command, or several; return their replies.

        Args:
            deadline: as `time.monotonic` counts.
            count: how many replies come.

        Raises:
            NotSent: no connection was to be had, or it broke before the whole command was handed over.
        """
        permits = self._permits
        try:
            permits.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise NotSent from AllBusy(self._address.max_connections)
        try:
            return self._exchange(packed, deadline, count)
        finally:
            permits.put(None)

    def _exchange(self, packed: bytes, deadline: float, count: int) -> list[Reply]:
        connection = self._reused()
        if connection is not None:
            try:
                return self._on(connection, packed, deadline, count)
            except NotSent:
                pass  # closed since we looked
        try:
            connection = Connection(self._address, self._node, deadline)
        except _FAILURES as error:
            raise NotSent from error
        return self._on(connection, packed, deadline, count)

    def _on(self, connection: Connection, packed: bytes, deadline: float, count: int) -> list[Reply]:
        try:
            replies = connection.exchange(packed, deadline, count)
        except BaseException:
            connection.close()
            raise
        if _is_spoilt(replies):
            connection.close()
        else:
            self._free.append((connection, time.monotonic()))
            if self._closed:
                self._close_free()
        return replies

    def _reused(self) -> Connection | None:
        """Return a connection that is open, and that the server has not closed while it was idle."""
        while True:
            try:
                connection, since = self._free.pop()
            except IndexError:
                return None
            if time.monotonic() - since < FRESH or not connection.is_stale():
                return connection
            connection.close()

    def close(self) -> None:
        """Close the free connections now, and those of calls in progress when these have their answers."""
        self._closed = True
        self._close_free()

    def _close_free(self) -> None:
        while True:
            try:
                connection, _ = self._free.pop()
            except IndexError:
                return
            connection.close()


class _Loop:
    """The connections of one event loop, and who waits for one there."""

    def __init__(self, limit: int) -> None:
        self.free: deque[tuple[AsyncConnection, float]] = deque()
        self.busy: set[AsyncConnection] = set()
        self.permits = asyncio.Semaphore(limit)

    def close(self) -> None:
        """Close all connections, which ends the calls in progress."""
        for connection in (*self.busy, *(connection for connection, _ in self.free)):
            connection.close()
        self.free.clear()


class AsyncConnections(forks.ForkAware):
    """Connections of asyncio to one server, for each event loop its own. Many tasks use them at once."""

    def __init__(self, address: Address, node: Node) -> None:
        self._address = address
        self._node = node
        self._closed = False
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        forks.register(self)

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`."""
        left, self._loops = self._loops, {}
        return left

    async def send(self, packed: bytes, deadline: float, count: int = 1) -> list[Reply]:
        """Send a packed command, or several; return their replies. See `Connections.send`."""
        here = self._here()
        sent = False
        connecting = False
        try:
            async with asyncio.timeout(deadline - time.monotonic()), here.permits:
                connecting = True
                connection = self._reused(here) or await AsyncConnection.opened(self._address, self._node, deadline)
                sent = True
                return await self._on(here, connection, packed, count)
        except _FAILURES as error:
            if sent:
                raise
            if not connecting:
                raise NotSent from AllBusy(self._address.max_connections)
            raise NotSent from error

    def _here(self) -> _Loop:
        running = asyncio.get_running_loop()
        found = self._loops.get(running)
        if found is None:
            for loop in [each for each in self._loops if each.is_closed()]:
                del self._loops[loop]  # its connections close as they are collected: a closed loop can do nothing
            found = self._loops[running] = _Loop(self._address.max_connections)
        return found

    async def _on(self, here: _Loop, connection: AsyncConnection, packed: bytes, count: int) -> list[Reply]:
        here.busy.add(connection)
        try:
            if self._closed:
                raise TransportClosed()
            replies = await connection.exchange(packed, count)
            if self._closed or _is_spoilt(replies):
                connection.close()
            else:
                here.free.append((connection, time.monotonic()))
            return replies
        except BaseException:
            connection.close()
            raise
        finally:
            here.busy.discard(connection)

    def _reused(self, here: _Loop) -> AsyncConnection | None:
        if self._closed:
            raise TransportClosed()
        while here.free:
            connection, since = here.free.pop()
            if time.monotonic() - since < FRESH or not connection.is_stale():
                return connection
            connection.close()
        return None

    async def close(self) -> None:
        """Close all connections. Calls in progress end; their outcome is unknown."""
        self._closed = True
        running = asyncio.get_running_loop()
        while self._loops:
            loop, state = self._loops.popitem()
            if loop is running:
                state.close()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(state.close)


class Server:
    """One server, for blocking calls."""

    def __init__(self, calls: Calls, address: Address) -> None:
        self._calls = calls
        self._connections = Connections(address, address.nodes[0])

    def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""
        return answer_of(self._connections.send(self._calls.packed(request), deadline))

    def close(self) -> None:
        """See `Connections.close`."""
        self._connections.close()


class AsyncServer:
    """One server, for asyncio."""

    def __init__(self, calls: Calls, address: Address) -> None:
        self._calls = calls
        self._connections = AsyncConnections(address, address.nodes[0])

    async def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""
        return answer_of(await self._connections.send(self._calls.packed(request), deadline))

    async def close(self) -> None:
        """See `AsyncConnections.close`."""
        await self._connections.close()
