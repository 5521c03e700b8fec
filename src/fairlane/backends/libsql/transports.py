"""The transports of the libSQL backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import Unpack

from fairlane.async_transport import AsyncTransport
from fairlane.backends.libsql import MANIFEST
from fairlane.backends.libsql.options import LibsqlOptions
from fairlane.backends.shared.http import RETRY_SECONDS, TIMEOUT
from fairlane.codec import Codec, EventT
from fairlane.contract import DEFAULT_QUEUE
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, Transport

if TYPE_CHECKING:
    from fairlane.backends.libsql.given import Client, ClientSync


class LibsqlTransport(Transport[T]):
    """A queue in libSQL (sqld, Turso), with libsql-client. It is made from a URL or a `ClientSync`.

    A `ClientSync` carries out one request at a time. With a URL, threads do not wait for each other.
    """

    manifest = MANIFEST

    def __init__(
        self,
        client: ClientSync,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        timeout: float = TIMEOUT,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Use the application's client. It is not closed."""
        super().__init__(client, queue=queue, codec=codec, timeout=timeout, retry_seconds=retry_seconds)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[LibsqlOptions],
    ) -> LibsqlTransport[EventT]:
        """Use the server at a URL: `libsql://:TOKEN@host` with TLS, `libsql+http://host:8080` without.

        See `Transport.from_url`.

        Args:
            options: see `LibsqlOptions` and `OPTIONS` in `fairlane.backends.libsql.options`.
        """
        made: LibsqlTransport[EventT] = super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made


class AsyncLibsqlTransport(AsyncTransport[T]):
    """A queue in libSQL (sqld, Turso) for asyncio. It is made from a URL or a `libsql_client.Client`."""

    manifest = MANIFEST

    def __init__(
        self,
        client: Client,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        timeout: float = TIMEOUT,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Use the application's client. It is not closed."""
        super().__init__(client, queue=queue, codec=codec, timeout=timeout, retry_seconds=retry_seconds)

    @classmethod
    async def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[LibsqlOptions],
    ) -> AsyncLibsqlTransport[EventT]:
        """Use the server at a URL; see `LibsqlTransport.from_url`."""
        made: AsyncLibsqlTransport[EventT] = await super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made
