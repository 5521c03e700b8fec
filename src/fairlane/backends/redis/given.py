"""The application's own client: its connection pool, or a cluster client. It stays open when the transport is closed.

Requests use the pool and not the client's `execute_command`, since that may repeat a request without an answer. In
recent releases it does so by default. A cluster client gets requests together with their node. Then it does not repeat
them, but it still follows MOVED and ASK.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import redis
import redis.asyncio
from redis.client import NEVER_DECODE

from fairlane.backends.redis.errors import NotSent
from fairlane.backends.redis.wire import Calls, Reply
from fairlane.backends.shared import forks
from fairlane.backends.shared.loops import OwnerLoop
from fairlane.backends.stored import Call

MOST_CALLS = 64
"""The maximum number of calls that one transport runs on a pool at once."""

_FAILURES = (OSError, redis.exceptions.RedisError)


@contextmanager
def _limited(connection: Any, deadline: float) -> Iterator[None]:
    """Limit the wait of the application's connection to a deadline, since it may have no timeout of its own."""
    sock = getattr(connection, "_sock", None)  # None for a connection that wraps another one, such as a cache
    if sock is None:
        yield
        return
    usual = sock.gettimeout()
    sock.settimeout(max(0.001, deadline - time.monotonic()))
    try:
        yield
    finally:
        with suppress(OSError):  # the socket may be closed
            sock.settimeout(usual)


class GivenPool:
    """Sends requests with the connections of a pool, for a server or Sentinel."""

    where: str | None = None

    def __init__(self, calls: Calls, client: redis.Redis) -> None:
        self._calls = calls
        self._pool: Any = client.connection_pool
        self._arguments = _checkout_arguments(self._pool)

    def send(self, request: Call, deadline: float) -> Reply:
        """Send one request, exactly once."""
        try:
            connection = self._pool.get_connection(*self._arguments)
        except _FAILURES as error:
            raise NotSent from error
        try:
            with _limited(connection, deadline):
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
        """Do nothing: the pool belongs to the application."""


class GivenCluster:
    """Sends requests with a cluster client."""

    where: str | None = None

    def __init__(self, calls: Calls, client: redis.RedisCluster) -> None:
        self._calls = calls
        self._client: Any = client

    def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""
        command = self._calls.command(request)
        while True:
            node = self._client.get_node_from_key(self._calls.key)
            try:
                return self._client.execute_command(*command, target_nodes=node, **{NEVER_DECODE: True})
            except redis.exceptions.ClusterError as error:
                if not _is_moving(error) or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        """Do nothing: the client belongs to the application."""


class _AsyncGiven:
    """The common part of both asyncio clients.

    Every call runs in its own task, which continues to its end if the caller is cancelled. A cancellation inside the
    driver could leave a connection with an incomplete handshake or an unread reply. The next call would read it as its
    own reply.
    """

    where: str | None = None

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._tasks: set[asyncio.Task[object]] = set()
        self._owner = forks.OwnerProcess("redis", "a client of its own")
        self._loop = OwnerLoop("redis", "a client of its own")

    async def send(self, request: Call, deadline: float) -> Reply:
        """Send one request."""
        self._owner.check()
        self._loop.check()
        task = asyncio.ensure_future(self._in_time(self._send(request), deadline))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not task.cancelled() or caller is None or caller.cancelling():
                raise
            # close() has ended the call, and the caller itself is not cancelled
            raise redis.exceptions.ConnectionError("this transport was closed during the call") from None

    async def _in_time(self, call: Awaitable[Reply], deadline: float) -> Reply:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await call

    async def _send(self, request: Call) -> Reply:
        raise NotImplementedError

    async def close(self) -> None:
        """End the running calls; their outcome is unknown. The client belongs to the application and stays open."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AsyncGivenPool(_AsyncGiven):
    """Sends requests with the connections of an asyncio pool, for a server or Sentinel."""

    def __init__(self, calls: Calls, client: redis.asyncio.Redis) -> None:
        super().__init__(calls)
        self._pool: Any = client.connection_pool
        self._arguments = _checkout_arguments(self._pool)
        self._limit = asyncio.Semaphore(MOST_CALLS)  # a pool may have no limit

    async def _send(self, request: Call) -> Reply:
        async with self._limit:
            try:
                connection = await self._pool.get_connection(*self._arguments)
            except _FAILURES as error:
                raise NotSent from error
            except RuntimeError as error:  # from asyncio: another loop has opened the connection; nothing was sent
                raise self._loop.refusal() from error
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


class AsyncGivenCluster(_AsyncGiven):
    """Sends requests with a cluster client of asyncio."""

    def __init__(self, calls: Calls, client: redis.asyncio.RedisCluster) -> None:
        super().__init__(calls)
        self._client: Any = client

    async def _send(self, request: Call) -> Reply:
        command = self._calls.command(request)
        try:
            while True:
                client = await self._client.initialize()
                node = client.get_node_from_key(self._calls.key)
                try:
                    return await client.execute_command(*command, target_nodes=node, **{NEVER_DECODE: True})
                except redis.exceptions.ClusterError as error:
                    if not _is_moving(error):
                        raise
        except (AttributeError, IndexError, KeyError) as error:
            # errors in the driver while it searches its nodes again, or uses a connection that was just closed
            raise redis.exceptions.ConnectionError("the client has lost its connection") from error


def _is_moving(error: redis.exceptions.ClusterError) -> bool:
    """Return whether the driver followed a moving queue until its limit. Then no node has carried out the call."""
    return type(error) is redis.exceptions.ClusterError  # errors with another meaning have subclasses


def _checkout_arguments(pool: Any) -> tuple[str, ...]:
    """Return the arguments of the driver's `get_connection`: before release 5.3 it needs the name of a command."""
    name = inspect.signature(pool.get_connection).parameters.get("command_name")
    return ("FCALL",) if name is not None and name.default is inspect.Parameter.empty else ()
