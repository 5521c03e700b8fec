"""The transports of the postgres backend."""

from __future__ import annotations

from fairlane.backends.postgres import MANIFEST
from fairlane.model import T
from fairlane.transport import AsyncTransport, Transport


class PostgresTransport(Transport[T]):
    """Queue in a PostgreSQL schema, through psycopg 3: built on a URL, a `psycopg_pool.ConnectionPool` or a connection.

    On a connection of the application the operations join its transaction. As after any error in SQL, also after
    `LeaseLost`, that can only be rolled back: put a call that may fail in a `with connection.transaction():` of its
    own to go on with the rest.
    """

    manifest = MANIFEST


class AsyncPostgresTransport(AsyncTransport[T]):
    """Queue in a PostgreSQL schema for asyncio: built on a URL, an `AsyncConnectionPool` or an `AsyncConnection`.

    What `PostgresTransport` says of transactions holds here too.
    """

    manifest = MANIFEST
