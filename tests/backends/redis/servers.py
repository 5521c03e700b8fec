"""Clients of the test servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from fairlane.backends.redis.address import make_client, make_cluster, parse
from tests.conftest import require_server
from tests.servers.redis import Redis

Client = Any
VARIABLES = {"single": "FAIRLANE_TEST_REDIS_URL", "cluster": "FAIRLANE_TEST_REDIS_CLUSTER_URL"}


def missing(kind: str) -> str | None:
    """Why there is no server of this kind; None if there is."""
    return None if os.environ.get(VARIABLES[kind]) else f"{VARIABLES[kind]} is not set: use `make test`"


def connect(url: str) -> Client:
    address = parse(url)
    return make_cluster(address) if address.cluster else make_client(address)


def primaries(client: Client) -> list[Client]:
    if isinstance(client, redis.RedisCluster):
        return [client.get_redis_connection(node) for node in client.get_primaries()]  # type: ignore[no-untyped-call]
    return [client]


@contextmanager
def private(*args: str) -> Iterator[Redis]:
    """A server for one test alone; `args` are added to its command line."""
    require_server(None if Redis.find() else Redis.hint)
    with Redis(*args) as server:
        yield server
