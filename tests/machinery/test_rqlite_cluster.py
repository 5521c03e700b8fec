"""Three stand-in nodes: who serves what, redirects, lost leaders, stale reads, access.

Sources: https://rqlite.io/docs/api/api/ (API, "How rqlite Handles Requests"), https://rqlite.io/docs/api/read-consistency/
(RC), https://rqlite.io/docs/guides/monitoring-rqlite/ (MON), https://rqlite.io/docs/guides/security/ (SEC), and in
rqlite's repository http/service.go, proxy/proxy.go, store/store.go.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import rqlite
from tests.servers.rqlite import Cluster, Credentials, Probe
from tests.servers.rqlite.listener import Listener

COUNT = "select count(*) from t"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with rqlite.private(nodes=3, heartbeat=0.05, election=0.1) as cluster:
        Probe(cluster.urls[0]).execute("create table t (id integer primary key, name text)")
        yield cluster


@pytest.fixture
def nodes(cluster: Cluster) -> list[Probe]:
    return [Probe(url) for url in cluster.urls]


def wait_for_leader(cluster: Cluster) -> int:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if cluster.leader is not None:
            return cluster.leader
        time.sleep(0.01)
    raise AssertionError("no leader")


def test_followers_forward_writes_and_say_who_served(nodes: list[Probe]) -> None:  # API; service.go, ServedByHTTPHeader
    for node in nodes:
        reply = node.execute("insert into t(name) values('a') returning id")
        assert reply.status == 200
    assert reply.headers["x-rqlite-served-by"] == "127.0.0.1:4002"
    assert "x-rqlite-served-by" not in nodes[0].execute("delete from t where id = 1").headers
    assert nodes[1].query(COUNT).values == [[2]]


def test_every_answer_names_the_version(nodes: list[Probe]) -> None:  # service.go, VersionHTTPHeader
    assert nodes[0].get("/readyz").headers["x-rqlite-version"] == "v10.2.7"
    assert nodes[0].get("/unknown").headers["x-rqlite-version"] == "v10.2.7"


def test_with_redirect_a_follower_names_the_leader(
    cluster: Cluster, nodes: list[Probe]
) -> None:  # API, "Disabling Request Forwarding"
    for call in (nodes[1].execute, nodes[1].query, nodes[1].request):
        reply = call(COUNT, redirect=True, level="strong")
        assert reply.status == 301
        path = f"/db/{call.__name__}"
        assert reply.headers["location"] == f"{cluster.urls[0]}{path}?redirect&level=strong"
    assert nodes[0].query(COUNT, redirect=True).status == 200


def test_reads_with_level_none_stay_on_the_node(cluster: Cluster, nodes: list[Probe]) -> None:  # RC, "None"
    cluster.lose_leader()
    reply = nodes[2].query(COUNT, level="none")
    assert reply.values == [[0]]
    assert "x-rqlite-served-by" not in reply.headers


@pytest.mark.parametrize("level", ["weak", "linearizable", "strong", "auto", "nonsense", ""])
def test_reads_of_any_other_level_need_the_leader(cluster: Cluster, nodes: list[Probe], level: Any) -> None:  # RC
    assert nodes[2].query(COUNT, level=level).headers["x-rqlite-served-by"] == "127.0.0.1:4002"
    cluster.lose_leader()
    assert nodes[2].query(COUNT, level=level).status == 503


def test_a_follower_that_is_cut_off_reads_old_data(
    cluster: Cluster, nodes: list[Probe]
) -> None:  # RC, "None", "Limiting read staleness"
    cluster.freeze_node(2)
    nodes[0].execute("insert into t(name) values('a')")
    assert nodes[2].query(COUNT, level="none").values == [[0]]
    assert nodes[2].query(COUNT).values == [[1]]
    time.sleep(0.02)
    stale = nodes[2].query(COUNT, level="none", freshness="10ms")
    assert (stale.status, stale.json) == (200, {"results": [], "error": "stale read"})
    assert nodes[0].query(COUNT, level="none", freshness="10ms").values == [[1]]
    cluster.thaw_node(2)
    assert nodes[2].query(COUNT, level="none", freshness="10ms").values == [[1]]


def test_a_request_with_one_write_goes_to_the_leader_as_a_whole(nodes: list[Probe]) -> None:  # store.go, RequiresLeader
    assert "x-rqlite-served-by" in nodes[1].request(COUNT, "delete from t", level="none").headers
    assert "x-rqlite-served-by" not in nodes[1].request(COUNT, level="none").headers
    assert "x-rqlite-served-by" in nodes[1].request(COUNT).headers


def test_without_a_leader_writes_are_503(cluster: Cluster, nodes: list[Probe]) -> None:  # service.go, ErrLeaderNotFound
    cluster.lose_leader(0.1)
    for call in (nodes[0].execute, nodes[1].execute, nodes[1].request):
        reply = call("insert into t(name) values('a')")
        assert (reply.status, reply.text) == (503, "leader not found\n")
    assert nodes[1].execute("delete from t", redirect=True).status == 503
    time.sleep(0.12)
    assert nodes[0].execute("insert into t(name) values('a')").status == 200
    assert cluster.leader == 1


def test_a_new_leader_has_everything(cluster: Cluster, nodes: list[Probe]) -> None:
    nodes[0].execute("insert into t(name) values('a')")
    for expected in (1, 2, 0):
        assert cluster.change_leader() == expected
        nodes[expected].execute("insert into t(name) values('b')")
    assert nodes[2].query(COUNT).values == [[4]]


def test_the_leader_api_tells_and_hands_over(cluster: Cluster, nodes: list[Probe]) -> None:  # MON, "Leader API"
    assert nodes[1].get("/leader").json["api_addr"] == cluster.urls[0]
    assert nodes[1].post("/leader", {"id": "node-3"}).status == 200
    assert cluster.leader == 2


def test_a_dead_leader_still_counts_as_leader_for_a_moment(cluster: Cluster, nodes: list[Probe]) -> None:
    cluster.stop_node(0)
    reply = nodes[1].execute("insert into t(name) values('a')")
    assert reply.status == 200
    assert reply.json["results"] == []
    assert reply.json["error"].startswith("node failed to process Execute on remote node at 127.0.0.1:4002: dial tcp")
    assert nodes[1].execute("delete from t", redirect=True).headers["location"].startswith(cluster.urls[0])
    assert "leader not contactable" in nodes[1].get("/readyz").text
    with pytest.raises(ConnectionError):
        nodes[0].query(COUNT)
    time.sleep(0.07)
    assert nodes[1].execute("insert into t(name) values('a')").status == 503
    assert wait_for_leader(cluster) == 1
    assert nodes[2].execute("insert into t(name) values('a')").results == [{"last_insert_id": 1, "rows_affected": 1}]


def test_a_node_that_comes_back_catches_up(cluster: Cluster, nodes: list[Probe]) -> None:
    cluster.stop_node(2)
    nodes[0].execute("insert into t(name) values('a')")
    cluster.start_node(2)
    assert nodes[2].query(COUNT, level="none").values == [[1]]


def test_no_other_server_gets_the_port_of_a_stopped_node(cluster: Cluster) -> None:
    """Guards against a claim of one test that is answered by the cluster of another test, which does not have the
    tables. Two sockets may be bound to one port if both allow it and neither listens."""
    cluster.stop_node(1)
    port = int(cluster.urls[1].rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        Listener(("127.0.0.1", port), lambda request: None)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    cluster.start_node(1)
    assert Probe(cluster.urls[1]).query(COUNT).values == [[0]]


def test_without_a_majority_nothing_is_written(cluster: Cluster, nodes: list[Probe]) -> None:
    cluster.stop_node(1)
    cluster.stop_node(2)
    reply = nodes[0].execute("insert into t(name) values('a')")
    assert reply.json == {"results": [], "error": "leadership lost while committing log"}
    time.sleep(0.2)
    assert nodes[0].execute("insert into t(name) values('a')").status == 503
    cluster.start_node(1)
    wait_for_leader(cluster)
    assert nodes[0].query(COUNT).values == [[0]]


def test_a_long_log_is_replaced_by_a_snapshot(
    cluster: Cluster, nodes: list[Probe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.servers.rqlite.raft.LOG_STATEMENTS", 10)
    cluster.freeze_node(2)
    for _ in range(25):
        nodes[0].execute("insert into t(name) values('a')")
    cluster.change_leader(2)
    assert nodes[2].query(COUNT).values == [[25]]


def test_what_each_node_evaluates_itself_differs(
    nodes: list[Probe],
) -> None:  # https://rqlite.io/docs/api/non-deterministic/
    nodes[0].execute("insert into t(id) values(random())", norwrandom=True)
    nodes[0].execute("insert into t(id) values(random())")
    seen = [{row[0] for row in node.query("select id from t", level="none").values} for node in nodes]
    assert len(seen[0] & seen[1] & seen[2]) == 1


def test_readyz(cluster: Cluster, nodes: list[Probe]) -> None:  # MON, "Readiness checks"; service.go, handleReadyz
    ready = "[+]node ok\n[+]leader ok\n[+]store ok\n[+]db ok"
    assert (nodes[1].get("/readyz").status, nodes[1].get("/readyz").text) == (200, ready)
    assert nodes[1].get("/readyz", sync=True).text == f"{ready}\n[+]sync ok"
    cluster.freeze_node(1)
    assert nodes[1].get("/readyz", sync=True, timeout="20ms").status == 503
    cluster.lose_leader()
    reply = nodes[0].get("/readyz")
    assert (reply.status, reply.text) == (503, "[+]node ok\n[+]leader does not exist")
    assert nodes[0].get("/readyz", noleader=True).text == "[+]node ok"


def test_nodes_and_status(cluster: Cluster, nodes: list[Probe]) -> None:  # MON, "Nodes API", "Status API"
    listed = nodes[1].get("/nodes", ver="2").json["nodes"]
    assert [each["api_addr"] for each in listed] == cluster.urls
    assert [each["leader"] for each in listed] == [True, False, False]
    assert set(nodes[1].get("/nodes").json) == {"node-1", "node-2", "node-3"}
    assert nodes[1].get("/status").json["store"]["leader"]["node_id"] == "node-1"


def test_unknown_paths_and_methods(nodes: list[Probe]) -> None:  # service_test.go, Test_404Routes, Test_405Routes
    assert nodes[0].get("/db/xxx").status == 404
    assert nodes[0].get("/db/execute").status == 405
    assert nodes[0].post("/status", []).status == 405


def test_a_bad_duration_is_400(nodes: list[Probe]) -> None:  # query_params.go
    reply = nodes[0].query(COUNT, freshness="soon")
    assert (reply.status, reply.text) == (400, "freshness is not a valid duration\n")


def test_queued_writes_are_refused_by_name(
    nodes: list[Probe],
) -> None:  # the stand-in lacks this; rqlite has it
    assert nodes[0].execute("delete from t", queue=True).text == "the stand-in has no queued writes\n"


def test_basic_auth() -> None:  # SEC; service_test.go, Test_401Routes_*
    with rqlite.private(auth="user:p:w%/é") as cluster:
        assert cluster.url == f"rqlite://user:p%3Aw%25%2F%C3%A9@{cluster.urls[0][7:]}"
        for auth in (None, "user:wrong", "other:p:w%/é"):
            for path in ("/db/execute", "/db/query", "/readyz", "/status"):
                reply = Probe(cluster.urls[0], auth=auth).get(path)
                assert (reply.status, reply.text) == (401, "")
                assert reply.headers["www-authenticate"].startswith("Basic")
        assert Probe(cluster.urls[0], auth="user:p:w%/é").query("select 1").values == [[1]]


def test_the_unified_endpoint_needs_both_permissions() -> None:  # service.go, CheckRequestPermAll
    writer = Credentials("writer", "pw", frozenset({"execute"}))
    both = Credentials("both", "pw", frozenset({"execute", "query"}))
    with rqlite.private(auth=[writer, both]) as cluster:
        probe = Probe(cluster.urls[0], auth="writer:pw")
        assert [probe.execute("select 1").status, probe.query("select 1").status] == [200, 401]
        assert probe.request("select 1").status == 401
        assert Probe(cluster.urls[0], auth="both:pw").request("select 1").status == 200


def test_tls(tmp_path: Path) -> None:  # SEC, "Encrypting rqlite HTTP traffic"
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    with rqlite.private(tls=(certificate, key)) as cluster:
        assert cluster.urls[0].startswith("https://")
        assert cluster.url.startswith("rqlites://")
        trusted = ssl.create_default_context(cafile=str(certificate))
        assert Probe(cluster.urls[0], tls=trusted).query("select 1").values == [[1]]
        with pytest.raises(ssl.SSLCertVerificationError):
            Probe(cluster.urls[0], tls=ssl.create_default_context()).query("select 1")


def test_files_outlive_the_processes(tmp_path: Path) -> None:
    for expected in (0, 1):
        with rqlite.private(nodes=3, data=tmp_path) as cluster:
            node = Probe(cluster.urls[0])
            node.execute("create table if not exists t (id integer primary key, name text)")
            assert node.query(COUNT).values == [[expected]]
            cluster.change_leader(2)
            node.execute("insert into t(name) values('a')")
