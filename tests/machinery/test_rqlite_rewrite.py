"""What the stand-in does to statements before they reach the log: RETURNING, `now`, RANDOM().

Sources in rqlite's repository: command/sql/processor.go and processor_test.go; in rqlite/sql: parser.go, scanner.go;
https://rqlite.io/docs/api/non-deterministic/ (ND).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers import rqlite
from tests.servers.rqlite import Probe
from tests.servers.rqlite.rewrite import julian_day, process

DAY = r"\d{7}\.\d{6}"


@pytest.mark.parametrize(
    "sql",
    [  # processor_test.go, Test_RETURNING_Some, and the forms that Fairlane's own statements take
        "insert into t values (1, 'bob') RETURNING *",
        "update t set a = (select max(a) from t) where b = 1 Returning a, b",
        "delete from t where a = 1 returning a",
        "insert into t(a) values (1) on conflict(a) do update set a = excluded.a returning a",
        "with c as (select 1 as a) update t set a = c.a from c returning t.a",
        "-- a comment\nupdate t set a = 1 /* another */ returning a",
        "update t indexed by i set a = 1 returning a",
        'update t set "order" = 1 returning a',
        "update t set a = (select b from u order by b limit 1) returning a",
        "delete from t order by a limit 1 returning a",
        "update t set a = 1 returning a;",
    ],
)
def test_returning_is_seen(sql: str) -> None:
    assert process(sql).returns_rows


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("update t set a = 1 returning\na", "processor.go: the literal with a trailing blank decides"),
        ("update t set a = 1 returning\ta", "the same"),
        ("update t set a = 1 returning(a)", "the same"),
        ("update t set a = 1 order by b limit 1 returning a", "parser.go: parseUpdateStatement knows no ORDER BY"),
        ("update t set a = 1 limit 1 returning a", "the same"),
        ("update [t] set a = 1 returning a", "scanner.go: no rule for brackets"),
        ("update `t` set a = 1 returning a", "scanner.go: no rule for backticks"),
        ("update tür set a = 1 returning a", "scanner.go: names without quotes are ASCII"),
        ("insert into t values ('returning a')", "processor_test.go, Test_RETURNING_Some: a string"),
        ("update t set a = 1 -- returning a", "a comment"),
        ('update t set "returning x" = 1', "a name"),
        ("select a from t", "nothing of the kind"),
        ("select 1; update t set a = 1 returning a", "parser.go: ParseStatement stops at the semicolon"),
    ],
)
def test_returning_is_not_seen(sql: str, reason: Any) -> None:
    assert not process(sql).returns_rows, reason


def test_a_text_that_is_parsed_for_another_reason_shows_its_returning() -> None:
    sql = "update t set a = random() returning\na"
    assert process(sql).returns_rows  # processor.go: ForceQuery is set whenever the text was parsed
    assert not process(sql, rewrite_random=False).returns_rows


@pytest.mark.parametrize(
    ("sql", "kept"),
    [  # rqlite/sql, ast.go: String() of the three statements; ast_test.go, TestUpdateStatement_String
        ("insert into t(a) values (julianday('now')) returning a", True),
        ("insert into t(a) values (1) on conflict(a) do update set a = date('now') returning a", True),
        ("update t set a = julianday('now') returning a", False),
        ("with c as (select unixepoch('now') as n) update t set a = (select n from c) where b returning a, b", False),
        ("delete from t where a < julianday('now') returning a", False),
        ("update t set a = 1 returning a, julianday('now')", False),
        ("update t set a = 1 returning a", True),
    ],
)
def test_a_rewritten_update_has_no_returning(sql: str, kept: Any) -> None:
    done = process(sql)
    assert done.returns_rows  # it runs as a query, which then has no columns
    assert ("returning" in done.sql) is kept
    assert "'now'" not in done.sql


def test_a_rewritten_update_is_carried_out_and_returns_nothing(node: Probe) -> None:
    node.execute("create table u (a)", "insert into u values (1)")
    assert node.execute("update u set a = julianday('now') returning a").results == [{}]
    assert node.query("select a > 2400000 from u").values == [[1]]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [  # processor_test.go, Test_Time_Rewrites
        ("select date('now','start of month')", rf"select date\({DAY},'start of month'\)"),
        ("insert into v values (time('now'))", rf"insert into v values \(time\({DAY}\)\)"),
        ('select datetime("NOW")', rf"select datetime\({DAY}\)"),
        ("select julianday(now)", rf"select julianday\({DAY}\)"),
        ("select unixepoch('now','subsec')", rf"select unixepoch\({DAY},'subsec'\)"),
        ("select strftime('%s', 'now')", rf"select strftime\('%s', {DAY}\)"),
        ("select timediff('now', '2020-01-01')", rf"select timediff\({DAY}, '2020-01-01'\)"),
        ("select Date ( 'now' )", None),  # processor.go, containsTime: no blank before the parenthesis, no parsing
        ("select date('now'), Date ( 'now' )", rf"select date\({DAY}\), Date \( {DAY} \)"),
        ("select a from t order by date('now')", rf"select a from t order by date\({DAY}\)"),
        ("select cast(round((julianday('now')-2440587.5)*86400000.0) as integer)", None),
    ],
)
def test_now_becomes_a_julian_day(sql: str, expected: Any) -> None:
    found = process(sql).sql
    if expected is None and "julianday" in sql:
        expected = re.escape(sql).replace("'now'", DAY)
    assert re.fullmatch(expected or re.escape(sql), found), found


@pytest.mark.parametrize(
    "sql",
    [  # ND, "CURRENT_TIME*", and what `Visit` does not touch
        "select CURRENT_TIMESTAMP, CURRENT_DATE, CURRENT_TIME",
        "select unixepoch(), datetime()",
        "select unixepoch('subsec')",
        "select strftime('%s')",
        "select datetime(?)",
        "select date('2020-01-01')",
        "select 'date(''now'')'",
        "select 1 -- date('now')",
        "select a from t order by random()",
        "insert into x select a from t order by random() limit 3",
        "select row_number() over (order by random()) from t",
        "select randomblob(?)",
        "update [t] set a = date('now')",
        "update t set a = random() limit 1",
    ],
)
def test_left_alone(sql: str) -> None:
    assert process(sql).sql == sql


def test_random_becomes_a_number_and_randomblob_a_blob() -> None:  # ND; processor_test.go, Test_RANDOM*_Rewrites
    assert re.fullmatch(r"select \d+, x'[0-9a-f]{8}'", process("select random(), RANDOMBLOB(4)").sql)
    assert re.fullmatch(r"select x'[0-9a-f]{2}'", process("select randomblob(0)").sql)
    assert process("select random()").sql != process("select random()").sql


def test_random_after_an_order_by_is_rewritten_again() -> None:  # processor.go, VisitEnd
    sql = process("select (select a from t order by random() limit 1), random()").sql
    assert re.fullmatch(r"select \(select a from t order by random\(\) limit 1\), \d+", sql)


def test_flags_turn_it_off() -> None:  # ND, norwtime and norwrandom
    assert process("select date('now')", rewrite_time=False).sql == "select date('now')"
    assert process("select random()", rewrite_random=False).sql == "select random()"


def test_a_rewritten_text_loses_what_follows_its_first_statement() -> (
    None
):  # processor.go: the parsed statement is printed
    assert re.fullmatch(rf"select date\({DAY}\);", process("select date('now'); delete from t").sql)
    assert process("select 1; delete from t").sql == "select 1; delete from t"


def test_a_julian_day_has_a_step_of_86_milliseconds() -> None:  # processor.go, julianDayAsNumberLit: "%f"
    first, second = (float(julian_day(1_700_000_000 + seconds)) for seconds in (0.0, 0.03))
    assert second - first < 2e-6
    assert abs(float(julian_day(1_700_000_000.0)) - 2460263.425925926) < 1e-6


@pytest.fixture
def node() -> Iterator[Probe]:
    with rqlite.private() as cluster:
        yield Probe(cluster.urls[0])


def test_now_is_the_time_of_the_request_to_a_tenth_of_a_second(node: Probe) -> None:
    node.execute("create table t (at)", "insert into t values ((julianday('now') - 2440587.5) * 86400)")
    assert abs(node.query("select at from t").values[0][0] - time.time()) < 0.5


def test_now_is_frozen_in_a_trigger_a_view_and_a_default(node: Probe) -> None:  # processor.go: the walk covers DDL too
    node.execute(
        "create table t (id integer primary key, at default (julianday('now')), r default (random()), g)",
        "create trigger g after insert on t begin update t set g = julianday('now') where id = new.id; end",
        "create view v as select julianday('now') as at",
    )
    frozen = node.query("select at from v").values[0][0]
    time.sleep(0.2)
    node.execute("insert into t(id) values(1)", "insert into t(id) values(2)")
    (first, second) = node.query("select at, g, r from t").values
    assert first == second
    assert abs(first[0] - frozen) < 2e-6
    assert first[1] < float(julian_day()) - 1e-6
    texts = "".join(row[0] for row in node.query("select sql from sqlite_master").values)
    assert "now" not in texts


def test_norwtime_keeps_ddl_alive(node: Probe) -> None:  # ND, "Examples"
    node.execute("create view v as select julianday('now') as at", norwtime=True)
    first = node.query("select at from v").values
    time.sleep(0.01)
    assert node.query("select at from v").values != first


def test_current_timestamp_stays_in_ddl(node: Probe) -> None:  # processor_test.go, Test_RANDOM_Rewrites, its last line
    node.execute("create table t (id integer, at text default current_timestamp)")
    assert "current_timestamp" in node.query("select sql from sqlite_master").values[0][0]


def test_reads_are_rewritten_only_at_level_strong() -> None:  # ND: "queries with Strong read consistency"
    with rqlite.private() as cluster:
        node = Probe(cluster.urls[0])
        for level in ("none", "weak", "linearizable", "strong"):
            node.query("select julianday('now')", level=level)
        texts = [seen.statements[0].sql for seen in cluster.seen]
    assert texts[:3] == ["select julianday('now')"] * 3
    assert re.fullmatch(rf"select julianday\({DAY}\)", texts[3])
