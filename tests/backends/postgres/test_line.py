"""The beginning of the line moves beyond finished work, and hides no group, even if a transaction commits late."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Callable

import pytest

from fairlane import migrate
from tests.backends.postgres.sessions import PATIENCE, Lane, Session
from tests.servers.base import Server


def look(session: Session, times: int = 1) -> None:
    for _ in range(times):
        session.rows("select @.look_ahead()")


def settled(lane: Lane) -> int:
    """Return the settled number: each message up to it is committed, or never will be."""
    return int(lane.one("select settled from @.line order by id desc limit 1"))


def churn(session: Session, cycles: int = 5) -> None:
    for number in range(cycles):
        session.publish(f"churn {number}")
        session.ack(session.claim())


def test_the_line_begins_after_what_is_finished(lane: Lane) -> None:
    session = lane.session()
    churn(session)
    published = lane.one("select clock_timestamp()")
    look(session, 2)
    assert lane.one("select served[1] >= %s from @.line order by id desc limit 1", published)
    assert settled(lane) == 5
    session.publish("g")
    look(session, 4)
    assert session.claim().group_id == "g"


@pytest.mark.parametrize("lane", ["0", "1", "always"], indirect=True)
@pytest.mark.parametrize("served", [False, True], ids=["new", "served"])
@pytest.mark.parametrize("priority", range(5))
def test_the_line_never_begins_after_a_group_that_waits(lane: Lane, priority: int, served: bool) -> None:
    session, other = lane.session(), lane.session()
    session.publish("waits", priority=priority)
    if served:
        session.nack(session.claim())
    for _ in range(3):
        other.publish("busy", priority=4)
        look(other, 2)
    assert {session.claim(floor).group_id for floor in (priority,) for _ in range(2)} == {"waits", "busy"}


def test_a_publisher_that_commits_late_is_not_passed_over(lane: Lane) -> None:
    """The publisher took its place before the looks, but they cannot see it yet."""
    late, other = lane.session(), lane.session()
    late.begin()
    late.publish("late")
    churn(other)
    look(other, 4)
    assert settled(lane) == 0
    late.commit()
    look(other, 4)
    assert other.claim().group_id == "late"


def test_a_publisher_that_begins_during_the_looks_and_commits_late_is_not_passed_over(lane: Lane) -> None:
    late, other = lane.session(), lane.session()
    look(other)
    late.begin()
    late.publish("late")
    look(other, 4)
    churn(other)
    late.commit()
    assert other.claim().group_id == "late"


def test_a_number_that_is_drawn_in_the_middle_of_a_look_is_not_settled(lane: Lane) -> None:
    """This publisher begins after the look has noted open publishers. So the look must read the last number before."""
    late, other, looker, gate = (lane.session() for _ in range(4))
    other.publish("g", '"first"')
    with gate.transaction():
        gate.rows("lock table @.line in share mode")  # the look waits here when it wants to write
        call = looker.blocked(look, looker)
        late.begin()
        late.publish("g", '"late"')
        other.publish("g", '"after"')
    call.result(PATIENCE)
    look(looker, 2)
    for event in ("first", "after"):
        lease = other.claim()
        assert lease.event == event
        other.ack(lease)
    late.commit()
    assert other.claim().event == "late"


@pytest.mark.parametrize("ends", ["before the restart", "after it"])
def test_a_prepared_transaction_is_not_passed_over_after_a_restart(servers: Callable[..., Server], ends: str) -> None:
    """After a restart the server lists the prepared transaction under another id."""
    server = servers("postgres", "-c", "max_prepared_transactions=1")
    queue = f"t{secrets.token_hex(6)}"
    migrate.upgrade(server.url, queue=queue)
    before = Lane(server.url, queue)
    late, other = before.session(), before.session()
    late.begin()
    late.publish("late")
    look(other)
    late.rows(f"prepare transaction '{queue}'")
    if ends == "before the restart":
        other.rows(f"commit prepared '{queue}'")
    before.close()
    server.restart()
    after = Lane(server.url, queue)
    session = after.session()
    look(session, 3)
    if ends == "after it":
        assert settled(after) == 0
        session.rows(f"commit prepared '{queue}'")
    look(session, 3)
    assert settled(after) == 1
    assert session.claim().group_id == "late"
    after.close()


def test_a_vacuum_does_not_stop_the_line(lane: Lane) -> None:
    """Behind an old snapshot a vacuum has much to read, and a new one begins again and again."""
    vacuum, session = lane.session(), lane.session()
    with vacuum.transaction():
        vacuum.rows("lock table @.groups in share update exclusive mode")
        churn(session)
        look(session, 3)
        assert settled(lane) == 5


@pytest.mark.parametrize("how", ["transaction", "savepoint"])
def test_a_claim_that_is_rolled_back_leaves_its_group_in_line(lane: Lane, how: str) -> None:
    """Also when the same transaction looks ahead after its claim has moved the group."""
    worker, other = lane.session(), lane.session()
    worker.publish("g")
    look(worker, 2)
    worker.begin()
    if how == "savepoint":
        worker.rows("savepoint s")
    assert worker.claim().group_id == "g"
    look(worker)
    look(other, 3)
    worker.rows("rollback to savepoint s" if how == "savepoint" else "rollback")
    if how == "savepoint":
        worker.commit()
    look(other, 3)
    assert other.claim().group_id == "g"


def test_an_ack_that_is_rolled_back_leaves_its_group_in_line(lane: Lane) -> None:
    worker, other = lane.session(), lane.session()
    worker.publish("g")
    lease = worker.claim(visibility=0.001)
    worker.begin()
    worker.ack(lease)
    look(other, 3)
    worker.rollback()
    look(other, 3)
    assert other.claim().attempts == 2


def test_of_two_looks_at_the_same_time_only_one_is_made(lane: Lane) -> None:
    first, second = lane.session(), lane.session()
    churn(first)
    before = lane.one("select max(id) from @.line")
    first.begin()
    look(first)
    look(second, 3)
    assert lane.one("select max(id) from @.line") == before
    first.commit()
    look(second)
    assert lane.one("select max(id) from @.line") == before + 2


def test_a_long_reader_of_the_tables_does_not_stop_the_line(lane: Lane) -> None:
    """A dump locks all tables, and is the usual reason for an old snapshot."""
    reader, session = lane.session(), lane.session()
    with reader.transaction(isolation="repeatable read"):
        reader.rows("select 1 from @.groups, @.messages, @.message_seq")
        churn(session)
        look(session, 3)
        assert settled(lane) == 5


@pytest.mark.parametrize("step", ["publish", "ack", "nack", "extend"])
def test_nothing_is_placed_before_the_bound_when_the_clock_was_set_back(lane: Lane, step: str) -> None:
    """No claim looks before the bound. Here the server's clock is an hour before it, and the head start is 1 second."""
    session = lane.session()
    session.publish("g")
    session.publish("g")
    lease = None if step == "publish" else session.claim()
    look(session, 2)
    lane.rows("select setval('@.line_bound', ((extract(epoch from now()) + 3600) * 1000000)::bigint)")
    if step == "publish":
        session.publish("new")
    else:
        getattr(session, step)(lease)
    ahead = lane.one(
        "select extract(epoch from g.ready_at) - b.last_value / 1000000.0 from @.groups as g, @.line_bound as b"
        " where g.group_id = %s",
        "new" if step == "publish" else "g",
    )
    assert ahead >= (-1 if step == "publish" else 0)


