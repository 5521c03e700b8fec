"""The functions for many messages at once: what they answer, and that a failure loses nothing."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import redis

import fairlane
from fairlane import BackendUnavailable, Lease, LeaseLost, Message, QueueDamaged
from fairlane.backends.redis.core import RedisCore
from fairlane.backends.redis.executor import RedisExecutor
from fairlane.backends.stored import CLAIM_MANY, NACK, Call, Rows
from fairlane.program import run
from tests.backends.redis.invariants import check, contents
from tests.backends.redis.library import SECOND, BadArguments, Library, leased
from tests.backends.redis.library import LeaseLost as Lost
from tests.backends.redis.servers import connect, private
from tests.harness import held

Damaged = tuple[fairlane.RedisTransport[Any], Library]
MANY = 1100
"""More damaged groups than one function removes."""


def argv(*messages: tuple[Any, ...]) -> list[Any]:
    """Messages as arguments: group, event, priority, dedup id; the last two may be left out."""
    return [value for message in messages for value in (message + (0, "")[len(message) - 2 :])]


def claim_many(library: Library, limit: int, base: str = "t", visibility: int = 60 * SECOND, floor: int = 0) -> Any:
    return [leased(reply) for reply in library.call("claim_many", "w", visibility, floor, limit, base)]


def without_messages(library: Library, groups: int) -> None:
    """Make groups, and delete all messages by hand."""
    library.call("publish_many", *argv(*((f"bad{n}", "1") for n in range(groups % 1000))))
    for start in range(0, groups - groups % 1000, 1000):
        library.call("publish_many", *argv(*((f"more{start + n}", "1") for n in range(1000))))
    library.client.delete(library.key("messages"))


def test_publish_many_answers_in_the_order_of_its_messages(library: Library) -> None:
    first = library.publish("g", "0", 0, "known")
    batch = argv(
        ("h", "1", 2), ("g", "2"), ("x", "3", 0, "known"), ("h", "4", 0, "new"), ("x", "5", 0, "new"), ("h", "6")
    )
    seqs = library.call("publish_many", *batch)
    assert seqs == [first + 1, first + 2, first, first + 3, first + 3, first + 4]
    assert [row[0] for row in library.call("group_status", 9)] == [b"g", b"h"]
    assert [row[8] for row in library.call("message_status", "h", 9)] == [b"1", b"4", b"6"]
    assert library.call("publish_many") == []
    assert library.call("publish_many", *argv(("x", "7", 0, "new"))) == [first + 3]


def test_a_thousand_messages_are_one_call(library: Library) -> None:
    assert library.call("publish_many", *argv(*((f"g{n}", str(n), 4, f"d{n}") for n in range(1000)))) == [
        *range(1, 1001)
    ]
    leases = claim_many(library, 1000)
    assert [lease[2] for lease in leases] == [b"%d" % n for n in range(1000)]
    pairs = [value for group, _, _, token, *_ in leases for value in (group, token)]
    assert library.call("ack_many", *pairs) == [1] * 1000
    assert library.leftovers() == ["meta"]


@pytest.mark.parametrize("head_start", ["always", "0", "1"])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_leaves_what_single_calls_leave(timed: Callable[..., Library], seed: int, head_start: str) -> None:
    """The clock stands still during a batch."""
    dice = random.Random(seed)
    one, many = timed(head_start=head_start), timed(head_start=head_start)

    def wait(micros: int) -> None:
        one.pass_time(micros)
        many.pass_time(micros)

    for step in range(12):
        messages = [
            (f"g{dice.randrange(12)}", str(n), dice.randrange(5), dice.choice(["", f"d{dice.randrange(9)}"]))
            for n in range(dice.randrange(1, 9))
        ]
        assert many.call("publish_many", *argv(*messages)) == [one.publish(*message) for message in messages]
        wait(1000)
        limit, floor = dice.randrange(1, 9), dice.randrange(3)
        singles = [one.claim(f"{step}.{n}", 5 * SECOND, floor) for n in range(1, limit + 1)]
        leases = claim_many(many, limit, str(step), 5 * SECOND, floor)
        assert [lease[:5] for lease in leases] == [lease[:5] for lease in singles if lease]
        wait(1000)
        pairs = [(lease[0], lease[3]) for lease in leases if dice.random() < 0.7]
        pairs += [(b"g1", "not a token")]
        assert many.call("ack_many", *(value for pair in pairs for value in pair)) == [1] * (len(pairs) - 1) + [0]
        for pair in pairs[:-1]:
            one.call("ack", *pair)
        assert contents(many) == contents(one)
        check(many)
        wait(2 * SECOND)


def test_no_group_is_leased_twice_by_one_call_however_short_the_leases_are(library: Library) -> None:
    library.call("publish_many", *argv(*((group, "1") for group in "abc"), *((group, "2") for group in "abc")))
    leases = claim_many(library, 1000, visibility=1)
    assert [lease[0] for lease in leases] == [b"a", b"b", b"c"]
    assert [lease[3] for lease in leases] == [b"t.1", b"t.2", b"t.3"]
    assert len({lease[6] for lease in leases}) == 3


def test_ack_many_tells_which_leases_were_lost(library: Library) -> None:
    library.call("publish_many", *argv(*((group, event) for event in ("1", "2") for group in "abcd")))
    claim_many(library, 4)
    library.call("nack", "b", "t.2", 0)
    before = library.call("message_status", "b", 9)[0][:5]
    pairs = ["a", "t.1", "b", "t.2", "c", "wrong", "none", "t", "", "-", "d", "t.4", "a", "t.1"]
    assert library.call("ack_many", *pairs) == [1, 0, 0, 0, 0, 1, 0]
    assert library.call("message_status", "b", 9)[0][:5] == before
    assert [library.call("message_status", group, 9)[0][8] for group in "abcd"] == [b"2", b"1", b"1", b"2"]
    assert library.call("ack_many") == []


def test_ack_and_claim_is_both_or_nothing(library: Library) -> None:
    library.call("publish_many", *argv(("a", "1"), ("b", "2")))
    library.claim("t1")
    with pytest.raises(Lost):
        library.call("ack_and_claim", "a", "wrong", "w", SECOND, 0, "t2")
    for wrong in (("w", 0, 0, "t2"), ("w", SECOND, 9, "t2"), ("w", SECOND, 0, "-")):
        with pytest.raises(BadArguments):
            library.call("ack_and_claim", "a", "t1", *wrong)
    assert library.call("queue_status")[1:6] == [2, 1, 1, 0, 2], "nothing was acked, and nothing was claimed"
    finished, reply = library.call("ack_and_claim", "a", "t1", "w", SECOND, 0, "t2")
    assert (finished, leased(reply)[:5]) == (1, (b"b", 2, b"2", b"t2", 1))
    assert library.call("ack_and_claim", "b", "t2", "w", SECOND, 0, "t3") == [2, None]
    assert library.leftovers() == ["meta"]


def test_leases_that_were_made_are_returned_before_damaged_groups_are_removed(single: Any) -> None:
    """Guards against leases that nobody gets, since the function ended with an error after it had made them."""
    library = Library(single)
    library.call("publish_many", *argv(("a", "1"), ("b", "2")))
    kept = single.zrange(library.key("messages"), 0, -1)
    without_messages(library, MANY)
    single.zadd(library.key("messages"), dict.fromkeys(kept, 0))
    assert [lease[0] for lease in claim_many(library, 10)] == [b"a", b"b"]
    with pytest.raises(redis.exceptions.ResponseError, match=r"^AGAIN "):
        claim_many(library, 10)
    assert claim_many(library, 10) == []
    assert library.call("ack_many", "a", "t.1", "b", "t.2") == [1, 1]
    library.remove()


def test_one_call_removes_no_more_than_its_part_of_many_damaged_groups(single: Any) -> None:
    """Guards against a function that blocks the server: each lease must not begin to count again."""
    library = Library(single)
    messages = [(f"{'good' if n % 100 == 0 else 'bad'}{n}", "1") for n in range(1000)]
    library.call("publish_many", *argv(*messages))
    bad = [member for member in single.zrange(library.key("messages"), 0, -1) if member.startswith(b"bad")]
    single.zrem(library.key("messages"), *bad)
    assert 1 < len(claim_many(library, 1000)) < 10
    assert single.zcard(library.key("floor:0")) > 450
    library.remove()


def test_a_transport_goes_on_after_a_part_of_the_damage_was_removed(damaged: Damaged) -> None:
    """Guards against a message that is acked, while the caller gets an error and no other message."""
    queue, library = damaged
    queue.publish("a", 1)
    lease = held(queue.claim("w", 30))
    kept = library.client.zrange(library.key("messages"), 0, -1)
    without_messages(library, MANY)
    library.client.zadd(library.key("messages"), dict.fromkeys(kept, 0))
    queue.publish("z", 2)
    assert held(queue.ack_and_claim(lease, "w", 30)).event == 2
    with pytest.raises(LeaseLost):
        queue.ack(lease)
    without_messages(library, MANY)
    queue.publish("y", 3)
    assert [lease.event for lease in queue.claim_many("w", 30, 5)] == [3]


def test_ack_and_claim_says_that_a_claim_must_follow(damaged: Damaged) -> None:
    _, library = damaged
    library.publish("a")
    library.claim("t")
    kept = library.client.zrange(library.key("messages"), 0, -1)
    without_messages(library, MANY)
    library.client.zadd(library.key("messages"), dict.fromkeys(kept, 0))
    assert library.call("ack_and_claim", "a", "t", "w", SECOND, 0, "t2") == [1, b"CLAIM"]


def test_a_damaged_group_neither_hides_nor_loses_the_other_leases(
    damaged: Damaged, caplog: pytest.LogCaptureFixture
) -> None:
    queue, library = damaged
    library.call("publish_many", *argv(("a", "1"), (b"caf\xe9", "2"), ("b", "3"), (b"caf\xe8", "4")))
    with caplog.at_level(logging.ERROR, "fairlane"):
        leases = queue.claim_many("w", 30, 10)
    assert [lease.event for lease in leases] == [1, 3]
    assert "caf\\udce9" in caplog.text
    assert "caf\\udce8" in caplog.text
    assert [group.state for group in queue.inspect.groups()] == ["in_flight", "in_flight", "parked", "parked"]
    assert queue.ack_many(leases) == []
    library.publish(b"caf\xea", "5")
    with pytest.raises(QueueDamaged, match=r"caf\\udcea.*parked for an hour"):
        queue.claim_many("w", 30, 10)
    assert queue.claim_many("w", 30, 10) == []
    check(library)


def test_leases_reach_the_caller_although_a_damaged_group_cannot_be_parked(damaged: Damaged, url: str) -> None:
    _, library = damaged
    library.call("publish_many", *argv(("a", "1"), (b"caf\xe9", "2")))
    executor = RedisExecutor.from_url(url, library.queue)

    def execute(request: Call) -> Rows:
        if request.operation is NACK:
            raise BackendUnavailable("redis", "somewhere", "no connection")
        return executor.execute(request)

    leases = run(RedisCore(library.queue).claim_many("w", 30, 10, 0), execute)
    assert [lease.group_id for lease in leases] == ["a"]
    executor.close()


def test_a_damaged_group_is_named_after_the_message_before_it_was_acked(damaged: Damaged) -> None:
    queue, library = damaged
    queue.publish("a", 1)
    library.publish(b"caf\xe9", "2")
    lease = held(queue.claim("w", 30))
    with pytest.raises(QueueDamaged, match=r"caf\\udce9"):
        queue.ack_and_claim(lease, "w", 30)
    with pytest.raises(LeaseLost):
        queue.ack(lease)


def test_a_claim_that_fails_after_its_ack_is_named_and_the_ack_is_answered(damaged: Damaged) -> None:
    """Guards against an error that says "nothing was changed", although the message was acked."""
    queue, library = damaged
    for number in range(2):
        queue.publish("low", number)
    queue.publish("high", 2, 4)
    library.claim("t")
    library.client.delete(library.key("floor:4"))
    library.client.set(library.key("floor:4"), "a string")
    assert library.call("ack_and_claim", "low", "t", "w", SECOND, 4, "t2") == [1, b"CLAIM"]
    with pytest.raises(QueueDamaged, match=r":floor:4 holds a string"):
        queue.claim("w", 30)
    assert [message.event for message in queue.inspect.messages("low")] == [1]
    library.client.delete(library.key("floor:4"))


def test_a_queue_that_is_not_there_takes_no_batch(damaged: Damaged) -> None:
    queue, library = damaged
    queue.publish("a", 1)
    library.client.delete(*library.keys)
    for batch in (
        lambda: queue.publish_many([Message("g", 1), Message("h", 2)]),
        lambda: queue.claim_many("w", 30, 10),
    ):
        with pytest.raises(fairlane.SchemaNotReady):
            batch()
    assert library.leftovers() == []


def test_each_lease_of_a_batch_has_a_token_that_no_other_has(damaged: Damaged) -> None:
    queue, _ = damaged
    queue.publish_many([Message(f"g{number}", number) for number in range(6)])
    leases: list[Lease[Any]] = [*queue.claim_many("w", 30, 3), *queue.claim_many("w", 30, 3)]
    assert len({lease.token for lease in leases}) == 6
    assert CLAIM_MANY.repeatable is False
    assert queue.ack_many(leases) == []


def test_a_batch_looks_for_each_free_place_once() -> None:
    """Guards against a search that steps over the places of the whole batch again for each of its messages."""
    with private() as server, connect(server.url) as client:
        library = Library(client)
        library.call("publish_many", *argv(*((f"g{n}", "1") for n in range(500))))
        assert len(claim_many(library, 500)) == 500
        assert client.info("commandstats")["cmdstat_zcount"]["calls"] <= 1500
