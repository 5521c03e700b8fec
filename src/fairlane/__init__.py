"""Ordered, per-key queues in the database you already run.

A queue is partitioned into groups. At most one message of a group is in flight. So the events of one order, tenant
or workflow are handled in order, and different groups are handled in parallel.
"""

from fairlane import migrate
from fairlane.async_transport import AsyncTransport
from fairlane.backends.libsql.transports import AsyncLibsqlTransport, LibsqlTransport
from fairlane.backends.memory.store import MemoryStore
from fairlane.backends.memory.transports import AsyncInMemoryTransport, InMemoryTransport
from fairlane.backends.mongo.transports import AsyncMongoTransport, MongoTransport
from fairlane.backends.postgres.transports import AsyncPostgresTransport, PostgresTransport
from fairlane.backends.redis.transports import AsyncRedisTransport, RedisTransport
from fairlane.backends.rqlite.transports import AsyncRqliteTransport, RqliteTransport
from fairlane.backends.sqlite.transports import AsyncSqliteTransport, SqliteTransport
from fairlane.backends.sqs.transports import AsyncSqsTransport, SqsTransport
from fairlane.capabilities import Capabilities
from fairlane.codec import Codec, JsonCodec
from fairlane.connect import capabilities, connect, connect_async
from fairlane.errors import (
    AuthenticationFailed,
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    EventDecodingError,
    EventEncodingError,
    EventTooLarge,
    FairlaneError,
    LeaseLost,
    MissingExtra,
    QueueDamaged,
    SchemaNotReady,
    TransportClosed,
    UnsupportedByBackend,
)
from fairlane.model import GroupStatus, Lease, Message, MessageStatus, QueueStatus
from fairlane.transport import Transport

__version__ = "0.1.0"

__all__ = [
    "AsyncInMemoryTransport",
    "AsyncLibsqlTransport",
    "AsyncMongoTransport",
    "AsyncPostgresTransport",
    "AsyncRedisTransport",
    "AsyncRqliteTransport",
    "AsyncSqliteTransport",
    "AsyncSqsTransport",
    "AsyncTransport",
    "AuthenticationFailed",
    "BackendFull",
    "BackendUnavailable",
    "Capabilities",
    "Codec",
    "ConfigurationError",
    "EventDecodingError",
    "EventEncodingError",
    "EventTooLarge",
    "FairlaneError",
    "GroupStatus",
    "InMemoryTransport",
    "JsonCodec",
    "Lease",
    "LeaseLost",
    "LibsqlTransport",
    "MemoryStore",
    "Message",
    "MessageStatus",
    "MissingExtra",
    "MongoTransport",
    "PostgresTransport",
    "QueueDamaged",
    "QueueStatus",
    "RedisTransport",
    "RqliteTransport",
    "SchemaNotReady",
    "SqliteTransport",
    "SqsTransport",
    "Transport",
    "TransportClosed",
    "UnsupportedByBackend",
    "__version__",
    "capabilities",
    "connect",
    "connect_async",
    "migrate",
]
