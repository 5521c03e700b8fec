"""The Postgres backend: functions in the queue's schema, called through psycopg 3."""

from __future__ import annotations

from fairlane.backends.base import Backend
from fairlane.backends.manifest import Manifest, TransportClasses
from fairlane.backends.postgres.options import OPTIONS
from fairlane.backends.stored import Call, Rows
from fairlane.backends.targets import Choices, Target
from fairlane.capabilities import Capabilities


def _load() -> Backend[Call, Rows]:
    from fairlane.backends.postgres.core import PostgresCore
    from fairlane.backends.postgres.executor import AsyncPostgresExecutor, PostgresExecutor

    return Backend(PostgresCore, PostgresExecutor, AsyncPostgresExecutor)


def _transports() -> TransportClasses:
    from fairlane.backends.postgres.transports import AsyncPostgresTransport, PostgresTransport

    return PostgresTransport, AsyncPostgresTransport


def _target(url: str, choices: Choices) -> Target:
    from fairlane.backends.postgres.target import PostgresTarget

    return PostgresTarget(url, choices)


MANIFEST = Manifest(
    name="postgres",
    schemes=("postgresql", "postgres"),
    drivers=("psycopg", "psycopg_pool"),
    dialect="postgres",
    options=OPTIONS,
    choices=frozenset({"owner_role", "app_role", "reader_role", "head_start"}),
    load=_load,
    transports=_transports,
    target=_target,
    capabilities=Capabilities(
        "postgres",
        server="PostgreSQL >= 14",
        strict_ties=False,
        transactional_publish=True,
        sql_views=True,
        differences={
            5: "groups that two transactions ack or nack in the same microsecond are served in either order",
            7: "a group that is often served keeps old row versions until vacuum, which an open transaction delays",
        },
    ),
)
