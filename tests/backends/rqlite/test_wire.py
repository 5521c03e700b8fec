"""Each answer of rqlite becomes the right rows or the right error. No server is needed."""

import json
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlane import (
    AuthenticationFailed,
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    EventTooLarge,
    Lease,
    LeaseLost,
    SchemaNotReady,
)
from fairlane.backends.rqlite.address import locate
from fairlane.backends.rqlite.errors import RqliteError
from fairlane.backends.rqlite.wire import Answer, Wire
from fairlane.backends.shared.retry import Refused, Unanswered, delivered
from fairlane.backends.shared.sent_twice import Batch, SentTwiceCore
from fairlane.backends.stored import ACK, CLAIM, EXTEND, GROUP_STATUS, NACK, PUBLISH, REVISION, Call
from fairlane.contract import CLIENT_REVISION
from fairlane.program import Sleep
from tests.harness import LONG
from tests.servers.rqlite.rewrite import RANDOM_MARKS, TIME_MARKS, process

NODE = "http://a:1"
AN_ACK = Call(ACK, {"p_group_id": "g", "p_token": "t"})


def wire(url: Any = "rqlite://me:hidden@a:1,b:1", **options: Any) -> Any:
    return Wire(locate(url, options), "q")


def answer(
    status: Any = 200, body: Any = None, *, request: Any = AN_ACK, to: Any = None, node: Any = NODE, **headers: Any
) -> Any:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (to or wire()).rows(request, Answer(node, status, headers, text))


def rows(*values: Any, columns: Any = ("group_id",)) -> Any:
    result = {"columns": list(columns), "types": ["text"] * len(columns)}
    return {"results": [result | ({"values": [list(row) for row in values]} if values else {})]}


def test_an_answer_becomes_rows_with_names() -> None:
    assert answer(body=rows(["g"])) == [{"group_id": "g"}]
    assert answer(body=rows()) == []


UNCERTAIN = [
    (200, {"results": [], "error": "leadership lost while committing log"}),
    (200, {"results": []}),
    (200, {"error": "not open"}),
    (200, {}),
    (200, []),
    (200, b"<html>"),
    (200, b""),
    (200, b'{"results":[{"columns":["group_id"]'),
    (204, b""),
    (500, b"oops"),
    (502, b"bad gateway"),
    (503, b"upstream gone"),
    (503, b""),
    (504, b"gateway timeout"),
    (429, b"slow down"),
]


@pytest.mark.parametrize(("status", "body"), UNCERTAIN)
def test_an_unclear_answer_is_an_uncertain_outcome(status: Any, body: Any) -> None:
    with pytest.raises(Unanswered) as caught:
        answer(status, body)
    assert caught.value.uncertain
    assert not caught.value.elsewhere


CERTAIN = [
    (503, b"leader not found\n", {}),
    (404, b"not found", {}),
    (405, b"", {}),
    (301, b"", {"location": "http://b:1/db/execute?redirect"}),
    (301, b"", {}),
    (302, b"", {"location": "/elsewhere"}),
    (307, b"", {"location": "ftp://b:1/db/execute"}),
    (308, b"", {"location": "http://b:x/db/execute"}),
    (308, b"", {"location": "http://b@:1"}),
]


@pytest.mark.parametrize(("status", "body", "headers"), CERTAIN)
def test_an_answer_of_a_node_that_did_nothing_is_a_certain_outcome(status: Any, body: Any, headers: Any) -> None:
    with pytest.raises(Unanswered) as caught:
        answer(status, body, **headers)
    assert not caught.value.uncertain


@pytest.mark.parametrize(
    ("location", "leader"),
    [
        ("http://b:1/db/execute?redirect", "http://b:1"),
        ("http://b/db/execute", "http://b:80"),
        ("https://b/db/execute", "https://b:443"),
        ("http://[::1]:5/", "http://[::1]:5"),
    ],
)
def test_a_redirect_names_the_node_to_ask_next(location: Any, leader: Any) -> None:
    to = wire()
    with pytest.raises(Unanswered) as caught:
        answer(301, b"", to=to, location=location)
    assert caught.value.elsewhere
    assert to.nodes.current == leader


