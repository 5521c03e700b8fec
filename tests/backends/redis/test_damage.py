"""Entries that were deleted or overwritten by hand never stop other groups."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import redis

import fairlane
from fairlane import EventDecodingError, QueueDamaged, migrate
from tests.backends.redis.invariants import KEYS, check, contents
from tests.backends.redis.library import SECOND, Library
from tests.harness import held

FIRST = f"{1:016}"
Damage = Callable[[Library], None]


def member(library: Library) -> bytes:
    found: bytes = library.client.zrangebylex(library.key("messages"), b"[bad\0", b"(bad\1")[0]
    return found


def state(text: str) -> Damage:
    return lambda library: library.client.hset(library.key("groups"), "bad", text)


DAMAGE: dict[str, Damage] = {
    "no state": lambda library: library.client.hdel(library.key("groups"), "bad"),
    "state is rubbish": state("rubbish"),
    "state is empty": state(""),
    "state is binary": state("\0\1\2 \n"),
    "priority is impossible": state("7 0 - 0000000000000000 "),
    "attempts is no number": state("3 x - 0000000000000000 "),
    "priority denies the floor": state("0 0 - 0000000000000000 "),
    "no message": lambda library: library.client.zrem(library.key("messages"), member(library)),
    "no event": lambda library: library.client.hdel(library.key("events"), FIRST),
    "no head": lambda library: library.client.zrem(library.key("heads"), "bad"),
    "in line only": lambda library: library.client.zadd(library.key("floor:0"), {"stray": 0.5}),
    "in a high line only": lambda library: library.client.zadd(library.key("floor:3"), {"stray": 0.5}),
    "a message without a number": lambda library: library.client.zadd(library.key("messages"), {"bad\0": 0}),
    "a message with half of one": lambda library: library.client.zadd(library.key("messages"), {f"bad\0{FIRST}": 0}),
    "a message that is a word": lambda library: library.client.zadd(library.key("messages"), {"bad\0word": 0}),
    "a message without a time": lambda library: library.client.zadd(library.key("messages"), {f"bad\0{FIRST}now": 0}),
    "a place before all": lambda library: library.client.zadd(library.key("floor:3"), {"bad": -1e300}),
}


@pytest.mark.parametrize("floor", [0, 3])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_group_blocks_no_other(single: object, damage: Damage, floor: int) -> None:
    library = Library(single)
    library.publish("bad", "1", 3)
    for number in range(3):
        library.publish(f"good {number}", "2", 3)
    damage(library)
    library.call("queue_status")
    library.call("group_status", 10)
    library.call("message_status", "bad", 10)
    found = {group.decode() for group in library.order(floor)}
    assert found >= {"good 0", "good 1", "good 2"}
    assert library.order(floor) == [], "nothing is delivered twice while its lease runs"
    library.remove()


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_the_rest_of_a_damaged_group_is_delivered_or_deleted(single: object, damage: Damage) -> None:
    library = Library(single)
    library.publish("bad", "1", 3)
    library.publish("bad", "2", 3)
    damage(library)
    for floor in (3, 0):
        while reply := library.claim("t", floor=floor):
            library.call("ack", reply[0], "t")
    # the message is no longer in its group, so no claim finds its event; an event that stays behind does no harm
    assert set(library.leftovers()) <= {"meta", "events"}
    library.remove()


def test_a_damaged_group_keeps_its_priority(single: object) -> None:
    library = Library(single)
    library.publish("bad", "1", 3)
    library.client.hset(library.key("groups"), "bad", "rubbish")
    assert library.claim("t", floor=4) is None
    assert library.claim("t", floor=3)[0] == b"bad"
    check(library)
    library.remove()


def test_a_message_deleted_under_its_lease_takes_no_other_with_it(single: object) -> None:
    library = Library(single)
    for event in ("1", "2", "3"):
        library.publish("bad", event)
    library.claim("t")
    library.client.zrem(library.key("messages"), member(library))
    library.client.hdel(library.key("events"), FIRST)
    library.call("ack", "bad", "t")
    assert library.claim("t")[2] == b"2"
    check(library)
    library.remove()


def test_deliveries_of_a_deleted_message_are_not_counted_for_the_next(single: object) -> None:
    library = Library(single)
    for event in ("1", "2"):
        library.publish("bad", event)
    library.claim("t")
    library.call("nack", "bad", "t", 0)
    library.client.zrem(library.key("messages"), member(library))
    library.client.hdel(library.key("events"), FIRST)
    reply = library.claim("t")
    assert (reply[2], reply[4]) == (b"2", 1)
    library.remove()


def test_a_group_lost_from_the_line_comes_back_with_its_next_publish(single: object) -> None:
    library = Library(single)
    library.publish("bad", "1", 1)
    library.client.zrem(library.key("floor:0"), "bad")
    library.client.zrem(library.key("floor:1"), "bad")
    assert library.claim("t") is None
    library.publish("bad", "2", 1)
    assert library.claim("t")[2] == b"1"
    check(library)
    library.remove()


def test_a_parked_group_that_is_damaged_is_not_counted_as_parked_for_ever(single: object) -> None:
    library = Library(single)
    library.publish("bad")
    library.publish("bad")
    library.claim("t")
    library.call("nack", "bad", "t", 1)
    library.client.hset(library.key("groups"), "bad", "rubbish")
    while not library.claim("t2", 10 * SECOND):
        pass
    assert not library.client.exists(library.key("parked"))
    assert library.call("queue_status")[1:5] == [1, 0, 1, 0]
    library.remove()


KINDS = {"meta": "hash", "groups": "hash", "events": "hash", "dedup": "hash"}
OPERATIONS: dict[str, tuple[Any, ...]] = {
    "publish": ("g", "9", 2, "another"),
    "publish of a group": ("new", "9", 4, "another"),
    "claim": ("w", SECOND, 0, "t2"),
    "claim of a high group": ("w", SECOND, 2, "t2"),
    "ack": ("mine", "t"),
    "ack of the last": ("last", "l"),
    "nack": ("mine", "t", 0),
    "nack with a delay": ("mine", "t", 5 * SECOND),
    "extend": ("mine", "t", SECOND),
    "publish_many": ("g", "9", 2, "another", "new", "9", 4, "", "low", "9", 0, ""),
    "claim_many": ("w", SECOND, 0, 10, "t2"),
    "ack_many": ("last", "l", "mine", "t"),
    "ack_and_claim": ("last", "l", "w", SECOND, 0, "t2"),
    "release": ("mine",),
    "purge": ("high", 10),
    "pause": ("g",),
    "pause of an empty group": ("new",),
    "resume": ("paused",),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_another_type_is_named_and_nothing_is_half_done(single: Any, name: str, operation: str) -> None:
    """Guards against a stored message that no claim finds, and against a lost lease whose message stays hidden."""
    library = Library(single)
    for group, events in (("mine", 2), ("last", 1), ("g", 2), ("high", 1)):
        for event in range(events):
            library.publish(group, str(event), 3, f"{group}{event}")
    assert library.claim("t")[0] == b"mine"
    assert library.claim("l")[0] == b"last"
    library.claim("again")
    library.call("nack", "g", "again", 0)
    library.publish("paused", "1", 3)
    library.call("pause", "paused")
    single.delete(library.key(name))
    single.set(library.key(name), "a string")
    before = contents(library)
    function, arguments = operation.partition(" ")[0], OPERATIONS[operation]
    failure = None
    try:
        library.call(function, *arguments)
    except redis.exceptions.ResponseError as error:
        failure = str(error)
    if failure is not None:
        assert failure.startswith(
            f"WRONGKEY {library.key(name)} holds a string, but must hold a {KINDS.get(name, 'zset')}"
        )
        assert contents(library) == before
    library.remove()


@pytest.mark.parametrize("name", KEYS)
def test_a_migration_restores_a_lost_key_from_the_messages(
    damaged: tuple[fairlane.RedisTransport[Any], Library], name: str
) -> None:
    """A migration restores what can be computed from the messages. Guards against a number that is given twice, so that
    one message overwrites another, and against groups that are in no line."""
    queue, library = damaged
    for number in range(3):
        queue.publish("a", number, 3, dedup_id=f"a{number}")
    queue.publish("b", 10, 1)
    mine = held(queue.claim("w", 30))
    queue.publish("c", 20)
    parked = held(queue.claim("w", 30))
    queue.nack(parked, 3600)
    library.client.delete(library.key(name))
    migrate.upgrade(os.environ["FAIRLANE_TEST_REDIS_URL"], queue=library.queue)
    if name in ("messages", "events"):  # these keys are the messages; no other key can restore them
        return
    check(library)
    assert queue.publish("a", 3, dedup_id="a2") == 3, "dedup ids are known again"
    assert queue.publish("a", 3) == 6, "no number is given twice"
    if name == "groups":
        with pytest.raises(fairlane.LeaseLost):
            queue.ack(mine)
        return
    queue.ack(mine)
    seen = []
    while lease := queue.claim("w", 30):
        seen.append((lease.group_id, lease.event))
        queue.ack(lease)
    assert [event for group, event in seen if group == "a"] == [1, 2, 3]
    assert ("b", 10) in seen or parked.group_id == "b"


def test_status_says_that_groups_are_in_no_line(damaged: tuple[fairlane.RedisTransport[Any], Library]) -> None:
    queue, library = damaged
    url = os.environ["FAIRLANE_TEST_REDIS_URL"]
    queue.publish("g", 1)
    library.client.delete(library.key("floor:0"))
    assert queue.claim("w", 30) is None
    assert "fairlane migrate" in (migrate.status(url, queue=library.queue).fault or "")
    migrate.upgrade(url, queue=library.queue)
    assert migrate.status(url, queue=library.queue).ready
    assert held(queue.claim("w", 30)).event == 1


def test_a_long_queue_is_repaired_in_parts(
    damaged: tuple[fairlane.RedisTransport[Any], Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, library = damaged
    monkeypatch.setattr("fairlane.backends.redis.target.PAGE", 3)
    for number in range(20):
        queue.publish(f"g{number % 7}", number, number % 5)
    for name in ("meta", "groups", "heads", "floor:0", "floor:3"):
        library.client.delete(library.key(name))
    migrate.upgrade(os.environ["FAIRLANE_TEST_REDIS_URL"], queue=library.queue)
    check(library)
    assert queue.publish("late", "late") == 21
    seen = []
    while lease := queue.claim("w", 30):
        seen.append(lease.event)
        queue.ack(lease)
    # groups of priority 0 were only in the lost line: they go first, oldest first; the others kept their places
    assert seen[:7] == [0, 5, 1, 2, 3, 4, 6]
    for group in range(7):
        assert [n for n in seen if n != "late" and n % 7 == group] == list(range(group, 20, 7))


def test_a_wrong_key_is_one_typed_error_with_its_name(damaged: tuple[fairlane.RedisTransport[Any], Library]) -> None:
    queue, library = damaged
    library.client.set(library.key("events"), "a string")
    with pytest.raises(QueueDamaged, match=rf"{library.queue}.*:events holds a string, but must hold a hash") as caught:
        queue.publish("g", 1)
    assert caught.value.queue == library.queue
    library.client.delete(library.key("events"))
    queue.publish("g", 1)


def test_an_event_that_is_not_utf_8_is_an_error_with_its_lease(
    damaged: tuple[fairlane.RedisTransport[Any], Library],
) -> None:
    queue, library = damaged
    queue.publish("bad", 1)
    queue.publish("good", 2)
    library.client.hset(library.key("events"), FIRST, b'{"a": "\xff"}')
    with pytest.raises(EventDecodingError) as caught:
        queue.claim("w", 30)
    assert queue.inspect.messages("bad")
    assert held(queue.claim("w", 30)).event == 2
    queue.ack(caught.value.lease)
    assert queue.inspect.queue().messages == 1
