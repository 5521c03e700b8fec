"""The Redis and Valkey backend: every operation is one function call.

The functions are in `lua/`. The executors send each call exactly once, on a connection of the driver's pool and not
through the driver's client, which may be set to repeat what got no answer (its default in recent releases).
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Mapping
from typing import Any, Protocol, Self

import redis
import redis.asyncio
from redis.client import NEVER_DECODE

from fairlane.backends import redis_address as addresses
from fairlane.backends.base import Backend, ProcedureCore, Rows, translated
from fairlane.backends.redis_wire import Calls, Refused, revision_rows, rows_of, translate
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import ConfigurationError, SchemaNotReady
from fairlane.program import Call, Program


class RedisCore(ProcedureCore):
    """The stored operations are the functions of the queue's library."""

    client_tokens = True  # functions have no source of randomness, and a counter may go back in a failover

    def _call(self, operation: str, arguments: Mapping[str, Any] | None = None) -> Program[Rows]:
        """Ask for one operation; when the server refuses it without a reason, ask whether the functions are gone."""
        try:
            return (yield from super()._call(operation, arguments))
        except Refused as refused:
            cause = refused.__cause__ or refused
        if operation == "revision":
            return []
        if (yield from self.revision()) is None:
            raise SchemaNotReady(self.queue, None, CLIENT_REVISION) from cause
        raise cause


class _Options:
    """What both executors are told, and what they make of requests and errors."""

    def __init__(self, queue: str, host: str, allow_eviction: bool) -> None:
        self.queue = queue
        self.calls = Calls(queue)
        self._host = host
        self._allow_eviction = allow_eviction

    def translate(self, error: Exception) -> Exception | None:
        return translate(error, self._host)

    def rows(self, operation: str, reply: Any) -> Rows:
        if operation == "revision":
            return revision_rows(reply, allow_eviction=self._allow_eviction)
        return rows_of(operation, reply)


class _Line(Protocol):
    """Sends one command, once, and returns the reply as bytes."""

    def send(self, *command: Any) -> Any: ...
    def close(self) -> None: ...


class _PoolLine:
    """A single server, or whatever else stands behind a connection pool (Sentinel)."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._checkout = _checkout_arguments(pool)

    def send(self, *command: Any) -> Any:
        connection = self._pool.get_connection(*self._checkout)
        try:
            connection.send_command(*command)
            return connection.read_response(disable_decoding=True)
        except redis.exceptions.ResponseError:
            raise  # a whole reply; the connection is as good as before
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._pool.release(connection)

    def close(self) -> None:
        self._pool.disconnect()


class _ClusterLine:
    """A cluster. Naming the node keeps the driver from repeating a call, yet not from following MOVED and ASK."""

    def __init__(self, address: addresses.Address | None, client: Any, key: str) -> None:
        self._address = address
        self._client = client
        self._key = key
        self._lock = threading.Lock()

    def send(self, *command: Any) -> Any:
        client = self._client or self._connect()
        node = client.get_node_from_key(self._key)
        return client.execute_command(*command, target_nodes=node, **{NEVER_DECODE: True})

    def _connect(self) -> Any:
        with self._lock:
            if self._client is None:
                assert self._address is not None
                self._client = addresses.make_cluster(self._address)
            return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class RedisExecutor:
    """Performs requests with blocking calls; a pool connection serves one call at a time."""

    def __init__(self, line: _Line, options: _Options, *, owned: bool) -> None:
        self._line = line
        self._options = options
        self._owned = owned

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Connect to the server or cluster at a URL; `redis_address.parse` says what the options are."""
        address = addresses.parse(url, **options)
        settings = _Options(queue, address.host, address.allow_eviction)
        if address.nodes:
            line: _Line = _ClusterLine(address, None, settings.calls.key)
        else:
            line = _PoolLine(addresses.make_pool(address))
        return cls(line, settings, owned=True)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the connections of a `redis.Redis` or `redis.RedisCluster` of the application."""
        settings = _Options(queue, addresses.address_of(client), addresses.client_options(**options))
        if isinstance(client, redis.RedisCluster):
            return cls(_ClusterLine(None, client, settings.calls.key), settings, owned=False)
        if isinstance(client, redis.Redis):
            return cls(_PoolLine(client.connection_pool), settings, owned=False)
        raise ConfigurationError(f"expected a redis.Redis or redis.RedisCluster, got {type(client).__qualname__}")

    def execute(self, request: Call) -> Rows:
        """Perform one operation."""
        with translated(self._options.translate):
            reply = self._line.send(*self._options.calls.command(request))
        return self._options.rows(request.operation, reply)

    def close(self) -> None:
        """Close the connections, unless they are the application's."""
        if self._owned:
            self._line.close()


