"""No call costs more because of wrong planner statistics. Cost is counted in buffers, which do not depend on load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.postgres.sessions import Lane, Session

FEW = 100
"""The most buffers for a call, which needs a few dozen index descents. Reading a few hundred groups takes more."""

SIZE = 20_000
LARGE = 200_000


def fill(lane: Lane, size: int) -> None:
    """Make `size` claimable groups with one message each, and in front of them one group of priority 4."""
    lane.rows("insert into @.messages select 'low ' || n, n, '1', null, now() from generate_series(1, %s) as n", size)
    lane.rows("insert into @.group_ids select 'low ' || n from generate_series(1, %s) as n", size)
    lane.rows("insert into @.groups select 'low ' || n, 0, 0, now() from generate_series(1, %s) as n", size)
    lane.watcher.publish("high", priority=4)
    lane.rows("select setval('@.message_seq', %s)", size + 1000)


def empty(lane: Lane) -> None:
    lane.rows("delete from @.messages")
    lane.rows("delete from @.groups")
    lane.rows("delete from @.group_ids")


def analyze(lane: Lane) -> None:
    lane.rows("analyze @.messages, @.groups, @.group_ids")


def never_analysed(lane: Lane, size: int) -> None:
    fill(lane, size)


def analysed_while_drained(lane: Lane, size: int) -> None:
    fill(lane, 3000)
    empty(lane)
    analyze(lane)
    fill(lane, size)


def analysed_while_full(lane: Lane, size: int) -> None:
    fill(lane, size)
    analyze(lane)


def vacuumed_empty(lane: Lane, size: int) -> None:
    fill(lane, 3000)
    empty(lane)
    lane.rows("vacuum analyze @.messages, @.groups, @.group_ids")
    fill(lane, size)


STATISTICS = [
    (never_analysed, SIZE),
    (analysed_while_drained, SIZE),
    (analysed_while_full, SIZE),
    (vacuumed_empty, SIZE),
    (analysed_while_drained, LARGE),
    (analysed_while_full, LARGE),
]


def first(session: Session, group_id: str) -> None:
    """Put a group in front of all others."""
    session.rows("update @.groups set ready_at = 'epoch' where group_id = %s", group_id)
    session.rows("select @.reset_line()")


def buffers(session: Session, statement: str, *arguments: Any) -> int:
    """Return how many buffers a statement takes, with the statements inside of the functions that it calls."""
    ((plan,),) = session.rows(f"explain (analyze, buffers, format json) {statement}", *arguments)
    return int(plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"])


def call_all(session: Session, round_: int) -> dict[str, int]:
    """Call every procedure in all of its variants; return the buffers of each call."""
    taken = {}

    def call(name: str, statement: str, *arguments: Any) -> None:
        taken[name] = buffers(session, f"select * from @.{statement}", *arguments)

    def token(group_id: str) -> Any:
        return session.one("select token from @.groups where group_id = %s", group_id)

    call("publish, new", "publish(%s, '1', 4)", f"new {round_}")
    call("publish, more", "publish(%s, '1')", f"new {round_}")
    call("publish, with an id", "publish(%s, '1', 0, %s)", f"new {round_}", f"id {round_}")
    call("publish, again", "publish(%s, '1', 0, %s)", f"new {round_}", f"id {round_}")
    for floor in range(5):
        call(f"claim, floor {floor}", "claim('w', 60, %s)", floor)
    first(session, f"new {round_}")
    call("claim", "claim('w', 60)")
    group_id = f"new {round_}"
    call("extend", "extend(%s, %s, 60)", group_id, token(group_id))
    call("nack", "nack(%s, %s, 0)", group_id, token(group_id))
    for left in (2, 1, 0):
        first(session, group_id)
        lease = session.claim(4)
        assert lease.group_id == group_id
        taken[f"ack, {left} left"] = buffers(session, "select @.ack(%s, %s)", group_id, lease.token)
    call("drop_empty", "drop_empty(0, '-infinity', '-infinity')")
    call("revision", "revision()")
    return taken


@pytest.mark.parametrize(("gather", "size"), STATISTICS, ids=lambda value: getattr(value, "__name__", value))
def test_a_call_is_a_few_descents_whatever_the_statistics_say(
    lane: Lane, gather: Callable[[Lane, int], None], size: int
) -> None:
    """A queue is empty most of the time, so autovacuum usually gathers statistics about an empty queue."""
    lane.rows("alter table @.messages set (autovacuum_enabled = off)")
    lane.rows("alter table @.groups set (autovacuum_enabled = off)")
    gather(lane, size)
    session = lane.session()
    for number in range(2):
        call_all(session, number)  # the first calls also read what a session reads only once
    rounds = [call_all(session, number) for number in range(2, 6)]
    # about one claim in 64 also drops empty groups, so the smallest number is compared
    taken = {name: min(round_[name] for round_ in rounds) for name in rounds[0]}
    most = {"drop_empty": 2 * FEW}  # it checks sixteen groups
    assert {name: count for name, count in taken.items() if count > most.get(name, FEW)} == {}


def deepen(lane: Lane, size: int) -> None:
    """Put the group `high` in front of the line, and add `size` waiting messages to it."""
    first(lane.watcher, "high")
    lane.rows(
        "insert into @.messages select 'high', 1000000 + n, '1', null, now() from generate_series(1, %s) as n", size
    )


SHOWN = {
    "groups": "select * from @.groups_in_line(20)",
    "some groups": "select * from @.group_status limit 20",
    "one group": "select * from @.group_status where group_id = 'low 77'",
    "first messages": "select * from @.peek('high', 100)",
    "messages of a small group": "select * from @.message_status where group_id = 'low 77'",
    "queue": "select * from @.queue_status",
}
"""What operators look at, each with its statement."""


@pytest.mark.parametrize(("gather", "size"), STATISTICS, ids=lambda value: getattr(value, "__name__", value))
def test_what_operators_look_at_costs_no_more_than_what_is_shown(
    lane: Lane, gather: Callable[[Lane, int], None], size: int
) -> None:
    lane.rows("alter table @.messages set (autovacuum_enabled = off)")
    lane.rows("alter table @.groups set (autovacuum_enabled = off)")
    gather(lane, size)
    deepen(lane, size)
    session, taken = lane.session(), {}
    for _ in range(2):
        taken = {name: buffers(session, statement) for name, statement in SHOWN.items()}
    most = {"groups": 1000, "some groups": 1000, "first messages": 100 * 10, "queue": 50_000}
    assert {name: count for name, count in taken.items() if count > most.get(name, FEW)} == {}


def test_no_function_uses_jit_for_its_plans(lane: Lane) -> None:
    """With a million groups the estimated costs are high enough for JIT, and each call would pay for the compilation.
    The test server has no JIT, so the test checks the settings of the functions. `moment` has no plan."""
    without = lane.rows(
        "select proname from pg_proc where pronamespace = %s::regnamespace and proname <> 'moment'"
        " and not coalesce('jit=off' = any (proconfig), false)",
        lane.queue,
    )
    assert without == []
