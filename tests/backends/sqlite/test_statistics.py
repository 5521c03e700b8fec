"""No plan depends on statistics, and inspection costs no more than what it shows.

ANALYZE notes how many rows there are, and how many of them share a key. Some builds of SQLite also note keys, in
sqlite_stat4. The statistics may be from a time when the queue was drained, or had a single group.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest

from fairlane.templates import split_sqlite
from tests.backends.sqlite.database import OPERATIONS, Database, text_of
from tests.backends.sqlite.test_plans import steps_of

SETTINGS = re.escape("SEARCH q_settings USING PRIMARY KEY (name=?)")
IN_LINE = r"SEARCH q_groups USING (COVERING )?INDEX q_groups_floor_\d \(ready_at>\? AND ready_at<\?\)"
PAUSED = r"SEARCH (q_paused|p) USING PRIMARY KEY \(group_id=\?\)"
GROUP = r"SEARCH (q_groups|g) USING PRIMARY KEY \(group_id=\?\)"
MESSAGE = r"SEARCH (q_messages|m) USING PRIMARY KEY \(group_id=\? AND seq=\?\)"
FIRST_OF_GROUP = r"SEARCH (q_messages|m) USING PRIMARY KEY \(group_id=\?\)"
FINISHED = (
    r"SEARCH q_finished( USING INTEGER PRIMARY KEY \(rowid=\?\))?",  # alone: the search for the last row
    r"SEARCH q_finished USING (COVERING )?INDEX q_finished_call \(call_id=\?\)",
)
DESCENTS = (
    SETTINGS,
    IN_LINE,
    GROUP,
    PAUSED,
    MESSAGE,
    *FINISHED,
    r"SEARCH q_groups USING COVERING INDEX q_groups_token \(token=\?\)",
)
LIMITED = {
    "publish": (FIRST_OF_GROUP,),
    "q_published": (FIRST_OF_GROUP,),
    "q_done": (FIRST_OF_GROUP,),
    "purge": (FIRST_OF_GROUP, r"SEARCH q_messages USING PRIMARY KEY \(group_id=\? AND seq>\?\)"),
    "message_status": (FIRST_OF_GROUP, "USE TEMP B-TREE FOR ORDER BY"),
    "group_status": (
        FIRST_OF_GROUP,
        r"SEARCH q_groups USING COVERING INDEX q_groups_floor_0 \(ready_at>\?\)",
        "USE TEMP B-TREE FOR ORDER BY",
    ),
    "aside": (r"SEARCH q_groups USING INDEX q_groups_floor_0 \(ready_at>\? AND ready_at<\?\)",),
    "faults": (
        FIRST_OF_GROUP,
        r"SEARCH (q_groups|g) USING (COVERING )?INDEX q_groups_floor_0 \(ready_at>\?\)",
        "SCAN q_messages( USING COVERING INDEX q_messages_sample)?",
        r"SEARCH g USING PRIMARY KEY \(group_id=\?\)",
    ),
    "queue_status": (
        r"SEARCH (q_groups|g) USING (COVERING )?INDEX q_groups_floor_0 \(ready_at[<>]\?\)",
        "SCAN q_messages",
        r"(SCAN|SEARCH) q_\w+ USING COVERING INDEX q_(groups|messages)_sample( \(seq>\?\))?",
        "SEARCH head",
    ),
}
"""Steps that are allowed in single statements, since a limit ends them or the table has only a few rows."""

NO_TABLE = re.compile(
    r"SCAN (\(subquery-\d+\)|CONSTANT ROW|[a-z]+)|(SCALAR|CORRELATED|CO-ROUTINE|MATERIALIZE|COMPOUND).*"
    r"|LEFT-MOST.*|UNION ALL"
)


def statements(db: Database) -> Iterator[tuple[str, str]]:
    """All statements of the procedures and triggers: the name of the procedure or trigger, and the text."""
    more = ("aside", "faults", *(() if db.dialect == "sqlite" else ("finished",)))
    for operation in (*OPERATIONS, *more, *(("clock",) if db.dialect == "rqlite" else ())):
        for floor in range(5) if operation in ("claim", "claim_next") else (0,):
            yield operation, text_of(operation, db.dialect, floor=floor)
    for name, text in db.rows("select name, sql from sqlite_master where type = 'trigger'"):
        head, _, body = text.partition("\nbegin\n")
        if condition := re.search(r"\bwhen\b(.*)", head, re.DOTALL):
            yield name, f"select {condition[1]}"
        yield from ((name, each) for each in split_sqlite(body.rpartition("end")[0]) if "raise(" not in each)


def plans(db: Database) -> dict[str, tuple[str, list[str]]]:
    """The plan of each statement, by its text: the name of its procedure or trigger, and the steps."""
    found = {}
    for name, text in statements(db):
        bound = re.sub(r"\b(new|old)\.(\w+)", r":\1_\2", text)
        values = dict.fromkeys(re.findall(r":(\w+)", bound), 1)
        found[text] = name, [row[3] for row in db.connection.execute(f"explain query plan {bound}", values)]
    return found


def test_every_statement_is_a_few_descents(db: Database) -> None:
    for name, steps in plans(db).values():
        for step in steps:
            allowed = (*DESCENTS, *LIMITED.get(name, ()))
            assert any(re.fullmatch(each, step) for each in allowed) or NO_TABLE.fullmatch(step), (name, step)


def fill(db: Database, size: int) -> None:
    """Add `size` groups with two messages each, and finish `size` messages."""
    db.connection.execute("begin")
    for number in range(size):
        db.publish(f"g{number}", priority=number % 5)
        db.publish(f"g{number}", dedup_id=f"d{number}")
    for _ in range(size):
        db.ack(db.must_claim())
    db.connection.execute("commit")


def drained(db: Database) -> None:
    fill(db, 300)
    while lease := db.claim():
        db.ack(lease)


def of_one_message(db: Database) -> None:
    """Guards against a claim that sorts the whole line."""
    drained(db)
    db.publish("only")


def of_two_messages(db: Database) -> None:
    """Guards against inspection that sorts all groups and counts their messages."""
    of_one_message(db)
    db.publish("other", dedup_id="d")


def of_one_with_a_priority(db: Database) -> None:
    drained(db)
    db.publish("only", priority=4)


def full(db: Database) -> None:
    fill(db, 300)


@pytest.mark.parametrize("state", [drained, of_one_message, of_two_messages, of_one_with_a_priority, full])
def test_no_plan_depends_on_when_statistics_were_gathered(db: Database, state: Callable[[Database], None]) -> None:
    never = plans(db)
    state(db)
    db.connection.execute("analyze")
    fill(db, 20)
    assert plans(db) == never


KINDS: dict[str, Callable[[int], str]] = {
    "one row": lambda columns: " ".join(["1"] * (columns + 1)),
    "all alike": lambda columns: " ".join(["1000000"] * (columns + 1)),
    "all different": lambda columns: " ".join(["1000000"] + ["1"] * columns),
}


@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, repeat=3)), ids=", ".join)
def test_no_plan_depends_on_what_statistics_say(db: Database, kinds: tuple[str, str, str]) -> None:
    """Also not on statistics that no real queue gives, in all combinations for messages, groups and other tables."""
    never = plans(db)
    db.connection.execute("analyze")
    db.connection.execute("delete from sqlite_stat1")
    own = {"q_messages": kinds[0], "q_groups": kinds[1]}
    tables = "select name, name from sqlite_master where type = 'table' and name like 'q_%'"
    indexes = "select tbl_name, name from sqlite_master where type = 'index' and name like 'q_%'"
    for table, name in db.rows(f"{tables} union all {indexes}"):
        columns = len(db.rows(f"pragma index_info({name})")) or 1
        said = KINDS[own.get(name, kinds[2])](columns)
        db.connection.execute("insert into sqlite_stat1 values (?, ?, ?)", (table, name, said))
    db.connection.execute("analyze sqlite_schema")
    assert plans(db) == never


def crowd(db: Database, size: int) -> None:
    """Make `size` groups with one message each, and in front of them one group with `size` messages."""
    triggers = db.rows("select name, sql from sqlite_master where type = 'trigger'")
    for name, _ in triggers:
        db.connection.execute(f"drop trigger {name}")
    columns = "(group_id, seq, event, priority, published_at)"
    numbers = f"with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < {size})"
    for group, before in (("'deep'", 0), ("'g' || n", size)):
        db.connection.execute(
            f"{numbers} insert into q_messages {columns}"
            f" select {group}, {before} + n, '1', 0, {db.now - size} + n from numbers"
        )
    db.connection.execute(
        "insert into q_groups (group_id, priority, head_seq, ready_at)"
        " select group_id, 0, min(seq), min(published_at) from q_messages group by group_id"
    )
    for _, text in triggers:
        db.connection.execute(text)
    db.connection.execute(f"update q_settings set value = {2 * size} where name = 'last_seq'")
    db.now += db.tick


LOOKS: dict[str, Callable[[Database], object]] = {
    "queue": lambda db: db.call("queue_status"),
    "groups": lambda db: db.call("group_status", limit=20),
    "damage": lambda db: db.call("faults"),
    "messages": lambda db: db.call("message_status", group_id="deep", limit=100),
    "some groups": lambda db: db.rows("select * from q_group_status limit 20"),
    "one group": lambda db: db.rows("select * from q_group_status where group_id = 'g7'"),
    "messages of a small group": lambda db: db.rows("select * from q_message_status where group_id = 'g7'"),
}
"""What operators look at, each with its call."""


def test_what_operators_look_at_costs_no_more_than_what_is_shown(db: Database) -> None:
    """Counted in tens of steps of SQLite's machine. Only "queue" may cost more, for the rows that it samples."""
    crowd(db, 20_000)
    few = {name: steps_of(db, partial(look, db)) for name, look in LOOKS.items()}
    with closing(Database(db.dialect)) as larger:
        crowd(larger, 100_000)
        many = {name: steps_of(larger, partial(look, larger)) for name, look in LOOKS.items()}
    grown = {name: many[name] - few[name] for name in LOOKS}
    assert grown.pop("queue") < 2 * 80_000 / 61 * 3
    assert {name: more for name, more in grown.items() if more > 2} == {}
    assert max(many.values()) < 60_000


