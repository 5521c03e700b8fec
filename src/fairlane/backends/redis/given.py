"""The application's own client: its pool of connections, or a cluster client. It stays open when the transport closes.

Requests go through the pool and not through the client's `execute_command`, which may be set to repeat what got no
answer (and is, in recent releases, unless told otherwise). A cluster client gets them with the node named, which keeps
it from repeating them, yet not from following MOVED and ASK.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import redis
import redis.asyncio
from redis.client import NEVER_DECODE

from fairlane.backends.redis.errors import NotSent
from fairlane.backends.redis.wire import Calls
from fairlane.backends.shared import forks
from fairlane.backends.shared.loops import OwnerLoop
from fairlane.backends.stored import Call

MOST_CALLS = 64
"""How many calls of one transport may be under way on a pool at once."""

_FAILURES = (OSError, redis.exceptions.RedisError)


@contextmanager
def _limited(connection: Any, deadline: float) -> Iterator[None]:
    """Let a connection of the application wait until a moment at most: its own limit may be none at all."""
    sock = getattr(connection, "_sock", None)  # None where a connection stands before another, as caches do
    if sock is None:
        yield
        return
    usual = sock.gettimeout()
    sock.settimeout(max(0.001, deadline - time.monotonic()))
    try:
        yield
    finally:
        with suppress(OSError):  # it may be closed
            sock.settimeout(usual)


class GivenPool:
    """Whatever stands behind a connection pool: a server, or Sentinel."""

    where: str | None = None

    def __init__(self, calls: Calls, client: redis.Redis) -> None:
        self._calls = calls
        self._pool: Any = client.connection_pool
        self._arguments = _checkout_arguments(self._pool)

    def send(self, request: Call, deadline: float) -> Any:
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
        """Do nothing: the pool is the application's."""


class GivenCluster:
    """A cluster client."""

    where: str | None = None

    def __init__(self, calls: Calls, client: redis.RedisCluster) -> None:
        self._calls = calls
        self._client: Any = client

    def send(self, request: Call, deadline: float) -> Any:
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
        """Do nothing: the client is the application's."""


class _AsyncGiven:
    """What both kinds of asyncio clients have in common.

    Every call runs in a task of its own, which a cancelled caller leaves to finish: a cancellation inside the driver
    may leave a connection with half a handshake or an unread reply, which the next call would take for its own.
    """

    where: str | None = None

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._tasks: set[asyncio.Task[Any]] = set()
        self._owner = forks.OwnerProcess("redis", "a client of its own")
        self._loop = OwnerLoop("redis", "a client of its own")

    async def send(self, request: Call, deadline: float) -> Any:
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
            # close() ended the call: the caller itself goes on
            raise redis.exceptions.ConnectionError("this transport was closed during the call") from None

    async def _in_time(self, call: Coroutine[Any, Any, Any], deadline: float) -> Any:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await call

    async def _send(self, request: Call) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        """End the calls in progress; their outcome is unknown. The client stays open: it is the application's."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AsyncGivenPool(_AsyncGiven):
    """Whatever stands behind a connection pool of asyncio: a server, or Sentinel."""

    def __init__(self, calls: Calls, client: redis.asyncio.Redis) -> None:
        super().__init__(calls)
        self._pool: Any = client.connection_pool
        self._arguments = _checkout_arguments(self._pool)
        self._limit = asyncio.Semaphore(MOST_CALLS)  # a pool may have no limit of its own

    async def _send(self, request: Call) -> Any:
        async with self._limit:
            try:
                connection = await self._pool.get_connection(*self._arguments)
            except _FAILURES as error:
                raise NotSent from error
            except RuntimeError as error:  # what asyncio says when another loop has opened it; nothing was sent
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
    """A cluster client of asyncio."""

    def __init__(self, calls: Calls, client: redis.asyncio.RedisCluster) -> None:
        super().__init__(calls)
        self._client: Any = client

    async def _send(self, request: Call) -> Any:
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
            # the driver's own mistakes while it finds its nodes anew, or uses a connection that has just been closed
            raise redis.exceptions.ConnectionError("the client has lost its connection") from error


def _is_moving(error: redis.exceptions.ClusterError) -> bool:
    """Tell whether the driver has followed a queue until it gave up. No node has carried the call out then."""
    return type(error) is redis.exceptions.ClusterError  # those of another kind are of classes below it


def _checkout_arguments(pool: Any) -> tuple[str, ...]:
    """Return what this release of the driver wants for a connection: before 5.3 the name of a command."""
    name = inspect.signature(pool.get_connection).parameters.get("command_name")
    return ("FCALL",) if name is not None and name.default is inspect.Parameter.empty else ()
