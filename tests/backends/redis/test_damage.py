"""Entries that somebody deleted or overwrote by hand: they never stand in the way of other groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.backends.redis.invariants import check
from tests.backends.redis.library import SECOND, Library

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
def test_what_is_left_of_a_damaged_group_is_delivered_or_gone(single: object, damage: Damage) -> None:
    library = Library(single)
    library.publish("bad", "1", 3)
    library.publish("bad", "2", 3)
    damage(library)
    for floor in (3, 0):
        while reply := library.claim("t", floor=floor):
            library.call("ack", reply[0], "t")
    # the event of a message that is gone from the line of its group is found by nobody, and harms nobody
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