def test_a_redirect_never_leaves_tls() -> None:
    to = wire("rqlites://me:hidden@a:1")
    with pytest.raises(ConfigurationError, match="without TLS"):
        answer(301, b"", to=to, node="https://a:1", location="http://b:1/db/execute")
    assert to.nodes.current == "https://a:1"


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_a_typed_error_without_the_password(status: Any) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        answer(status, b"")
    assert caught.value.host == "a:1,b:1"
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("database or disk is full", BackendFull),
        ("string or blob too big", EventTooLarge),
        ("no such table: q_groups", RqliteError),
        ("UNIQUE constraint failed: q_groups.token", RqliteError),
    ],
)
def test_sql_errors_become_typed_errors(text: Any, kind: Any) -> None:
    with pytest.raises(Refused) as caught:
        answer(body={"results": [{"error": text}]})
    assert type(caught.value.error) is kind


def test_refused_requests_become_typed_errors() -> None:
    with pytest.raises(RqliteError, match="invalid JSON body"):
        answer(400, b"invalid JSON body")
    with pytest.raises(EventTooLarge):
        answer(413, b"")


def test_an_old_rqlite_is_detected() -> None:
    with pytest.raises(RqliteError, match="its answer has no rows"):
        answer(body={"results": [{"rows_affected": 1}]})
    revision = {
        "results": [
            *rows([1], columns=("found",))["results"],
            *rows([CLIENT_REVISION, CLIENT_REVISION], columns=("revision", "serves"))["results"],
        ]
    }
    headers: dict[str, Any]
    for version in ("v7.21.4", "v8.42.9", "8.9.0"):
        headers = {"x-rqlite-version": version}
        with pytest.raises(ConfigurationError, match=re.escape(version)):
            answer(body=revision, request=Call(REVISION, {}), **headers)
    for version in ("v8.43.0", "v10.2.7", "10.1", "unknown", ""):
        headers = {"x-rqlite-version": version}
        found = answer(body=revision, request=Call(REVISION, {}), **headers)
        assert found == [{"revision": CLIENT_REVISION, "serves": CLIENT_REVISION}]


def test_a_missing_queue_is_not_recognised_by_the_text_of_an_error() -> None:
    body = {"results": [*rows([0], columns=("found",))["results"], {"error": "no such table: q_settings"}]}
    assert answer(body=body, request=Call(REVISION, {})) == []
    body["results"][0]["values"] = [[1]]
    with pytest.raises(Refused):
        answer(body=body, request=Call(REVISION, {}))


def test_a_request_has_the_right_path_and_body() -> None:
    arguments = {"p_group_id": "x'00'", "p_event": '"é\\u0000"', "p_priority": 0, "p_dedup_id": None}
    post = wire().post(Call(PUBLISH, arguments))
    (clock,), (sql, values) = json.loads(post.body)
    assert post.path == "/db/execute?transaction&redirect"
    assert "'now'" in clock
    assert "returning seq" in sql
    assert values == {"p_group_id": "tx'00'", "p_event": 't"é\\u0000"', "p_priority": 0, "p_dedup_id": None}
    assert post.headers["Authorization"].startswith("Basic ")
    assert wire().post(Call(GROUP_STATUS, {"p_limit": 5})).path == "/db/query?level=strong&redirect"
    assert wire().post(Batch((("select 1", {}),))).path == post.path
    assert json.loads(wire().post(Batch((("select 1", {}),), reads=True)).body) == [["select 1"]]


def test_an_invalid_token_with_a_lone_surrogate_can_be_sent() -> None:
    body = wire().post(Call(ACK, {"p_group_id": "g", "p_token": "\ud800"})).body
    assert json.loads(body)[1][1]["p_token"] == "t?"


STATEMENTS = [
    Call(PUBLISH, {"p_priority": 0}),
    *(Call(CLAIM, {"p_min_priority": floor}) for floor in range(5)),
    Call(ACK, {}),
    Call(NACK, {}),
    Call(EXTEND, {}),
]


@pytest.mark.parametrize(
    "call", STATEMENTS, ids=lambda call: f"{call.operation.name}{call.arguments.get('p_min_priority', '')}"
)
def test_rqlite_finds_returning_in_each_statement_and_changes_nothing_in_it(call: Any) -> None:
    """rqlite returns rows only where it finds "returning " with a blank. Its parser must understand the statement and
    replace nothing, since an UPDATE that it prints again has no RETURNING. The first statement sets the time and needs
    no RETURNING."""
    clock, (sql, _) = json.loads(wire().post(Call(call.operation, {"p_token": "t", **call.arguments})).body)
    assert "returning " in sql
    assert not any(mark in sql for mark in (*TIME_MARKS, *RANDOM_MARKS, "[", "`", "~", "--", "materialized"))
    assert sql.isascii()
    assert process(sql).returns_rows
    assert process(sql).sql == sql
    assert not process(clock[0]).returns_rows
    assert len(re.findall(r"julianday\(24\d{5}\.\d{6}\)", process(clock[0]).sql)) == 1