class _AsyncLine(Protocol):
    async def send(self, *command: Any) -> Any: ...
    async def close(self) -> None: ...


class _AsyncPoolLine:
    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._checkout = _checkout_arguments(pool)

    async def send(self, *command: Any) -> Any:
        connection = await self._pool.get_connection(*self._checkout)
        try:
            await connection.send_command(*command)
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


class _AsyncClusterLine:
    def __init__(self, address: addresses.Address | None, client: Any, key: str) -> None:
        self._address = address
        self._client = client
        self._key = key

    async def send(self, *command: Any) -> Any:
        if self._client is None:
            assert self._address is not None
            self._client = addresses.make_async_cluster(self._address)
        client = await self._client.initialize()
        node = client.get_node_from_key(self._key)
        return await client.execute_command(*command, target_nodes=node, **{NEVER_DECODE: True})

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


class AsyncRedisExecutor:
    """The same for asyncio.

    Every call runs in a task of its own, which a cancelled caller leaves to finish: a cancellation inside the driver
    may leave a connection with half a handshake or an unread reply, which the next call would take for its own.
    """

    def __init__(self, line: _AsyncLine, options: _Options, *, limit: int | None) -> None:
        self._line = line
        self._options = options
        self._owned = limit is not None
        self._limit = asyncio.Semaphore(limit or addresses.MAX_CONNECTIONS)
        self._tasks: set[asyncio.Task[Any]] = set()

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Connect to the server or cluster at a URL; `redis_address.parse` says what the options are."""
        address = addresses.parse(url, **options)
        settings = _Options(queue, address.host, address.allow_eviction)
        if address.nodes:
            line: _AsyncLine = _AsyncClusterLine(address, None, settings.calls.key)
        else:
            line = _AsyncPoolLine(addresses.make_async_pool(address))
        return cls(line, settings, limit=address.max_connections)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the connections of a `redis.asyncio.Redis` or `redis.asyncio.RedisCluster` of the application."""
        settings = _Options(queue, addresses.address_of(client), addresses.client_options(**options))
        if isinstance(client, redis.asyncio.RedisCluster):
            return cls(_AsyncClusterLine(None, client, settings.calls.key), settings, limit=None)
        if isinstance(client, redis.asyncio.Redis):
            return cls(_AsyncPoolLine(client.connection_pool), settings, limit=None)
        raise ConfigurationError(
            f"expected a redis.asyncio.Redis or redis.asyncio.RedisCluster, got {type(client).__qualname__}"
        )

    async def execute(self, request: Call) -> Rows:
        """Perform one operation."""
        task = asyncio.ensure_future(self._send(self._options.calls.command(request)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        reply = await asyncio.shield(task)
        return self._options.rows(request.operation, reply)

    async def _send(self, command: tuple[Any, ...]) -> Any:
        async with self._limit:
            with translated(self._options.translate):
                return await self._line.send(*command)

    async def close(self) -> None:
        """Close the connections, unless they are the application's; calls that nobody waits for any more end."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._owned:
            await self._line.close()


def _checkout_arguments(pool: Any) -> tuple[str, ...]:
    """Return what this release of the driver wants for a connection: before 5.3 the name of a command."""
    name = inspect.signature(pool.get_connection).parameters.get("command_name")
    return ("FCALL",) if name is not None and name.default is inspect.Parameter.empty else ()


BACKEND = Backend("redis", RedisCore, RedisExecutor, AsyncRedisExecutor)
