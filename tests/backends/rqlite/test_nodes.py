"""Several addresses, dead nodes and elections: transports and operations find the leader, or give up in time."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest

import fairlane
from fairlane import AuthenticationFailed, BackendUnavailable, LeaseLost, SchemaNotReady
from fairlane.backends.rqlite import address as rqlite_address
from tests.backends.rqlite.conftest import posts
from tests.harness import LONG, Queue, Queues, held
from tests.harness.calls import every_call
from tests.harness.queues import in_thread
from tests.servers import rqlite
from tests.servers.rqlite import Cluster, rewrite

LATER = 0.4


def url_of(cluster: Cluster, *indexes: Any) -> str:
    hosts = ",".join(cluster.urls[index].partition("//")[2] for index in indexes)
    return f"rqlite://worker:secret@{hosts}"


async def connect(twin: str, url: str, queue: str = "q", **options: Any) -> Any:
    if twin == "sync":
        return await in_thread(fairlane.connect, url, queue, **options)
    return await fairlane.connect_async(url, queue, **options)


def after(seconds: Any, action: Any) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


@pytest.mark.parametrize("down", [0, 1, 2])
async def test_a_node_that_is_down_is_passed_over_at_start(queues: Queues, cluster: Cluster, down: Any) -> None:
    name = (await queues.make()).name
    cluster.change_leader((down + 1) % 3)
    cluster.stop_node(down)
    queue = await queues.open(name)
    await queue.publish("g", 1)
    assert await queue.drain() == [("g", 1)]


@pytest.mark.parametrize("index", [0, 1, 2])
async def test_one_address_is_enough_to_find_the_leader(queues: Queues, cluster: Cluster, index: Any) -> None:
    name = (await queues.make()).name
    cluster.change_leader(2)
    queue = await queues.open(name, url=url_of(cluster, index))
    await queue.publish("g", 1)
    assert await queue.drain() == [("g", 1)]


async def test_a_leader_found_by_redirect_is_left_for_the_known_addresses_when_it_dies(
    queues: Queues, cluster: Cluster
) -> None:
    name = (await queues.make()).name
    cluster.change_leader(2)
    queue = await queues.open(name, url=url_of(cluster, 0))
    await queue.publish("g", 1)
    await in_thread(cluster.stop_node, 2)
    await queue.publish("g", 2)
    assert await queue.drain() == [("g", 1), ("g", 2)]


async def test_the_leader_dies_again_and_again(queue: Queue, cluster: Cluster) -> None:
    for number in range(4):
        await queue.publish("g", number)
        leader = cluster.leader
        assert leader is not None
        await in_thread(cluster.stop_node, leader)
        lease = await queue.get()
        assert lease.event == number
        await in_thread(cluster.start_node, leader)
        await queue.ack(lease)
    assert await queue.leftovers() == {}


async def test_start_waits_for_a_leader(queues: Queues, cluster: Cluster) -> None:
    name = (await queues.make()).name
    cluster.lose_leader(LATER)
    queue = await queues.open(name)
    await queue.publish("g", 1)
    assert await queue.drain() == [("g", 1)]


async def test_start_waits_for_nodes_that_are_not_up_yet(queues: Queues, cluster: Cluster) -> None:
    name = (await queues.make()).name
    for index in range(3):
        cluster.stop_node(index)
    after(LATER, lambda: list(map(cluster.start_node, range(3))))
    queue = await queues.open(name)
    await queue.publish("g", 1)
    assert await queue.drain() == [("g", 1)]


async def test_start_gives_up_in_time_if_nobody_leads(queues: Queues, cluster: Cluster) -> None:
    name = (await queues.make()).name
    cluster.lose_leader()
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match="does not know a leader") as caught:
        await queues.open(name, startup_timeout=0.5)
    assert time.monotonic() - began < 3
    assert caught.value.host == cluster.url.partition("@")[2]
    assert "secret" not in str(caught.value) + repr(caught.value.__cause__)


async def test_start_gives_up_in_time_if_nothing_is_there(queues: Queues, cluster: Cluster) -> None:
    name = (await queues.make()).name
    for index in range(3):
        cluster.stop_node(index)
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match=r"no connection to 127.0.0.1:\d+: .*nothing was changed") as caught:
        await queues.open(name, startup_timeout=0.5)
    assert time.monotonic() - began < 3
    assert caught.value.host == cluster.url.partition("@")[2]
    assert "secret" not in str(caught.value)


async def test_a_name_that_does_not_exist_is_unavailable(twin: str) -> None:
    with pytest.raises(BackendUnavailable, match=r"no connection to nowhere\.invalid:4001"):
        await connect(twin, "rqlite://nowhere.invalid", startup_timeout=0)


async def test_operations_wait_for_an_election_and_give_up_in_time(queue: Queue, cluster: Cluster) -> None:
    await queue.publish("g", 1)
    lease = await queue.get()
    hasty = await queue.another(retry_seconds=0.5)
    cluster.lose_leader()
    for call in (
        lambda: hasty.publish("g", 2),
        lambda: hasty.claim("w", LONG),
        lambda: hasty.ack(lease),
        lambda: hasty.nack(lease),
        lambda: hasty.extend(lease, LONG),
        lambda: hasty.groups(),
    ):
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match=r"know a leader \(nothing was changed\)"):
            await call()
        assert 0.4 < time.monotonic() - began < 3
    after(LATER, lambda: cluster.change_leader(1))
    await queue.ack(lease)
    assert await queue.leftovers() == {}


async def test_without_retries_every_address_is_still_asked_once(
    queues: Queues, queue: Queue, cluster: Cluster
) -> None:
    name = queue.name
    cluster.change_leader(2)
    cluster.stop_node(0)
    hasty = await queues.open(name, retry_seconds=0)
    await hasty.publish("g", 1)
    await in_thread(cluster.stop_node, 2)
    with pytest.raises(BackendUnavailable):
        await hasty.publish("g", 2)


async def test_a_node_that_hangs_is_passed_over(queues: Queues, queue: Queue, cluster: Cluster) -> None:
    """The node accepts requests and does not answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        url = url_of(cluster, 1).replace("@", f"@127.0.0.1:{silent.getsockname()[1]},")
        patient = await queues.open(queue.name, url=url, timeout=0.9)
        cluster.forget_seen()
        await patient.publish("g", 1)
        assert posts(cluster) == [(0, "/db/execute")], "found out at start, and remembered"


