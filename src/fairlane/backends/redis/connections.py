"""Keep connections to one server, and send each request over one of them, exactly once.

The driver's pools and clients are not used. They take more time than the server needs for a call, and by default the
clients repeat a request without an answer.
"""

from __future__ import annotations

import asyncio
import queue
import time
import weakref
from collections import deque

import redis

from fairlane.backends.redis.address import Address, Node
from fairlane.backends.redis.errors import AllBusy, NotSent, TooFewReplicas, code_of
from fairlane.backends.redis.streams import AsyncConnection, Connection
from fairlane.backends.redis.wire import Calls, Reply
from fairlane.backends.shared import forks
from fairlane.backends.shared.loops import PerLoop
from fairlane.backends.stored import Call
from fairlane.errors import TransportClosed

FRESH = 0.02
"""An idle connection is used within these seconds without a check whether the server has closed it."""

_FAILURES = (OSError, redis.exceptions.RedisError)


def answer_of(calls: Calls, replies: list[Reply]) -> Reply:
    """Return the reply to a request.

    Raises:
        ResponseError: the reply is an error.
        TooFewReplicas: fewer replicas than wanted have confirmed the change.
    """
    reply = replies[0]
    if isinstance(reply, redis.exceptions.ResponseError):
        raise reply
    if len(replies) > 1 and reply not in (None, []):  # these two: nothing was found and changed
        confirmed = replies[1]
        if isinstance(confirmed, redis.exceptions.ResponseError):  # for example, the server has become a replica
            raise TooFewReplicas(0, calls.wait_replicas) from confirmed
        if confirmed < calls.wait_replicas:
            raise TooFewReplicas(confirmed, calls.wait_replicas)
    return reply


def _is_replica(replies: list[Reply]) -> bool:
    """Return whether the server is a replica now. After a failover a new connection may reach the new primary."""
    first = replies[0]
    return isinstance(first, redis.exceptions.ResponseError) and code_of(first) == "READONLY"


class _Permit:
    """The permission for one running call. It is in the queue of permits, or a call holds it.

    If a permit is lost, it goes back into the queue when it is deleted. That can happen if a signal handler raises
    between the step that takes the permit and the next one.
    """

    __slots__ = ("_home",)

    def __init__(self, home: queue.SimpleQueue[_Permit]) -> None:
        self._home = weakref.ref(home)

    def __del__(self) -> None:
        home = self._home()
        if home is not None:
            home.put(_Permit(home))


class Connections(forks.ForkAware):
    """Blocking connections to one server. Many threads may use them at once."""

    def __init__(self, address: Address, node: Node) -> None:
        self._address = address
        self._node = node
        self._closed = False
        self._start()
        forks.register(self)

    def _start(self) -> None:
        self._free: deque[tuple[Connection, float]] = deque()  # with the time since when it is idle
        self._permits: queue.SimpleQueue[_Permit] = queue.SimpleQueue()  # faster than a semaphore
        for _ in range(self._address.max_connections):
            self._permits.put(_Permit(self._permits))

    def after_fork_in_child(self) -> object:
        """Forget the parent's connections; see `forks`."""
        left = self._free
        self._start()
        return left

    def send(self, packed: bytes, deadline: float, count: int = 1) -> list[Reply]:
        """Send one packed command or several; return their replies.

        Args:
            deadline: by time.monotonic().
            count: the number of replies.

        Raises:
            NotSent: there was no connection, or it broke before the whole command was sent.
        """
        permits = self._permits
        waited = permits.empty()
        try:
            permit = permits.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise NotSent from AllBusy(self._address.max_connections)
        try:
            return self._exchange(packed, deadline, count)
        except NotSent as error:
            if waited and isinstance(error.__cause__, TimeoutError | redis.exceptions.TimeoutError):
                raise NotSent from AllBusy(self._address.max_connections)  # the wait for a permit took most of the time
            raise
        finally:
            permits.put(permit)

    def _exchange(self, packed: bytes, deadline: float, count: int) -> list[Reply]:
        connection = self._reused()
        if connection is not None:
            try:
                return self._on(connection, packed, deadline, count)
            except NotSent:
                pass  # the server has closed it after the check
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
        if _is_replica(replies):
            connection.close()
        else:
            self._free.append((connection, time.monotonic()))
            if self._closed:
                self._close_free()
        return replies

    def _reused(self) -> Connection | None:
        """Return an idle connection that the server has not closed, or None."""
        while True:
            try:
                connection, since = self._free.pop()
            except IndexError:
                return None
            if time.monotonic() - since < FRESH or not connection.is_stale():
                return connection
            connection.close()

    def close(self) -> None:
        """Close the free connections now, and those of running calls when they have their answers."""
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
    """The connections of one event loop, with a limit for its calls."""

    def __init__(self, limit: int) -> None:
        self.free: deque[tuple[AsyncConnection, float]] = deque()
        self.busy: set[AsyncConnection] = set()
        self.permits = asyncio.Semaphore(limit)

    async def close(self) -> None:
        """Close all connections. This ends the running calls."""
        for connection in (*self.busy, *(connection for connection, _ in self.free)):
            connection.close()
        self.free.clear()
        await asyncio.sleep(0)  # the loop closes the aborted transports in this step


