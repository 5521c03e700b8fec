"""Clients of the test servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.retry

from fairlane.backends.redis.address import make_client, make_cluster, parse
from tests.conftest import require_server
from tests.harness import Queue, Queues
from tests.servers.redis import Redis

Client = Any
TWINS = ("sync", "async")
VARIABLES = {"single": "FAIRLANE_TEST_REDIS_URL", "cluster": "FAIRLANE_TEST_REDIS_CLUSTER_URL"}


def missing(kind: str) -> str | None:
    """Why there is no server of this kind; None if there is one."""
    return None if os.environ.get(VARIABLES[kind]) else f"{VARIABLES[kind]} is not set: use `make test`"


def connect(url: str) -> Client:
    address = parse(url)
    return make_cluster(address) if address.cluster else make_client(address)


def primaries(client: Client) -> list[Client]:
    if isinstance(client, redis.RedisCluster):
        return [client.get_redis_connection(node) for node in client.get_primaries()]  # type: ignore[no-untyped-call]
    return [client]


def on_client(queues: Queues, url: str, name: str, *, timeout: float = 30.0, **settings: Any) -> Queue:
    """A transport on a client of the application, which repeats failed commands unless `settings` forbid it."""
    blocking = queues.twin == "sync"
    retries: Any = redis.retry.Retry if blocking else redis.asyncio.retry.Retry
    again = {"retry": retries(redis.backoff.ConstantBackoff(0.01), 5), "retry_on_error": [redis.ConnectionError]}
    kind: Any = redis.Redis if blocking else redis.asyncio.Redis
    client = kind.from_url(url, **{**again, **settings})
    queues.afterwards(client.close if blocking else client.aclose)
    return queues.over(name, client, timeout=timeout)


@contextmanager
def private(*args: str) -> Iterator[Redis]:
    """A server for one test only; `args` are added to its command line."""
    require_server(None if Redis.find() else Redis.hint)
    with Redis(*args) as server:
        yield server
