"""Promise 9 on libSQL: every fault, in the middle of every operation.

Whatever happens on the way, no message is lost, doubled or moved, no lease of anybody else is touched, and what the
caller is told is true. The blocking twin sends through the other one, so most tests run for it alone.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from fairlane import BackendUnavailable, LeaseLost
from fairlane.backends.libsql.wire import Unanswered
from fairlane.backends.shared.sqlite_statements import FINISHED
from tests.backends.libsql.conftest import TIMEOUT
from tests.backends.libsql.relay import busy, garbage, late, lose, refuse, slow, status, twice
from tests.harness import LONG, SHORT, Queue, Queues, eventually
from tests.harness.scene import Scene

pytestmark = [pytest.mark.promise(9), pytest.mark.xdist_group("libsql-faults")]

SLOW = TIMEOUT + 0.5

# What is certain: the request was not applied, so the transport sends it again by itself.
CERTAIN = {"others write": busy, "too many connections": status(429)}
# What is not: the request may have been applied. In these cases it was, ...
APPLIED = {"the answer is lost": lose, "the answer comes too late": slow(SLOW), "the answer is garbage": garbage}
# ... and in these not.
NOT_APPLIED = {
    "the connection breaks first": refuse,
    "a proxy's 502": status(502),
    "an error of the server": status(500),
}
# It is applied when nobody waits for it any more.
LATE = {"it arrives late": late(SLOW)}
TWICE = {"it is applied twice": twice}

ALL = CERTAIN | APPLIED | NOT_APPLIED | LATE | TWICE
every_fault = pytest.mark.parametrize("fault", ALL)
blocking = pytest.mark.parametrize("twin", ["sync"], indirect=True)


@pytest.fixture
async def scene(queue: Queue, relay: Any) -> Any:
    return await Scene(queue, relay).build()


def break_it(scene: Any, fault: Any) -> Any:
    """Arrange the fault for the next write, and get the moment when it must be over."""
    scene.server.fail(ALL[fault])
    return asyncio.get_running_loop().time() + (SLOW + 0.3 if fault in LATE else 0.0)


async def until(moment: Any) -> None:
    await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))


@every_fault
async def test_publish(scene: Any, fault: Any) -> None:
    over = break_it(scene, fault)
    seq = await scene.queue.publish("g", "D")
    assert scene.server.pending == 0
    await scene.queue.publish("g", "E")
    await until(over)
    assert [row.seq for row in await scene.queue.messages("g") if row.event == "D"] == [seq]
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABCDE")


@blocking
@every_fault
async def test_publish_with_a_dedup_id_of_the_callers_own(scene: Any, fault: Any) -> None:
    first = await scene.queue.publish("g", "D", dedup_id="d")
    over = break_it(scene, fault)
    assert await scene.queue.publish("other", "again", dedup_id="d") == first
    await until(over)
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABCD")


@every_fault
async def test_claim_of_the_last_free_group_is_one_lease_and_no_false_none(scene: Any, fault: Any) -> None:
    """Applied once, its second try must find its own lease, and not say that nothing is left."""
    await scene.queue.nack(scene.mine)
    over = break_it(scene, fault)
    lease = await scene.queue.get("me", LONG)
    assert scene.server.pending == 0
    await until(over)
    assert (lease.event, lease.attempts) == ("A", 2)
    assert await scene.queue.claim("me", LONG) is None
    await scene.queue.extend(lease, LONG)
    await scene.queue.ack(lease)
    await scene.assert_rest("BC")


@blocking
@every_fault
async def test_claim_of_nothing(scene: Any, fault: Any) -> None:
    over = break_it(scene, fault)
    assert await scene.queue.claim("me", LONG) is None
    await until(over)
    await scene.queue.ack(scene.mine)
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


@blocking
@fenced
@pytest.mark.parametrize("fault", CERTAIN)
async def test_ack_and_nack_survive_what_is_certain(scene: Any, fault: Any, operation: Any) -> None:
    call, rest = FENCED[operation]
    break_it(scene, fault)
    await call(scene.queue, scene.mine)
    assert scene.server.pending == 0
    await finished(scene, operation, rest)


@fenced
@pytest.mark.parametrize("fault", APPLIED)
async def test_ack_and_nack_are_not_sent_again_if_they_may_have_been_applied(
    scene: Any, fault: Any, operation: Any
) -> None:
    call, rest = FENCED[operation]
    break_it(scene, fault)
    before = len(scene.server.seen)
    with pytest.raises(BackendUnavailable, match="not known"):
        await call(scene.queue, scene.mine)
    assert len(scene.server.seen) == before + 1
    with pytest.raises(LeaseLost):  # done or lost; here: done
        await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@blocking
@fenced
@pytest.mark.parametrize("fault", NOT_APPLIED)
async def test_ack_and_nack_may_be_repeated_by_the_caller(scene: Any, fault: Any, operation: Any) -> None:
    call, rest = FENCED[operation]
    break_it(scene, fault)
    with pytest.raises(BackendUnavailable, match="not known"):
        await call(scene.queue, scene.mine)
    (row,) = [row for row in await scene.queue.groups() if row.group_id == "g"]
    assert (row.state, row.worker_id) == ("in_flight", "me"), "it was sent a second time"
    await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@blocking
@fenced
async def test_ack_and_nack_applied_twice_say_lost_and_are_done_once(scene: Any, operation: Any) -> None:
    call, rest = FENCED[operation]
    break_it(scene, *TWICE)
    with pytest.raises(LeaseLost):
        await call(scene.queue, scene.mine)
    await finished(scene, operation, rest)


@blocking
@fenced
async def test_ack_and_nack_that_arrive_late_never_touch_the_next_lease(scene: Any, operation: Any) -> None:
    """The lease has run out and the message is somebody else's by the time that the request is applied."""
    call, _ = FENCED[operation]
    other = await scene.queue.another()
    await scene.queue.extend(scene.mine, SHORT)
    over = break_it(scene, *LATE)
    doomed = asyncio.ensure_future(call(scene.queue, scene.mine))
    holder = await eventually(lambda: other.claim("somebody else", LONG))
    assert (holder.event, holder.attempts) == ("A", 2)
    with pytest.raises(BackendUnavailable, match="not known"):
        await doomed
    await until(over)
    with pytest.raises(LeaseLost):
        await call(scene.queue, scene.mine)
    await scene.queue.ack(holder)
    await scene.assert_rest("BC")