def test_depths_are_counted_up_to_a_limit_and_larger_figures_are_marked_as_estimates(db: Database) -> None:
    crowd(db, 30_000)
    for number in range(5):
        db.nack(db.must_claim(), delay=60 if number % 2 else 0)
    db.must_claim()
    (row,) = db.rows("select depth, depth_is_capped from q_group_status where group_id = 'deep'")
    assert row == (10_000, 1)
    assert db.rows("select depth, depth_is_capped from q_group_status where group_id = 'g7'") == [(1, 0)]
    names = "queue, groups, ready, in_flight, parked, messages, oldest_seconds, is_estimate, paused, is_paused"
    (row,) = db.call("queue_status")
    found = dict(zip(names.split(", "), row, strict=True))
    assert found["is_estimate"] == 1
    assert abs(found["groups"] - 30_000) < 600
    assert found["groups"] == found["ready"] + found["in_flight"] + found["parked"]
    assert (found["in_flight"], found["parked"]) == (1, 2), "few, so these are counted"
    assert abs(found["messages"] - 60_000) < 600
    assert found["oldest_seconds"] > 0
    db.connection.execute("delete from q_groups where group_id <> 'deep'")
    db.connection.execute("delete from q_messages where group_id <> 'deep' or seq > 10000")
    (row,) = db.call("queue_status")
    assert (row[1], row[5], row[7]) == (1, 10_000, 0)


@pytest.mark.parametrize("state", ["leased", "parked"])
def test_groups_that_are_not_ready_are_estimated_as_well(db: Database, state: str) -> None:
    crowd(db, 30_000)
    token = "group_id" if state == "leased" else "null"
    db.connection.execute(f"update q_groups set token = {token}, ready_at = ready_at + 4e15")
    (row,) = db.call("queue_status")
    counts = row[2:5]
    assert sum(counts) == row[1]
    assert abs(counts[1 if state == "leased" else 2] - 30_000) < 600
    assert sorted(counts)[:2] == [0, 0]
