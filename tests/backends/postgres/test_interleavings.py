"""The promises hold when the steps of several sessions come in an unusual order.

No test sleeps: it waits until the server says that one session waits for another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.backends.postgres.sessions import PATIENCE, Lane, expire

LEASE_LOST = "QF001"
both_places = pytest.mark.parametrize("lane", ["1", "always"], indirect=True)


def lost(call: Any, *arguments: Any) -> Any:
    with pytest.raises(psycopg.Error) as caught:
        call(*arguments)
    return caught.value.sqlstate == LEASE_LOST


# An open publisher and a group that drains


@both_places
def test_a_message_committed_after_its_group_drained_is_delivered(lane: Lane) -> None:
    publisher, worker = lane.session(), lane.session()
    worker.publish("g", '"old"')
    lease = worker.claim()
    publisher.begin()
    publisher.publish("g", '"new"')
    worker.ack(lease)
    assert worker.claim() is None
    assert lane.groups == {"g"}, "the group must stay for the publisher"
    publisher.commit()
    assert worker.claim().event == "new"


@both_places
def test_a_group_that_only_a_rolled_back_publisher_held_is_dropped_by_the_next_claim(lane: Lane) -> None:
    publisher, worker = lane.session(), lane.session()
    worker.publish("g")
    lease = worker.claim()
    publisher.begin()
    publisher.publish("g")
    worker.ack(lease)
    publisher.rollback()
    assert lane.groups == {"g"}
    assert worker.claim() is None
    assert lane.groups == set()


def test_claim_passes_over_groups_with_open_publishers_and_finds_the_one_behind_them(lane: Lane) -> None:
    publisher, worker = lane.session(), lane.session()
    for number in range(20):
        worker.publish(f"empty {number}")
    publisher.begin()
    for number in range(20):
        publisher.publish(f"empty {number}", '"late"')
    for _ in range(20):
        worker.ack(worker.claim())
    worker.publish("full")
    worker.nack(worker.claim())  # now the group was served, so its place is behind all the empty ones
    assert worker.claim().group_id == "full"
    assert worker.claim() is None
    publisher.commit()
    assert {worker.claim().event for _ in range(20)} == {"late"}


def test_a_claim_that_passed_over_a_group_blocks_no_publisher(lane: Lane) -> None:
    publisher, other, worker = lane.session(), lane.session(), lane.session()
    worker.publish("g")
    publisher.begin()
    publisher.publish("g")
    worker.ack(worker.claim())
    worker.begin()
    assert worker.claim() is None
    publisher.commit()
    other.publish("g")
    worker.commit()


def test_an_open_claim_that_passed_over_an_empty_group_hides_nothing_that_is_committed_into_it(lane: Lane) -> None:
    """Other claims pass over each row that the open claim has locked."""
    publisher, other, worker = lane.session(), lane.session(), lane.session()
    worker.publish("g")
    publisher.begin()
    publisher.publish("g", '"new"')
    worker.ack(worker.claim())
    worker.begin()
    assert worker.claim() is None
    publisher.commit()
    assert other.claim().event == "new"
    worker.commit()


@pytest.mark.parametrize("age", ["young", "old"])
def test_an_open_claim_that_locked_a_group_emptied_meanwhile_hides_nothing_that_is_committed_into_it(
    lane: Lane, age: str
) -> None:
    """The claim sees the message, then the message is acked, and then the claim gets the lock. It must give the lock
    back. In a young transaction, such as that of a single call, it raises an error instead: the caller tries again."""
    publisher, other, worker, gate = (lane.session() for _ in range(4))

    def begin() -> None:
        worker.begin()
        if age == "old":
            worker.rows("select pg_sleep(0.01)")

    lane.rows(
        "create or replace function @.moment() returns timestamptz language plpgsql stable as $$ begin"
        f" perform pg_advisory_xact_lock_shared(hashtext('{lane.queue}')); return clock_timestamp(); end $$"
    )
    other.publish("g", '"before"')
    begin()
    assert worker.claim().group_id == "g"  # the session makes its plans, which also call `moment`
    worker.rollback()
    other.ack(other.claim())
    other.publish("g", '"old"')
    lease = other.claim()
    expire(lane, lease)
    publisher.begin()
    publisher.publish("g", '"new"')
    gate.begin()
    gate.rows("select pg_advisory_xact_lock(hashtext(%s))", lane.queue)
    begin()
    call = worker.blocked(worker.claim)
    other.ack(lease)
    gate.commit()
    try:
        assert call.result(PATIENCE) is None
    except errors.SerializationFailure:
        assert age == "young"
    publisher.commit()
    assert other.claim().event == "new"
    worker.rollback()


def test_empty_groups_in_front_of_a_line_that_never_ends_are_dropped(lane: Lane) -> None:
    publisher, worker = lane.session(), lane.session()
    for number in range(5):
        worker.publish(f"g{number}")
    publisher.begin()
    for number in range(5):
        publisher.publish(f"g{number}")
    for _ in range(5):
        worker.ack(worker.claim())
    publisher.rollback()
    for number in range(20):
        worker.publish(f"full {number}")
    worker.rows("update @.groups set ready_at = 'epoch' where group_id like 'g_'")
    worker.rows("select @.reset_line()")
    for _ in range(2000):
        worker.nack(worker.claim())
        if len(lane.groups) == 20:
            break
    assert len(lane.groups) == 20


def test_a_publisher_waits_for_the_ack_that_drops_its_group_and_makes_it_again(lane: Lane) -> None:
    publisher, worker = lane.session(), lane.session()
    worker.publish("g", priority=1)
    lease = worker.claim()
    worker.begin()
    worker.ack(lease)
    waiting = publisher.blocked(publisher.publish, "g", '"new"', 3)
    worker.commit()
    waiting.result()
    assert worker.claim(min_priority=3).event == "new"


def test_a_publisher_that_waited_for_an_ack_that_was_rolled_back_keeps_the_group(lane: Lane) -> None:
    publisher, worker = lane.session(), lane.session()
    worker.publish("g", '"old"')
    lease = worker.claim()
    worker.begin()
    worker.ack(lease)
    waiting = publisher.blocked(publisher.publish, "g", '"new"')
    worker.rollback()
    waiting.result()
    assert worker.claim() is None
    worker.ack(lease)
    assert worker.claim().event == "new"


def test_ack_sees_a_message_that_was_committed_between_its_looks(lane: Lane) -> None:
    publisher, worker, holder = lane.session(), lane.session(), lane.session()
    worker.publish("g")
    lease = worker.claim()
    # the ack waits where it checks the token; in its snapshot the group has no other message
    holder.begin()
    holder.extend(lease)
    ack = worker.blocked(worker.ack, lease)
    publisher.publish("g", '"new"')
    holder.commit()
    ack.result()
    assert worker.claim().event == "new"


@pytest.mark.parametrize("published", ["before", "meanwhile"])
def test_an_open_ack_that_had_to_wait_locks_no_group_that_keeps_a_message(lane: Lane, published: str) -> None:
    """Guards against an ack that looks for other messages only before it waits: publishers wait until it commits."""
    publisher, worker, holder = lane.session(), lane.session(), lane.session()
    publisher.publish("g")
    if published == "before":
        publisher.publish("g", '"new"')
    lease = worker.claim()
    holder.begin()
    holder.extend(lease)
    worker.begin()
    ack = worker.blocked(worker.ack, lease)
    if published == "meanwhile":
        publisher.publish("g", '"new"')
    holder.commit()
    ack.result()
    publisher.rows("set lock_timeout = '3s'")
    publisher.publish("g", '"newer"')
    worker.commit()
    assert worker.claim().event == "new"


# What a publish into a group without messages does


def test_a_publish_into_an_empty_group_gives_it_its_own_priority_and_place(lane: Lane) -> None:
    publisher, worker = lane.session(), lane.session()
    worker.publish("g", priority=0)
    lease = worker.claim()
    publisher.begin()
    publisher.publish("g", priority=4)
    worker.ack(lease)
    publisher.rollback()
    worker.publish("served")
    worker.nack(worker.claim())
    worker.publish("g", priority=3)
    assert worker.claim(min_priority=3).group_id == "g"
    assert lane.one("select priority from @.groups where group_id = 'g'") == 3


def test_a_publisher_waits_for_the_one_that_fixes_the_priority_of_an_empty_group(lane: Lane) -> None:
    keeper, first, second, worker = (lane.session() for _ in range(4))
    worker.publish("g")
    keeper.begin()
    keeper.publish("g")
    worker.ack(worker.claim())  # the row stays, empty
    keeper.rollback()
    first.begin()
    first.publish("g", priority=1)
    waiting = second.blocked(second.publish, "g", "1", 4)
    first.rollback()
    waiting.result()
    assert worker.claim(min_priority=4) is not None


def test_a_second_publisher_leaves_the_priority_that_the_first_fixed(lane: Lane) -> None:
    keeper, first, second, worker = (lane.session() for _ in range(4))
    worker.publish("g")
    keeper.begin()
    keeper.publish("g")
    worker.ack(worker.claim())
    keeper.rollback()
    first.begin()
    first.publish("g", '"first"', 1)
    waiting = second.blocked(second.publish, "g", '"second"', 4)
    first.commit()
    waiting.result()
    assert worker.claim(min_priority=2) is None
    assert worker.claim(min_priority=1).event == "first"


def test_an_open_publisher_hides_nothing_that_another_commits_into_an_empty_group(lane: Lane) -> None:
    """Guards against a lock of the open publisher on the empty group: each claim would pass the group over."""
    first, second, worker = lane.session(), lane.session(), lane.session()
    worker.publish("g", '"old"', 1)
    second.begin()
    second.publish("g", '"second"')
    worker.ack(worker.claim())  # the row stays, empty, since `second` has it
    first.begin()
    first.publish("g", '"first"', 4)
    second.commit()
    lease = worker.claim()
    assert lease.event == "second"
    first.commit()
    worker.ack(lease)
    assert worker.claim().event == "first"


def test_an_open_publisher_that_waited_for_the_first_of_an_empty_group_hides_nothing_of_it(lane: Lane) -> None:
    """The second publisher found the group empty and waited. Meanwhile the first has committed a message."""
    keeper, first, second, worker = (lane.session() for _ in range(4))
    worker.publish("g", '"old"')
    keeper.begin()
    keeper.publish("g")
    worker.ack(worker.claim())
    keeper.rollback()
    first.begin()
    first.publish("g", '"first"', 1)
    second.begin()
    waiting = second.blocked(second.publish, "g", '"second"', 4)
    first.commit()
    waiting.result()
    assert worker.claim(min_priority=1).event == "first"
    second.rollback()


def test_a_publish_into_a_group_that_has_messages_never_waits(lane: Lane) -> None:
    """Open transactions do not matter: of publishers before and after the group was drained, and of a worker."""
    keeper, first, other, worker = (lane.session() for _ in range(4))
    worker.publish("g", '"old"')
    keeper.begin()
    keeper.publish("g", '"kept"')
    worker.ack(worker.claim())
    first.begin()
    first.publish("g", '"first"')
    keeper.commit()  # now the group has a message again
    for session in (other, keeper):
        session.rows("set lock_timeout = '3s'")
    other.publish("g", '"other"')
    worker.begin()
    assert worker.claim().event == "kept"
    keeper.publish("g", '"late"')
    worker.commit()
    first.rollback()


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_first_publishers_of_a_new_group_wait_for_each_other(lane: Lane, end: str) -> None:
    first, second, worker = lane.session(), lane.session(), lane.session()
    first.begin()
    first.publish("g", '"first"', 1)
    waiting = second.blocked(second.publish, "g", '"second"', 4)
    getattr(first, end)()
    waiting.result()
    assert (worker.claim(min_priority=4) is None) == (end == "commit")
    assert lane.messages == (2 if end == "commit" else 1)


# Sessions that never wait


def test_publishers_into_one_group_do_not_wait_for_each_other(lane: Lane) -> None:
    first, second, worker = lane.session(), lane.session(), lane.session()
    worker.publish("g", '"old"')
    first.begin()
    first.publish("g", '"first"')
    second.publish("g", '"second"')
    assert worker.claim().event == "old"
    first.commit()


@pytest.mark.parametrize("step", ["claim", "ack", "nack", "extend"])
def test_a_publisher_does_not_wait_for_a_worker_whose_transaction_is_open(lane: Lane, step: str) -> None:
    publisher, worker = lane.session(), lane.session()
    worker.publish("g")
    worker.publish("g")
    lease = None if step == "claim" else worker.claim()
    worker.begin()
    getattr(worker, step)(*([lease] if lease else []))
    publisher.publish("g")
    worker.commit()


def test_a_worker_does_not_wait_for_an_open_publisher(lane: Lane) -> None:
    publisher, worker = lane.session(), lane.session()
    worker.publish("g")
    worker.publish("g")
    publisher.begin()
    publisher.publish("g")
    for _ in range(2):
        lease = worker.claim()
        worker.extend(lease)
        worker.nack(lease)
        worker.ack(worker.claim())
    publisher.commit()


def test_claim_does_not_wait_for_another_claim_and_takes_the_next_group(lane: Lane) -> None:
    first, second = lane.session(), lane.session()
    first.publish("a")
    first.publish("b")
    first.begin()
    assert first.claim().group_id == "a"
    assert second.claim().group_id == "b"
    assert second.claim() is None
    first.rollback()
    assert second.claim().group_id == "a"


# Messages that overtake each other


@pytest.mark.parametrize("how", ["nack", "expiry"])
def test_a_leased_message_comes_back_before_a_smaller_seq_committed_since(lane: Lane, how: str) -> None:
    slow, fast, worker = lane.session(), lane.session(), lane.session()
    worker.publish("g", '"head"')
    slow.begin()
    smaller = slow.publish("g", '"smaller"')
    larger = fast.publish("g", '"larger"')
    worker.ack(worker.claim())
    lease = worker.claim()
    assert (lease.seq, lease.event, lease.attempts) == (larger, "larger", 1)
    slow.commit()
    worker.nack(lease) if how == "nack" else expire(lane, lease)
    again = worker.claim()
    assert (again.seq, again.event, again.attempts) == (larger, "larger", 2)
    worker.ack(again)
    last = worker.claim()
    assert (last.seq, last.event, last.attempts) == (smaller, "smaller", 1)


def test_ack_deletes_what_was_leased_and_not_the_head(lane: Lane) -> None:
    slow, worker = lane.session(), lane.session()
    worker.publish("g", '"head"')
    slow.begin()
    smaller = slow.publish("g", '"smaller"')
    worker.publish("g", '"larger"')
    worker.ack(worker.claim())
    lease = worker.claim()
    slow.commit()
    worker.ack(lease)
    assert [row.seq for row in lane.rows("select seq from @.messages")] == [smaller]


# Tokens of late workers


def test_a_late_ack_waits_for_the_claim_in_progress_and_then_loses(lane: Lane) -> None:
    late, holder = lane.session(), lane.session()
    late.publish("g")
    lease = late.claim()
    expire(lane, lease)
    holder.begin()
    newer = holder.claim()
    waiting = late.blocked(late.ack, lease)
    holder.commit()
    with pytest.raises(psycopg.Error) as caught:
        waiting.result()
    assert caught.value.sqlstate == LEASE_LOST
    assert lane.messages == 1
    holder.ack(newer)


def test_a_late_ack_wins_when_the_claim_in_progress_is_rolled_back(lane: Lane) -> None:
    late, holder = lane.session(), lane.session()
    late.publish("g")
    lease = late.claim()
    expire(lane, lease)
    holder.begin()
    assert holder.claim().attempts == 2
    waiting = late.blocked(late.ack, lease)
    holder.rollback()
    waiting.result()
    assert lane.messages == 0


def test_a_worker_may_claim_and_ack_in_one_transaction_while_a_late_one_acks(lane: Lane) -> None:
    late, holder = lane.session(), lane.session()
    late.publish("g")
    lease = late.claim()
    expire(lane, lease)
    holder.begin()
    newer = holder.claim()
    waiting = late.blocked(late.ack, lease)
    holder.ack(newer)
    holder.commit()
    with pytest.raises(psycopg.Error) as caught:
        waiting.result()
    assert caught.value.sqlstate == LEASE_LOST


def test_one_of_two_acks_of_a_lease_wins(lane: Lane) -> None:
    first, second = lane.session(), lane.session()
    first.publish("g")
    lease = first.claim()
    first.begin()
    first.ack(lease)
    waiting = second.blocked(second.ack, lease)
    first.commit()
    with pytest.raises(psycopg.Error) as caught:
        waiting.result()
    assert caught.value.sqlstate == LEASE_LOST


def test_a_token_is_lost_when_its_group_was_dropped_and_made_again(lane: Lane) -> None:
    worker = lane.session()
    worker.publish("g")
    lease = worker.claim()
    worker.ack(lease)
    worker.publish("g")
    newer = worker.claim()
    assert lost(worker.ack, lease)
    assert lost(worker.nack, lease)
    assert lost(worker.extend, lease)
    worker.ack(newer)


def test_an_extend_that_had_to_wait_begins_when_it_gets_the_lease(lane: Lane) -> None:
    """Guards against a lease that may be over when its extend returns, since its end was computed before the wait."""
    heart, worker = lane.session(), lane.session()
    worker.publish("g")
    lease = worker.claim()
    worker.begin()
    worker.ack(lease)
    extended = heart.blocked(heart.extend, lease, 60.0)
    worker.rows("select pg_sleep(0.3)")
    freed_at = worker.one("select clock_timestamp()")
    worker.rollback()
    assert (extended.result() - freed_at).total_seconds() > 59.8


# Deduplication


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_equal_dedup_ids_wait_for_the_first_transaction_to_end(lane: Lane, end: str) -> None:
    first, second = lane.session(), lane.session()
    first.begin()
    seq = first.publish("a", dedup_id="d")
    waiting = second.blocked(second.publish, "b", "1", 0, "d")
    getattr(first, end)()
    assert (waiting.result() == seq) == (end == "commit")
    assert lane.groups == ({"a"} if end == "commit" else {"b"})
    assert lane.messages == 1


def test_a_dedup_id_is_free_again_when_its_message_is_finished_while_the_second_waits(lane: Lane) -> None:
    first, second, worker = lane.session(), lane.session(), lane.session()
    worker.publish("a", dedup_id="d")
    lease = worker.claim()
    first.begin()
    first.ack(lease)
    assert second.publish("b", dedup_id="d") == lease.seq, "not finished before it is committed"
    first.commit()
    assert second.publish("b", dedup_id="d") > lease.seq


# Deadlocks and isolation levels


def test_transactions_that_make_the_same_new_groups_in_opposite_orders_deadlock_and_can_be_retried(lane: Lane) -> None:
    first, second = lane.session(), lane.session()
    first.begin()
    first.publish("a")
    second.begin()
    second.publish("b")
    waiting = first.blocked(first.publish, "b")
    ends = [(second, second.start(second.publish, "a")), (first, waiting)]
    victims = [session for session, call in ends if isinstance(call.exception(), errors.DeadlockDetected)]
    (victim,) = victims
    victim.rollback()
    (first if victim is second else second).commit()
    for group in ("a", "b"):
        victim.publish(group)
    assert lane.groups == {"a", "b"}
    assert lane.messages == 4


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_all_but_publish_refuse_isolation_levels_that_hide_what_was_committed_meanwhile(
    lane: Lane, isolation: str
) -> None:
    session = lane.session()
    session.publish("g")
    lease = session.claim()
    late: Iterable[Callable[[Any], Any]] = (session.ack, session.nack, session.extend)
    steps: Iterable[Callable[[], Any]] = (session.claim, *(partial(operation, lease) for operation in late))
    for step in steps:
        with pytest.raises(psycopg.Error) as caught, session.transaction(isolation=isolation):
            step()
        assert caught.value.sqlstate == "QF002"
        assert "READ COMMITTED" in str(caught.value.diag.message_hint)
    with session.transaction(isolation=isolation):
        session.publish("g")
        session.publish("new")
    session.ack(lease)
    assert lane.messages == 2


def test_publish_under_repeatable_read_fails_retryably_if_its_group_was_made_again(lane: Lane) -> None:
    session, worker = lane.session(), lane.session()
    worker.publish("g")
    session.rows("begin isolation level repeatable read")
    session.rows("select 1")  # takes the snapshot
    worker.ack(worker.claim())
    worker.publish("g")
    with pytest.raises(errors.SerializationFailure):
        session.publish("g")
    session.rollback()
    session.publish("g")
    assert lane.messages == 2


def test_publish_under_repeatable_read_works_whatever_workers_do_with_its_group(lane: Lane) -> None:
    session, worker = lane.session(), lane.session()
    worker.publish("g")
    with session.transaction(isolation="repeatable read"):
        session.rows("select 1")
        worker.nack(worker.claim())
        session.publish("g")
    assert lane.messages == 2


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_strict_publisher_hides_nothing_that_was_committed_into_an_empty_group_since_it_began(
    lane: Lane, isolation: str
) -> None:
    """It sees the group as it was at its beginning: empty, but kept for another publisher."""
    strict, publisher, worker = lane.session(), lane.session(), lane.session()
    worker.publish("g", priority=1)
    publisher.begin()
    publisher.publish("g", '"new"', 1)
    worker.ack(worker.claim())
    with strict.transaction(isolation=isolation):
        strict.rows("select 1")  # takes the snapshot
        publisher.commit()
        strict.publish("g", '"newer"', 1)
        lease = worker.claim()
        assert lease.event == "new"
    worker.ack(lease)
    assert worker.claim().event == "newer"


def test_a_strict_publisher_gives_an_empty_group_its_own_priority(lane: Lane) -> None:
    strict, publisher, worker = lane.session(), lane.session(), lane.session()
    worker.publish("g", priority=1)
    publisher.begin()
    publisher.publish("g")
    worker.ack(worker.claim())  # the row stays, empty
    publisher.rollback()
    with strict.transaction(isolation="repeatable read"):
        strict.publish("g", priority=3)
    assert worker.claim(min_priority=3).group_id == "g"


# A rolled back worker


def test_a_claim_that_was_rolled_back_never_happened(lane: Lane) -> None:
    worker = lane.session()
    worker.publish("g")
    worker.begin()
    lease = worker.claim()
    worker.rollback()
    assert lost(worker.ack, lease)
    assert worker.claim().attempts == 1


def test_a_leased_message_deleted_by_hand_does_not_block_its_group(lane: Lane) -> None:
    worker = lane.session()
    for event in ("1", "2", "3"):
        worker.publish("g", event)
    lease = worker.claim()
    lane.rows("delete from @.messages where seq = %s", lease.seq)
    worker.nack(lease)
    lease = worker.claim()
    assert (lease.event, lease.attempts) == (2, 1)
    worker.ack(lease)
    lease = worker.claim()
    lane.rows("delete from @.messages where seq = %s", lease.seq)
    worker.ack(lease)
    assert lane.groups == set()


@pytest.mark.parametrize("step", ["ack", "nack", "extend"])
def test_a_lease_that_is_extended_at_the_same_moment_is_not_lost(lane: Lane, step: str) -> None:
    """The other call waits for the row. When it gets the row, the extend has already changed its place."""
    heart, worker = lane.session(), lane.session()
    worker.publish("g")
    lease = worker.claim()
    heart.begin()
    heart.extend(lease)
    call = worker.blocked(getattr(worker, step), lease)
    heart.commit()
    call.result(PATIENCE)
    assert lane.groups == (set() if step == "ack" else {"g"})
