"""The libSQL backend (sqld, Turso): an SQLite database that is used over HTTP."""

from __future__ import annotations

from fairlane.backends.base import Backend
from fairlane.backends.libsql.options import OPTIONS
from fairlane.backends.manifest import Manifest, TransportClasses
from fairlane.backends.stored import Call, Rows
from fairlane.backends.targets import Choices, Target
from fairlane.capabilities import Capabilities


def _load() -> Backend[Call, Rows]:
    from fairlane.backends.libsql.executor import AsyncLibsqlExecutor, LibsqlExecutor
    from fairlane.backends.shared.sent_twice import SentTwiceCore

    return Backend(SentTwiceCore, LibsqlExecutor, AsyncLibsqlExecutor)


def _transports() -> TransportClasses:
    from fairlane.backends.libsql.transports import AsyncLibsqlTransport, LibsqlTransport

    return LibsqlTransport, AsyncLibsqlTransport


def _target(url: str, choices: Choices) -> Target:
    from fairlane.backends.libsql.target import LibsqlTarget

    return LibsqlTarget(url, choices)


MANIFEST = Manifest(
    name="libsql",
    schemes=("libsql", "libsql+http", "libsql+https"),
    drivers=("libsql_client", "aiohttp"),
    dialect="sqlite",
    choices=frozenset({"head_start"}),
    options=OPTIONS,
    load=_load,
    transports=_transports,
    target=_target,
    capabilities=Capabilities(
        "libsql",
        server="libSQL (sqld, Turso)",
        resolution=1e-3,
        sql_views=True,
        max_event_bytes=5_000_000,  # for a row, its ids included
        tested_messages=2_000,
    ),
)