def test_a_claim_notices_that_the_clock_was_set_back_and_new_groups_are_in_time_again(lane: Lane) -> None:
    session = lane.session()
    churn(session)
    look(session, 3)
    lane.rows("select setval('@.line_bound', ((extract(epoch from now()) + 3600) * 1000000)::bigint)")
    for _ in range(2):
        assert session.claim() is None
    session.publish("g")
    assert session.claim().group_id == "g"
    assert lane.one("select to_timestamp(last_value / 1000000.0) <= clock_timestamp() from @.line_bound")


def test_what_was_put_into_the_line_by_hand_is_found_after_a_reset_or_a_migration(lane: Lane) -> None:
    session = lane.session()
    session.publish("g")
    session.nack(session.claim())
    look(session, 3)
    lane.rows("update @.groups set ready_at = '2001-01-01'")
    assert session.claim() is None
    session.rows("select @.reset_line()")
    session.nack(session.claim())
    look(session, 3)
    lane.rows("update @.groups set ready_at = '2001-01-01'")
    migrate.upgrade(lane.url, queue=lane.queue)
    assert session.claim().group_id == "g"


def test_a_migration_does_not_wait_for_a_session_that_looks_ahead(lane: Lane) -> None:
    session = lane.session()
    session.publish("g")
    with session.transaction():
        look(session)
        migrate.upgrade(lane.url, queue=lane.queue)


