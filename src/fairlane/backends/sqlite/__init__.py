"""The SQLite backend: a file for the threads and processes of one machine."""

from __future__ import annotations

from fairlane.backends.base import Backend
from fairlane.backends.manifest import Manifest, TransportClasses
from fairlane.backends.sqlite.options import OPTIONS
from fairlane.backends.stored import Call, Rows
from fairlane.backends.targets import Choices, Target
from fairlane.capabilities import Capabilities


def _load() -> Backend[Call, Rows]:
    from fairlane.backends.sqlite.core import SqliteCore
    from fairlane.backends.sqlite.executor import AsyncSqliteExecutor, SqliteExecutor

    return Backend(SqliteCore, SqliteExecutor, AsyncSqliteExecutor)


def _transports() -> TransportClasses:
    from fairlane.backends.sqlite.transports import AsyncSqliteTransport, SqliteTransport

    return SqliteTransport, AsyncSqliteTransport


def _target(url: str, choices: Choices) -> Target:
    from fairlane.backends.sqlite.target import SqliteTarget

    return SqliteTarget(url, choices)


MANIFEST = Manifest(
    name="sqlite",
    schemes=("sqlite",),
    dialect="sqlite",
    choices=frozenset({"head_start"}),
    options=OPTIONS,
    load=_load,
    transports=_transports,
    target=_target,
    capabilities=Capabilities(
        "sqlite",
        server="SQLite >= 3.35 (part of Python)",
        reach="machine",
        durability="always",
        clock="process",
        resolution=1e-3,
        transactional_publish=True,
        sql_views=True,
    ),
)
