"""Ordered, per-key queues in the database you already run.

A queue is partitioned into groups; at most one message of a group is in flight, so the events of one order, tenant
or workflow are handled in order while different groups run in parallel.
"""

from fairlane import migrate
from fairlane.capabilities import Capabilities, capabilities
from fairlane.codec import Codec, JsonCodec
from fairlane.connect import connect, connect_async
from fairlane.contract import AsyncTransport, Transport
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
    SchemaNotReady,
    TransportClosed,
    UnsupportedByBackend,
)
from fairlane.model import GroupStatus, Lease, MessageStatus, QueueStatus
from fairlane.transports import (
    AsyncInMemoryTransport,
    AsyncLibsqlTransport,
    AsyncMongoTransport,
    AsyncPostgresTransport,
    AsyncRedisTransport,
    AsyncRqliteTransport,
    AsyncSqliteTransport,
    AsyncSqsTransport,
    InMemoryTransport,
    LibsqlTransport,
    MongoTransport,
    PostgresTransport,
    RedisTransport,
    RqliteTransport,
    SqliteTransport,
    SqsTransport,
)

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
    "MessageStatus",
    "MissingExtra",
    "MongoTransport",
    "PostgresTransport",
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
