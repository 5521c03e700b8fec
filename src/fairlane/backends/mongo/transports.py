"""The transports of the MongoDB backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from fairlane.async_transport import AsyncTransport
from fairlane.backends.mongo import MANIFEST
from fairlane.backends.mongo.options import MongoOptions
from fairlane.codec import Codec, EventT
from fairlane.contract import DEFAULT_QUEUE
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, Transport

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient, MongoClient


class MongoTransport(Transport[T]):
    """A queue in MongoDB, with pymongo. It is made from a URL or from the application's client, which stays open."""

    manifest = MANIFEST

    def __init__(
        self,
        client: MongoClient[Any],
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        **options: Unpack[MongoOptions],
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
        **options: Unpack[MongoOptions],
    ) -> MongoTransport[EventT]:
        """Use the servers of a URL of pymongo, whose path names the database; see `Transport.from_url`.

        Args:
            options: see `MongoOptions` and `OPTIONS` in `fairlane.backends.mongo.options`.
        """
        made: MongoTransport[EventT] = super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made


class AsyncMongoTransport(AsyncTransport[T]):
    """A queue in MongoDB for asyncio, with pymongo; see `MongoTransport`."""

    manifest = MANIFEST

    def __init__(
        self,
        client: AsyncMongoClient[Any],
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        **options: Unpack[MongoOptions],
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
        **options: Unpack[MongoOptions],
    ) -> AsyncMongoTransport[EventT]:
        """Use the servers of a URL; see `MongoTransport.from_url`."""
        made: AsyncMongoTransport[EventT] = await super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made