async def test_a_wrong_password_is_an_error_at_once_even_without_a_leader(
    queue: Queue, cluster: Cluster, twin: str
) -> None:
    url = cluster.url.replace("secret", "wrong-one")
    cluster.lose_leader(LATER)
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="refused the credentials") as caught:
        await connect(twin, url, queue.name)
    assert time.monotonic() - began < 3
    assert "wrong-one" not in str(caught.value)
    with pytest.raises(AuthenticationFailed):
        await connect(twin, url.replace("worker:wrong-one@", ""), queue.name)


@pytest.mark.parametrize("lacking", ["query", "execute"])
async def test_a_missing_permission_is_authentication_failed(twin: str, lacking: Any) -> None:
    users = [
        rqlite.Credentials("root", "r", frozenset({"all"})),
        rqlite.Credentials("half", "h", frozenset({"query", "execute"} - {lacking})),
    ]
    with rqlite.private(auth=users) as cluster:
        await in_thread(fairlane.migrate.upgrade, cluster.url, queue="q")
        half = cluster.url.replace("root:r@", "half:h@")
        with pytest.raises(AuthenticationFailed, match="permission execute or query"):
            await use(await connect(twin, half), twin)


async def use(transport: Any, twin: str) -> None:
    published = transport.publish("g", 1) if twin == "async" else in_thread(transport.publish, "g", 1)
    try:
        await published
    finally:
        closed = transport.close()
        if closed is not None:
            await closed