@blocking
@pytest.mark.parametrize("fault", APPLIED | NOT_APPLIED | TWICE)
async def test_extend_says_that_it_does_not_know_and_may_be_repeated(scene: Any, fault: Any) -> None:
    """Its end counts from the moment of the call, so it is not sent again by itself."""
    break_it(scene, fault)
    if fault in TWICE:
        longer = await scene.queue.extend(scene.mine, 2 * LONG)
    else:
        with pytest.raises(BackendUnavailable, match="not known"):
            await scene.queue.extend(scene.mine, 2 * LONG)
        longer = await scene.queue.extend(scene.mine, 2 * LONG)
    assert longer.token == scene.mine.token
    assert 50 < (longer.expires_at - scene.mine.expires_at).total_seconds() < 75
    await scene.queue.ack(longer)
    await scene.assert_rest("BC")


@blocking
@pytest.mark.parametrize("fault", CERTAIN)
async def test_extend_survives_what_is_certain(scene: Any, fault: Any) -> None:
    break_it(scene, fault)
    await scene.queue.ack(await scene.queue.extend(scene.mine, LONG))
    assert scene.server.pending == 0
    await scene.assert_rest("BC")


@blocking
async def test_a_claim_that_arrives_after_its_message_was_acked_is_a_lease_that_nobody_holds(scene: Any) -> None:
    """It comes back by itself, like any lease that nobody received; nothing is skipped."""
    await scene.queue.nack(scene.mine)
    over = break_it(scene, *LATE)
    lease = await scene.queue.get("me", 0.5)
    await scene.queue.ack(lease)
    await until(over)
    with pytest.raises(LeaseLost):
        await scene.queue.ack(lease)
    ghost = await eventually(lambda: scene.queue.claim("me", LONG))
    assert ghost.event == "B"
    await scene.queue.ack(ghost)
    await scene.assert_rest("C")


@blocking
@pytest.mark.parametrize("dedup_id", [None, "of-the-callers-own"])
async def test_a_publish_repeated_after_its_message_was_finished_adds_nothing(
    queue: Queue, relay: Any, dedup_id: Any
) -> None:
    """The second try comes late: the message was claimed and acked in between."""
    program = queue.transport._operations.core.publish("g", '"A"', 0, dedup_id)
    first = next(program)
    relay.fail(lose)
    with pytest.raises(Unanswered) as lost:
        await queue.call(queue.transport._executor.execute, first)
    assert [event for _, event in await queue.drain()] == ["A"]
    pause = program.throw(lost.value)
    assert pause.seconds < 1
    again = program.send(None)
    assert again is first
    question = program.send(await queue.call(queue.transport._executor.execute, again))
    assert question.operation is FINISHED
    with pytest.raises(StopIteration) as done:
        program.send(await queue.call(queue.transport._executor.execute, question))
    assert done.value.value == 1
    assert await queue.drain() == []


@blocking
async def test_any_number_of_lost_answers_is_survived_within_the_deadline(scene: Any) -> None:
    scene.server.fail(lose, 4)
    await scene.queue.publish("g", "D")
    scene.server.fail(busy, 20)
    await scene.queue.extend(scene.mine, LONG)
    assert scene.server.pending == 0
    await scene.queue.nack(scene.mine)
    await scene.assert_rest("ABCD")


async def test_the_deadline_ends_with_what_is_known(queues: Queues, scene: Any) -> None:
    """First lost, then only busy: the error must not say that nothing was changed."""
    hasty = await queues.open(scene.queue.name, url=scene.server.url, retry_seconds=0.5)
    scene.server.fail(lose)
    scene.server.fail(busy, 1000)
    with pytest.raises(BackendUnavailable, match=r"busy.*not known"):
        await hasty.publish("g", "D")
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match=r"busy.*nothing was changed"):
        await hasty.ack(scene.mine)
    assert 0.4 < time.monotonic() - began < 3
    scene.server.clear()
    await hasty.ack(scene.mine)
    await scene.assert_rest("BCD")
