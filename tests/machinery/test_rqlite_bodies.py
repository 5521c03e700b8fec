"""The stand-in reads and writes JSON as rqlite does.

Sources: https://rqlite.io/docs/api/api/ (in short: API), and in rqlite's repository http/request_parser.go,
http/request_parser_test.go, command/encoding/json.go, http/service_test.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers import rqlite
from tests.servers.rqlite import Probe


@pytest.fixture
def node() -> Iterator[Probe]:
    with rqlite.private() as cluster:
        probe = Probe(cluster.urls[0])
        probe.execute("create table t (id integer primary key, name text, n integer, r real, b blob)")
        yield probe


def test_plain_positional_and_named_statements_may_be_mixed(node: Probe) -> None:  # API, "Parameterized Statements"
    reply = node.execute(
        "insert into t(name) values('a')",
        ["insert into t(name, n) values(?, ?)", "b", 2],
        ["insert into t(name, n) values(:name, :n)", {"name": "c", "n": 3}],
    )
    assert reply.text == (
        '{"results":[{"last_insert_id":1,"rows_affected":1},{"last_insert_id":2,"rows_affected":1},'
        '{"last_insert_id":3,"rows_affected":1}]}'
    )
    assert node.query("select name, n from t").values == [["a", None], ["b", 2], ["c", 3]]


@pytest.mark.parametrize(
    ("body", "error"),
    [  # request_parser_test.go: Test_EmptyRequests_*, Test_Single*Invalid*
        (b"[]", "no statements"),
        (b"[[]]", "invalid request"),
        (b'["select 1"', "invalid JSON body"),
        (b"", "invalid JSON body"),
        (b"[1]", "invalid request"),
        (b"[[1]]", "invalid request"),
        (b'{"sql": 1}', "invalid request"),
        (b'[["select ?", {"a": {"b": 1}}]]', "unsupported type"),
        (b'[["select ?", NaN]]', "invalid JSON body"),
        (b'[["select ?", 1e999]]', "invalid number 1e999"),
    ],
)
def test_a_bad_body_is_400_with_a_text(node: Probe, body: Any, error: Any) -> None:
    reply = node.post("/db/execute", body)
    assert (reply.status, reply.text) == (400, f"{error}\n")
    assert reply.headers["content-type"].startswith("text/plain")


def test_what_follows_the_array_is_not_looked_at(
    node: Probe,
) -> None:  # request_parser.go: the decoder stops at the bracket
    assert node.post("/db/query", b'["select 1"] and more').values == [[1]]


def test_a_plain_text_body_is_one_statement(
    node: Probe,
) -> None:  # CHANGELOG v8.35.0 and v8.36.0, pull requests 1991 and 1992
    node.headers["Content-Type"] = "text/plain"
    assert node.post("/db/query", b"select 7").values == [[7]]


def test_get_takes_the_statement_from_the_url(
    node: Probe,
) -> None:  # API, "Querying Data"; service_test.go, Test_400Routes
    assert node.get("/db/query", q="select 1 + 1").values == [[2]]
    assert node.get("/db/query", q="").status == 400
    assert node.get("/db/query").status == 400


def test_a_string_that_looks_like_hex_is_stored_as_a_blob(node: Probe) -> None:  # CHANGELOG v8.31.0, pull request 1910
    node.execute(["insert into t(name, b) values(?, ?)", "x'6869'", "X'00FF'"])
    assert node.query("select typeof(name), typeof(b) from t").values == [["blob", "blob"]]
    # from a column that is declared as text it comes back as another text than was sent: db.go, normalizeRowValues
    assert node.query("select name from t").values == [["hi"]]
    assert node.query("select hex(b) from t").values == [["00FF"]]


def test_a_string_that_almost_looks_like_hex_stays_a_string(node: Probe) -> None:
    almost = ["x'686'", "x'6869", " x'6869'", "x'zz'"]
    for text in almost:
        node.execute(["insert into t(name) values(?)", text])
    assert node.query("select typeof(name), name from t").values == [["text", text] for text in almost]


def test_an_array_of_bytes_is_a_blob(node: Probe) -> None:  # CHANGELOG v8.31.0, pull request 1910
    node.execute(["insert into t(b) values(?)", [104, 105]])
    assert node.query("select typeof(b), b from t").values == [["blob", "aGk="]]


def test_blobs_are_base64_or_arrays(node: Probe) -> None:  # API, "BLOB data"; json.go, ByteSliceAsArray
    node.execute("insert into t(b) values(x'00ff')")
    assert node.query("select b from t").values == [["AP8="]]
    assert node.query("select b from t", blob_array=True).values == [[[0, 255]]]


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_integers_are_exact_to_64_bits(node: Probe, number: Any) -> None:  # request_parser_test.go, Test_…LargeNumber
    node.execute(["insert into t(n) values(?)", number])
    assert node.query("select n, typeof(n) from t").values == [[number, "integer"]]


def test_larger_integers_become_floats(node: Probe) -> None:  # request_parser.go, makeParameter
    assert node.query(["select typeof(?)", 2**63]).values == [["real"]]


def test_a_whole_real_is_written_without_a_point(node: Probe) -> None:  # encoding/json of Go
    reply = node.query("select 1.0, 1.5, 1e300, typeof(1.0)")
    assert '"values":[[1,1.5,1e+300,"real"]]' in reply.text


def test_an_infinite_real_cannot_be_answered(node: Probe) -> None:  # encoding/json of Go: UnsupportedValueError
    assert node.query("select 9e999").status == 500


def test_booleans_are_bound_as_integers_and_null_as_null(node: Probe) -> None:
    assert node.query(["select ?, ?, ?", True, False, None]).values == [[1, 0, None]]


def test_texts_survive_whatever_they_hold(node: Probe) -> None:
    text = "nul \u0000, quote ', é, 𝄞, <&>\u2028"
    node.execute(["insert into t(name) values(?)", text])
    assert node.query("select name from t").values == [[text]]


def test_a_lone_surrogate_becomes_the_replacement_character(node: Probe) -> None:  # encoding/json of Go, "Unmarshal"
    assert node.post("/db/query", b'[["select ?", "a\\ud800b"]]').values == [["a�b"]]


def test_empty_members_are_left_out(node: Probe) -> None:  # json.go, omitempty
    assert node.execute("delete from t").text == '{"results":[{}]}'
    assert node.query("select id from t").text == '{"results":[{"columns":["id"],"types":["integer"]}]}'


def test_results_are_columns_types_and_values(node: Probe) -> None:  # API, "Querying Data"
    node.execute("insert into t(name, n) values('fiona', 20)")
    assert node.query("select id, name, n as age from t").text == (
        '{"results":[{"columns":["id","name","age"],"types":["integer","text","integer"],"values":[[1,"fiona",20]]}]}'
    )


def test_what_has_no_declared_type_takes_that_of_the_first_row(node: Probe) -> None:  # db.go, populateEmptyTypes
    reply = node.query("select 1 as a, 'x' as b, null as c, 2.5 as d")
    assert reply.results[0]["types"] == ["integer", "text", "", "real"]


def test_associative_results_are_maps(node: Probe) -> None:  # API, "Associative response form"
    node.execute("insert into t(name, n) values('fiona', 20)")
    assert node.query("select name, n from t", associative=True).text == (
        '{"results":[{"types":{"name":"text","n":"integer"},"rows":[{"name":"fiona","n":20}]}]}'
    )
    assert node.query("select name from missing", associative=True).results == [
        {"rows": [], "error": "no such table: missing"}
    ]


def test_associative_writes_are_told_by_rows_null(node: Probe) -> None:  # json.go, ResultWithRows
    reply = node.request("insert into t(name) values('a')", "select name from t", associative=True)
    assert reply.results == [
        {"last_insert_id": 1, "rows_affected": 1, "rows": None},
        {"types": {"name": "text"}, "rows": [{"name": "a"}]},
    ]


def test_execute_ignores_associative(node: Probe) -> None:  # rqlite issue 2372
    reply = node.execute("insert into t(name) values('a') returning name", associative=True)
    assert reply.results == [{"columns": ["name"], "types": ["text"], "values": [["a"]]}]


def test_timings_and_pretty_only_when_asked_for(node: Probe) -> None:  # API
    assert "time" not in node.query("select 1").json
    reply = node.query("select 1", timings=True, pretty=True)
    assert reply.json["time"] > 0
    assert reply.results[0]["time"] > 0
    assert reply.text.startswith('{\n    "results"')
