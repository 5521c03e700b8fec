"""The transport classes, two for each backend."""

from __future__ import annotations

from fairlane import contract
from fairlane.backends.memory.executor import MemoryStore
from fairlane.codec import Codec
from fairlane.facade import AsyncFacade, SyncFacade


class InMemoryTransport(SyncFacade):
    """Queue in this process's memory, for tests and single-process programs; gone when the process ends.

    Transports of one queue name share their messages unless they are given a `MemoryStore` of their own.
    """

    backend = "memory"

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        queue: str = contract.DEFAULT_QUEUE,
        codec: Codec | None = None,
    ) -> None:
        super().__init__(store, queue=queue, codec=codec)


class AsyncInMemoryTransport(AsyncFacade):
    """Queue in this process's memory for asyncio; shares its messages with `InMemoryTransport` of the same queue."""

    backend = "memory"

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        queue: str = contract.DEFAULT_QUEUE,
        codec: Codec | None = None,
    ) -> None:
        super().__init__(store, queue=queue, codec=codec)


class SqliteTransport(SyncFacade):
    """Queue in an SQLite file, shared by the threads and processes of one machine."""

    backend = "sqlite"


class AsyncSqliteTransport(AsyncFacade):
    """Queue in an SQLite file for asyncio, through aiosqlite."""

    backend = "sqlite"


class PostgresTransport(SyncFacade):
    """Queue in a PostgreSQL schema, through psycopg 3: built on a URL, a `psycopg_pool.ConnectionPool` or a connection.

    On a connection of the application the operations join its transaction. As after any error in SQL, also after
    `LeaseLost`, that can only be rolled back: put a call that may fail in a `with connection.transaction():` of its
    own to go on with the rest.
    """

    backend = "postgres"


class AsyncPostgresTransport(AsyncFacade):
    """Queue in a PostgreSQL schema for asyncio: built on a URL, an `AsyncConnectionPool` or an `AsyncConnection`.

    What `PostgresTransport` says of transactions holds here too.
    """

    backend = "postgres"


class RedisTransport(SyncFacade):
    """Queue in Redis or Valkey, alone or as a cluster, through redis-py: built on a URL or a client."""

    backend = "redis"


class AsyncRedisTransport(AsyncFacade):
    """Queue in Redis or Valkey for asyncio: built on a URL or a client of `redis.asyncio`."""

    backend = "redis"


class MongoTransport(SyncFacade):
    """Queue in MongoDB, through pymongo: built on a URL or a `MongoClient`."""

    backend = "mongo"


class AsyncMongoTransport(AsyncFacade):
    """Queue in MongoDB for asyncio: built on a URL or an `AsyncMongoClient`."""

    backend = "mongo"


class LibsqlTransport(SyncFacade):
    """Queue in libSQL (sqld, Turso), through libsql-client: built on a URL or a `ClientSync`.

    A `ClientSync` carries out one request at a time; on a URL, threads do not wait for each other.
    """

    backend = "libsql"


class AsyncLibsqlTransport(AsyncFacade):
    """Queue in libSQL (sqld, Turso) for asyncio: built on a URL or a `libsql_client.Client`."""

    backend = "libsql"


class RqliteTransport(SyncFacade):
    """Queue in an rqlite cluster, through requests: built on a URL, or on a `requests.Session` and `url=…`."""

    backend = "rqlite"


class AsyncRqliteTransport(AsyncFacade):
    """Queue in an rqlite cluster for asyncio, through httpx: built on a URL, or on an `AsyncClient` and `url=…`."""

    backend = "rqlite"


class SqsTransport(SyncFacade):
    """Queue in Amazon SQS (FIFO), through boto3: built on a URL or a client of boto3."""

    backend = "sqs"


class AsyncSqsTransport(AsyncFacade):
    """Queue in Amazon SQS (FIFO) for asyncio: built on a URL or a client of aiobotocore."""

    backend = "sqs"


SYNC: dict[str, type[SyncFacade]] = {
    "memory": InMemoryTransport,
    "sqlite": SqliteTransport,
    "postgres": PostgresTransport,
    "redis": RedisTransport,
    "mongo": MongoTransport,
    "libsql": LibsqlTransport,
    "rqlite": RqliteTransport,
    "sqs": SqsTransport,
}
ASYNC: dict[str, type[AsyncFacade]] = {
    "memory": AsyncInMemoryTransport,
    "sqlite": AsyncSqliteTransport,
    "postgres": AsyncPostgresTransport,
    "redis": AsyncRedisTransport,
    "mongo": AsyncMongoTransport,
    "libsql": AsyncLibsqlTransport,
    "rqlite": AsyncRqliteTransport,
    "sqs": AsyncSqsTransport,
}
