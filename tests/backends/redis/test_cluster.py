"""Transports follow their queue while the nodes and slots of a cluster change."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio

import fairlane
from fairlane import migrate
from fairlane.backends.redis.wire import keys_of
from fairlane.errors import BackendUnavailable, ConfigurationError, SchemaNotReady
from tests.backends.redis.servers import TWINS, connect, primaries, private
from tests.conftest import require_server
from tests.harness import Queue, Queues
from tests.servers.redis import Redis
from tests.servers.redis_cluster import RedisCluster

QUEUE = "jobs"
KEY = f"{{{QUEUE}}}:meta"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    require_server(None if RedisCluster.find() else RedisCluster.hint)
    with RedisCluster(*RedisCluster.keeps_data) as made:
        yield made


@pytest.fixture
def url(cluster: RedisCluster) -> Iterator[str]:
    migrate.upgrade(cluster.url, queue=QUEUE)
    yield cluster.url
    migrate.downgrade(cluster.url, queue=QUEUE, revision="base")


@pytest.fixture(params=["url", "client"])
async def queue(request: pytest.FixtureRequest, queues: Queues, url: str) -> Queue:
    """A queue on a URL, or on a cluster client of the application. That client repeats failed commands."""
    if request.param == "url":
        return await queues.open(QUEUE, url=url)
    host, _, port = url.removeprefix("redis+cluster://").partition(":")
    kind: Any = redis.RedisCluster if queues.twin == "sync" else redis.asyncio.RedisCluster
    client = kind(host=host, port=int(port), decode_responses=True)
    queues.afterwards(client.close if queues.twin == "sync" else client.aclose)
    return queues.over(QUEUE, client)


def move_slot(client: Any, pause: float = 0.0) -> None:
    """Move the queue's slot to another node, in the same steps as redis-cli, with `pause` seconds for each key."""
    slot = client.keyslot(KEY)
    source = client.get_node_from_key(KEY)
    target = next(node for node in client.get_primaries() if node.name != source.name)
    old, new = client.get_redis_connection(source), client.get_redis_connection(target)
    old_id, new_id = (node.execute_command("CLUSTER MYID").decode() for node in (old, new))
    new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", old_id)
    old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", new_id)
    for key in keys_of(QUEUE):
        old.execute_command("MIGRATE", target.host, target.port, key, 0, 5000)
        time.sleep(pause)
    for node in primaries(client):
        node.execute_command("CLUSTER SETSLOT", slot, "NODE", new_id)


@pytest.mark.parametrize("twin", TWINS)
async def test_a_queue_that_moves_to_another_node_is_followed(queue: Queue, url: str) -> None:
    await queue.publish("g", {"n": "é"})
    lease = await queue.get("w", 30)
    for _ in range(2):
        with connect(url) as client:
            move_slot(client)
        lease = await queue.extend(lease, 60)
    assert lease.event == {"n": "é"}
    await queue.ack(lease)
    assert (await queue.status()).messages == 0


@pytest.mark.parametrize("twin", TWINS)
async def test_calls_wait_for_a_queue_that_is_being_moved(queue: Queue, url: str) -> None:
    """While the keys are on two nodes, neither can serve the queue. Guards against errors during the whole move."""
    moving = threading.Event()

    def move() -> None:
        for _ in range(2):
            with connect(url) as client:
                moving.set()
                move_slot(client, pause=0.05)

    mover = asyncio.ensure_future(asyncio.to_thread(move))
    await asyncio.to_thread(moving.wait)
    published = 0
    while not mover.done() or published < 10:
        published += 1
        await queue.publish("g", published)
    await mover
    for number in range(1, published + 1):
        lease = await queue.get("w", 30)
        assert lease.event == number
        await queue.ack(lease)


@pytest.mark.parametrize("twin", TWINS)
async def test_a_primary_without_the_functions_is_named(queues: Queues, url: str) -> None:
    """As after a node was added: it has the queue's slot, but not the functions."""
    queue = await queues.open(QUEUE, url=url)
    await queue.publish("g", 1)
    with connect(url) as client:
        node = client.get_node_from_key(KEY)
        client.get_redis_connection(node).function_delete(f"fairlane_{QUEUE}")
        with pytest.raises(SchemaNotReady, match=rf"not there on .*{node.port}.*run `fairlane migrate") as caught:
            await queue.publish("g", 2)
        assert caught.value.host == f"127.0.0.1:{node.port}"
        with pytest.raises(SchemaNotReady, match=rf"on .*{node.port}"):
            await queues.open(QUEUE, url=url)
    migrate.upgrade(url, queue=QUEUE)
    await queue.publish("g", 2)


