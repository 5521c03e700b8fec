"""The transports of the rqlite backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import Unpack

from fairlane.async_transport import AsyncTransport
from fairlane.backends.rqlite import MANIFEST
from fairlane.backends.rqlite.options import RqliteOptions
from fairlane.backends.shared.http import RETRY_SECONDS, TIMEOUT
from fairlane.codec import Codec, EventT
from fairlane.contract import DEFAULT_QUEUE
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, Transport

if TYPE_CHECKING:
    import httpx
    import requests


class RqliteTransport(Transport[T]):
    """A queue in an rqlite cluster, with requests. It is made from a URL, or a `requests.Session` and `url=…`."""

    manifest = MANIFEST

    def __init__(
        self,
        client: requests.Session,
        *,
        url: str,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        timeout: float = TIMEOUT,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Use the application's session, with its TLS settings, for the cluster at `url`. It is not closed."""
        options = {"timeout": timeout, "retry_seconds": retry_seconds}
        super().__init__(client, url=url, queue=queue, codec=codec, **options)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[RqliteOptions],
    ) -> RqliteTransport[EventT]:
        """Use the cluster at a URL: `rqlite://user:password@a:4001,b:4001`, `rqlites://…` for TLS.

        See `Transport.from_url`.

        Args:
            options: see `RqliteOptions` and `OPTIONS` in `fairlane.backends.rqlite.options`.
        """
        made: RqliteTransport[EventT] = super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made


class AsyncRqliteTransport(AsyncTransport[T]):
    """A queue in an rqlite cluster for asyncio, made from a URL, or from an `httpx.AsyncClient` and `url=…`."""

    manifest = MANIFEST

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        url: str,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        timeout: float = TIMEOUT,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Use the application's client, with its TLS settings, for the cluster at `url`. It is not closed."""
        options = {"timeout": timeout, "retry_seconds": retry_seconds}
        super().__init__(client, url=url, queue=queue, codec=codec, **options)

    @classmethod
    async def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[RqliteOptions],
    ) -> AsyncRqliteTransport[EventT]:
        """Use the cluster at a URL; see `RqliteTransport.from_url`."""
        made: AsyncRqliteTransport[EventT] = await super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made
