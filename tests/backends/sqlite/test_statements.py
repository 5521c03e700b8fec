"""The texts of the statements have true headers, and are valid for SQLite 3.35, sqld and rqlite's parser."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import Any

import pytest

from fairlane.templates import render, split_sqlite
from tests.backends.sqlite.database import DIALECTS, OPERATIONS, install, layout, text_of

# before SQLite 3.42 unixepoch('now', 'subsec') is NULL; RIGHT JOIN came with 3.39, ->> with 3.38, STRICT with 3.37
TOO_NEW = re.compile(r"unixepoch\(|right join|->>|\bstrict\b|\biif\(|json", re.IGNORECASE)


def header_of(operation: str, dialect: str) -> str:
    text = render(f"procedures/sqlite/{operation}.sql.j2", queue="q", dialect=dialect, floor=0)
    return "\n".join(line for line in text.splitlines() if line.startswith("--"))


def ddl(dialect: str, head_start: str = "1") -> list[str]:
    return list(layout(dialect, head_start))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("operation", OPERATIONS)
class TestOperation:
    def test_header_lists_exactly_the_parameters(self, operation: Any, dialect: str) -> None:
        listed = re.findall(r"^--   (p_\w+)", header_of(operation, dialect), re.MULTILINE)
        assert len(listed) == len(set(listed))
        assert set(listed) == set(re.findall(r":(p_\w+)", text_of(operation, dialect)))

    def test_header_says_what_comes_back(self, operation: Any, dialect: str) -> None:
        assert re.search(r"^--   (returns|changes) ", header_of(operation, dialect), re.MULTILINE)

    def test_it_is_one_statement_without_comments(self, operation: Any, dialect: str) -> None:
        text = text_of(operation, dialect)
        assert "--" not in text
        assert list(split_sqlite(text)) == [text]

    def test_it_reads_no_clock_where_rqlite_would_rewrite_it(self, operation: Any, dialect: str) -> None:
        asks = "julianday('now')" in text_of(operation, dialect)
        assert not asks or dialect != "rqlite" or operation == "clock"

    def test_it_needs_nothing_newer_than_the_oldest_sqlite(self, operation: Any, dialect: str) -> None:
        assert not TOO_NEW.search(text_of(operation, dialect))

    def test_returning_is_where_rqlite_finds_it(self, operation: Any, dialect: str) -> None:
        # rqlite scans for "returning " in one line, and its parser refuses UPDATE … ORDER BY … LIMIT
        text = text_of(operation, dialect)
        writes = operation in ("publish", "claim", "claim_next", "extend", "purge")
        writes = writes or (operation in ("ack", "nack", "release", "pause", "resume") and dialect != "sqlite")
        assert text.count("returning ") == (1 if writes else 0)
        assert "not materialized" not in text or dialect != "rqlite"


def test_all_clocks_of_a_statement_show_the_same() -> None:
    """Some statements read the clock twice. SQLite reads it once for all steps of a statement up to its first row."""
    slow = "(with recursive n (i) as (select 1 union all select i + 1 from n limit 200000) select count(*) from n)"
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        first, _, second = connection.execute(f"select julianday('now'), {slow}, julianday('now')").fetchone()
    assert first == second


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("head_start", ["1", "always"])
def test_no_default_reads_a_clock_and_on_rqlite_no_trigger_does(dialect: str, head_start: Any) -> None:
    """rqlite would replace the clock by the time of the migration. There triggers read the time in a setting."""
    clocks = re.compile(r"current_time|julianday|strftime|datetime\(", re.IGNORECASE)
    asking = [each for each in ddl(dialect, head_start) if clocks.search(each)]
    if dialect == "rqlite":
        assert all(each.startswith("create view") for each in asking)
        assert not [each for each in asking if "'now'" in each]
    else:
        assert all(each.startswith(("create view", "create trigger")) for each in asking)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_floor_has_its_own_text_and_index(dialect: str) -> None:
    texts = [text_of("claim", dialect, floor=floor) for floor in range(5)]
    assert len(set(texts)) == 5
    for floor, text in enumerate(texts):
        assert f'indexed by "q_groups_floor_{floor}"' in text


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_names_are_quoted(operation: Any, dialect: str) -> None:
    unquoted = re.compile(r'(?<!["\w])q_\w+')
    assert not unquoted.search(text_of(operation, dialect))
    assert not [each for each in ddl(dialect) if unquoted.search(each)]


def test_names_of_two_queues_never_meet() -> None:
    suffixes = {name.removeprefix("q_") for each in ddl("rqlite") for name in re.findall(r'"(q_\w+)"', each)}
    assert len(suffixes) > 15
    for one in suffixes:
        for other in suffixes:
            assert not one.endswith(f"_{other}"), f"queue x_{one.removesuffix(other)} would meet queue x"


def test_a_queue_may_be_called_like_a_word_of_sql() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for queue in ("returning", "select", "group", "order"):
        install(connection, "sqlite", queue=queue)
        given = {"p_group_id": "g", "p_event": "1", "p_priority": 0, "p_dedup_id": None}
        connection.execute(text_of("publish", "sqlite", queue=queue), given).fetchall()
        row = connection.execute(
            text_of("claim", "sqlite", queue=queue), {"p_worker_id": "w", "p_visibility": 1.0}
        ).fetchall()[0]
        gone = connection.execute(text_of("ack", "sqlite", queue=queue), {"p_group_id": "g", "p_token": row[3]})
        assert gone.rowcount == 1
    connection.close()
