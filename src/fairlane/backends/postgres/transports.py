"""The transports of the Postgres backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from fairlane.async_transport import AsyncTransport
from fairlane.backends.postgres import MANIFEST
from fairlane.backends.postgres.options import TIMEOUT, PostgresOptions
from fairlane.codec import Codec, EventT
from fairlane.contract import DEFAULT_QUEUE
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, Transport

if TYPE_CHECKING:
    import psycopg
    import psycopg_pool


class PostgresTransport(Transport[T]):
    """A queue in a PostgreSQL schema, with psycopg 3: made from a URL, a `psycopg_pool.ConnectionPool` or a connection.

    With the application's connection, operations are part of its transaction. After an error of SQL, also after
    `LeaseLost`, that transaction can only be rolled back. To continue it after such an error, put the call into its own
    `with connection.transaction():`.
    """

    manifest = MANIFEST

    def __init__(
        self,
        client: psycopg_pool.ConnectionPool[Any] | psycopg.Connection[Any],
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(client, queue=queue, codec=codec, timeout=timeout)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[PostgresOptions],
    ) -> PostgresTransport[EventT]:
        """Use the database at a URL of libpq: `postgresql://user:password@host:5432/database`.

        See `Transport.from_url` for the other arguments and the errors.

        Args:
            options: see `PostgresOptions` and `OPTIONS` in `fairlane.backends.postgres.options`. The query of the URL
                may contain them too, together with the options of libpq.
        """
        made: PostgresTransport[EventT] = super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made


class AsyncPostgresTransport(AsyncTransport[T]):
    """A queue in a PostgreSQL schema for asyncio: made from a URL, an `AsyncConnectionPool` or an `AsyncConnection`.

    For transactions see `PostgresTransport`.
    """

    manifest = MANIFEST

    def __init__(
        self,
        client: psycopg_pool.AsyncConnectionPool[Any] | psycopg.AsyncConnection[Any],
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(client, queue=queue, codec=codec, timeout=timeout)

    @classmethod
    async def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[PostgresOptions],
    ) -> AsyncPostgresTransport[EventT]:
        """Use the database at a URL; see `PostgresTransport.from_url`."""
        made: AsyncPostgresTransport[EventT] = await super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made
