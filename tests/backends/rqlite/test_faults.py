"""Promise 9 on rqlite: every fault, in the middle of every operation, for both twins.

Whatever happens on the way, no message is lost, doubled or moved, no lease of anybody else is touched, and what the
caller is told is true.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import BackendUnavailable, LeaseLost
from fairlane.backends.rqlite.wire import Undelivered
from fairlane.backends.shared.sqlite_statements import FINISHED
from fairlane.backends.stored import PUBLISH, Call
from tests.harness import LONG, SHORT, Queue, Queues, eventually
from tests.harness.queues import in_thread
from tests.harness.scene import Scene

pytestmark = pytest.mark.promise(9)

TIMEOUT = 2.0
SLOW = TIMEOUT + 0.6

# What is certain: the request was not applied, so the transport sends it again by itself.
CERTAIN = {
    "another leader": lambda cluster: cluster.change_leader(2),
    "no leader for a moment": lambda cluster: cluster.lose_leader(0.3),
    "the leader is down": lambda cluster: cluster.stop_node(cluster.leader),
    "a follower is down": lambda cluster: cluster.stop_node(2),
    "the next leader's predecessor is down": lambda cluster: (cluster.change_leader(1), cluster.stop_node(0)),
}
# What is not: the request may have been applied. In these cases it was, ...
APPLIED = {
    "the answer is lost": lambda cluster: cluster.faults.drop_answers(1, endpoint="execute"),
    "the leadership is lost, yet it is written": lambda cluster: cluster.faults.raft_error(1, applied=True),
    "the answer comes too late": lambda cluster: cluster.faults.slow(SLOW, 1, after=True, endpoint="execute"),
}
# ... and in these not.
NOT_APPLIED = {
    "the connection breaks first": lambda cluster: cluster.faults.refuse(1, endpoint="execute"),
    "the leadership is lost, and nothing is written": lambda cluster: cluster.faults.raft_error(1),
    "a proxy's 502": lambda cluster: cluster.faults.reply(502, "bad gateway", endpoint="execute"),
    "a proxy's 503": lambda cluster: cluster.faults.reply(503, "upstream gone", endpoint="execute"),
    "an error of the node": lambda cluster: cluster.faults.reply(500, "oops", endpoint="execute"),
}
# It is applied when nobody waits for it any more.
LATE = {"it arrives late": lambda cluster: cluster.faults.slow(SLOW, 1, endpoint="execute")}
TWICE = {"it is applied twice": lambda cluster: cluster.faults.apply_twice(1, endpoint="execute")}

ALL = CERTAIN | APPLIED | NOT_APPLIED | LATE | TWICE
every_fault = pytest.mark.parametrize("fault", ALL)


@pytest.fixture
async def scene(queues: Queues, cluster: Any) -> Any:
    queue = await queues.make(timeout=TIMEOUT)
    return await Scene(queue, cluster).build()


async def break_it(scene: Any, fault: Any) -> Any:
    """Arrange the fault for the next write, and get the moment when it must be over."""
    await in_thread(ALL[fault], scene.server)
    return asyncio.get_running_loop().time() + (SLOW + 0.3 if fault in LATE else 0.0)


async def until(moment: Any) -> None:
    await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))


@every_fault
async def test_publish(scene: Any, fault: Any) -> None:
    over = await break_it(scene, fault)
    seq = await scene.queue.publish("g", "D")
    assert scene.server.faults.pending == 0
    await scene.queue.publish("g", "E")
    await until(over)
    assert [row.seq for row in await scene.queue.messages("g") if row.event == "D"] == [seq]
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABCDE")


@every_fault
async def test_publish_with_a_dedup_id_of_the_callers_own(scene: Any, fault: Any) -> None:
    first = await scene.queue.publish("g", "D", dedup_id="d")
    over = await break_it(scene, fault)
    assert await scene.queue.publish("other", "again", dedup_id="d") == first
    await until(over)
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABCD")


@every_fault
async def test_claim(scene: Any, fault: Any) -> None:
    await scene.queue.publish("free", 1)
    over = await break_it(scene, fault)
    lease = await scene.queue.get("me", LONG)
    assert scene.server.faults.pending == 0
    assert (lease.group_id, lease.attempts) == ("free", 1)
    await until(over)
    held = {row.group_id: row.attempts for row in await scene.queue.groups() if row.state == "in_flight"}
    assert held == {"g": 1, "other": 1, "free": 1}, "one claim leased more than one message"
    await scene.queue.ack(lease)
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABC")


@every_fault
async def test_claim_of_the_last_free_group_is_no_false_none(scene: Any, fault: Any) -> None:
    """Applied once, its second try must find its own lease, and not say that nothing is left."""
    await scene.queue.nack(scene.mine)
    over = await break_it(scene, fault)
    lease = await scene.queue.get("me", LONG)
    await until(over)
    assert (lease.event, lease.attempts) == ("A", 2)
    assert await scene.queue.claim("me", LONG) is None
    await scene.queue.extend(lease, LONG)
    await scene.queue.ack(lease)
    await scene.assert_rest("BC")


@every_fault
async def test_claim_of_nothing(scene: Any, fault: Any) -> None:
    over = await break_it(scene, fault)
    assert await scene.queue.claim("me", LONG) is None
    await until(over)
    await scene.queue.ack(scene.mine)
    await scene.assert_rest("BC")


@every_fault
async def test_extend(scene: Any, fault: Any) -> None:
    over = await break_it(scene, fault)
    longer = await scene.queue.extend(scene.mine, 2 * LONG)
    assert scene.server.faults.pending == 0
    assert longer.token == scene.mine.token
    assert 50 < (longer.expires_at - scene.mine.expires_at).total_seconds() < 75
    await until(over)
    (row,) = [row for row in await scene.queue.groups() if row.group_id == "g"]
    assert row.ready_in_seconds > LONG
    await scene.queue.ack(longer)
    await scene.assert_rest("BC")


FENCED = {
    "ack": (lambda queue, lease: queue.ack(lease), "BC"),
    "nack": (lambda queue, lease: queue.nack(lease), "ABC"),
    "park": (lambda queue, lease: queue.nack(lease, SHORT), "ABC"),
}
fenced = pytest.mark.parametrize("operation", FENCED)


async def finished(scene: Any, operation: Any, rest: Any) -> None:
    """Wait until `g` is claimable again, and compare."""
    if operation == "park":
        await scene.queue.unparked("g")
    await scene.assert_rest(rest)


@fenced
@pytest.mark.parametrize("fault", CERTAIN)
async def test_ack_and_nack_survive_what_is_certain(scene: Any, fault: Any, operation: Any) -> None:
    call, rest = FENCED[operation]
    await break_it(scene, fault)
    await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@fenced
@pytest.mark.parametrize("fault", APPLIED)
async def test_ack_and_nack_are_not_sent_again_if_they_may_have_been_applied(
    scene: Any, fault: Any, operation: Any
) -> None:
    call, rest = FENCED[operation]
    await break_it(scene, fault)
    before = len(scene.server.seen)
    with pytest.raises(BackendUnavailable, match="not known"):
        await call(scene.queue, scene.mine)
    assert len(scene.server.seen) == before + 1
    with pytest.raises(LeaseLost):  # done or lost; here: done
        await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@fenced
@pytest.mark.parametrize("fault", NOT_APPLIED)
async def test_ack_and_nack_may_be_repeated_by_the_caller(scene: Any, fault: Any, operation: Any) -> None:
    call, rest = FENCED[operation]
    await break_it(scene, fault)
    with pytest.raises(BackendUnavailable, match="not known"):
        await call(scene.queue, scene.mine)
    (row,) = [row for row in await scene.queue.groups() if row.group_id == "g"]
    assert (row.state, row.worker_id) == ("in_flight", "me"), "it was sent a second time"
    await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@fenced
async def test_ack_and_nack_applied_twice_say_lost_and_are_done_once(scene: Any, operation: Any) -> None:
    call, rest = FENCED[operation]
    await break_it(scene, *TWICE)
    with pytest.raises(LeaseLost):
        await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@fenced
async def test_ack_and_nack_that_arrive_late_never_touch_the_next_lease(scene: Any, operation: Any) -> None:
    """The lease has run out and the message is somebody else's by the time that the request is applied."""
    call, _ = FENCED[operation]
    await scene.queue.extend(scene.mine, SHORT)
    over = await break_it(scene, *LATE)
    late = asyncio.ensure_future(call(scene.queue, scene.mine))
    await asyncio.sleep(0.1)
    holder = await eventually(lambda: scene.queue.claim("somebody else", LONG))
    assert (holder.event, holder.attempts) == ("A", 2)
    with pytest.raises(BackendUnavailable, match="not known"):
        await late
    await until(over)
    with pytest.raises(LeaseLost):
        await call(scene.queue, scene.mine)
    await scene.queue.ack(holder)
    await scene.assert_rest("BC")


