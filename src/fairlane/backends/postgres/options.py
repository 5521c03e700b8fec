"""The options of the Postgres backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import count, optional, seconds

TIMEOUT = 30.0
"""Seconds that a call may take, unless the application says otherwise."""


class PostgresOptions(TypedDict, total=False):
    """What `PostgresTransport.from_url` takes besides, and the query of a URL. `OPTIONS` says what each is for."""

    max_connections: int
    timeout: float
    prepare_threshold: int | None


OPTIONS = (
    Option(
        "max_connections",
        count(1),
        default=10,
        doc="The most connections at once; calls beyond that wait for one. They are opened one by one, only when all "
        "others are in use. One that is thrown away while the server is still at work does not count any more.",
    ),
    Option(
        "timeout",
        seconds(0.001),
        default=TIMEOUT,
        unit="seconds",
        for_client=True,
        doc="How long a call may take in all: the wait for a free connection, and for the server's answer.",
    ),
    Option(
        "prepare_threshold",
        optional(count(0)),
        default=5,
        unit="calls",
        doc="After how many calls the server prepares a statement; `none` never prepares. Behind a pooler, which is "
        "noticed, nothing is prepared whatever this says.",
    ),
)
