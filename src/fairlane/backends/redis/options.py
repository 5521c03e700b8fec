"""The options of the Redis backend."""

from __future__ import annotations

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import boolean, count, seconds


class RedisOptions(TypedDict, total=False):
    """What `RedisTransport.from_url` takes besides, and the query of a URL. `OPTIONS` says what each is for."""

    max_connections: int
    timeout: float
    allow_eviction: bool
    wait_replicas: int


class RedisClientSettings(TypedDict, total=False):
    """What `RedisTransport` takes beside a client of the application."""

    timeout: float
    allow_eviction: bool


OPTIONS = (
    Option(
        "max_connections",
        count(1),
        default=64,
        doc="How many calls may be under way at once; further ones wait. Connections are opened as they are needed.",
    ),
    Option(
        "timeout",
        seconds(0.01),
        default=30.0,
        unit="seconds",
        doc="How long a call may take in all: to wait for a connection, to connect, to be answered.",
        for_client=True,
        aliases=("socket_timeout",),
    ),
    Option(
        "allow_eviction",
        boolean,
        default=False,
        doc="Work with a server that may throw messages away when its memory is full.",
        for_client=True,
    ),
    Option(
        "wait_replicas",
        count(0, 100),
        default=0,
        doc="How many replicas must have a change before the call that made it returns. A call that not so many have "
        "confirmed within a second raises an error, which says that it was carried out on the primary alone.",
    ),
)
