"""No order is broken by a sequence that does not match the messages, as after a switch-over or a restore."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import fairlane
from fairlane import migrate
from tests.backends.postgres.sessions import Lane


def drain(lane: Lane) -> list[Any]:
    events = []
    while lease := lane.watcher.claim():
        events.append(lease.event)
        lane.watcher.ack(lease)
    return events


@pytest.mark.parametrize("dedup_id", [None, "id"])
@pytest.mark.parametrize("last", [1, 7], ids=["behind", "just behind"])
def test_a_sequence_behind_its_rows_breaks_no_order(lane: Lane, last: int, dedup_id: str | None) -> None:
    """Guards against a new message whose number is smaller than that of a waiting message, or equal to it."""
    session = lane.session()
    for number in range(8):
        session.publish("g", str(number))
    lane.rows("select setval('@.message_seq', %s, false)", last)
    for _ in range(8 - last + 1):
        with pytest.raises(psycopg.Error) as caught:
            session.publish("g", '"too early"', dedup_id=dedup_id)
        assert caught.value.sqlstate == "QF003"
        assert "fairlane migrate --queue" in str(caught.value.diag.message_hint)
    session.publish("g", '"in order"')
    assert drain(lane) == [*range(8), "in order"]


def test_publishers_that_overtake_each_other_cause_no_error(lane: Lane) -> None:
    slow, fast = lane.session(), lane.session()
    fast.publish("g", '"head"')
    slow.begin()
    slow.publish("g", '"slow"')
    fast.publish("g", '"fast"')
    slow.publish("g", '"slow again"')
    slow.commit()
    assert drain(lane) == ["head", "slow", "fast", "slow again"]


def test_the_client_gets_one_error_that_says_what_to_do_and_a_migration_repairs_it(lane: Lane) -> None:
    with fairlane.connect(lane.url, lane.queue) as queue:
        for number in range(8):
            queue.publish("g", number)
        assert migrate.status(lane.url, queue=lane.queue).ready
        lane.rows("select setval('@.message_seq', 3)")
        with pytest.raises(fairlane.QueueDamaged, match=f"fairlane migrate --queue {lane.queue}"):
            queue.publish("g", "too early")
        status = migrate.status(lane.url, queue=lane.queue)
        assert not status.ready
        assert "fairlane migrate" in (status.fault or "")
        migrate.upgrade(lane.url, queue=lane.queue)
        assert migrate.status(lane.url, queue=lane.queue).ready
        queue.publish("g", 8)
        assert drain(lane) == list(range(9))


def test_a_migration_does_not_change_a_sequence_that_is_not_behind(lane: Lane) -> None:
    lane.watcher.publish("g")
    lane.rows("select setval('@.message_seq', 500)")
    migrate.upgrade(lane.url, queue=lane.queue)
    assert lane.watcher.publish("g") == 501


@pytest.mark.parametrize("lane", ["1", "always"], indirect=True)
def test_a_very_large_seq_parks_no_group(lane: Lane) -> None:
    lane.rows("select setval('@.message_seq', %s)", 2**56)
    lane.watcher.publish("g", "1")
    assert drain(lane) == [1]
