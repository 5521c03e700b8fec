"""The options of the Redis backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import boolean, count, seconds


class RedisOptions(TypedDict, total=False):
    """The options of `RedisTransport.from_url` and of the query of a URL. `OPTIONS` documents them."""

    max_connections: int
    timeout: float
    allow_eviction: bool
    wait_replicas: int


class RedisClientSettings(TypedDict, total=False):
    """The options of a `RedisTransport` that is made from the application's client."""

    timeout: float
    allow_eviction: bool


OPTIONS = (
    Option(
        "max_connections",
        count(1),
        default=64,
        doc="How many calls may run at the same time; more calls wait. Connections are opened when they are needed.",
    ),
    Option(
        "timeout",
        seconds(0.01),
        default=30.0,
        unit="seconds",
        doc="How long a call may take in total: waiting for a connection, connecting, and waiting for the answer.",
        for_client=True,
        aliases=("socket_timeout",),
    ),
    Option(
        "allow_eviction",
        boolean,
        default=False,
        doc="Accept a server that may delete messages when its memory is full.",
        for_client=True,
    ),
    Option(
        "wait_replicas",
        count(0, 100),
        default=0,
        doc="How many replicas must confirm a change before its call returns. If fewer confirm it within a second, the "
        "call raises an error, which says that it was carried out on the primary.",
    ),
)
