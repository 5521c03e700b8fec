"""The Redis and Valkey backend, for single servers and clusters. Each queue has its own function library."""

from __future__ import annotations

from fairlane.backends.base import Backend
from fairlane.backends.manifest import Manifest, TransportClasses
from fairlane.backends.redis.options import OPTIONS
from fairlane.backends.stored import Call, Rows
from fairlane.backends.targets import Choices, Target
from fairlane.capabilities import Capabilities


def _load() -> Backend[Call, Rows]:
    from fairlane.backends.redis.core import RedisCore
    from fairlane.backends.redis.executor import AsyncRedisExecutor, RedisExecutor

    return Backend(RedisCore, RedisExecutor, AsyncRedisExecutor)


def _transports() -> TransportClasses:
    from fairlane.backends.redis.transports import AsyncRedisTransport, RedisTransport

    return RedisTransport, AsyncRedisTransport


def _target(url: str, choices: Choices) -> Target:
    from fairlane.backends.redis.target import RedisTarget

    return RedisTarget(url, choices)


MANIFEST = Manifest(
    name="redis",
    schemes=("redis", "rediss", "redis+cluster", "rediss+cluster"),
    drivers=("redis", "hiredis"),
    dialect="redis",
    options=OPTIONS,
    choices=frozenset({"head_start"}),
    load=_load,
    transports=_transports,
    target=_target,
    capabilities=Capabilities(
        "redis",
        server="Redis or Valkey >= 7",
        differences={
            2: "only on one primary: replication is asynchronous, so a failover may lose the newest changes",
            3: "only on one primary, as promise 2",
        },
    ),
)
