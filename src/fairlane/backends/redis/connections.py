"""Lines to Redis: each sends one request, exactly once, and returns the reply with its texts as bytes.

They use the driver's connections and not its `execute_command`, which may be set to repeat what got no answer (and is,
in recent releases, unless told otherwise).
"""

from __future__ import annotations

import inspect
import queue
import threading
import time
from collections import deque
from typing import Any, Protocol

import redis
import redis.asyncio
from redis.client import NEVER_DECODE

from fairlane.backends.redis import address as addresses
from fairlane.backends.redis.wire import Calls
from fairlane.backends.shared import forks
from fairlane.backends.stored import Call
from fairlane.errors import TransportClosed

FRESH = 0.02
"""Seconds for which a connection is used again without looking whether the server has closed it meanwhile."""


class Line(Protocol):
    """Serves many threads."""

    def send(self, request: Call) -> Any: ...
    def close(self) -> None: ...


class AsyncLine(Protocol):
    """Serves many tasks. A call must not be cancelled; the executor sees to that."""

    async def send(self, request: Call) -> Any: ...
    async def close(self) -> None: ...


class OwnLine(forks.ForkAware):
    """A single server, on connections of our own.

    The driver's pool and its way of packing a command take longer than the server needs to carry the command out, so
    both are done here: a list of free connections, and commands that are packed but for their last arguments.
    """

    def __init__(self, calls: Calls, address: addresses.Address) -> None:
        self._calls = calls
        self.client = redis.Redis(connection_pool=addresses.make_pool(address))
        """The driver's client of the same server, for everything but the queue's calls."""
        self._make: Any = self.client.connection_pool.make_connection
        self._limit = address.max_connections
        self._closed = False
        self._start()
        forks.register(self)

    def _start(self) -> None:
        self._free: deque[tuple[Any, float]] = deque()  # connected; and since when it is idle
        self._cold: deque[Any] = deque()  # not connected, kept since the driver's pool counts what it makes
        self._permits: queue.SimpleQueue[None] = queue.SimpleQueue()  # faster than a semaphore
        for _ in range(self._limit):
            self._permits.put(None)

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`."""
        left = self._free, self._cold
        self._start()
        return left

    def send(self, request: Call) -> Any:
        packed = self._calls.packed(request)
        permits = self._permits
        permits.get()
        try:
            return self._exchange(packed)
        finally:
            permits.put(None)

    def _exchange(self, packed: bytes) -> Any:
        connection = self._checkout()
        try:
            connection.send_packed_command((packed,))
            reply = connection.read_response(disable_decoding=True)
        except redis.exceptions.ResponseError:
            self._keep(connection)  # a whole reply: the connection is as good as before
            raise
        except BaseException:
            connection.disconnect()
            self._cold.append(connection)
            raise
        self._keep(connection)
        return reply

    def _checkout(self) -> Any:
        """Return a connection that is connected, and that the server has not closed while it was idle."""
        try:
            connection, since = self._free.pop()
            if time.monotonic() - since < FRESH or not _is_stale(connection):
                return connection
            connection.disconnect()
        except IndexError:
            connection = self._made()
        try:
            connection.connect()
        except BaseException:
            self._cold.append(connection)
            raise
        return connection

    def _made(self) -> Any:
        try:
            return self._cold.pop()
        except IndexError:
            return self._make()

    def _keep(self, connection: Any) -> None:
        self._free.append((connection, time.monotonic()))
        if self._closed:
            self._disconnect_free()

    def close(self) -> None:
        """Close the free connections now, and those of calls in progress when these have their answers."""
        self._closed = True
        self._disconnect_free()

    def _disconnect_free(self) -> None:
        while True:
            try:
                connection, _ = self._free.pop()
            except IndexError:
                return
            connection.disconnect()


def _is_stale(connection: Any) -> bool:
    """Tell whether a connection can be read although nothing was asked: it is closed, or out of step."""
    try:
        return bool(connection.can_read())
    except (redis.exceptions.RedisError, OSError):
        return True


class PoolLine:
    """Whatever stands behind a connection pool of the application: a server, or Sentinel."""

    def __init__(self, calls: Calls, pool: Any) -> None:
        self._calls = calls
        self._pool = pool
        self._checkout = _checkout_arguments(pool)

    def send(self, request: Call) -> Any:
        connection = self._pool.get_connection(*self._checkout)
        try:
            connection.send_command(*self._calls.command(request))
            return connection.read_response(disable_decoding=True)
        except redis.exceptions.ResponseError:
            raise
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)

    def close(self) -> None:
        """Do nothing: the pool is the application's."""


class ClusterLine:
    """A cluster. Naming the node keeps the driver from repeating a call, yet not from following MOVED and ASK."""

    def __init__(self, calls: Calls, *, address: addresses.Address | None = None, client: Any = None) -> None:
        self._calls = calls
        self._address = address
        self._client = client
        self._lock = threading.Lock()
        self._under_way = 0
        self._closed = False

    def send(self, request: Call) -> Any:
        client = self._enter()
        try:
            node = client.get_node_from_key(self._calls.key)
            return client.execute_command(*self._calls.command(request), target_nodes=node, **{NEVER_DECODE: True})
        finally:
            self._leave()

    def _enter(self) -> Any:
        with self._lock:
            if self._closed:
                raise TransportClosed()
            if self._client is None:
                assert self._address is not None
                self._client = addresses.make_cluster(self._address)
            self._under_way += 1
            return self._client

    def _leave(self) -> None:
        with self._lock:
            self._under_way -= 1
        self._release()

    def close(self) -> None:
        """Close the client, or let the last call in progress do it: the driver would close their connections too."""
        with self._lock:
            self._closed = True
        self._release()

    def _release(self) -> None:
        with self._lock:
            if not self._closed or self._under_way or self._client is None or self._address is None:
                return
            client, self._client = self._client, None
        client.close()


class AsyncPoolLine:
    """A connection pool of asyncio, of our own or the application's."""

    def __init__(self, calls: Calls, pool: Any) -> None:
        self._calls = calls
        self._pool = pool
        self._checkout = _checkout_arguments(pool)

    async def send(self, request: Call) -> Any:
        connection = await self._pool.get_connection(*self._checkout)
        try:
            await connection.send_command(*self._calls.command(request))
            return await connection.read_response(disable_decoding=True)
        except redis.exceptions.ResponseError:
            raise
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await self._pool.release(connection)

    async def close(self) -> None:
        await self._pool.disconnect()


class AsyncClusterLine:
    """A cluster, for asyncio."""

    def __init__(self, calls: Calls, *, address: addresses.Address | None = None, client: Any = None) -> None:
        self._calls = calls
        self._address = address
        self._client = client

    async def send(self, request: Call) -> Any:
        if self._client is None:
            assert self._address is not None
            self._client = addresses.make_async_cluster(self._address)
        client = await self._client.initialize()
        node = client.get_node_from_key(self._calls.key)
        return await client.execute_command(*self._calls.command(request), target_nodes=node, **{NEVER_DECODE: True})

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _checkout_arguments(pool: Any) -> tuple[str, ...]:
    """Return what this release of the driver wants for a connection: before 5.3 the name of a command."""
    name = inspect.signature(pool.get_connection).parameters.get("command_name")
    return ("FCALL",) if name is not None and name.default is inspect.Parameter.empty else ()
