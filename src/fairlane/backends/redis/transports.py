"""The transports of the Redis backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import Unpack

from fairlane.async_transport import AsyncTransport
from fairlane.backends.redis import MANIFEST
from fairlane.backends.redis.options import RedisClientSettings, RedisOptions
from fairlane.codec import Codec, EventT
from fairlane.contract import DEFAULT_QUEUE
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, Transport

if TYPE_CHECKING:
    import redis
    import redis.asyncio


class RedisTransport(Transport[T]):
    """A queue in Redis or Valkey, on one server or a cluster, with redis-py. It is made from a URL or a client."""

    manifest = MANIFEST

    def __init__(
        self,
        client: redis.Redis | redis.RedisCluster,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        **options: Unpack[RedisClientSettings],
    ) -> None:
        super().__init__(client, queue=queue, codec=codec, **options)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[RedisOptions],
    ) -> RedisTransport[EventT]:
        """Use the server or cluster at a URL: `redis://host:6379/0`, `rediss://`, `redis+cluster://a:7000,b:7000`.

        See `Transport.from_url` for arguments and errors.

        Args:
            options: see `RedisOptions` and `OPTIONS` in `fairlane.backends.redis.options`.
        """
        made: RedisTransport[EventT] = super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made


class AsyncRedisTransport(AsyncTransport[T]):
    """A queue in Redis or Valkey for asyncio. It is made from a URL or a client of `redis.asyncio`.

    A transport that is made from a URL may be used in several event loops. Each loop has its own connections.
    """

    manifest = MANIFEST

    def __init__(
        self,
        client: redis.asyncio.Redis | redis.asyncio.RedisCluster,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        **options: Unpack[RedisClientSettings],
    ) -> None:
        super().__init__(client, queue=queue, codec=codec, **options)

    @classmethod
    async def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[RedisOptions],
    ) -> AsyncRedisTransport[EventT]:
        """Use the server or cluster at a URL; see `RedisTransport.from_url`."""
        made: AsyncRedisTransport[EventT] = await super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made
