"""Groups keep their order when times are equal, and when the clock is wrong. Only the test moves the clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.backends.redis.invariants import check
from tests.backends.redis.library import NOON, SECOND, LeaseLost, Library

MakeLibrary = Callable[..., Library]
NAMES = ["m", "z", "a", "q", "b", "y"]
"""Names in an order that no sorting produces."""


def claim_all(library: Library, visibility: int = SECOND) -> list[tuple[str, str]]:
    """Lease every group, and return the groups with their tokens."""
    leases: list[tuple[str, str]] = []
    while reply := library.claim(f"t{len(leases)}", visibility):
        leases.append((reply[0].decode(), reply[3].decode()))
    return leases


def names(groups: list[bytes]) -> list[str]:
    return [group.decode() for group in groups]


@pytest.mark.parametrize("pause", [0, SECOND])
def test_acks_within_one_microsecond_keep_their_order(timed: MakeLibrary, pause: int) -> None:
    library = timed()
    for name in NAMES * 2:
        library.publish(name)
    leases = claim_all(library, 60 * SECOND)
    library.pass_time(pause)
    for group, token in leases:
        library.call("ack", group, token)
    check(library)
    assert names(library.order()) == NAMES


@pytest.mark.parametrize("pause", [0, SECOND])
def test_nacks_within_one_microsecond_keep_their_order(timed: MakeLibrary, pause: int) -> None:
    library = timed()
    for name in NAMES:
        library.publish(name)
    leases = claim_all(library, 60 * SECOND)
    library.pass_time(pause)
    for group, token in reversed(leases):
        library.call("nack", group, token, 0)
    check(library)
    assert names(library.order()) == NAMES[::-1]


@pytest.mark.parametrize("function", ["ack", "nack"])
def test_groups_that_give_way_to_ends_of_leases_keep_their_order(timed: MakeLibrary, function: str) -> None:
    """The first group that returns is placed behind the ends of six leases. When one of these leases goes away, no
    later group may take its place."""
    library = timed()
    ends = [f"end{number}" for number in range(6)]
    for name in ("z", "a"):
        library.publish(name)
        library.publish(name)
        library.claim(name, 60 * SECOND)
    for name in ends:
        library.publish(name)
    library.pass_time(100)
    start = library.time + SECOND
    for number, name in enumerate(ends):
        library.claim(name, SECOND)  # each lease ends one microsecond after the one before
        assert library.client.zscore(library.key("floor:0"), name) == start + number
    library.set_time(start)
    argv = (0,) if function == "nack" else ()
    library.call(function, "z", "z", *argv)
    library.call("extend", ends[-1], ends[-1], 600 * SECOND)
    library.call(function, "a", "a", *argv)
    check(library)
    library.pass_time(SECOND)
    line = names(library.order())
    assert line.index("z") < line.index("a")


def test_leases_that_end_together_keep_the_order_of_their_claims(timed: MakeLibrary) -> None:
    library = timed()
    for name in NAMES:
        library.publish(name)
    claim_all(library, SECOND)
    check(library)
    library.pass_time(2 * SECOND)
    assert names(library.order()) == NAMES


def test_delays_that_end_together_keep_the_order_of_their_nacks(timed: MakeLibrary) -> None:
    library = timed()
    for name in NAMES:
        library.publish(name)
    for group, token in claim_all(library, 60 * SECOND):
        library.call("nack", group, token, SECOND)
    check(library)
    assert library.order() == []
    library.pass_time(2 * SECOND)
    assert names(library.order()) == NAMES


def test_events_of_all_kinds_that_end_in_one_microsecond_never_share_a_place(timed: MakeLibrary) -> None:
    """Each event comes one microsecond later. So visibilities that shrink by one microsecond end at the same time."""
    library = timed()
    for number in range(40):
        library.publish(f"g{number:02}", "1", number % 5)
    leases = []
    for number in range(40):
        reply = library.claim(f"t{number}", SECOND - number)
        leases.append((reply[0], reply[3]))
        check(library)
    for number, (group, token) in enumerate(leases):
        if number % 2:
            library.call("nack", group, token, SECOND - 50 - number)
        else:
            library.call("extend", group, token, SECOND - 50 - number)
        check(library)


@pytest.mark.parametrize("floor", range(5))
def test_ties_across_priorities_keep_the_order_of_events(timed: MakeLibrary, floor: int) -> None:
    library = timed()
    for number, name in enumerate(NAMES * 2):
        library.publish(name, "1", number % 5)
    for group, token in claim_all(library):
        library.call("ack", group, token)
    reach = {name for number, name in enumerate(NAMES) if number % 5 >= floor}
    assert names(library.order(floor)) == [name for name in NAMES if name in reach]


@pytest.mark.parametrize("head_start", ["1", "always"])
def test_new_groups_go_first_in_the_order_of_their_first_publish(timed: MakeLibrary, head_start: str) -> None:
    library = timed(head_start=head_start)
    for name in NAMES * 2:
        library.publish(name)
    for group, token in claim_all(library):
        library.call("ack", group, token)
    library.publish("new 2")
    library.publish("new 1")
    assert names(library.order()) == ["new 2", "new 1", *NAMES]


def test_a_new_group_goes_before_those_served_within_the_head_start_and_after_the_others(timed: MakeLibrary) -> None:
    library = timed(head_start="1.5")
    for name in ("before", "since", "before", "since"):
        library.publish(name)
    leases = claim_all(library, 60 * SECOND)
    library.call("ack", *leases[0])
    library.pass_time(SECOND)
    library.call("ack", *leases[1])
    library.pass_time(SECOND)
    library.publish("new 2")
    library.publish("new 1")
    check(library)
    assert names(library.order()) == ["before", "new 2", "new 1", "since"]


def test_new_groups_whose_places_are_taken_keep_their_order(timed: MakeLibrary) -> None:
    """The first new group is placed behind two groups that were served a second ago. When one of these goes away, no
    later group may take its place."""
    library = timed()
    for name in ("x", "y", "x", "y"):
        library.publish(name, "1", 4 if name == "y" else 0)
    for group, token in claim_all(library, 60 * SECOND):
        library.call("ack", group, token)
    start = int(library.client.zscore(library.key("floor:0"), "x"))
    assert library.client.zscore(library.key("floor:0"), "y") == start + 1
    library.set_time(start + SECOND)
    library.publish("first")
    assert library.client.zscore(library.key("floor:0"), "first") == start + 2
    assert library.claim("t", floor=4)[0] == b"y"
    library.publish("second")
    check(library)
    assert names(library.order()) == ["x", "first", "second"]


def test_without_a_head_start_new_groups_wait_behind_those_served_before(timed: MakeLibrary) -> None:
    library = timed(head_start="0")
    library.publish("served")
    library.publish("served")
    library.publish("new 2")
    reply = library.claim("t")
    assert reply[0] == b"served"
    library.call("ack", "served", "t")
    library.publish("new 1")
    check(library)
    assert names(library.order()) == ["new 2", "served", "new 1"]


@pytest.mark.parametrize("step", [1, 1000, 3600 * SECOND, 400 * 86400 * SECOND])
def test_a_clock_set_back_hides_nothing(timed: MakeLibrary, step: int) -> None:
    library = timed()
    for name in NAMES * 2:
        library.publish(name)
    for group, token in claim_all(library):
        library.call("ack", group, token)
    library.pass_time(-step)
    assert library.call("queue_status")[2] == len(NAMES)
    assert names(library.order()) == NAMES


def test_after_a_step_back_leases_and_delays_still_end_on_time(timed: MakeLibrary) -> None:
    library = timed()
    for name in ("leased before", "parked before", "leased after"):
        library.publish(name)
    library.claim("t1", 10 * SECOND)
    library.claim("t2", 10 * SECOND)
    library.call("nack", "parked before", "t2", 20 * SECOND)
    library.pass_time(-3600 * SECOND)
    reply = library.claim("t3", 15 * SECOND)
    assert reply[0] == b"leased after"
    assert reply[6] == library.time + 15 * SECOND, "a client is told the time by the server's clock"
    assert library.claim("t4") is None
    for seconds, expected in ((11, b"leased before"), (5, b"leased after"), (5, b"parked before")):
        library.pass_time(seconds * SECOND)
        assert library.claim("t5")[0] == expected
        assert library.claim("t6") is None


def test_idle_claims_keep_the_clock_running_after_a_step_back(timed: MakeLibrary) -> None:
    library = timed()
    library.publish("g")
    library.claim("t", 10 * SECOND)
    library.pass_time(-3600 * SECOND)
    for _ in range(9):
        assert library.claim("other") is None
        library.pass_time(SECOND)
    library.pass_time(2 * SECOND)
    assert library.claim("other")[4] == 2


def test_a_clock_put_right_again_ends_no_lease_early(timed: MakeLibrary) -> None:
    library = timed()
    library.publish("g")
    library.publish("h")
    library.claim("t", 60 * SECOND)
    library.pass_time(-3600 * SECOND)
    library.claim("t2", 60 * SECOND)
    library.pass_time(3601 * SECOND)
    assert library.claim("t3") is None
    library.pass_time(60 * SECOND)
    assert library.order() == [b"g", b"h"]
    ahead = int(library.client.hget(library.key("meta"), "ahead"))
    assert ahead < SECOND, "the queue's clock is the server's again"


def test_an_expired_lease_that_nobody_claimed_still_holds(timed: MakeLibrary) -> None:
    for function, *argv in (("ack",), ("nack", 0), ("extend", SECOND)):
        library = timed()
        library.publish("g")
        library.claim("t", 1)
        library.pass_time(SECOND)
        library.call(function, "g", "t", *argv)
        check(library)


def test_a_late_worker_changes_nothing(timed: MakeLibrary) -> None:
    library = timed()
    library.publish("g")
    library.publish("g")
    library.claim("late", SECOND, worker="same name")
    library.pass_time(2 * SECOND)
    assert library.claim("holder", 60 * SECOND, worker="same name")[4] == 2
    before = [library.client.dump(key) for key in library.keys]
    for function, *argv in (("ack",), ("nack", 0), ("nack", SECOND), ("extend", SECOND)):
        with pytest.raises(LeaseLost):
            library.call(function, "g", "late", *argv)
    assert [library.client.dump(key) for key in library.keys] == before
    library.call("ack", "g", "holder")
    assert library.claim("t")[4] == 1, "deliveries of the next message are counted anew"


def test_a_parked_group_waits_as_a_whole(timed: MakeLibrary) -> None:
    library = timed()
    library.publish("g", "1")
    library.publish("g", "2")
    library.claim("t")
    assert library.call("nack", "g", "t", 5 * SECOND) == NOON + 5 * SECOND
    library.publish("g", "3")
    assert library.call("queue_status")[1:6] == [1, 0, 0, 1, 3]
    assert library.claim("t2") is None
    library.pass_time(6 * SECOND)
    assert library.call("queue_status")[1:6] == [1, 1, 0, 0, 3]
    assert library.claim("t2")[1:5] == (1, b"1", b"t2", 2)
    check(library)


def test_a_drained_and_refilled_group_gets_a_new_priority(timed: MakeLibrary) -> None:
    library = timed()
    library.publish("g", "1", 1)
    library.publish("g", "2", 4)
    assert library.claim("t", floor=2) is None
    for _ in range(2):
        library.claim("t")
        library.call("ack", "g", "t")
    library.publish("g", "3", 4)
    assert library.claim("t", floor=4)[2] == b"3"