class AsyncConnections(forks.ForkAware):
    """Connections of asyncio to one server, separate for each event loop. Many tasks may use them at once."""

    def __init__(self, address: Address, node: Node) -> None:
        self._address = address
        self._node = node
        self._closed = False
        self._loops: PerLoop[_Loop] = PerLoop(self._begin, _Loop.close)
        forks.register(self)

    async def _begin(self) -> _Loop:
        return _Loop(self._address.max_connections)

    def after_fork_in_child(self) -> object:
        """Forget the parent's connections; see `forks`."""
        return self._loops.forget()

    async def send(self, packed: bytes, deadline: float, count: int = 1) -> list[Reply]:
        """Send one packed command or several; return their replies. See `Connections.send`."""
        here = await self._loops.client()
        sent = False
        waits = here.permits.locked()
        try:
            async with asyncio.timeout(deadline - time.monotonic()), here.permits:
                connection = self._reused(here) or await AsyncConnection.opened(self._address, self._node, deadline)
                sent = True
                return await self._on(here, connection, packed, count)
        except _FAILURES as error:
            if sent:
                raise
            if waits and isinstance(error, TimeoutError | redis.exceptions.TimeoutError):
                raise NotSent from AllBusy(self._address.max_connections)
            raise NotSent from error

    async def _on(self, here: _Loop, connection: AsyncConnection, packed: bytes, count: int) -> list[Reply]:
        here.busy.add(connection)
        try:
            if self._closed:
                raise TransportClosed()
            replies = await connection.exchange(packed, count)
            if self._closed or _is_replica(replies):
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
        """Close all connections. Running calls end, and their outcome is unknown."""
        self._closed = True
        await self._loops.close()


class Server:
    """Sends requests to one server, with blocking calls."""

    where: str | None = None

    def __init__(self, calls: Calls, address: Address) -> None:
        self._calls = calls
        self._connections = Connections(address, address.nodes[0])

    def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""
        packed, count = self._calls.sent(request)
        return answer_of(self._calls, self._connections.send(packed, deadline, count))

    def close(self) -> None:
        """See `Connections.close`."""
        self._connections.close()


class AsyncServer:
    """Sends requests to one server, with asyncio."""

    where: str | None = None

    def __init__(self, calls: Calls, address: Address) -> None:
        self._calls = calls
        self._connections = AsyncConnections(address, address.nodes[0])

    async def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""
        packed, count = self._calls.sent(request)
        return answer_of(self._calls, await self._connections.send(packed, deadline, count))

    async def close(self) -> None:
        """See `AsyncConnections.close`."""
        await self._connections.close()
