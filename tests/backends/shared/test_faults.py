"""The promise about lost answers, on libSQL and rqlite: every fault, in the middle of every operation.

There a request may be applied although its answer is lost. Whatever fails, no message is lost, doubled or moved. The
lease of another worker does not change. What the caller is told is true.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlane import BackendUnavailable, LeaseLost
from fairlane.backends.shared.retry import Unanswered
from fairlane.backends.shared.sent_twice import FINISHED
from tests.backends.shared.breakable import SLOW, Fault, faults, servers
from tests.harness import LONG, SHORT, Queue, eventually
from tests.harness.queues import in_thread
from tests.harness.scene import Scene

pytestmark = pytest.mark.promise(9)


async def break_it(scene: Scene, fault: Fault) -> Any:
    """Arrange the fault for the next write, and return the moment when its effects are over."""
    await in_thread(fault.happen, scene.server)
    return asyncio.get_running_loop().time() + (SLOW + 0.3 if fault.kind == "late" else 0.0)


async def until(moment: Any) -> None:
    await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))


@faults()
async def test_a_publish_stores_one_message(scene: Scene, fault: Fault) -> None:
    over = await break_it(scene, fault)
    seq = await scene.queue.publish("g", "D")
    assert scene.server.pending == 0
    await scene.queue.publish("g", "E")
    await until(over)
    assert [row.seq for row in await scene.queue.messages("g") if row.event == "D"] == [seq]
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABCDE")


@faults()
async def test_a_publish_with_a_known_dedup_id_stores_nothing(scene: Scene, fault: Fault) -> None:
    first = await scene.queue.publish("g", "D", dedup_id="d")
    over = await break_it(scene, fault)
    assert await scene.queue.publish("other", "again", dedup_id="d") == first
    await until(over)
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABCD")


@faults()
async def test_a_claim_makes_one_lease(scene: Scene, fault: Fault) -> None:
    await scene.queue.publish("free", 1)
    over = await break_it(scene, fault)
    lease = await scene.queue.get("me", LONG)
    assert scene.server.pending == 0
    assert (lease.group_id, lease.attempts) == ("free", 1)
    await until(over)
    held = {row.group_id: row.attempts for row in await scene.queue.groups() if row.state == "in_flight"}
    assert held == {"g": 1, "other": 1, "free": 1}, "one claim leased more than one message"
    await scene.queue.ack(lease)
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABC")


@faults()
async def test_a_claim_of_the_last_free_group_does_not_return_none(scene: Scene, fault: Fault) -> None:
    """The first try made the lease. The second try must find this lease, and must not return `None`."""
    await scene.queue.nack(scene.mine)
    over = await break_it(scene, fault)
    lease = await scene.queue.get("me", LONG)
    await until(over)
    assert (lease.event, lease.attempts) == ("A", 2)
    assert await scene.queue.claim("me", LONG) is None
    await scene.queue.extend(lease, LONG)
    await scene.queue.ack(lease)
    await scene.assert_rest("BC")


@faults()
async def test_a_claim_returns_none_when_nothing_is_claimable(scene: Scene, fault: Fault) -> None:
    over = await break_it(scene, fault)
    assert await scene.queue.claim("me", LONG) is None
    await until(over)
    await scene.queue.ack(scene.mine)
    await scene.assert_rest("BC")


@faults()
async def test_an_extend_returns_the_true_end_of_the_lease(scene: Scene, fault: Fault) -> None:
    """The end of the lease counts from the last time when the extend was carried out. The answer contains it."""
    over = await break_it(scene, fault)
    longer = await scene.queue.extend(scene.mine, 2 * LONG)
    assert scene.server.pending == 0
    assert longer.token == scene.mine.token
    assert 50 < (longer.expires_at - scene.mine.expires_at).total_seconds() < 75
    await until(over)
    (row,) = [row for row in await scene.queue.groups() if row.group_id == "g"]
    assert row.ready_in_seconds > LONG
    await scene.queue.ack(longer)
    await scene.assert_rest("BC")


FENCED: dict[str, tuple[Callable[..., Awaitable[None]], str]] = {
    "ack": (lambda queue, lease: queue.ack(lease), "BC"),
    "nack": (lambda queue, lease: queue.nack(lease), "ABC"),
    "park": (lambda queue, lease: queue.nack(lease, SHORT), "ABC"),
}
fenced = pytest.mark.parametrize("operation", FENCED)


async def finished(scene: Scene, operation: Any, rest: Any) -> None:
    """Wait until group `g` is claimable again, and compare the remaining messages."""
    if operation == "park":
        await scene.queue.unparked("g")
    await scene.assert_rest(rest)


@fenced
@faults("certain")
async def test_ack_and_nack_are_sent_again_if_they_were_certainly_not_applied(
    scene: Scene, fault: Fault, operation: Any
) -> None:
    call, rest = FENCED[operation]
    await break_it(scene, fault)
    await call(scene.queue, scene.mine)
    assert scene.server.pending == 0
    await finished(scene, operation, rest)


@fenced
@faults("applied")
async def test_ack_and_nack_are_not_sent_again_if_they_may_have_been_applied(
    scene: Scene, fault: Fault, operation: Any
) -> None:
    call, rest = FENCED[operation]
    await break_it(scene, fault)
    before = scene.server.sent
    with pytest.raises(BackendUnavailable, match="not known"):
        await call(scene.queue, scene.mine)
    assert scene.server.sent == before + 1
    with pytest.raises(LeaseLost):  # which means "done or lost"; here it was done
        await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@fenced
@faults("not applied")
async def test_ack_and_nack_may_be_repeated_by_the_caller(scene: Scene, fault: Fault, operation: Any) -> None:
    call, rest = FENCED[operation]
    await break_it(scene, fault)
    with pytest.raises(BackendUnavailable, match="not known"):
        await call(scene.queue, scene.mine)
    (row,) = [row for row in await scene.queue.groups() if row.group_id == "g"]
    assert (row.state, row.worker_id) == ("in_flight", "me"), "it was sent a second time"
    await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@fenced
@faults("twice")
async def test_ack_and_nack_applied_twice_say_lost_and_are_done_once(
    scene: Scene, fault: Fault, operation: Any
) -> None:
    call, rest = FENCED[operation]
    await break_it(scene, fault)
    with pytest.raises(LeaseLost):
        await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@fenced
@faults("late")
async def test_ack_and_nack_that_arrive_late_never_touch_the_next_lease(
    scene: Scene, fault: Fault, operation: Any
) -> None:
    """When the request is applied, the lease has expired and another worker has claimed the message."""
    call, _ = FENCED[operation]
    other = await scene.queue.another()
    await scene.queue.extend(scene.mine, SHORT)
    over = await break_it(scene, fault)
    late = asyncio.ensure_future(call(scene.queue, scene.mine))
    await eventually(lambda: not scene.server.pending)
    holder = await eventually(lambda: other.claim("somebody else", LONG))
    assert (holder.event, holder.attempts) == ("A", 2)
    with pytest.raises(BackendUnavailable, match="not known"):
        await late
    await until(over)
    with pytest.raises(LeaseLost):
        await call(scene.queue, scene.mine)
    await scene.queue.ack(holder)
    await scene.assert_rest("BC")


@faults("late")
async def test_a_claim_that_arrives_after_its_message_was_acked_makes_a_lease_that_expires(
    scene: Scene, fault: Fault
) -> None:
    """The late claim leases the next message. That lease expires like any other, and no message is skipped."""
    await scene.queue.nack(scene.mine)
    over = await break_it(scene, fault)
    lease = await scene.queue.get("me", 0.5)
    await scene.queue.ack(lease)
    await until(over)
    with pytest.raises(LeaseLost):
        await scene.queue.ack(lease)
    ghost = await eventually(lambda: scene.queue.claim("me", LONG))
    assert ghost.event == "B"
    await scene.queue.ack(ghost)
    await scene.assert_rest("C")


@pytest.mark.parametrize("dedup_id", [None, "of-the-callers-own"])
@pytest.mark.parametrize("refilled", [False, True])
@servers()
async def test_a_publish_repeated_after_its_message_was_finished_adds_nothing(
    queue: Queue, server: Any, dedup_id: Any, refilled: Any
) -> None:
    """The second try comes late: the message was claimed and acked, and another one may already have the same id."""
    program = queue.transport._operations.core.publish("g", '"A"', 0, dedup_id)
    first = next(program)
    server.lose_answers()
    with pytest.raises(Unanswered) as lost:
        await queue.call(queue.transport._executor.execute, first)
    assert [event for _, event in await queue.drain()] == ["A"]
    if refilled:
        assert await queue.publish("g", "B", dedup_id=dedup_id) == 2
    again = program.throw(lost.value)
    if again is not first:  # it is a request to pause
        assert again.seconds < 1
        again = program.send(None)
    assert again is first
    question = program.send(await queue.call(queue.transport._executor.execute, again))
    assert question.operation is FINISHED
    with pytest.raises(StopIteration) as done:
        program.send(await queue.call(queue.transport._executor.execute, question))
    assert done.value.value == 1
    assert [event for _, event in await queue.drain()] == ["B"] * refilled


@servers()
async def test_operations_succeed_after_many_lost_answers_and_refusals_within_the_deadline(scene: Scene) -> None:
    scene.server.lose_answers(4)
    await scene.queue.publish("g", "D")
    scene.server.lose_answers(4)
    await scene.queue.extend(scene.mine, LONG)
    scene.server.refuse(6)
    await scene.queue.nack(scene.mine)
    assert scene.server.pending == 0
    await scene.assert_rest("ABCD")


@servers()
async def test_the_error_at_the_deadline_says_whether_the_outcome_is_known(queues: Any, scene: Scene) -> None:
    """One answer is lost, and then requests are only refused. The error must not say that nothing was changed."""
    hasty = await queues.open(scene.queue.name, url=scene.server.url, retry_seconds=0.5)
    scene.server.lose_answers()
    scene.server.refuse(1000)
    with pytest.raises(BackendUnavailable, match=rf"{scene.server.refusal}.*not known"):
        await hasty.publish("g", "D")
    scene.server.clear()
    scene.server.refuse(1000)
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match=rf"{scene.server.refusal}.*nothing was changed"):
        await hasty.ack(scene.mine)
    assert 0.4 < time.monotonic() - began < 3
    scene.server.clear()
    await hasty.ack(scene.mine)
    await scene.assert_rest("BCD")
