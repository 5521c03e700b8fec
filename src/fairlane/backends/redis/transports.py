"""The transports of the redis backend."""

from __future__ import annotations

from fairlane.backends.redis import MANIFEST
from fairlane.model import T
from fairlane.transport import AsyncTransport, Transport


class RedisTransport(Transport[T]):
    """Queue in Redis or Valkey, alone or as a cluster, through redis-py: built on a URL or a client."""

    manifest = MANIFEST


class AsyncRedisTransport(AsyncTransport[T]):
    """Queue in Redis or Valkey for asyncio: built on a URL or a client of `redis.asyncio`."""

    manifest = MANIFEST
