"""Pauses keep what they promise when other sessions publish, claim and ack at the same time."""

from __future__ import annotations

import pytest
from psycopg import errors

from fairlane import migrate
from fairlane.backends.stored import PURGED_AT_ONCE
from tests.backends.postgres.fresh import fresh_database
from tests.backends.postgres.sessions import Lane, Session

PAUSED = PURGED_AT_ONCE
"""More groups than a claim could read within its usual number of buffers."""


def pause(session: Session, group_id: str | None) -> bool:
    return bool(session.one("select @.pause(%s)", group_id))


def resume(session: Session, group_id: str | None) -> bool:
    return bool(session.one("select @.resume(%s)", group_id))


def buffers(session: Session, call: str) -> int:
    ((plan,),) = session.rows(f"explain (analyze, buffers, format json) select * from @.{call}")
    return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])


def test_a_pause_waits_for_the_open_publisher_of_a_new_group_and_holds_its_message(lane: Lane) -> None:
    """Guards against a pause that sees no group, and a group that is made unpaused just then."""
    publisher, operator = lane.session(), lane.session()
    publisher.begin()
    publisher.publish("g")
    waiting = operator.blocked(pause, operator, "g")
    publisher.commit()
    assert waiting.result() is True
    assert lane.watcher.claim() is None
    assert resume(operator, "g") is True
    assert lane.watcher.claim().group_id == "g"


def test_a_publisher_into_a_group_that_is_just_being_paused_is_held_too(lane: Lane) -> None:
    publisher, operator = lane.session(), lane.session()
    operator.begin()
    assert pause(operator, "g") is True
    waiting = publisher.blocked(publisher.publish, "g")
    operator.commit()
    waiting.result()
    assert lane.watcher.claim() is None


def test_a_pause_that_is_rolled_back_never_was(lane: Lane) -> None:
    operator = lane.session()
    for which in ("g", None):
        operator.begin()
        assert pause(operator, which) is True
        operator.rollback()
    lane.watcher.publish("g")
    assert lane.watcher.claim().group_id == "g"


def test_a_claim_that_waits_for_a_pause_passes_the_group_over(lane: Lane) -> None:
    """Guards against a claim that leases a group by the row version before the pause."""
    operator, worker = lane.session(), lane.session()
    for group in ("g", "h"):
        worker.publish(group)
    operator.begin()
    assert pause(operator, "g") is True
    assert worker.claim().group_id == "h"
    operator.commit()
    assert worker.claim() is None


def test_an_ack_in_an_open_transaction_keeps_the_pause_that_follows(lane: Lane) -> None:
    operator, worker = lane.session(), lane.session()
    for event in ("1", "2"):
        worker.publish("g", event)
    lease = worker.claim()
    worker.begin()
    worker.ack(lease)
    waiting = operator.blocked(pause, operator, "g")
    worker.commit()
    assert waiting.result() is True
    assert worker.claim() is None
    resume(operator, "g")
    assert worker.claim().event == 2


def test_an_empty_paused_group_outlives_claims_that_drop_empty_groups(lane: Lane) -> None:
    """Guards against tidying that takes the row of a pause for the row of a publisher that rolled back."""
    worker = lane.session()
    worker.publish("g")
    lease = worker.claim()
    assert pause(worker, "g") is True
    worker.ack(lease)
    for floor in range(5):
        worker.rows("select @.drop_empty(%s, null, null)", floor)
    assert worker.claim() is None
    assert lane.groups == {"g"}
    worker.publish("g")
    assert worker.claim() is None
    assert resume(worker, "g") is True
    worker.ack(worker.claim())
    assert lane.groups == set()


def test_resume_waits_for_the_open_publisher_of_an_empty_group_and_keeps_its_message(lane: Lane) -> None:
    """Guards against a message that is committed into a group which was dropped."""
    publisher, operator = lane.session(), lane.session()
    pause(operator, "g")
    publisher.begin()
    publisher.publish("g")
    waiting = operator.blocked(resume, operator, "g")
    publisher.commit()
    assert waiting.result() is True
    assert operator.claim().group_id == "g"


def test_a_claim_reads_nothing_of_paused_groups(lane: Lane) -> None:
    worker = lane.session()
    worker.publish("last")
    free = buffers(worker, "claim('w', 60)")
    worker.rows(f"select @.publish('p' || n, '1'), @.pause('p' || n) from generate_series(1, {PAUSED}) as n")
    worker.rows("vacuum analyze @.messages, @.groups, @.group_ids, @.settings")
    worker.publish("free")
    assert buffers(worker, "claim('w', 60)") < free + 30
    assert buffers(worker, "claim('w', 60)") < free + 30


def test_pause_and_resume_refuse_bad_names(lane: Lane) -> None:
    for call in ("pause", "resume"):
        for name in ("", "x" * 513):
            with pytest.raises(errors.InvalidParameterValue, match="p_group_id must be 1 to 512 bytes, or null"):
                lane.rows(f"select @.{call}(%s)", name)


def test_a_downgrade_ends_all_pauses() -> None:
    """Guards against groups that clients of revision 0001 can neither claim nor resume."""
    with fresh_database() as database:
        migrate.upgrade(database.url(), queue="orders")
        old = Lane(database.url(), "orders")
        worker = old.session()
        worker.publish("g")
        for which in ("g", "empty", None):
            assert pause(worker, which) is True
        migrate.downgrade(database.url(), queue="orders", revision="0001")
        worker.ack(worker.claim())
        assert worker.claim() is None
        assert [row.groups for row in worker.rows("select groups from @.queue_status")] == [0]
        migrate.upgrade(database.url(), queue="orders")
        assert resume(worker, None) is False
        old.close()
