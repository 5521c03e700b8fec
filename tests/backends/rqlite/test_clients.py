"""Transports work with TLS, threads, event loops and cancellation, on their own HTTP clients and on given ones."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

import fairlane
from fairlane import BackendUnavailable, ConfigurationError, TransportClosed
from tests.backends.rqlite.conftest import executor, posts, sent
from tests.harness import LONG, Queue
from tests.harness.http_backends import (
    assert_moves_to_the_loop_it_is_used_in,
    assert_neither_proxies_nor_netrc_come_between,
    assert_threads_share_a_transport,
    make_certificate,
    open_files,
    opened,
)
from tests.harness.queues import in_thread
from tests.servers import rqlite
from tests.servers.rqlite import Cluster


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Any]:
    """A cluster with TLS, and its certificate."""
    certificate, key = make_certificate(tmp_path)
    with rqlite.private(nodes=3, auth="me:secret", tls=(certificate, key)) as cluster:
        fairlane.migrate.upgrade(f"{cluster.url}?ca_file={certificate}", queue="q")
        cluster.change_leader(1)
        yield cluster, certificate


async def cycle(transport: Any, twin: str) -> Any:
    """Publish, claim and ack."""

    async def call(method: Any, *args: Any) -> Any:
        return await in_thread(method, *args) if twin == "sync" else await method(*args)

    await call(transport.publish, "g", 1)
    lease = await call(transport.claim, "w", LONG)
    await call(transport.ack, lease)
    return lease


async def closed(transport: Any) -> None:
    waiting = transport.close()
    if waiting is not None:
        await waiting


async def test_tls_with_a_private_certificate(secured: Any, twin: str) -> None:
    cluster, certificate = secured
    transport = await opened(twin, cluster.url, ca_file=str(certificate))
    await cycle(transport, twin)
    await closed(transport)


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
async def test_tls_without_verification(secured: Any, twin: str) -> None:
    transport = await opened(twin, f"{secured[0].url}?verify=0")
    await cycle(transport, twin)
    await closed(transport)


async def test_tls_refuses_an_untrusted_certificate(
    secured: Any, twin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the wrong authorities, and with those of the system. Nothing was sent, so the outcome is certain."""
    monkeypatch.setattr("fairlane.backends.base.LEAST", 30.0)  # a busy machine may need a second for a handshake
    cluster, _ = secured
    other, _ = make_certificate(tmp_path, "other")
    cluster.forget_seen()
    for options in ({}, {"ca_file": str(other)}):
        with pytest.raises(BackendUnavailable, match=r"(?i)certificate.*nothing was changed"):
            await opened(twin, cluster.url, startup_timeout=0, **options)
    assert cluster.seen == []


async def test_tls_on_one_side_only_is_unavailable(secured: Any, twin: str, cluster: Cluster) -> None:
    for url in (secured[0].url.replace("rqlites", "rqlite"), cluster.url.replace("rqlite", "rqlites")):
        with pytest.raises(BackendUnavailable) as caught:
            await opened(twin, url, startup_timeout=0)
        assert "secret" not in str(caught.value)


async def test_a_client_of_the_application_is_used_and_left_open(queue: Queue, cluster: Cluster, twin: str) -> None:
    url = cluster.url.replace("worker:secret@", "")
    if twin == "sync":
        client: Any = requests.Session()
        client.auth = ("worker", "secret")
        transport: Any = fairlane.RqliteTransport(client, queue=queue.name, url=url)
    else:
        client = httpx.AsyncClient(auth=("worker", "secret"))
        transport = fairlane.AsyncRqliteTransport(client, queue=queue.name, url=url)
    cluster.change_leader(1)
    assert (await cycle(transport, twin)).event == 1
    await closed(transport)
    with pytest.raises(TransportClosed):
        await cycle(transport, twin)
    again = type(transport)(client, queue=queue.name, url=url, timeout=15)
    await cycle(again, twin)
    assert client.close() is None if twin == "sync" else await client.aclose() is None


async def test_a_given_clients_first_operation_says_what_is_wrong(cluster: Cluster, twin: str) -> None:
    client = requests.Session() if twin == "sync" else httpx.AsyncClient()
    kind: Any = fairlane.RqliteTransport if twin == "sync" else fairlane.AsyncRqliteTransport
    with pytest.raises(fairlane.SchemaNotReady):
        await cycle(kind(client, queue="missing", url=cluster.url), twin)


