"""Replicas: a failover may lose changes, but with `wait_replicas` none that was confirmed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from fairlane.errors import BackendUnavailable
from tests.backends.redis.servers import TWINS, connect, private
from tests.harness import Queues
from tests.servers.redis import Redis

NOON = datetime(2027, 1, 15, 8, tzinfo=UTC)
Pair = tuple[Redis, Redis]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A primary with a migrated queue `jobs`, and its replica, which has caught up."""
    with private() as primary, private("--replicaof", "127.0.0.1", str(primary.port)) as replica:
        migrate.upgrade(primary.url, queue="jobs")
        with connect(replica.url) as client:
            wait_for(lambda: client.exists("{jobs}:meta") and client.info("replication")["master_link_status"] == "up")
        yield primary, replica


def wait_for(is_so: Any) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("twin", TWINS)
async def test_a_change_is_on_a_replica_when_the_call_returns(pair: Pair, queues: Queues) -> None:
    primary, replica = pair
    queue = await queues.open("jobs", url=primary.url, wait_replicas=1)
    with connect(replica.url) as client:
        for number in range(50):
            await queue.publish("g", number)
            assert client.hlen("{jobs}:events") == number + 1
        for number in range(50):
            await queue.ack(await queue.get())
            assert client.hlen("{jobs}:events") == 49 - number
        await queue.publish_many([fairlane.Message(f"g{number}", number) for number in range(50)])
        assert client.hlen("{jobs}:events") == 50
        leases = await queue.claim_many("w", 30, 50)
        assert await queue.ack_many(leases[1:]) == []
        assert client.hlen("{jobs}:events") == 1
        assert await queue.ack_and_claim(leases[0], "w", 30) is None
        assert client.hlen("{jobs}:events") == 0
    assert await queue.claim("w", 30) is None
    with pytest.raises(fairlane.LeaseLost):
        await queue.ack(fairlane.Lease("g", 1, 1, "t", 1, NOON, NOON))


@pytest.mark.parametrize("twin", TWINS)
async def test_a_replica_that_is_gone_is_an_error_that_says_what_was_done(pair: Pair, queues: Queues) -> None:
    primary, replica = pair
    queue = await queues.open("jobs", url=primary.url, wait_replicas=1)
    await queue.publish("g", 1)
    replica.kill()
    with pytest.raises(BackendUnavailable, match=r"carried out on the primary, but 0 of 1 replicas"):
        await queue.publish("g", 2)
    assert (await queue.status()).messages == 2


@pytest.mark.parametrize("twin", TWINS)
async def test_batches_need_a_replica_only_if_they_have_changed_something(pair: Pair, queues: Queues) -> None:
    """Guards against an ack that is taken for confirmed, since nothing was claimed with it."""
    primary, replica = pair
    queue = await queues.open("jobs", url=primary.url, wait_replicas=1)
    await queue.publish("g", 1)
    lease = await queue.get()
    replica.kill()
    assert await queue.claim_many("w", 30, 10) == []
    for call in (queue.ack_and_claim(lease, "w", 30), queue.publish_many([fairlane.Message("g", 2)])):
        with pytest.raises(BackendUnavailable, match=r"carried out on the primary, but 0 of 1 replicas"):
            await call
    assert [message.event for message in await queue.messages("g")] == [2]


def failover(pair: Pair, wait_replicas: int) -> int:
    """Make the replica the primary while four threads publish; return how many confirmed publishes are lost.

    Meanwhile the old primary is frozen. Afterwards it continues, and becomes a replica of the new primary.
    """
    primary, replica = pair
    confirmed: list[int] = []
    failures: list[Exception] = []
    stop = threading.Event()

    def work(number: int) -> None:
        with fairlane.connect(primary.url, "jobs", wait_replicas=wait_replicas, timeout=5) as queue:
            turn = 0
            while not stop.is_set():
                turn += 1
                event = number * 1_000_000 + turn
                try:
                    queue.publish(f"g{number}", event)
                    confirmed.append(event)
                except BackendUnavailable:
                    time.sleep(0.01)
                except Exception as error:
                    failures.append(error)
                    return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    wait_for(lambda: len(confirmed) > 200)
    (pid,) = primary.pids
    os.kill(pid, signal.SIGSTOP)
    try:
        with connect(replica.url) as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
    finally:
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.1)  # for this time the old primary does not know that there is a new one
    with connect(primary.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", replica.port)
    stop.set()
    for each in threads:
        each.join()
    assert failures == []
    with connect(replica.url) as client:
        kept = {int(event) for event in client.hvals("{jobs}:events")}
    return len(set(confirmed) - kept)


def test_a_primary_that_comes_back_from_a_freeze_loses_nothing_that_was_confirmed(pair: Pair) -> None:
    assert failover(pair, wait_replicas=1) == 0
