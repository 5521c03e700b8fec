"""The stand-in runs statements as rqlite does: errors, transactions, parameters, RETURNING.

Sources in rqlite's repository: db/db.go (executeWithConn, queryWithConn, Request), and sqlite3.go of rqlite/go-sqlite3;
https://rqlite.io/docs/api/api/ (API).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers import rqlite
from tests.servers.rqlite import Probe, Quirks

DUPLICATE = "insert into t(id) values(1)"
UNKNOWN = "insert into missing values(1)"


@pytest.fixture
def node() -> Iterator[Probe]:
    with rqlite.private() as cluster:
        yield prepared(cluster)


def prepared(cluster: rqlite.Cluster) -> Probe:
    probe = Probe(cluster.urls[0])
    probe.execute("create table t (id integer primary key, name text)", "insert into t(id, name) values(1, 'one')")
    return probe


def ids(probe: Probe) -> list[int]:
    return [row[0] for row in probe.query("select id from t order by id").values]


def test_an_sql_error_is_200_with_an_error_in_its_result(node: Probe) -> None:  # API, "Handling Errors"
    reply = node.execute("insert into nonsense", "insert into t(id) values(2)")
    assert reply.status == 200
    assert reply.results[0] == {"error": "incomplete input"}
    assert reply.results[1] == {"last_insert_id": 2, "rows_affected": 1}
    assert node.execute('bad "syntax" here').results == [{"error": 'near "bad": syntax error'}]


def test_texts_of_errors_are_those_of_sqlite(node: Probe) -> None:
    assert node.execute(DUPLICATE).results == [{"error": "UNIQUE constraint failed: t.id"}]
    assert node.query("select * from missing").results == [{"error": "no such table: missing"}]


def test_without_transaction_the_rest_runs_after_an_error(node: Probe) -> None:
    node.execute("insert into t(id) values(2)", DUPLICATE, UNKNOWN, "insert into t(id) values(3)")
    assert ids(node) == [1, 2, 3]


@pytest.mark.parametrize("bad", [DUPLICATE, UNKNOWN, f"{DUPLICATE} returning id", "nonsense"])
def test_execute_in_a_transaction_stops_and_rolls_back(
    node: Probe, bad: Any
) -> None:  # API, "Transactions"; executeWithConn
    reply = node.execute("insert into t(id) values(2)", bad, "insert into t(id) values(3)", transaction=True)
    assert [sorted(result) for result in reply.results] == [["last_insert_id", "rows_affected"], ["error"]]
    assert ids(node) == [1]


def test_request_in_a_transaction_rolls_back_what_failed_to_run(node: Probe) -> None:  # Request, abortOnError
    reply = node.request("insert into t(id) values(2)", DUPLICATE, "insert into t(id) values(3)", transaction=True)
    assert len(reply.results) == 2
    assert ids(node) == [1]


def test_request_in_a_transaction_commits_around_what_failed_to_prepare(node: Probe) -> None:  # Request, `continue`
    reply = node.request("insert into t(id) values(2)", UNKNOWN, "insert into t(id) values(3)", transaction=True)
    assert reply.results[1] == {"error": "no such table: missing"}
    assert ids(node) == [1, 2, 3]


def test_a_later_rqlite_rolls_that_back_too() -> None:  # rqlite pull request 2792
    with rqlite.private(quirks=Quirks(failed_prepare_commits=False)) as cluster:
        node = prepared(cluster)
        node.request("insert into t(id) values(2)", UNKNOWN, "insert into t(id) values(3)", transaction=True)
        assert ids(node) == [1]


def test_an_older_rqlite_commits_around_a_failed_returning() -> None:  # rqlite issue 2530, up to v9.4.1
    with rqlite.private(quirks=Quirks(failed_returning_commits=True)) as cluster:
        node = prepared(cluster)
        node.execute(f"{DUPLICATE} returning id", "insert into t(id) values(3)", transaction=True)
        assert ids(node) == [1, 3]


def test_explicit_transactions_are_refused(node: Probe) -> None:  # API: their behaviour is "not defined"
    for word in ("begin", "commit", "rollback", "savepoint a", "release a", "/* */ BEGIN IMMEDIATE"):
        assert "not defined" in node.execute(word).results[0]["error"]


def test_ddl_takes_part_in_a_transaction(node: Probe) -> None:
    node.execute("create table u (a)", UNKNOWN, transaction=True)
    assert node.query("select * from u").results == [{"error": "no such table: u"}]


def test_query_refuses_to_write(node: Probe) -> None:  # queryWithConn
    refused = [{"error": "attempt to change database via query operation"}]
    for sql in ("delete from t", "insert into t(id) values(5) returning id", "create table u (a)", "vacuum"):
        assert node.query(sql).results == refused
    assert ids(node) == [1]


def test_request_tells_reads_from_writes(node: Probe) -> None:  # API, "Unified Endpoint"
    reply = node.request("insert into t(id) values(2)", "select id from t", "select * from bar")
    assert reply.results == [
        {"last_insert_id": 2, "rows_affected": 1},
        {"columns": ["id"], "types": ["integer"], "values": [[1], [2]]},
        {"error": "no such table: bar"},
    ]


def test_returning_gives_rows_and_no_rows_affected(node: Probe) -> None:  # API; executeStmtWithConn, ForceQuery
    for endpoint in (node.execute, node.request):
        reply = endpoint("update t set name = 'x' returning id, name")
        assert reply.results == [{"columns": ["id", "name"], "types": ["integer", "text"], "values": [[1, "x"]]}]


def test_returning_without_a_row_has_columns_only(node: Probe) -> None:
    reply = node.execute("update t set name = 'x' where id = 9 returning id")
    assert reply.results == [{"columns": ["id"], "types": ["integer"]}]


def test_returning_that_is_not_seen_writes_and_tells_nothing(
    node: Probe,
) -> None:  # processor.go, see test_rqlite_rewrite
    reply = node.execute("update t set name = 'unseen' returning\nname")
    assert reply.results == [{"last_insert_id": 1, "rows_affected": 1}]
    assert node.query("select name from t").values == [["unseen"]]


def test_noparse_turns_returning_off(node: Probe) -> None:  # http/query_params.go, NoParse
    assert node.execute("update t set name = 'x' returning name", noparse=True).results == [
        {"last_insert_id": 1, "rows_affected": 1}
    ]


def test_last_insert_id_is_the_connections(
    node: Probe,
) -> None:  # sqlite3_last_insert_rowid: an update does not reset it
    node.execute("insert into t(id) values(41)")
    assert node.execute("update t set name = 'x'").results == [{"last_insert_id": 41, "rows_affected": 2}]


def test_an_empty_statement_has_no_result(node: Probe) -> None:  # db.go: `if ss == ""`
    assert node.execute("", "insert into t(id) values(2)").results == [{"last_insert_id": 2, "rows_affected": 1}]


def test_too_few_parameters_are_an_error_and_too_many_are_not(node: Probe) -> None:  # go-sqlite3, exec and query
    assert node.execute(["insert into t(id) values(?, ?)", 1]).results != []
    assert node.query(["select ?, ?", 1]).results == [{"error": "not enough args to execute query: want 2 got 1"}]
    assert node.query(["select ?", 1, 2]).values == [[1]]


def test_numbered_and_repeated_parameters(node: Probe) -> None:  # https://www.sqlite.org/lang_expr.html#varparam
    assert node.query(["select ?2, ?1, ?2", "a", "b"]).values == [["b", "a", "b"]]
    assert node.query(["select :a, @b, $c, :a", {"a": 1, "b": 2, "c": 3}]).values == [[1, 2, 3, 1]]
    assert node.query(["select :a, ?, ?1, :a", 1, 2]).values == [[1, 2, 1, 1]]


def test_a_name_that_is_not_in_the_statement_is_ignored_and_its_place_is_null(node: Probe) -> None:  # go-sqlite3, bind
    assert node.query(["select :a, :b", {"a": 1, "other": 2}]).values == [[1, None]]


def test_a_name_must_begin_with_a_letter(node: Probe) -> None:  # database/sql of Go, validateNamedValueName
    assert "does not begin with a letter" in node.query(["select :a", {":a": 1}]).results[0]["error"]


def test_placeholders_in_strings_names_and_comments_are_none(node: Probe) -> None:
    assert node.query(["select '?', \"?\", ? -- ?\n /* :a */", 5]).values == [["?", "?", 5]]


def test_several_statements_in_one_text(node: Probe) -> None:  # go-sqlite3: exec runs all, query only the last
    assert node.execute(["insert into t(id) values(?); insert into t(id) values(?)", 2, 3]).results == [
        {"last_insert_id": 3, "rows_affected": 1}
    ]
    assert ids(node) == [1, 2, 3]
    assert node.query("select 1; select 2").values == [[2]]


def test_a_trigger_is_one_statement(node: Probe) -> None:
    node.execute("create trigger g after insert on t begin update t set name = 'g;' where id = new.id; select 1; end;")
    node.execute("insert into t(id) values(2)")
    assert node.query("select name from t where id = 2").values == [["g;"]]


def test_instead_of_triggers_on_views_work(
    node: Probe,
) -> None:  # rqlite's store_test.go creates one and inserts through it
    node.execute(
        "create view v as select id, name from t",
        "create trigger w instead of insert on v begin insert into t(id, name) values(new.id, new.name); end",
    )
    node.execute("insert into v(id, name) values(2, 'via')")
    assert node.query("select name from t where id = 2").values == [["via"]]


def test_a_declared_boolean_is_a_boolean(node: Probe) -> None:  # go-sqlite3, columnTypeBoolean
    node.execute("create table f (done boolean)", "insert into f values(1), (0)")
    assert node.query("select done from f").values == [[True], [False]]


def test_pragmas_that_tell_something_are_reads(node: Probe) -> None:  # API, "PRAGMA Directives"
    assert node.query("pragma table_info(t)").values[0][1] == "id"
    assert node.query("pragma foreign_keys").values == [[0]]