async def test_a_claim_that_arrives_after_its_message_was_acked_is_a_lease_that_nobody_holds(scene: Any) -> None:
    """It comes back by itself, like any lease that nobody received; nothing is skipped."""
    await scene.queue.nack(scene.mine)
    over = await break_it(scene, *LATE)
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
async def test_a_publish_repeated_after_its_message_was_finished_adds_nothing(
    queue: Queue, cluster: Any, dedup_id: Any, refilled: Any
) -> None:
    """The second try comes late: the message was claimed and acked, and perhaps the id is in use again."""
    program = queue.transport._operations.core.publish("g", '"A"', 0, dedup_id)
    first = next(program)
    cluster.faults.drop_answers(1)
    with pytest.raises(Undelivered) as lost:
        await queue.call(queue.transport._executor.execute, first)
    assert [event for _, event in await queue.drain()] == ["A"]
    if refilled:
        assert await queue.publish("g", "B", dedup_id=dedup_id) == 2
    again = program.throw(lost.value)
    assert again is first
    question = program.send(await queue.call(queue.transport._executor.execute, again))
    assert question.operation is FINISHED
    with pytest.raises(StopIteration) as done:
        program.send(await queue.call(queue.transport._executor.execute, question))
    assert done.value.value == 1
    assert [event for _, event in await queue.drain()] == ["B"] * refilled


