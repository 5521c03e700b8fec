"""The stand-in's switches for faults, on which the transport's tests rely, and the stand-in as a process."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import rqlite
from tests.servers.rqlite import Cluster, Probe

INSERT = "insert into t(name) values('a')"
COUNT = "select count(*) from t"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with rqlite.private(nodes=3) as cluster:
        Probe(cluster.urls[0]).execute("create table t (id integer primary key, name text)")
        yield cluster


@pytest.fixture
def node(cluster: Cluster) -> Probe:
    return Probe(cluster.urls[0])


def test_a_dropped_answer_was_applied(cluster: Cluster, node: Probe) -> None:
    cluster.faults.drop_answers(2)
    for _ in range(2):
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            node.execute(INSERT)
    assert cluster.faults.pending == 0
    assert node.query(COUNT).values == [[2]]


def test_a_refused_request_was_not_applied(cluster: Cluster, node: Probe) -> None:
    cluster.faults.refuse(1)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        node.execute(INSERT)
    assert node.query(COUNT).values == [[0]]


def test_a_write_applied_twice_answers_with_the_second_result(
    cluster: Cluster,
) -> None:  # cluster/client.go, retry; rqlite issue 1628
    cluster.faults.apply_twice(1)
    follower = Probe(cluster.urls[1])
    assert follower.query(COUNT).values == [[0]]  # a read does not use up the switch
    assert follower.execute(INSERT).results == [{"last_insert_id": 2, "rows_affected": 1}]
    assert cluster.faults.pending == 0
    assert follower.execute(INSERT).results == [{"last_insert_id": 3, "rows_affected": 1}]


@pytest.mark.parametrize("applied", [False, True])
def test_a_raft_error_leaves_the_outcome_open(
    cluster: Cluster, node: Probe, applied: Any
) -> None:  # proxy.go: errors go to the top of the answer
    cluster.faults.raft_error(1, applied=applied)
    reply = node.execute(INSERT)
    assert (reply.status, reply.json) == (200, {"results": [], "error": "leadership lost while committing log"})
    assert node.query(COUNT).values == [[int(applied)]]


def test_slow_before_or_after_the_work(cluster: Cluster, node: Probe) -> None:
    cluster.faults.slow(0.1, statement="insert")
    cluster.faults.slow(0.1, after=True, statement="insert", skip=1)
    for early in (0, 1):
        before = node.query(COUNT).values[0][0]
        sender = threading.Thread(target=node.execute, args=(INSERT,))
        start = time.monotonic()
        sender.start()
        time.sleep(0.05)
        assert node.query(COUNT).values[0][0] - before == early
        sender.join()
        assert time.monotonic() - start >= 0.1


def test_a_proxys_answer(cluster: Cluster, node: Probe) -> None:
    cluster.faults.reply(502, "bad gateway", endpoint="execute")
    reply = node.execute(INSERT)
    assert (reply.status, reply.text) == (502, "bad gateway\n")
    assert node.query(COUNT).values == [[0]]


def test_switches_are_for_an_endpoint_a_statement_a_node_and_a_time(cluster: Cluster, node: Probe) -> None:
    cluster.faults.reply(500, "query", endpoint="query")
    cluster.faults.reply(500, "statement", statement=r"VALUES\('b'\)")
    cluster.faults.reply(500, "node", node=1, endpoint="execute")
    cluster.faults.reply(500, "later", endpoint="execute", skip=2)
    other = "insert into t(name) values('b')"
    answers = [node.execute(INSERT), node.execute(INSERT), node.execute(other), node.execute(INSERT)]
    assert [reply.text if reply.status == 500 else "" for reply in answers] == ["", "", "statement\n", "later\n"]
    assert Probe(cluster.urls[1]).execute(INSERT).text == "node\n"
    assert node.query(COUNT).text == "query\n"
    assert cluster.faults.pending == 0


def test_clear_takes_all_switches_back(cluster: Cluster, node: Probe) -> None:
    cluster.faults.refuse(5)
    cluster.faults.clear()
    assert node.execute(INSERT).status == 200


def test_a_wrong_condition_is_refused(cluster: Cluster) -> None:
    with pytest.raises(TypeError, match="path"):
        cluster.faults.refuse(1, path="/db/execute")


def test_requests_are_counted(cluster: Cluster, node: Probe) -> None:
    cluster.forget_seen()
    node.execute([f"{INSERT} returning id"], transaction=True)
    Probe(cluster.urls[2]).query(COUNT, level="none")
    assert [(seen.node, seen.method, seen.path, seen.params) for seen in cluster.seen] == [
        (0, "POST", "/db/execute", {"transaction": ""}),
        (2, "POST", "/db/query", {"level": "none"}),
    ]
    assert cluster.seen[0].statements[0].returns_rows


def test_a_connection_is_kept_alive_and_breaks_with_its_node(cluster: Cluster) -> None:
    connection = http.client.HTTPConnection(cluster.urls[2].partition("//")[2], timeout=5)
    for _ in range(2):
        connection.request("GET", "/readyz")
        assert connection.getresponse().read().startswith(b"[+]node ok")
        socket = connection.sock
    assert socket is connection.sock is not None
    cluster.stop_node(2)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        ask_again(connection)


def test_many_clients_at_once_lose_nothing(cluster: Cluster) -> None:
    def write(url: str) -> None:
        for _ in range(20):
            Probe(url).execute(INSERT)

    writers = [threading.Thread(target=write, args=(url,)) for url in cluster.urls * 2]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert Probe(cluster.urls[1]).query(COUNT).values == [[120]]


def test_as_a_process_with_a_side_door() -> None:
    command = [sys.executable, "-m", "tests.servers.rqlite", "--nodes", "3", "--auth", "u:p", "--election", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True)
    try:
        assert process.stdout is not None
        where = json.loads(process.stdout.readline())
        assert where["url"].startswith("rqlite://u:p@127.0.0.1:")
        node = Probe(where["urls"][0], auth="u:p")
        assert node.query("select 1").values == [[1]]
        assert call(where["control"], {"call": "change_leader", "to": 2}) == {"result": 2}
        call(where["control"], {"call": "refuse", "n": 1, "endpoint": "query"})
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            node.query("select 1")
        state = call(where["control"], None)
        assert (state["leader"], state["pending"], state["requests"]) == (2, 0, 2)
        with pytest.raises(urllib.error.HTTPError, match="400"):
            call(where["control"], {"call": "unknown"})
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        if process.stdout is not None:
            process.stdout.close()


def ask_again(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/readyz")
    connection.getresponse()


def call(url: str, body: Any) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(url, data, timeout=5) as answer:
        return json.load(answer)
