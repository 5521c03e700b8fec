"""Rows that were deleted by hand: other groups are served, and a migration restores the rows."""

from __future__ import annotations

import pytest

import fairlane
from fairlane import migrate
from tests.backends.postgres.sessions import Lane
from tests.harness import held


@pytest.mark.parametrize("tables", [("groups",), ("group_ids",), ("groups", "group_ids")], ids=" and ".join)
def test_a_migration_restores_the_rows_of_a_group(lane: Lane, tables: tuple[str, ...]) -> None:
    """Guards against messages that wait for ever, and against a second row, by which a group has two leases at once."""
    session = lane.session()
    for group_id in ("bad", "good"):
        for event in "12":
            session.publish(group_id, event)
    for table in tables:
        lane.rows(f"delete from @.{table} where group_id = 'bad'")
    migrate.upgrade(lane.url, queue=lane.queue)
    session.publish("bad", "3")
    handled: dict[str, list[int]] = {"bad": [], "good": []}
    while lease := session.claim():
        if len(handled["good"]) < 2:
            second = session.claim()
            assert second.group_id != lease.group_id
            session.nack(second)
        handled[lease.group_id].append(lease.event)
        session.ack(lease)
    assert handled == {"bad": [1, 2, 3], "good": [1, 2]}
    assert (lane.groups, lane.messages, lane.one("select count(*) from @.group_ids")) == (set(), 0, 0)


def test_a_group_without_its_row_is_one_typed_error_that_says_what_to_do(lane: Lane) -> None:
    with fairlane.connect(lane.url, lane.queue) as queue:
        queue.publish("bad", 1)
        queue.publish("good", 1)
        lane.rows("delete from @.groups where group_id = 'bad'")
        with pytest.raises(fairlane.QueueDamaged, match=f"fairlane migrate --queue {lane.queue}"):
            queue.publish("bad", 2)
        assert held(queue.claim("worker", 60)).group_id == "good"
        migrate.upgrade(lane.url, queue=lane.queue)
        queue.publish("bad", 2)
        assert held(queue.claim("worker", 60)).event == 1