def test_a_message_with_a_smaller_number_that_is_committed_late_comes_before_later_ones(lane: Lane) -> None:
    """The search for the head begins at the last head, but never after the settled number."""
    slow, fast = lane.session(), lane.session()
    fast.publish("g", '"first"')
    slow.begin()
    slow.publish("g", '"slow"')
    fast.publish("g", '"fast"')
    look(fast, 3)
    for event in ("first", "fast"):
        lease = fast.claim()
        assert lease.event == event
        fast.ack(lease)
        look(fast, 3)
    slow.commit()
    fast.publish("g", '"last"')
    look(fast, 3)
    for event in ("slow", "last"):
        lease = fast.claim()
        assert lease.event == event
        fast.ack(lease)
    assert (lane.groups, lane.messages) == (set(), 0)


def test_a_dump_in_the_middle_of_the_looks_restores_a_queue_that_hides_nothing(lane: Lane) -> None:
    late, session = lane.session(), lane.session()
    churn(session)
    session.publish("waits")
    look(session)
    late.begin()
    late.publish("late")
    look(session, 2)
    dump = subprocess.run(
        ["pg_dump", "--schema", lane.queue, lane.url], check=True, capture_output=True, text=True
    ).stdout
    late.rollback()
    session.publish("gone")
    look(session, 4)
    lane.rows(f"drop schema {lane.queue} cascade")
    subprocess.run(
        ["psql", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", lane.url], check=True, input=dump, text=True
    )
    fresh = lane.session()
    look(fresh, 4)
    assert fresh.claim().group_id == "waits"
    assert fresh.claim() is None
    fresh.publish("new")
    assert fresh.claim().group_id == "new"


def buffers(session: Session, call: str, *arguments: object) -> int:
    ((plan,),) = session.rows(f"explain (analyze, buffers, format json) select * from @.{call}", *arguments)
    return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])


def cycles(session: Session, names: int, times: int) -> None:
    """Publish into `names` groups in turn; after each publish, claim and ack the first message in line."""
    session.rows(f"""
        do $$
        declare v_lease record;
        begin
            for i in 1..{times} loop
                perform @.publish('g' || (i % {names}), '1');
                commit;
                select * into v_lease from @.claim('w', 60);
                commit;
                perform @.ack(v_lease.group_id, v_lease.token);
                commit;
            end loop;
        end
        $$""")


@pytest.mark.parametrize("kind", ["drained", "backlog"])
def test_claims_cost_no_more_behind_an_old_snapshot(lane: Lane, kind: str) -> None:
    """Vacuum can remove nothing meanwhile. Guards against claims that read all finished entries."""
    session, reader = lane.session(), lane.session()
    if kind == "backlog":
        for number in range(200):
            session.publish(f"g{number % 50}")
    cycles(session, 50, 500)
    with reader.transaction(isolation="repeatable read"):
        reader.rows("select count(*) from pg_class")
        cycles(session, 50, 2000)
        look(session, 2)
        while lease := session.claim():
            session.ack(lease)
        look(session, 2)
        assert buffers(session, "claim('w', 60)") < 150


def test_no_operation_on_a_hot_group_costs_more_behind_an_old_snapshot(lane: Lane) -> None:
    """Each publish, claim and ack leaves an old version of the group's row, and all versions have the same group id."""
    session, reader = lane.session(), lane.session()
    session.publish("g0")
    with reader.transaction(isolation="repeatable read"):
        reader.rows("select count(*) from pg_class")
        cycles(session, 1, 2000)
        look(session, 2)
        taken = {"publish": buffers(session, "publish('g0', '1')"), "claim": buffers(session, "claim('w', 60)")}
        for step, end in (("extend", ", 60"), ("nack", ""), ("ack", "")):
            token = session.one("select token from @.groups where token is not null")
            taken[step] = buffers(session, f"{step}('g0', %s{end})", token)
            if step == "nack":
                session.claim()
        taken["peek"] = buffers(session, "peek('g0', 5)")
    assert max(taken.values()) < 150, taken


DAMAGE = {
    "emptied": "delete from @.line",
    "truncated": "truncate @.line",
    "but for the oldest row": "delete from @.line where id > (select min(id) from @.line)",
    "the bound set back": "select setval('@.line_bound', 1)",
    "the bound without a value": "alter sequence @.line_bound restart",
    "the bound far ahead": "select setval('@.line_bound', ((extract(epoch from now()) + 1e8) * 1000000)::bigint)",
}


