"""A server at `maxmemory` refuses each publish as a whole; every operation that drains the queue still works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

import fairlane
from fairlane import migrate
from fairlane.errors import BackendFull, ConfigurationError
from tests.backends.redis.invariants import check
from tests.backends.redis.library import SECOND, Library
from tests.backends.redis.servers import connect, private
from tests.servers.redis import Redis

MEGABYTES = 6


@pytest.fixture
def server() -> Iterator[Redis]:
    with private("--maxmemory", f"{MEGABYTES}mb", "--maxmemory-policy", "noeviction") as made:
        yield made


def fill(library: Library) -> int:
    """Publish until the server is full, and return the number of stored messages."""
    for taken in range(100_000):
        try:
            library.publish(f"g{taken % 50}", "x" * 2000, taken % 5, f"id{taken}")
        except redis.exceptions.OutOfMemoryError:
            return taken
    raise AssertionError("the server has no limit")


def test_a_full_server_refuses_to_publish_and_writes_nothing(server: Redis) -> None:
    with connect(server.url) as client:
        library = Library(client)
        taken = fill(library)
        before = [client.dump(key) for key in library.keys]
        for group in ("g1", "a new group"):
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                library.publish(group, "1", 0, "a new id")
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                library.call("publish_many", group, "1", 0, "a new id")
        assert [client.dump(key) for key in library.keys] == before
        assert library.call("queue_status")[5] == taken
        check(library)


def test_a_full_server_is_drained(server: Redis) -> None:
    with connect(server.url) as client:
        library = Library(client)
        taken = fill(library)
        # now the server is far above its limit, as after somebody lowered the setting
        client.config_set("maxmemory", "1mb")
        library.claim("t", worker="w" * 512)
        library.call("extend", "g0", "t", SECOND)
        library.call("nack", "g0", "t", 0)
        library.call("group_status", 10)
        library.call("message_status", "g0", 10)
        (first,) = library.call("claim_many", "w" * 512, SECOND, 0, 1, "t")
        _, second = library.call("ack_and_claim", first[0], "t.1", "w" * 512, SECOND, 0, "t")
        assert library.call("ack_many", second[0], "t") == [1]
        done = 2
        while reply := library.claim("t", worker="w" * 512):
            library.call("ack", reply[0], "t")
            done += 1
        assert done == taken
        assert library.leftovers() == ["meta"]


def test_a_transport_says_that_the_server_is_full(server: Redis) -> None:
    migrate.upgrade(server.url, queue="jobs")
    with fairlane.connect(server.url, queue="jobs") as queue, connect(server.url) as client:
        queue.publish("g", 1)
        client.config_set("maxmemory", "1mb")
        with pytest.raises(BackendFull, match="maxmemory"):
            queue.publish("g", 2)
        lease = queue.claim("w", 30)
        assert lease is not None
        queue.ack(lease)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_is_refused_unless_allowed(policy: str) -> None:
    with private("--maxmemory-policy", policy) as server:
        for url in (
            server.url,
            f"{server.url}?allow_eviction=0",
        ):
            with pytest.raises(ConfigurationError, match=policy):
                migrate.upgrade(url, queue="jobs")
        assert migrate.status(server.url, queue="jobs").found is None
        allowed = f"{server.url}?allow_eviction=1"
        migrate.upgrade(allowed, queue="jobs")
        with pytest.raises(ConfigurationError, match=policy):
            fairlane.connect(server.url, queue="jobs")
        with fairlane.connect(allowed, queue="jobs") as queue:
            queue.publish("g", 1)
        with fairlane.connect(server.url, queue="jobs", allow_eviction=True) as queue:
            assert queue.inspect.queue().messages == 1
        with redis.Redis.from_url(server.url) as client:
            with pytest.raises(ConfigurationError, match=policy):
                fairlane.RedisTransport(client, queue="jobs").claim("w", 30)
            assert fairlane.RedisTransport(client, queue="jobs", allow_eviction=True).claim("w", 30)
