"""The promise about lost answers for many messages at once, on libSQL and rqlite."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import BackendUnavailable, LeaseLost, Message
from fairlane.backends.shared.family_batches import FINISHED_MANY
from fairlane.backends.shared.retry import Unanswered
from tests.backends.shared.breakable import Fault, faults, servers
from tests.backends.shared.test_faults import break_it, until
from tests.harness import LONG, Queue
from tests.harness.scene import Scene

pytestmark = pytest.mark.promise(9)


@faults()
async def test_a_batch_of_messages_is_stored_once(scene: Scene, fault: Fault) -> None:
    over = await break_it(scene, fault)
    seqs = await scene.queue.publish_many([Message("g", event, dedup_id=event) for event in "DEED"])
    assert scene.server.pending == 0
    await until(over)
    d, e = (row.seq for row in await scene.queue.messages("g") if row.event in "DE")
    assert seqs == [d, e, e, d]
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABCDE")


@faults()
async def test_a_batch_of_claims_makes_one_lease_for_each(scene: Scene, fault: Fault) -> None:
    await scene.queue.publish_many([Message(f"free {number}", number) for number in range(4)])
    over = await break_it(scene, fault)
    leases = await scene.queue.claim_many("me", LONG, 3)
    assert scene.server.pending == 0
    assert [lease.attempts for lease in leases] == [1, 1, 1]
    await until(over)
    rows = await scene.queue.groups()
    assert sum(row.state == "in_flight" for row in rows) == 5, "the claims leased more than they returned"
    assert await scene.queue.ack_many(leases) == []
    await scene.queue.ack(await scene.queue.get("me", LONG))
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABC")


CALLS: dict[str, Any] = {
    "ack_many": lambda queue, lease: queue.ack_many([lease]),
    "ack_and_claim": lambda queue, lease: queue.ack_and_claim(lease, "me", LONG),
}
calls = pytest.mark.parametrize("name", CALLS)


@calls
@faults("certain")
async def test_acks_of_a_batch_are_sent_again_if_they_were_certainly_not_applied(
    scene: Scene, fault: Fault, name: str
) -> None:
    await break_it(scene, fault)
    answer = await CALLS[name](scene.queue, scene.mine)
    assert scene.server.pending == 0
    if name == "ack_and_claim":
        assert answer.event == "B"
        await scene.queue.nack(answer)
    await scene.assert_rest("BC")


@calls
@faults("applied")
async def test_acks_of_a_batch_are_not_sent_again_if_they_may_have_been_applied(
    scene: Scene, fault: Fault, name: str
) -> None:
    await break_it(scene, fault)
    before = scene.server.sent
    with pytest.raises(BackendUnavailable, match="not known"):
        await CALLS[name](scene.queue, scene.mine)
    assert scene.server.sent == before + 1
    assert await scene.queue.ack_many([scene.mine]) == [scene.mine]
    await asyncio.sleep(0)
    (row,) = [row for row in await scene.queue.groups() if row.group_id == "g"]
    assert row.depth == 2
    assert row.state == ("ready" if name == "ack_many" else "in_flight")


@faults("twice")
async def test_an_ack_and_claim_applied_twice_leases_one_message(scene: Scene, fault: Fault) -> None:
    await scene.queue.publish("free", 1)
    await break_it(scene, fault)
    with pytest.raises(LeaseLost):
        await scene.queue.ack_and_claim(scene.mine, "me", LONG)
    rows = {row.group_id: row.state for row in await scene.queue.groups()}
    assert sorted(rows.values()) == ["in_flight", "in_flight", "ready"]


@servers()
async def test_a_batch_repeated_after_its_messages_were_finished_adds_nothing(queue: Queue, server: Any) -> None:
    """The second try comes late: two of three messages were acked. One of these is in the batch twice."""
    drafts = [("g", '"A"', 0, "a"), ("g", '"A"', 0, "a"), ("g", '"B"', 0, None), ("h", '"C"', 0, None)]
    program = queue.transport._operations.core.publish_many(drafts)
    execute = queue.transport._executor.execute
    first = next(program)
    server.lose_answers()
    with pytest.raises(Unanswered) as lost:
        await queue.call(execute, first)
    for group in "gg":
        lease = await queue.get("w", LONG)
        if lease.group_id != group:
            other, lease = lease, await queue.get("w", LONG)
            await queue.nack(other)
        await queue.ack(lease)
    again = program.throw(lost.value)
    if again is not first:  # it is a request to pause
        again = program.send(None)
    assert again is first
    question = program.send(await queue.call(execute, again))
    assert question.operation is FINISHED_MANY
    with pytest.raises(StopIteration) as done:
        program.send(await queue.call(execute, question))
    assert done.value.value == [1, 1, 2, 3]
    assert await queue.drain() == [("h", "C")]