COMMON = {"p_event": "1", "p_priority": 0, "p_dedup_id": None}


async def test_only_so_many_finished_messages_are_remembered(queue: Queue) -> None:
    """The newest of them, whatever the order in which they were published; more would be left behind for ever."""

    async def sql(*texts: Any) -> Any:
        reads = texts[0].startswith("select")
        answers = await in_thread(queue.kit.send, queue.name, [(text, {}) for text in texts], reads=reads)
        return [next(iter(row.values())) for row in answers[-1]]

    (trigger,) = await sql(f"select sql from sqlite_master where name = '{queue.name}_remembered'")
    assert " - 10000" in trigger
    await sql(f'drop trigger "{queue.name}_remembered"', trigger.replace(" - 10000", " - 5"))
    calls = [Call(PUBLISH, {**COMMON, "p_group_id": f"g{n}", "p_call_id": f"c{n}"}) for n in range(12)]
    await in_thread(queue.kit.batch, queue.name, calls)
    first = await queue.get()
    await queue.drain()
    await queue.ack(first)
    kept = f'select group_concat(seq) from (select seq from "{queue.name}_finished" order by number)'
    assert await sql(kept) == ["9,10,11,12,1"]


async def test_any_number_of_lost_answers_is_survived_within_the_deadline(scene: Any) -> None:
    scene.server.faults.drop_answers(4, endpoint="execute")
    await scene.queue.publish("g", "D")
    scene.server.faults.drop_answers(4, endpoint="execute")
    await scene.queue.extend(scene.mine, LONG)
    assert scene.server.faults.pending == 0
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABCD")


async def test_the_deadline_ends_with_what_is_known(queues: Queues, scene: Any) -> None:
    """First lost, then nobody leads: the error must not say that nothing was changed."""
    hasty = await queues.open(scene.queue.name, retry_seconds=0.5)
    scene.server.faults.drop_answers(1, endpoint="execute")
    scene.server.faults.reply(503, "leader not found", 100, endpoint="execute", skip=1)
    with pytest.raises(BackendUnavailable, match=r"no leader.*not known"):
        await hasty.publish("g", "D")
    scene.server.faults.clear()
    scene.server.faults.reply(503, "leader not found", 100, endpoint="execute")
    with pytest.raises(BackendUnavailable, match=r"no leader.*nothing was changed"):
        await hasty.ack(scene.mine)
    scene.server.faults.clear()
    await hasty.ack(scene.mine)
    await scene.assert_rest("BCD")
