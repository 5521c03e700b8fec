"""The rqlite backend: a cluster of SQLite databases that is used over HTTP."""

from __future__ import annotations

from fairlane.backends.base import Backend
from fairlane.backends.manifest import Manifest, TransportClasses
from fairlane.backends.rqlite.options import OPTIONS
from fairlane.backends.stored import Call, Rows
from fairlane.backends.targets import Choices, Target
from fairlane.capabilities import Capabilities


def _load() -> Backend[Call, Rows]:
    from fairlane.backends.rqlite.executor import AsyncRqliteExecutor, RqliteExecutor
    from fairlane.backends.shared.sent_twice import SentTwiceCore

    return Backend(SentTwiceCore, RqliteExecutor, AsyncRqliteExecutor)


def _transports() -> TransportClasses:
    from fairlane.backends.rqlite.transports import AsyncRqliteTransport, RqliteTransport

    return RqliteTransport, AsyncRqliteTransport


def _target(url: str, choices: Choices) -> Target:
    from fairlane.backends.rqlite.target import RqliteTarget

    return RqliteTarget(url, choices)


MANIFEST = Manifest(
    name="rqlite",
    schemes=("rqlite", "rqlites"),
    drivers=("requests", "httpx"),
    dialect="sqlite",
    choices=frozenset({"head_start"}),
    options=OPTIONS,
    load=_load,
    transports=_transports,
    target=_target,
    capabilities=Capabilities(
        "rqlite",
        server="rqlite >= 8.43",
        durability="always",
        resolution=0.11,  # 0.0864 s, a millionth of a day, and the errors of two roundings
        sql_views=True,
        atomic_batches=False,  # up to rqlite 9.4, a statement that fails does not end the transaction; see `wire`
        tested_messages=2_000,
        differences={
            4: "the clock is the leader's, so a new leader changes it: keep the nodes' clocks synchronised",
        },
    ),
)
