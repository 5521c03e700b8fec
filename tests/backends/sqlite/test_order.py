"""Places in line follow the order of events, also when events have the same time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.backends.sqlite.database import DIALECTS, NOON, Database


def shuffled(count: int) -> list[str]:
    names = [f"g{number:05}" for number in range(count)]
    random.Random(7).shuffle(names)
    return names


def leased(db: Database, count: int, messages: int = 2) -> list[dict[str, Any]]:
    """Lease `count` groups with `messages` messages each; return the leases in a random order."""
    for _ in range(messages):
        for name in shuffled(count):
            db.publish(name)
    leases = [db.must_claim() for _ in range(count)]
    random.Random(8).shuffle(leases)
    return leases


def test_groups_acked_within_one_tick_keep_the_order_of_their_acks(db: Database) -> None:
    leases = leased(db, 300)
    for lease in leases:
        assert db.ack(lease)
    assert db.line() == [lease["group_id"] for lease in leases]


def test_groups_nacked_within_one_tick_keep_the_order_of_their_nacks(db: Database) -> None:
    leases = leased(db, 300, messages=1)
    for lease in leases:
        assert db.nack(lease)
    assert db.line() == [lease["group_id"] for lease in leases]


def test_a_nacked_group_is_claimable_at_once_and_the_last_in_line(db: Database) -> None:
    first, second = leased(db, 2)
    db.nack(first)
    db.ack(second)
    assert db.must_claim()["group_id"] == first["group_id"]
    db.nack(db.must_claim())
    assert db.must_claim()["group_id"] == second["group_id"]


def test_equal_leases_that_expire_come_back_in_the_order_of_their_claims(db: Database) -> None:
    names = shuffled(300)
    for name in names:
        db.publish(name)
    for name in names:
        assert db.must_claim(visibility=10)["group_id"] == name
    assert db.claim() is None
    db.now += 11_000_000
    assert db.line() == names


def test_equal_delays_end_in_the_order_of_their_nacks(db: Database) -> None:
    leases = leased(db, 300, messages=1)
    for lease in leases:
        db.nack(lease, delay=10)
    assert db.claim() is None
    db.now += 11_000_000
    assert db.line() == [lease["group_id"] for lease in leases]


def test_a_group_whose_lease_expired_comes_before_one_acked_in_the_same_tick(db: Database) -> None:
    for name in ("b", "a"):
        for _ in range(2):
            db.publish(name)
    db.must_claim(visibility=10)
    db.now += 5_000_000
    other = db.must_claim(visibility=60)
    db.now += 10_000_000
    db.ack(other)
    assert db.line() == ["b", "a"]


def test_a_full_tick_makes_no_group_wait(db: Database) -> None:
    count = db.tick + 50 if db.tick <= 1000 else 200
    leases = leased(db, count)
    for lease in leases:
        assert db.ack(lease)
    line = db.line()
    assert len(line) == count
    kept = min(count, db.tick - 1)
    assert line[:kept] == [lease["group_id"] for lease in leases[:kept]]


def test_after_a_full_tick_the_next_one_is_in_order_again(db: Database) -> None:
    for lease in leased(db, 1100 if db.tick == 1000 else 100, messages=1):
        db.nack(lease)
    db.now += db.tick
    again = [db.must_claim() for _ in range(20)]
    for lease in reversed(again):
        db.nack(lease)
    assert db.line()[-20:] == [lease["group_id"] for lease in reversed(again)]


def test_many_delays_that_end_together_leave_acks_of_that_moment_claimable(db: Database) -> None:
    leases = leased(db, 1100 if db.tick == 1000 else 100)
    for lease in leases[1:]:
        db.nack(lease, delay=10)
    db.now += 10_000_000 + 2 * db.tick
    assert db.ack(leases[0])
    assert leases[0]["group_id"] in db.line()


@pytest.mark.parametrize("visibility", [0.0004, 0.001, 0.0015, 0.05, 0.1, 1.0, 1.23456, 30, 43200])
def test_a_lease_never_ends_early_and_at_most_two_ticks_late(db: Database, visibility: Any) -> None:
    db.publish("g")
    began = db.now
    lease = db.must_claim(visibility)
    # `now` is the start of a tick, and the claim may have come at the end of this tick
    earliest = began + db.tick + visibility * 1e6
    while db.now + db.tick < lease["expires_at"]:
        db.now = max(db.now + db.tick, lease["expires_at"] - 3 * db.tick)
        assert db.claim() is None
    db.now = lease["expires_at"]
    assert db.now >= earliest - 1
    assert db.now - began <= visibility * 1e6 + 2 * db.tick
    assert db.must_claim()["attempts"] == 2


def test_a_new_group_goes_before_those_served_within_the_head_start(db: Database) -> None:
    """The head start is one second here."""
    first, second, third = leased(db, 3)
    db.ack(first)
    db.now += 10 * db.tick
    db.ack(second)
    db.ack(third)
    db.now += 1_000_000 - 5 * db.tick
    for name in ("z", "m", "a"):
        db.publish(name)
    assert db.line() == [first["group_id"], "z", "m", "a", second["group_id"], third["group_id"]]


def test_new_groups_of_one_tick_keep_their_order_behind_those_served_then(db: Database) -> None:
    leases = leased(db, 20)
    for lease in reversed(leases):
        db.ack(lease)
    db.now += 1_000_000
    names = [f"new {name}" for name in shuffled(300)]
    for name in names:
        db.publish(name)
    line = db.line()
    assert [name for name in line if name in names] == names
    if db.tick == 1000:  # only here, since a second is not a whole number of rqlite's ticks
        assert line[:20] == [lease["group_id"] for lease in reversed(leases)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_always_a_new_group_goes_before_every_served_one(dialect: str) -> None:
    db = Database(dialect, "always")
    served = leased(db, 3)
    for lease in served:
        db.ack(lease)
    db.now += 10_000_000_000
    for name in ("z", "m", "a"):
        db.publish(name)
    assert db.line() == ["z", "m", "a"] + [lease["group_id"] for lease in served]
    db.close()


def test_without_a_head_start_a_new_group_goes_by_the_time_of_its_first_publish(by_arrival: Any) -> None:
    served = leased(by_arrival, 3)
    by_arrival.ack(served[0])
    for name in ("z", "m", "a"):
        by_arrival.publish(name)
    by_arrival.ack(served[1])
    by_arrival.now += 1_000_000
    by_arrival.publish("y")
    by_arrival.ack(served[2])
    first, second, third = (lease["group_id"] for lease in served)
    assert by_arrival.line() == [first, "z", "m", "a", second, "y", third]


def test_without_a_head_start_new_groups_of_one_tick_keep_the_order_of_their_publishes(by_arrival: Any) -> None:
    names = shuffled(300)
    for name in names:
        by_arrival.publish(name)
    assert by_arrival.line() == names


def test_a_clock_that_was_set_back_a_little_keeps_the_order(db: Database) -> None:
    leases = leased(db, 20)
    for lease in leases[:10]:
        db.ack(lease)
    db.now -= 3 * db.tick
    for lease in leases[10:]:
        db.ack(lease)
    db.now += 10 * db.tick
    line = db.line()
    names = [lease["group_id"] for lease in leases]
    assert [name for name in line if name in names[:10]] == names[:10]
    assert [name for name in line if name in names[10:]] == names[10:]


def test_the_real_clock_is_that_of_the_machine() -> None:
    import time

    db = Database("sqlite")
    db.runs = True
    db.publish("g")
    assert abs(db.must_claim()["published_at"] / 1e6 - time.time()) < 1
    assert NOON % 86_400 == 0
    db.close()
