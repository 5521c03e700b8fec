"""What the tests need to know of each backend besides its transports: one kit for each, and its line in `KITS`."""

from __future__ import annotations

from tests.harness.kits.base import Kit
from tests.harness.kits.libsql import LibsqlKit
from tests.harness.kits.memory import MemoryKit
from tests.harness.kits.mongo import MongoKit
from tests.harness.kits.postgres import PgBouncerKit, PgBouncerSessionKit, PostgresKit
from tests.harness.kits.redis import RedisClusterKit, RedisKit
from tests.harness.kits.rqlite import RqliteKit
from tests.harness.kits.sqlite import SqliteKit
from tests.harness.kits.sqs import SqsKit

KITS: dict[str, type[Kit]] = {
    "memory": MemoryKit,
    "sqlite": SqliteKit,
    "postgres": PostgresKit,
    "pgbouncer": PgBouncerKit,
    "pgbouncer-session": PgBouncerSessionKit,
    "redis": RedisKit,
    "redis-cluster": RedisClusterKit,
    "mongo": MongoKit,
    "libsql": LibsqlKit,
    "rqlite": RqliteKit,
    "sqs": SqsKit,
}
"""The kits by the name in the test's id."""
