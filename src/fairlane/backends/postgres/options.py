"""The options of the Postgres backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import count, optional, seconds

TIMEOUT = 30.0
"""Seconds that a call may take by default."""


class PostgresOptions(TypedDict, total=False):
    """The options of `PostgresTransport.from_url` and of the query of a URL. `OPTIONS` documents them."""

    max_connections: int
    timeout: float
    prepare_threshold: int | None


OPTIONS = (
    Option(
        "max_connections",
        count(1),
        default=10,
        doc="The largest number of connections; more calls wait for a free one. Connections are opened one by one, "
        "only when all others are in use. A connection that is closed during a call does not count any more.",
    ),
    Option(
        "timeout",
        seconds(0.001),
        default=TIMEOUT,
        unit="seconds",
        for_client=True,
        doc="How long a call may take in total: waiting for a free connection and for the server's answer.",
    ),
    Option(
        "prepare_threshold",
        optional(count(0)),
        default=5,
        unit="calls",
        doc="After how many calls the server prepares a statement; with `none` never. Fairlane detects poolers. Behind "
        "a pooler nothing is prepared, whatever the value is.",
    ),
)
