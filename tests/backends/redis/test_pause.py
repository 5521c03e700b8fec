"""A pause on Redis: where its place and its mark are, that no damage ends it, and that a downgrade does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from tests.backends.redis.invariants import check
from tests.backends.redis.library import SECOND, Library
from tests.backends.redis.servers import connect, private
from tests.harness import held
from tests.servers.redis import Redis

LAYOUT = ("groups", "heads", "parked", "floor:0", "floor:1", "floor:2", "floor:3", "floor:4")
URL = "FAIRLANE_TEST_REDIS_URL"


def states(library: Library) -> dict[bytes, bytes]:
    return {row[0]: row[1] for row in library.call("group_status", 100)}


@pytest.mark.parametrize("group", ["a:b", "paused", "paused:g", "+inf", "{x}", "\x01", b"\xff\xfe", "z" * 512])
def test_any_name_of_a_group_can_be_paused(library: Library, group: str | bytes) -> None:
    """Guards against a pause that is stored under a name which something else has, or which another group has."""
    library.publish("g")
    assert library.call("pause", group) == 1
    library.publish(group, "2", 4)
    assert library.order() == [b"g"]
    assert library.call("resume", group) == 1
    assert library.order() == [group.encode() if isinstance(group, str) else group]


@pytest.mark.parametrize("odd", range(4))
def test_a_lease_never_ends_earlier_after_a_pause(timed: Callable[..., Library], odd: int) -> None:
    """Guards against rounding: from 2^53 on a place is an even number."""
    library = timed()
    library.publish("g")
    library.claim("t", SECOND + odd)
    before = library.client.zscore(library.key("floor:0"), "g")
    library.call("pause", "g")
    library.call("resume", "g")
    after = library.client.zscore(library.key("floor:0"), "g")
    assert after - before == before % 2
    check(library)


def test_what_extend_and_nack_return_is_the_time_beneath_a_pause(timed: Callable[..., Library]) -> None:
    library = timed()
    library.publish("g")
    now = library.claim("t")[6] - 60 * SECOND
    library.call("pause", "g")
    assert 0 <= library.call("extend", "g", "t", 90 * SECOND) - now - 90 * SECOND < 10
    assert states(library) == {b"g": b"in_flight"}
    assert 0 <= library.call("nack", "g", "t", 30 * SECOND) - now - 30 * SECOND < 10
    assert library.call("queue_status", 1)[1:9] == [1, 0, 0, 0, 1, library.call("queue_status")[6], 1, 0]
    library.call("resume", "g")
    assert states(library) == {b"g": b"parked"}
    check(library)


@pytest.mark.parametrize("place", [-1e300, 0.5, 2.0**53, 1e300, "+inf", "-inf"])
def test_a_group_with_any_place_can_be_paused_and_resumed(single: Any, place: float | str) -> None:
    """Guards against a number that is none, and against a damaged place in front of the line also while paused."""
    library = Library(single)
    library.publish("g")
    single.zadd(library.key("floor:0"), {"g": place})
    library.call("pause", "g")
    assert library.claim("t") is None
    assert states(library) == {b"g": b"paused"}
    library.call("resume", "g")
    assert states(library)[b"g"] in (b"ready", b"parked")
    library.remove()


def test_a_group_that_is_damaged_and_paused_stays_paused(library: Library) -> None:
    for group in ("bad", "good"):
        library.publish(group, "1", 3)
    library.call("pause", "bad")
    library.client.hset(library.key("groups"), "bad", "rubbish")
    assert library.order() == [b"good"]
    assert states(library)[b"bad"] == b"paused"
    library.call("resume", "bad")
    assert library.order(3) == [b"bad"]


def test_a_paused_group_that_is_dropped_as_damaged_stays_paused(single: Any) -> None:
    library = Library(single)
    library.publish("bad")
    library.call("pause", "bad")
    single.zremrangebylex(library.key("messages"), b"[bad\0", b"(bad\1")
    single.zadd(library.key("floor:0"), {"bad": 0.5})  # at the front of the line, where a claim finds that it is empty
    assert library.claim("t") is None
    library.publish("bad", "2")
    assert library.claim("t") is None
    assert states(library) == {b"bad": b"paused"}
    library.remove()


@pytest.mark.parametrize("name", LAYOUT)
def test_a_migration_leaves_a_group_with_messages_paused_whichever_key_was_lost(
    damaged: tuple[fairlane.RedisTransport[Any], Library], name: str
) -> None:
    """Guards against a repair that puts paused groups back in line."""
    queue, library = damaged
    queue.publish("parked", 1, 3)
    queue.nack(held(queue.claim("w", 30)), 3600)
    for group, priority in (("low", 0), ("high", 3)):
        queue.publish(group, 1, priority)
    for group in ("parked", "low", "high"):
        queue.pause(group)
    library.client.delete(library.key(name))
    migrate.upgrade(os.environ[URL], queue=library.queue)
    check(library)
    assert {row.state for row in queue.inspect.groups()} == {"paused"}
    assert queue.claim("w", 30) is None
    for group in ("low", "high"):
        assert queue.resume(group)
    assert {held(queue.claim("w", 30)).group_id for _ in range(2)} == {"low", "high"}


def test_functions_that_were_lost_and_are_loaded_again_end_no_pause(
    damaged: tuple[fairlane.RedisTransport[Any], Library],
) -> None:
    """Guards against the library for a downgrade, or one that is loaded on the way to the newest, that ends pauses."""
    queue, library = damaged
    queue.publish("g", 1)
    queue.pause("g")
    queue.pause()
    library.client.function_delete(f"fairlane_{library.queue}")
    migrate.upgrade(os.environ[URL], queue=library.queue)
    status = queue.inspect.queue()
    assert (status.paused, status.is_paused) == (1, True)


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with private() as made:
        yield made


def pause_some(url: str, queue: str) -> None:
    """Leave a queue that is paused, with a waiting, a leased, a parked and an empty group that are paused."""
    migrate.upgrade(url, queue=queue)
    with fairlane.connect(url, queue) as transport:
        for group in ("parked", "leased", "waiting"):
            transport.publish(group, 1)
        transport.nack(held(transport.claim("w", 600)), 600)
        assert held(transport.claim("w", 600)).group_id == "leased"
        for group_id in ("parked", "leased", "waiting", "empty", None):
            assert transport.pause(group_id)


def check_resumed(library: Library) -> None:
    """Check that nothing is paused. The functions are those of revision 0001."""
    assert not library.client.hexists(library.key("meta"), "paused")
    check(library)
    assert states(library) == {b"waiting": b"ready", b"leased": b"in_flight", b"parked": b"parked"}
    library.publish("empty")
    assert set(library.order()) == {b"waiting", b"empty"}


@pytest.mark.parametrize("page", [1, 1000])
def test_a_downgrade_ends_all_pauses(server: Redis, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """Guards against groups that nobody can resume, since revision 0001 has no function for it."""
    monkeypatch.setattr("fairlane.backends.redis.target.PAGE", page)
    queue = f"downgraded_{page}"
    pause_some(server.url, queue)
    migrate.downgrade(server.url, queue=queue, revision="0001")
    with connect(server.url) as client:
        check_resumed(Library.of_migrated(client, queue))


def test_an_offline_downgrade_ends_all_pauses_too(server: Redis) -> None:
    cli = server.program.path.with_name("redis-cli")
    if not cli.exists():
        pytest.skip("redis-cli is not installed beside the server")
    pause_some(server.url, "offline")
    script = migrate.script(server.url, queue="offline", revision="0002:0001")
    environment = os.environ | server.program.env | {"REDIS_CLI": f"{cli} -p {server.port}"}
    subprocess.run(["/bin/sh"], input=script.encode(), env=environment, check=True, capture_output=True)
    with connect(server.url) as client:
        check_resumed(Library.of_migrated(client, "offline"))