ODD = ["päss wörd", "a:b", "x/y?z#@%", "日本", "%41"]


@pytest.mark.parametrize("password", ODD)
async def test_any_password_works(twin: str, password: Any) -> None:
    with rqlite.private(nodes=3, auth=f"me:{password}") as cluster:
        await in_thread(fairlane.migrate.upgrade, cluster.url, queue="q")
        cluster.change_leader(1)
        await use(await connect(twin, cluster.url), twin)


async def test_a_queue_that_is_not_there_is_not_ready(queue: Queue, cluster: Cluster, twin: str) -> None:
    with pytest.raises(SchemaNotReady) as caught:
        await connect(twin, cluster.url, "missing")
    assert (caught.value.queue, caught.value.found) == ("missing", None)
    lease = await publish_and_claim(queue)
    await in_thread(fairlane.migrate.downgrade, cluster.url, queue=queue.name, revision="base")
    for call in every_call(queue, lease).values():
        with pytest.raises(SchemaNotReady):
            await call()


async def publish_and_claim(queue: Queue) -> Any:
    await queue.publish("g", 1)
    return await queue.get()


async def test_many_callers_share_what_is_known_of_the_nodes(queue: Queue, cluster: Cluster) -> None:
    """The leader dies while all of them use it."""
    await asyncio.gather(*(queue.publish(f"g{n}", n) for n in range(20)))
    await in_thread(cluster.stop_node, 0)
    await asyncio.gather(*(queue.publish(f"g{n}", n + 100) for n in range(20)))
    cluster.forget_seen()
    leases = await asyncio.gather(*(queue.claim("w", LONG) for _ in range(20)))
    assert len({held(lease).group_id for lease in leases}) == 20
    assert len(posts(cluster)) == 20, "all of them know the leader"


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_address_gets_its_turn(count: Any) -> None:
    addresses = tuple(f"http://n{n}:1" for n in range(count))
    nodes = rqlite_address.Nodes(addresses)
    seen = []
    for _ in range(2 * count):
        seen.append(nodes.current)
        nodes.failed(nodes.current)
    assert seen == list(addresses) * 2
    nodes.redirected(nodes.current, "http://leader:1")
    nodes.failed("http://old-news:1")
    assert nodes.current == "http://leader:1"
    nodes.failed("http://leader:1")
    assert nodes.current in addresses


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The clock of the current leader. `clock.off` is the number of seconds by which it is wrong."""

    class Clock:
        off = 0.0

    original = rewrite.julian_day
    monkeypatch.setattr(rewrite, "julian_day", lambda: original(time.time() + Clock.off))
    return Clock


async def test_a_leader_whose_clock_is_behind_shortens_no_lease(queue: Queue, clock: Any) -> None:
    await queue.publish("held", 1)
    await queue.publish("given back", 1)
    held, given = await queue.get("w", LONG), await queue.get("w", LONG)
    clock.off = -3600
    assert await queue.claim("w", LONG) is None
    await queue.nack(given)
    await queue.publish("new", 1)
    assert await queue.line() == ["new", "given back"], "what happens now is claimable now"
    shorter = await queue.extend(held, 30)
    assert shorter.expires_at < held.expires_at
    await queue.ack(held)


async def test_a_leader_whose_clock_is_ahead_ends_leases_and_tokens_still_fence(queue: Queue, clock: Any) -> None:
    await queue.publish("g", 1)
    await queue.publish("g", 2)
    held = await queue.get("w", LONG)
    clock.off = 3600
    taken = await queue.get("another", LONG)
    assert (taken.event, taken.attempts) == (1, 2)
    for call in (lambda: queue.ack(held), lambda: queue.nack(held), lambda: queue.extend(held, LONG)):
        with pytest.raises(LeaseLost):
            await call()
    clock.off = 0
    assert await queue.claim("w", LONG) is None, "the lease is good until an hour from now"
    await queue.ack(taken)
    assert [event for _, event in await queue.drain()] == [2]