# Programs: which requests follow which answers


def drive(program: Any, *outcomes: Any) -> Any:
    """Give outcomes to a program; return its requests, the pauses between them, and its result or error."""
    requests, pauses, feed = [], [], iter(outcomes)
    try:
        request = next(program)
        while True:
            if isinstance(request, Sleep):
                pauses.append(request.seconds)
                time.sleep(request.seconds)
                request = program.send(None)
                continue
            requests.append(request)
            outcome = next(feed)
            request = program.throw(outcome) if isinstance(outcome, Exception) else program.send(outcome)
    except StopIteration as stop:
        return requests, pauses, stop.value
    except Exception as error:
        return requests, pauses, error


def unanswered(*, uncertain: Any = False, pause: Any = False) -> Any:
    return wire()._unanswered("the reason", uncertain=uncertain, pause=pause)


def test_a_round_asks_every_node_before_it_pauses() -> None:
    failures = [unanswered() for _ in range(7)]
    requests, pauses, result = drive(delivered(AN_ACK, repeatable=False), *failures, [{"group_id": "g"}])
    assert (requests, result) == ([AN_ACK] * 8, [{"group_id": "g"}])
    assert len(pauses) == 2  # one round is three tries: two addresses, and the leader that they may name
    assert 0 < pauses[0] < pauses[1] <= 0.5


def test_what_is_not_repeatable_ends_with_the_first_uncertain_failure() -> None:
    requests, _, error = drive(delivered(AN_ACK, repeatable=False), unanswered(), unanswered(uncertain=True))
    assert requests == [AN_ACK] * 2
    assert isinstance(error, BackendUnavailable)
    assert "not known" in str(error)


def test_one_uncertain_try_makes_the_outcome_of_the_call_uncertain() -> None:
    nothing, lost = unanswered(pause=True), unanswered(uncertain=True)
    requests, _, error = drive(delivered(AN_ACK, repeatable=True, seconds=0.0), nothing)
    assert "nothing was changed" in str(error)
    assert len(requests) == 1
    requests, _, error = drive(delivered(AN_ACK, repeatable=True, seconds=0.1), lost, *[nothing] * 50)
    assert "not known" in str(error)
    assert 2 < len(requests) < 10


def core() -> Any:
    return SentTwiceCore("q")


def test_a_publish_sent_twice_is_the_same_request() -> None:
    requests, _, result = drive(core().publish("g", "1", 0, None), unanswered(uncertain=True), [{"seq": 7}])
    assert result == 7
    assert requests[0] == requests[1]
    others, _, _ = drive(core().publish("g", "1", 0, None), [{"seq": 8}])
    assert others[0].arguments["p_dedup_id"] != requests[0].arguments["p_dedup_id"]


def test_a_claim_sent_twice_is_the_same_request() -> None:
    requests, _, result = drive(core().claim("w", LONG, 0, Lease), unanswered(uncertain=True), [])
    assert result is None
    assert requests[0] == requests[1]
    assert requests[0].arguments["p_token"]


def test_a_refused_statement_asks_whether_the_queue_is_there() -> None:
    program = core().publish("g", "1", 0, None)
    requests, _, error = drive(program, Refused(RqliteError("no such table")), [{"found": 0}])
    assert [request.operation.name for request in requests] == ["publish", "exists"]
    assert isinstance(error, SchemaNotReady)
    program = core().publish("g", "1", 0, None)
    refused, there = Refused(RqliteError("something else")), [{"found": 1}]
    requests, _, error = drive(program, refused, there, refused, there)
    assert [request.operation.name for request in requests] == ["publish", "exists"] * 2
    assert str(error) == "something else"


def test_no_row_is_a_lost_lease() -> None:
    now = datetime.now(UTC)
    lease = Lease("g", 1, 1, "t", 1, now, now)
    for program in (core().ack(lease), core().nack(lease, 0), core().extend(lease, 1)):
        assert isinstance(drive(program, [])[2], LeaseLost)
