"""The options of the Postgres backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import count, optional, seconds


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
        doc="The most connections at once; calls beyond that wait for one. Calls under way when a connection breaks "
        "may keep theirs for a moment beside those that take their place.",
    ),
    Option(
        "timeout",
        seconds(0.001),
        default=30.0,
        unit="seconds",
        doc="How long a call waits for a free connection.",
    ),
    Option(
        "prepare_threshold",
        optional(count(0)),
        default=5,
        unit="calls",
        doc="After how many calls the server prepares a statement; `none` never prepares, for poolers that hand every "
        "transaction to another server connection.",
    ),
)
