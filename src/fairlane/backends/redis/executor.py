"""The Redis and Valkey backend: every operation is one function call.

The functions are in `lua/`. The executors send each call exactly once, on a connection of the driver's pool and not
through the driver's client, which may be set to repeat what got no answer (its default in recent releases).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import redis
import redis.asyncio

from fairlane.backends.base import translated
from fairlane.backends.redis import address as addresses
from fairlane.backends.redis import connections as lines
from fairlane.backends.redis.wire import Calls, Refused, revision_rows, rows_of, translate
from fairlane.backends.shared.options import check_options
from fairlane.backends.stored import REVISION, Call, Operation, ProcedureCore, Rows
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import BackendUnavailable, ConfigurationError, SchemaNotReady
from fairlane.program import Program


class RedisCore(ProcedureCore):
    """The stored operations are the functions of the queue's library."""

    client_tokens = True  # functions have no source of randomness, and a counter may go back in a failover

    def call(self, operation: Operation, arguments: Mapping[str, Any] | None = None) -> Program[Call, Rows, Rows]:
        """Ask for one operation; when the server refuses it without a reason, ask whether the functions are gone."""
        try:
            return (yield from super().call(operation, arguments))
        except Refused as caught:
            refused = caught
        if operation is REVISION:
            return []
        if (yield from self.revision()) is None:
            raise SchemaNotReady(self.queue, None, CLIENT_REVISION) from refused.__cause__
        # it failed, or the queue was removed and made anew just now
        raise refused.error from refused.__cause__


class _Options:
    """What both executors are told, and what they make of requests and errors."""

    def __init__(self, queue: str, host: str, allow_eviction: bool) -> None:
        self.queue = queue
        self.calls = Calls(queue)
        self._host = host
        self._allow_eviction = allow_eviction

    def translate(self, error: Exception) -> Exception | None:
        return translate(error, self._host)

    def closed(self) -> BackendUnavailable:
        return BackendUnavailable("redis", self._host, "this transport was closed during the call")

    def rows(self, operation: Operation, reply: Any) -> Rows:
        if operation is REVISION:
            return revision_rows(reply, allow_eviction=self._allow_eviction)
        return rows_of(operation, reply)


class RedisExecutor:
    """Performs requests with blocking calls; a pool connection serves one call at a time."""

    def __init__(self, line: lines.Line, options: _Options, *, owned: bool) -> None:
        self._line = line
        self._options = options
        self._owned = owned

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Connect to the server or cluster at a URL; `redis_address.parse` says what the options are."""
        check_options("redis", options, ("allow_eviction", "max_connections"))
        address = addresses.parse(url, **options)
        settings = _Options(queue, address.host, address.allow_eviction)
        if address.nodes:
            line: lines.Line = lines.ClusterLine(settings.calls, address=address)
        else:
            line = lines.OwnLine(settings.calls, address)
        return cls(line, settings, owned=True)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the connections of a `redis.Redis` or `redis.RedisCluster` of the application."""
        check_options("redis", options, ("allow_eviction",))
        settings = _Options(queue, addresses.address_of(client), addresses.client_options(**options))
        if isinstance(client, redis.RedisCluster):
            return cls(lines.ClusterLine(settings.calls, client=client), settings, owned=False)
        if isinstance(client, redis.Redis):
            return cls(lines.PoolLine(settings.calls, client.connection_pool), settings, owned=False)
        raise ConfigurationError(f"expected a redis.Redis or redis.RedisCluster, got {type(client).__qualname__}")

    def execute(self, request: Call) -> Rows:
        """Perform one operation."""
        try:  # not with `translated`: that takes longer than all else here
            reply = self._line.send(request)
        except Exception as error:
            known = self._options.translate(error)
            if known is None:
                raise
            raise known from error
        return self._options.rows(request.operation, reply)

    def close(self) -> None:
        """Close the connections, unless they are the application's."""
        if self._owned:
            self._line.close()


class AsyncRedisExecutor:
    """The same for asyncio.

    Every call runs in a task of its own, which a cancelled caller leaves to finish: a cancellation inside the driver
    may leave a connection with half a handshake or an unread reply, which the next call would take for its own.
    """

    def __init__(self, line: lines.AsyncLine, options: _Options, *, limit: int | None) -> None:
        self._line = line
        self._options = options
        self._owned = limit is not None
        self._limit = asyncio.Semaphore(limit or addresses.MAX_CONNECTIONS)
        self._tasks: set[asyncio.Task[Any]] = set()

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Connect to the server or cluster at a URL; `redis_address.parse` says what the options are."""
        check_options("redis", options, ("allow_eviction", "max_connections"))
        address = addresses.parse(url, **options)
        settings = _Options(queue, address.host, address.allow_eviction)
        if address.nodes:
            line: lines.AsyncLine = lines.AsyncClusterLine(settings.calls, address=address)
        else:
            line = lines.AsyncPoolLine(settings.calls, addresses.make_async_pool(address))
        return cls(line, settings, limit=address.max_connections)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the connections of a `redis.asyncio.Redis` or `redis.asyncio.RedisCluster` of the application."""
        check_options("redis", options, ("allow_eviction",))
        settings = _Options(queue, addresses.address_of(client), addresses.client_options(**options))
        if isinstance(client, redis.asyncio.RedisCluster):
            return cls(lines.AsyncClusterLine(settings.calls, client=client), settings, limit=None)
        if isinstance(client, redis.asyncio.Redis):
            return cls(lines.AsyncPoolLine(settings.calls, client.connection_pool), settings, limit=None)
        raise ConfigurationError(
            f"expected a redis.asyncio.Redis or redis.asyncio.RedisCluster, got {type(client).__qualname__}"
        )

    async def execute(self, request: Call) -> Rows:
        """Perform one operation."""
        task = asyncio.ensure_future(self._send(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            reply = await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not task.cancelled() or caller is None or caller.cancelling():
                raise
            raise self._options.closed() from None  # close() ended the call: the caller itself goes on
        return self._options.rows(request.operation, reply)

    async def _send(self, request: Call) -> Any:
        async with self._limit:
            with translated(self._options.translate):
                return await self._line.send(request)

    async def close(self) -> None:
        """Close the connections, unless they are the application's; calls in progress end, their outcome is unknown."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._owned:
            await self._line.close()
