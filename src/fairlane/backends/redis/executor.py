"""The two executors of the Redis backend. Each request of the core is one function call, which is sent exactly once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol, Self

import redis
import redis.asyncio

from fairlane.backends.base import Limit
from fairlane.backends.redis.address import Address, parse, shown_of
from fairlane.backends.redis.cluster import AsyncCluster, Cluster
from fairlane.backends.redis.connections import AsyncServer, Server
from fairlane.backends.redis.errors import BACKEND_NAME, NotSent, translate
from fairlane.backends.redis.given import AsyncGivenCluster, AsyncGivenPool, GivenCluster, GivenPool
from fairlane.backends.redis.listener import Listener
from fairlane.backends.redis.options import OPTIONS
from fairlane.backends.redis.wire import Calls, Reply, revision_rows, rows_of
from fairlane.backends.shared.listening import ListeningRoom
from fairlane.backends.shared.options import read_options
from fairlane.backends.shared.waiting import Room
from fairlane.backends.stored import REVISION, Call, Rows
from fairlane.errors import BackendUnavailable, ConfigurationError

_PIPELINES = (
    redis.client.Pipeline,
    redis.cluster.ClusterPipeline,
    redis.asyncio.client.Pipeline,
    redis.asyncio.cluster.ClusterPipeline,
)


class _Sender(Protocol):
    """Sends requests with blocking calls, for many threads at once."""

    @property
    def where(self) -> str | None: ...
    def send(self, request: Call, deadline: float) -> Reply: ...
    def close(self) -> None: ...


class _AsyncSender(Protocol):
    """The same for asyncio, for many tasks at once."""

    @property
    def where(self) -> str | None: ...
    async def send(self, request: Call, deadline: float) -> Reply: ...
    async def close(self) -> None: ...


class _Settings:
    """The settings of both executors, and how they read replies and errors."""

    def __init__(self, queue: str, host: str, timeout: float, allow_eviction: bool, wait_replicas: int = 0) -> None:
        self.calls = Calls(queue, wait_replicas)
        self._queue = queue
        self.limit = Limit(timeout)
        self.closed = False
        self._host = host
        self._allow_eviction = allow_eviction

    @classmethod
    def of_address(cls, address: Address, queue: str) -> Self:
        return cls(queue, address.shown, address.timeout, address.allow_eviction, address.wait_replicas)

    @classmethod
    def of_client(cls, client: object, queue: str, options: Mapping[str, object]) -> Self:
        return cls(queue, shown_of(client), **read_options("redis", OPTIONS, None, options))

    def deadline(self, request: Call) -> float:
        """Return the deadline of a request, by time.monotonic(). It stays the same if the request is sent again."""
        if request.ends is None:
            request.ends = self.limit.deadline(time.monotonic())
        return request.ends

    def translated(self, error: Exception, where: str | None) -> Exception:
        """Return the error to raise, with the driver's error as its cause. An unknown error is returned as it is."""
        known = translate(error, where or self._host, self._queue)
        if known is None:
            return error
        if self.closed and isinstance(known, BackendUnavailable):
            known = BackendUnavailable(BACKEND_NAME, self._host, "this transport was closed during the call")
        known.__cause__ = error.__cause__ if isinstance(error, NotSent) else error
        return known

    def rows(self, request: Call, reply: Reply) -> Rows:
        if request.operation is REVISION:
            return revision_rows(reply, allow_eviction=self._allow_eviction)
        return rows_of(request.operation, reply)


def _room(address: Address, queue: str) -> ListeningRoom:
    """Return the room of a transport with connections of its own."""
    return ListeningRoom(lambda: Listener.opened(address, queue), f"queue {queue} on redis at {address.shown}")


def _refuse_pipeline(client: object) -> None:
    """Refuse a pipeline. It collects commands and sends them later; its class is derived from that of a client."""
    if isinstance(client, _PIPELINES):
        raise ConfigurationError(
            f"a {type(client).__qualname__} collects commands and sends them later, and the calls of a transport need "
            "their answers at once: pass the client itself. On Redis, publish cannot be part of a transaction of yours"
        )


class RedisExecutor:
    """Sends requests with blocking calls."""

    def __init__(self, sender: _Sender, settings: _Settings, room: Room | None = None) -> None:
        self.limit = settings.limit
        self.room = Room() if room is None else room
        self._sender = sender
        self._settings = settings

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the server or cluster at a URL; `options.OPTIONS` documents the options."""
        address = parse(url, **options)
        settings = _Settings.of_address(address, queue)
        sender = (Cluster if address.cluster else Server)(settings.calls, address)
        return cls(sender, settings, _room(address, queue))

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the connections of the application's `redis.Redis` or `redis.RedisCluster`."""
        _refuse_pipeline(client)
        settings = _Settings.of_client(client, queue, options)
        if isinstance(client, redis.RedisCluster):
            return cls(GivenCluster(settings.calls, client), settings)
        if isinstance(client, redis.Redis):
            return cls(GivenPool(settings.calls, client), settings)
        raise ConfigurationError(
            f"redis needs a redis.Redis or redis.RedisCluster here, not {type(client).__qualname__}"
        )

    def execute(self, request: Call) -> Rows:
        """Send one operation, and return its rows."""
        settings = self._settings
        try:
            reply = self._sender.send(request, settings.deadline(request))
        except Exception as error:
            raise settings.translated(error, self._sender.where)  # noqa: B904 - it has its cause
        return settings.rows(request, reply)

    def close(self) -> None:
        """Close the connections, unless they belong to the application's client. Running calls get their answers."""
        self.room.close()
        self._sender.close()


class AsyncRedisExecutor:
    """The same for asyncio."""

    def __init__(self, sender: _AsyncSender, settings: _Settings, room: Room | None = None) -> None:
        self.limit = settings.limit
        self.room = Room() if room is None else room
        self._sender = sender
        self._settings = settings

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the server or cluster at a URL; `options.OPTIONS` documents the options."""
        address = parse(url, **options)
        settings = _Settings.of_address(address, queue)
        sender = (AsyncCluster if address.cluster else AsyncServer)(settings.calls, address)
        return cls(sender, settings, _room(address, queue))

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the connections of the application's `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`."""
        _refuse_pipeline(client)
        settings = _Settings.of_client(client, queue, options)
        if isinstance(client, redis.asyncio.RedisCluster):
            return cls(AsyncGivenCluster(settings.calls, client), settings)
        if isinstance(client, redis.asyncio.Redis):
            return cls(AsyncGivenPool(settings.calls, client), settings)
        raise ConfigurationError(
            f"redis needs a redis.asyncio.Redis or redis.asyncio.RedisCluster here, not {type(client).__qualname__}"
        )

    async def execute(self, request: Call) -> Rows:
        """Send one operation, and return its rows."""
        settings = self._settings
        try:
            reply = await self._sender.send(request, settings.deadline(request))
        except Exception as error:
            raise settings.translated(error, self._sender.where)  # noqa: B904 - it has its cause
        return settings.rows(request, reply)

    async def close(self) -> None:
        """Close the connections, unless they belong to the application's client.

        Running calls end, and their outcome is unknown.
        """
        self._settings.closed = True
        self.room.close()
        await self._sender.close()
