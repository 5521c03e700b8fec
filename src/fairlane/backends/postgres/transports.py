"""The transports of the postgres backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from fairlane.backends.postgres import MANIFEST
from fairlane.backends.postgres.options import TIMEOUT, PostgresOptions
from fairlane.codec import Codec, EventT
from fairlane.contract import DEFAULT_QUEUE
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, AsyncTransport, Transport

if TYPE_CHECKING:
    import psycopg
    import psycopg_pool


class PostgresTransport(Transport[T]):
    """Queue in a PostgreSQL schema, through psycopg 3: built on a URL, a `psycopg_pool.ConnectionPool` or a connection.

    On a connection of the application the operations join its transaction. As after any error in SQL, also after
    `LeaseLost`, that can only be rolled back: put a call that may fail in a `with connection.transaction():` of its
    own to go on with the rest.
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
        """Connect to the database at a URL of libpq: `postgresql://user:password@host:5432/database`.

        See `Transport.from_url` for the other arguments and the errors.

        Args:
            options: `PostgresOptions` names them, beside it `OPTIONS` documents them. They may stand in the query of
                the URL as well, beside libpq's own.
        """
        made: PostgresTransport[EventT] = super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made


class AsyncPostgresTransport(AsyncTransport[T]):
    """Queue in a PostgreSQL schema for asyncio: built on a URL, an `AsyncConnectionPool` or an `AsyncConnection`.

    What `PostgresTransport` says of transactions holds here too.
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
        """Connect to the database at a URL; see `PostgresTransport.from_url`."""
        made: AsyncPostgresTransport[EventT] = await super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made