@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_hides_nothing_and_is_repaired_by_calls(lane: Lane, damage: str, used: bool) -> None:
    """Guards against calls that never end or find nothing when the row that says where the line begins is missing."""
    session = lane.session()
    churn(session)
    session.publish("before")
    session.publish("waits")
    session.nack(session.claim())
    if used:
        look(session, 3)
    lane.rows(DAMAGE[damage])
    session.publish("before")
    assert {session.claim().group_id for _ in range(2)} == {"before", "waits"}
    look(session, 4)
    session.publish("after")
    assert session.claim().group_id == "after"
    assert migrate.status(lane.url, queue=lane.queue).ready
    assert lane.one("select count(*) > 0 from @.line")


@pytest.mark.parametrize("lost", ["truncate @.groups", "truncate @.groups, @.line", "drop sequence @.line_bound"])
def test_a_migration_restores_what_was_lost_beside_the_messages(lane: Lane, lost: str) -> None:
    session = lane.session()
    for group_id in ("a", "b"):
        session.publish(group_id, '"first"')
        session.publish(group_id, '"second"')
    session.ack(session.claim())
    look(session, 3)
    lane.rows(lost)
    migrate.upgrade(lane.url, queue=lane.queue)
    session = lane.session()
    events = []
    while lease := session.claim():
        events.append((lease.group_id, lease.event))
        session.ack(lease)
    assert sorted(events) == [("a", "second"), ("b", "first"), ("b", "second")]
    assert (lane.groups, lane.messages) == (set(), 0)


def test_groups_whose_messages_were_deleted_by_hand_are_dropped_by_a_claim(lane: Lane) -> None:
    session = lane.session()
    for number in range(3):
        session.publish(f"g{number}")
    look(session, 3)
    lane.rows("truncate @.messages")
    assert session.claim() is None
    assert lane.groups == set()


def test_a_sequence_that_was_set_back_makes_the_line_unused_and_hides_nothing(lane: Lane) -> None:
    """No number is settled any more, since a late message may now get a number below the settled one."""
    late, session = lane.session(), lane.session()
    churn(session, 20)
    look(session, 3)
    lane.rows("select setval('@.message_seq', 2)")
    lane.rows("select setval('@.line_bound', 1)")
    late.begin()
    late.publish("g", '"late"')
    session.rows("select @.look_ahead()")
    assert lane.one("select last_value from @.line_bound") == 1
    late.commit()
    assert session.claim().event == "late"
    assert not migrate.status(lane.url, queue=lane.queue).ready
    migrate.upgrade(lane.url, queue=lane.queue)
    assert migrate.status(lane.url, queue=lane.queue).ready


@pytest.mark.parametrize("lane", ["1", "always"], indirect=True)
def test_calls_do_not_read_the_table_line_before_a_first_look_ahead(lane: Lane) -> None:
    """The table makes calls more expensive, and helps only while something stops vacuum."""
    session = lane.session()
    session.publish("g")
    lane.rows("alter table @.line rename to missing")
    session.publish("new")
    for _ in range(2):
        session.ack(session.claim())
    assert session.claim() is None


def test_claims_look_ahead_when_finished_work_piles_up(lane: Lane) -> None:
    session, reader = lane.session(), lane.session()
    session.publish("waits")
    with reader.transaction(isolation="repeatable read"):
        reader.rows("select count(*) from pg_class")
        for _ in range(2000):
            session.nack(session.claim())
            if lane.one("select count(*) from @.line") > 3:
                break
        assert lane.one("select count(*) from @.line") > 3


def test_after_a_clock_was_set_back_no_lease_is_too_short_and_only_the_first_is_too_long(lane: Lane) -> None:
    session = lane.session()
    for number in range(4):
        session.publish(f"g{number}")
    look(session, 3)
    lane.rows("select setval('@.line_bound', ((extract(epoch from now()) + 3600) * 1000000)::bigint)")
    spans = [
        session.one("select extract(epoch from expires_at - clock_timestamp()) from @.claim('w', 60)") for _ in range(4)
    ]
    assert all(float(span) > 60 - PATIENCE for span in spans)
    assert [float(span) > 60 for span in spans] == [True, False, False, False]


def test_a_message_published_while_the_clock_is_behind_the_bound_waits_only_until_the_bound(lane: Lane) -> None:
    session = lane.session()
    look(session, 3)
    lane.rows("select setval('@.line_bound', ((extract(epoch from clock_timestamp()) + 1.5) * 1000000)::bigint)")
    session.publish("g")
    end = time.monotonic() + PATIENCE
    while not (lease := session.claim()):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert lease.group_id == "g"
