"""The transports of the SQS backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import Unpack

from fairlane.async_transport import AsyncTransport
from fairlane.backends.sqs import MANIFEST
from fairlane.backends.sqs.options import SqsOptions
from fairlane.codec import Codec, EventT
from fairlane.contract import DEFAULT_QUEUE
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, Transport

if TYPE_CHECKING:
    from fairlane.backends.sqs.wire import AsyncClient, Client


class SqsTransport(Transport[T]):
    """A queue in Amazon SQS (FIFO), with boto3. It is made from a URL or the application's client, which stays open."""

    manifest = MANIFEST

    def __init__(self, client: Client, *, queue: str = DEFAULT_QUEUE, codec: Codec[T] | None = None) -> None:
        super().__init__(client, queue=queue, codec=codec)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[SqsOptions],
    ) -> SqsTransport[EventT]:
        """Use the region or the endpoint that a URL names, `sqs://region/`; see `Transport.from_url`.

        Args:
            options: see `SqsOptions` and `OPTIONS` in `fairlane.backends.sqs.options`.
        """
        made: SqsTransport[EventT] = super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made


class AsyncSqsTransport(AsyncTransport[T]):
    """A queue in Amazon SQS (FIFO) for asyncio, with aiobotocore; see `SqsTransport`."""

    manifest = MANIFEST

    def __init__(self, client: AsyncClient, *, queue: str = DEFAULT_QUEUE, codec: Codec[T] | None = None) -> None:
        super().__init__(client, queue=queue, codec=codec)

    @classmethod
    async def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[SqsOptions],
    ) -> AsyncSqsTransport[EventT]:
        """Use the region or the endpoint that a URL names; see `SqsTransport.from_url`."""
        made: AsyncSqsTransport[EventT] = await super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made
