"""Either transport behind one async face, built on a URL or on a client of the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.retry

import fairlane

TWINS = ("sync", "async")


class Twin:
    """One transport. `call("ack", lease)` works the same for both kinds."""

    lease: Any = None

    def __init__(self, transport: Any, client: Any = None) -> None:
        self.transport = transport
        self.client = client
        self._blocking = isinstance(transport, fairlane.RedisTransport)

    async def call(self, operation: str, *arguments: Any, **named: Any) -> Any:
        target = self.transport
        for name in operation.split("."):
            target = getattr(target, name)
        return await self._run(target, *arguments, **named)

    async def _run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self._blocking:
            return await asyncio.to_thread(function, *arguments, **named)
        return await function(*arguments, **named)

    async def close(self) -> None:
        await self.call("close")
        if self.client is not None:
            closing = self.client.close if self._blocking else self.client.aclose
            await self._run(closing)


async def from_url(twin: str, url: str, queue: str, **options: Any) -> Twin:
    if twin == "sync":
        return Twin(await asyncio.to_thread(fairlane.connect, url, queue=queue, **options))
    return Twin(await fairlane.connect_async(url, queue=queue, **options))


def on_client(twin: str, url: str, queue: str, *, timeout: float = 30.0, **settings: Any) -> Twin:
    """A transport on a client of the application, which repeats failed commands unless told otherwise."""
    if twin == "sync":
        retry: Any = redis.retry.Retry(redis.backoff.ConstantBackoff(0.01), 5)
    else:
        retry = redis.asyncio.retry.Retry(redis.backoff.ConstantBackoff(0.01), 5)
    settings = {"retry": retry, "retry_on_error": [redis.exceptions.ConnectionError], **settings}
    if twin == "sync":
        client: Any = redis.Redis.from_url(url, **settings)
        return Twin(fairlane.RedisTransport(client, queue=queue, timeout=timeout), client)
    client = redis.asyncio.Redis.from_url(url, **settings)
    return Twin(fairlane.AsyncRedisTransport(client, queue=queue, timeout=timeout), client)
