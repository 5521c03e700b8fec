"""One operation is one POST to the leader. Publish and claim contain an id, so that they are not applied twice."""

from __future__ import annotations

import pytest

from fairlane import Message
from fairlane.contract import MAX_DELAY, MAX_VISIBILITY
from tests.backends.rqlite.conftest import posts
from tests.harness import LONG, Queue
from tests.harness.kits.rqlite import RqliteKit
from tests.harness.queues import in_thread
from tests.servers.rqlite import Cluster


async def test_a_cycle_of_claim_and_ack_is_two_posts(queue: Queue, cluster: Cluster) -> None:
    for number in range(5):
        await queue.publish("g", number)
    assert posts(cluster) == [(0, "/db/execute")] * 5
    cluster.forget_seen()
    for _ in range(5):
        await queue.ack(await queue.get())
    assert posts(cluster) == [(0, "/db/execute")] * 10


async def test_every_operation_is_one_post(queue: Queue, cluster: Cluster) -> None:
    await queue.publish("g", 1, 3, dedup_id="d")
    lease = await queue.get("w", LONG, 2)
    await queue.extend(lease, LONG)
    await queue.nack(lease, 60)
    await queue.claim("w", LONG)
    assert posts(cluster) == [(0, "/db/execute")] * 5
    cluster.forget_seen()
    await queue.status()
    await queue.groups()
    await queue.messages("g")
    assert posts(cluster) == [(0, "/db/query")] * 3


async def test_many_messages_are_one_post_with_one_clock(queue: Queue, cluster: Cluster) -> None:
    await queue.publish_many([Message(f"g{number}", number) for number in range(40)])
    one, *others = await queue.claim_many("w", LONG, 30)
    assert await queue.ack_many(others) == []
    assert await queue.ack_and_claim(one, "w", LONG)
    assert posts(cluster) == [(0, "/db/execute")] * 4
    assert [len(seen.statements) for seen in cluster.seen] == [41, 31, 30, 3]


async def test_followers_are_told_to_redirect_and_inspection_reads_what_is_committed(
    queue: Queue, cluster: Cluster
) -> None:
    await queue.publish("g", 1)
    await queue.groups()
    write, read = cluster.seen
    assert write.params == {"transaction": "", "redirect": ""}
    assert read.params == {"level": "strong", "redirect": ""}
    assert write.method == read.method == "POST"


async def test_the_leader_is_found_once_and_remembered(queue: Queue, cluster: Cluster) -> None:
    cluster.change_leader(2)
    for number in range(3):
        await queue.publish("g", number)
    assert posts(cluster) == [(0, "/db/execute")] + [(2, "/db/execute")] * 3
    assert [event for _, event in await queue.drain()] == [0, 1, 2]


async def test_what_one_caller_finds_out_counts_for_the_next(queue: Queue, cluster: Cluster) -> None:
    """The transport remembers the leader, not the single call."""
    cluster.change_leader(1)
    await queue.groups()
    cluster.forget_seen()
    await queue.publish("g", 1)
    assert posts(cluster) == [(1, "/db/execute")]


async def test_every_publish_has_a_dedup_id_and_shows_only_those_that_callers_gave(
    queue: Queue, cluster: Cluster
) -> None:
    await queue.publish("g", 1)
    await queue.publish("g", 2, dedup_id="mine")
    ids = [dict(seen.statements[-1].parameters)["p_dedup_id"] for seen in cluster.seen]
    assert all(ids)
    assert len(set(ids)) == 2
    assert [row.dedup_id for row in await queue.messages("g")] == [None, "mine"]


HEX = ["x'6869'", "X''", "x'00'", "x'6869", "tx'6869'", "'6869'", "''"]


@pytest.mark.parametrize("text", HEX)
async def test_texts_that_look_like_blobs_stay_texts(queue: Queue, text: str) -> None:
    """Guards against texts that rqlite stores as bytes: it stores a parameter such as x'6869' as the bytes of "hi"."""
    await queue.publish(text, text, dedup_id=text)
    assert await queue.publish("another", 1, dedup_id=text) == 1
    lease = await queue.get(text)
    assert (lease.group_id, lease.event) == (text, text)
    assert (await queue.groups())[0].worker_id == text
    assert [(row.group_id, row.dedup_id, row.event) for row in await queue.messages(text)] == [(text, text, text)]
    await queue.ack(lease)
    assert await queue.leftovers() == {}


async def test_seconds_are_floats_and_whole_numbers_exact(queue: Queue) -> None:
    """In JSON, rqlite writes 60.0 as 60. It writes integers of up to 64 bits exactly."""
    await queue.publish("g", 1)
    change = f"update \"{queue.name}_settings\" set value = {2**62} where name = 'last_seq'"
    assert isinstance(queue.kit, RqliteKit)
    await in_thread(queue.kit.send, queue.name, [(change, {})])
    seq = await queue.publish("g", 2)
    assert seq == 2**62 + 1
    await queue.ack(await queue.get())
    lease = await queue.get("w", MAX_VISIBILITY)
    assert lease.seq == seq
    await queue.nack(lease, MAX_DELAY)
    (group,) = await queue.groups()
    (message,) = await queue.messages("g")
    assert message.seq == seq
    seconds = [group.ready_in_seconds, group.oldest_seconds, message.age_seconds, (await queue.status()).oldest_seconds]
    assert [type(value) for value in seconds] == [float] * 4


async def test_within_one_tick_of_the_clock_groups_go_in_the_order_of_events(queue: Queue) -> None:
    """The clock of a statement moves in steps of 86 ms. All operations of this test happen within one step."""
    for name in "edcba":
        await queue.publish(name, 1)
        await queue.publish(name, 2)
    leases = {lease.group_id: lease for lease in [await queue.get() for _ in range(5)]}
    assert list(leases) == list("edcba")
    await queue.nack(leases["b"])
    await queue.ack(leases["d"])
    await queue.nack(leases["a"])
    await queue.ack(leases["e"])
    assert await queue.line() == list("bdae"), "a group given back is claimable at once, and the last of those that are"
