"""Numbers, times and names that somebody has set by hand: they overwrite no message, hide no group, stop no server."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest
import redis

import fairlane
from fairlane import Lease, QueueDamaged, migrate
from fairlane.backends.redis.core import RedisCore
from fairlane.backends.redis.executor import RedisExecutor
from fairlane.backends.stored import NACK, Call, Rows
from fairlane.program import run_async
from tests.backends.redis.invariants import check, contents
from tests.backends.redis.library import Library
from tests.backends.redis.servers import private
from tests.harness import eventually, held

WRONG_SEQ = r"field seq of .*:meta.*: `fairlane migrate` repairs it"


def with_last_number(damaged: tuple[fairlane.RedisTransport[Any], Library], last: str) -> Any:
    """Publish three messages, set the last number, and return what the keys contain then."""
    queue, library = damaged
    for number in range(3):
        queue.publish("g", number)
    library.client.hset(library.key("meta"), "seq", last)
    return contents(library)


@pytest.mark.parametrize("last", ["0", "2", "-5", str(2**53 - 1), str(10**16), str(2**63 - 1), "rubbish", ""])
def test_a_last_number_that_is_wrong_overwrites_no_message(
    damaged: tuple[fairlane.RedisTransport[Any], Library], last: str
) -> None:
    """Guards against a publish that overwrites a waiting message, and against numbers that are not valid."""
    queue, library = damaged
    before = with_last_number(damaged, last)
    with pytest.raises(QueueDamaged, match=WRONG_SEQ):
        queue.publish("h", 3)
    assert contents(library) == before
    migrate.upgrade(os.environ["FAIRLANE_TEST_REDIS_URL"], queue=library.queue)
    assert queue.publish("g", 3) == 4
    assert [message.event for message in queue.inspect.messages("g")] == [0, 1, 2, 3]


@pytest.mark.parametrize("last", ["0", "2", "-5", str(2**53 - 5), str(2**63 - 1), "rubbish"])
def test_a_batch_of_which_one_number_is_wrong_stores_nothing(
    damaged: tuple[fairlane.RedisTransport[Any], Library], last: str
) -> None:
    """Guards against the first messages of a batch that are stored before the wrong number is found."""
    queue, library = damaged
    before = with_last_number(damaged, last)
    with pytest.raises(QueueDamaged, match=WRONG_SEQ):
        queue.publish_many([fairlane.Message(f"h{number}", number) for number in range(10)])
    assert contents(library) == before


def test_a_dedup_id_without_a_number_counts_as_new(damaged: tuple[fairlane.RedisTransport[Any], Library]) -> None:
    queue, library = damaged
    library.client.hset(library.key("dedup"), "d", "rubbish")
    assert queue.publish("g", 1, dedup_id="d") == 1
    assert queue.publish("g", 1, dedup_id="d") == 1
    check(library)


@pytest.mark.parametrize("field", ["time", "ahead", "head_start"])
@pytest.mark.parametrize("value", ["inf", "nan", "-5", "1e300", str(2**53), "rubbish"])
def test_a_time_that_is_not_valid_neither_stops_the_server_nor_hides_a_group(field: str, value: str) -> None:
    """Guards against a function that looks for a free place without end, so that nobody else can use the server."""
    with private() as server, redis.Redis(port=server.port, socket_timeout=5) as client:
        library = Library(client)
        client.hset(library.key("meta"), field, value)
        for group in ("a", "b", "c"):
            library.publish(group)
        assert {library.claim(token)[0] for token in ("1", "2", "3")} == {b"a", b"b", b"c"}


def test_many_damaged_groups_are_removed_in_parts(damaged: tuple[fairlane.RedisTransport[Any], Library]) -> None:
    """Guards against a claim that blocks the server for seconds, and cannot be stopped."""
    queue, library = damaged
    for number in range(1100):
        queue.publish(f"g{number}", number)
    library.client.delete(library.key("messages"))
    with pytest.raises(redis.exceptions.ResponseError, match=r"^AGAIN many damaged entries were removed"):
        library.claim("t")
    assert library.client.zcard(library.key("floor:0")) > 500
    assert queue.claim("w", 30) is None
    assert library.client.zcard(library.key("floor:0")) == 0
    queue.publish("g", "new")
    assert held(queue.claim("w", 30)).event == "new"


def test_a_group_whose_name_is_no_utf_8_is_set_aside(damaged: tuple[fairlane.RedisTransport[Any], Library]) -> None:
    """Guards against a lease that cannot be acked: its message would be delivered again and again."""
    queue, library = damaged
    library.publish(b"caf\xe9", "1")
    queue.publish("caf\u00e9", 2)
    with pytest.raises(QueueDamaged, match=r"group 'caf\\udce9' is no UTF-8.*parked for an hour"):
        queue.claim("w", 0.01)
    assert held(queue.claim("w", 30)).event == 2
    assert [(group.state, group.group_id) for group in queue.inspect.groups()][1] == ("parked", "caf\udce9")
    check(library)


async def test_a_group_that_another_worker_has_meanwhile_is_not_parked(
    damaged: tuple[fairlane.RedisTransport[Any], Library], url: str
) -> None:
    """Guards against an internal error when the lease has run out before the group could be parked."""
    _, library = damaged
    library.publish(b"caf\xe9", "1")
    with contextlib.closing(RedisExecutor.from_url(url, library.queue)) as executor:

        async def execute(request: Call) -> Rows:
            if request.operation is NACK:
                await eventually(lambda: library.claim("another"))
            return executor.execute(request)

        with pytest.raises(QueueDamaged, match=r"no UTF-8.*leased, so that others are served"):
            await run_async(RedisCore(library.queue).claim("w", 0.001, 0, Lease), execute)
    assert library.call("ack", b"caf\xe9", "another") is not None