async def test_proxy_variables_and_netrc_are_ignored(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await assert_neither_proxies_nor_netrc_come_between(queue, monkeypatch, tmp_path)


async def test_connections_are_kept(queue: Queue, cluster: Cluster) -> None:
    """Guards against a new connection for each operation."""
    listener = cluster._listeners[0]
    assert listener is not None
    before = len(listener._connections)
    for number in range(20):
        await queue.publish("g", number)
    assert len(listener._connections) <= before + 1


@pytest.mark.parametrize("twin", ["sync"], indirect=True)
async def test_the_operating_system_detects_dead_idle_connections(queue: Any) -> None:
    """Guards against an ack without an answer after a firewall forgot the connection. In asyncio idle ones expire."""
    await queue.publish("g", 1)
    pools = executor(queue)._session.get_adapter("http://").poolmanager.pools
    (key,) = pools.keys()
    pool = pools[key]
    connection = pool._get_conn()
    assert connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    pool._put_conn(connection)


async def test_close_closes_the_connections(queue: Queue) -> None:
    await queue.publish("g", 1)
    before = open_files()
    await queue.close()
    await queue.close()
    with pytest.raises(TransportClosed):
        await queue.publish("g", 2)
    assert open_files() < before


def test_threads_share_a_transport(cluster: Cluster) -> None:
    """Guards against errors when there are more threads than connections that are kept."""
    assert_threads_share_a_transport(cluster.url, "q")


def test_an_async_transport_moves_to_the_loop_it_is_used_in(cluster: Cluster) -> None:
    assert_moves_to_the_loop_it_is_used_in(cluster.url, "q")


def test_making_an_async_transport_needs_no_loop() -> None:
    transport = fairlane.AsyncRqliteTransport(httpx.AsyncClient(), url="rqlite://127.0.0.1:9")
    asyncio.run(transport.close())


@pytest.mark.parametrize("twin", ["async"], indirect=True)
async def test_a_cancelled_call_harms_no_other(queue: Queue, cluster: Cluster) -> None:
    for number in range(30):
        await queue.publish(f"g{number}", number)
    cluster.faults.slow(0.2, 60, endpoint="execute")
    doomed = [asyncio.ensure_future(queue.claim("doomed", 0.5)) for _ in range(30)]
    waiting = [asyncio.ensure_future(queue.publish("last", number)) for number in range(30)]
    await asyncio.sleep(0.1)
    for task in doomed:
        task.cancel()
    await asyncio.gather(*waiting)
    assert all(
        isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*doomed, return_exceptions=True)
    )
    cluster.faults.clear()
    began = time.monotonic()
    seen: list[tuple[str, int]] = []
    while len(seen) < 60 and time.monotonic() - began < 20:
        seen += await queue.drain()
        await asyncio.sleep(0.05)
    assert Counter(group for group, _ in seen) == {**{f"g{n}": 1 for n in range(30)}, "last": 30}


async def test_more_calls_than_connections_wait_for_their_turn(queue: Queue, cluster: Cluster) -> None:
    patient = await queue.another(timeout=180)  # on a busy machine the last call waits for more than ten seconds
    cluster.faults.slow(0.05, 100, endpoint="execute")
    await asyncio.gather(*(patient.publish(f"g{n}", n) for n in range(100)))
    assert sent(cluster) == 100, "a call was sent twice"
    assert (await queue.status()).messages == 100


async def test_a_connection_that_the_server_closed_meanwhile_is_not_a_lost_answer(
    queue: Queue, cluster: Cluster
) -> None:
    """The node restarts while a worker handles a message. The outcome of its ack must not be unknown."""
    await queue.publish("g", 1)
    lease = await queue.get()
    await in_thread(cluster.stop_node, 0)
    await in_thread(cluster.start_node, 0)
    cluster.change_leader(0)
    cluster.forget_seen()
    await queue.ack(lease)
    assert posts(cluster) == [(0, "/db/execute")]


def test_the_context_for_tls_is_not_made_per_request(secured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, certificate = secured
    made = []
    original = ssl.create_default_context

    def counted(*arguments: Any, **options: Any) -> ssl.SSLContext:
        made.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr(ssl, "create_default_context", counted)

    async def use() -> None:
        async with await fairlane.connect_async(cluster.url, "q", ca_file=str(certificate)) as transport:
            for number in range(5):
                await transport.publish("g", number)

    asyncio.run(use())
    assert len(made) <= 2


async def test_a_message_of_five_megabytes_comes_back_equal(queue: Queue) -> None:
    event = {"text": "é\0\N{SNOWMAN}" * 700_000, "n": [1.5, None, 2**70]}
    await queue.publish("g", event)
    lease = await queue.get()
    assert lease.event == event


async def test_an_executor_does_not_show_the_password(queue: Queue) -> None:
    assert "secret" not in repr(executor(queue)._wire.address)
    with pytest.raises(ConfigurationError):
        await queue.another(colour="red")