@pytest.mark.parametrize("twin", TWINS)
async def test_connections_that_break_all_the_time_are_typed_errors(queue: Queue, url: str) -> None:
    """Guards against untranslated errors, such as an AttributeError from a connection that was just closed."""
    deadline = time.monotonic() + 4
    done = failed = 0

    async def work(number: int) -> None:
        nonlocal done, failed
        while time.monotonic() < deadline:
            try:
                await queue.publish(f"g{number}", done)
                done += 1
            except BackendUnavailable:
                failed += 1

    def kill() -> None:
        with connect(url) as client:
            nodes = primaries(client)
            while time.monotonic() < deadline:
                for node in nodes:
                    node.client_kill_filter(_type="normal", skipme=True)
                time.sleep(0.02)

    await asyncio.gather(asyncio.to_thread(kill), *(work(number) for number in range(4)))
    assert done
    await asyncio.sleep(0.05)  # a connection that was used just now is not checked, and it may be closed by now
    assert (await queue.status()).messages >= done


def test_a_server_that_is_no_cluster_is_a_configuration_error() -> None:
    with private() as server, pytest.raises(ConfigurationError, match="redis://"):
        fairlane.connect(server.url.replace("redis://", "redis+cluster://").removesuffix("/0"), queue=QUEUE)


@pytest.mark.parametrize("operation", ["ack", "publish"])
@pytest.mark.parametrize("twin", TWINS)
async def test_a_broken_call_is_not_repeated(queue: Queue, url: str, operation: str) -> None:
    await queue.publish("g", 1)
    lease = await queue.get("w", 30)
    arguments = (lease,) if operation == "ack" else ("g2", 2)
    with connect(url) as client:
        node = client.get_redis_connection(client.get_node_from_key(KEY))
        node.client_pause(5000, all=False)
        call = asyncio.ensure_future(getattr(queue, operation)(*arguments))
        await asyncio.sleep(0.3)
        node.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(BackendUnavailable):
            await call
        node.client_unpause()
        await asyncio.sleep(0.1)
        # the connection was killed while the call waited for the end of the pause; a repeated call would succeed now
        assert (await queue.status()).messages == 1
        if operation == "ack":
            await queue.ack(lease)


@pytest.mark.parametrize("twin", TWINS)
async def test_a_cluster_that_was_restarted_is_found_again(queue: Queue, cluster: RedisCluster, url: str) -> None:
    await queue.publish("g", 1)
    lease = await queue.get("w", 30)
    cluster.kill()
    with pytest.raises(BackendUnavailable):
        await queue.ack(lease)
    await asyncio.to_thread(cluster.start)
    errors = 0
    while True:
        try:
            await queue.ack(lease)
            break
        except BackendUnavailable:  # CLUSTERDOWN until the nodes agree
            errors += 1
            assert errors < 100
            await asyncio.sleep(0.1)
    assert (await queue.status()).messages == 0


def test_every_primary_has_the_functions(url: str) -> None:
    with connect(url) as client:
        for node in primaries(client):
            assert node.function_list(library=f"fairlane_{QUEUE}")


def test_a_primary_without_the_functions_gets_them_from_an_upgrade(url: str) -> None:
    with connect(url) as client:
        for node in primaries(client):
            node.function_delete(f"fairlane_{QUEUE}")
            migrate.upgrade(url, queue=QUEUE)
            assert node.function_list(library=f"fairlane_{QUEUE}")


def test_one_node_alone_is_a_configuration_error_that_says_what_to_do(url: str) -> None:
    with connect(url) as client:
        others = [node for node in client.get_primaries() if node.name != client.get_node_from_key(KEY).name]
    with pytest.raises(ConfigurationError, match=r"redis\+cluster://"):
        fairlane.connect(f"redis://{others[0].name}", queue=QUEUE)
    with pytest.raises(ConfigurationError, match=r"redis\+cluster://"):
        migrate.upgrade(f"redis://{others[0].name}", queue=QUEUE)


@contextmanager
def frozen(node: Redis) -> Iterator[None]:
    """Stop a node: it accepts connections, but does not answer."""
    for pid in node.pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in node.pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("twin", TWINS)
async def test_a_silent_node_leaves_time_for_the_others(queues: Queues, cluster: RedisCluster, url: str) -> None:
    """Guards against workers that cannot start while one node hangs, although their queue is on another node."""
    with connect(url) as client:
        port = client.get_node_from_key(KEY).port
    silent = next(node for node in cluster.nodes if node.port != port)
    nodes = ",".join(f"127.0.0.1:{node.port}" for node in sorted(cluster.nodes, key=lambda node: node is not silent))
    with frozen(silent):
        queue = await queues.open(QUEUE, url=f"redis+cluster://{nodes}?timeout=3", startup_timeout=0)
        assert await queue.publish("g", 1) == 1


@pytest.mark.parametrize("twin", TWINS)
async def test_no_cluster_is_one_typed_error(queues: Queues) -> None:
    with pytest.raises(BackendUnavailable) as caught:
        await queues.open(QUEUE, url="redis+cluster://:s3cret@127.0.0.1:1,127.0.0.1:2", startup_timeout=0)
    assert "127.0.0.1:1" in str(caught.value)
    assert "s3cret" not in f"{caught.value}{caught.value!r}{caught.value.__cause__!r}"
