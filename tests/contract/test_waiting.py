"""A claim that waits returns as soon as something is deliverable, and None when its time is over."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import pytest

from fairlane import Lease, Message, TransportClosed
from fairlane.backends.shared.waiting import POLL
from tests.harness import LONG, Queue, eventually, held
from tests.harness.waiting import at_most

PATIENT = 60.0
"""Seconds that no test may need: a claim that takes so long was not woken, and has not looked."""

SOON = 15.0
"""Seconds within which a claim must have its message. A look a second would need two, a busy machine needs more."""


async def waits(queue: Queue, wait: float = PATIENT, **options: Any) -> asyncio.Task[Lease | None]:
    """Start a claim that waits, and return when it does."""
    before = waiting(queue)
    task = asyncio.create_task(queue.claim("waiter", LONG, wait=wait, **options))
    if queue.caps.claim_wait:  # SQS: nothing shows when it waits
        await asyncio.sleep(0.3)
    else:
        await eventually(lambda: task.done() or waiting(queue) > before)
    return task


def waiting(queue: Queue) -> int:
    """Return the number of claims that wait: those that have asked once and found nothing."""
    return sum(len(floor._ears) for floor in queue.transport._operations.room.floors.values())


@pytest.mark.promise(2)
class TestReturns:
    async def test_at_once_if_a_message_is_there(self, queue: Queue) -> None:
        await queue.publish("g", 1)
        with at_most(SOON):
            assert held(await queue.claim("w", LONG, wait=PATIENT)).event == 1

    async def test_none_when_its_time_is_over(self, queue: Queue) -> None:
        began = time.monotonic()
        assert await queue.claim("w", LONG, wait=0.5) is None
        assert time.monotonic() - began >= 0.45
        with at_most(SOON):
            assert await queue.claim("w", LONG, wait=0.01) is None
        assert await queue.claim("w", LONG, wait=0) is None

    @pytest.mark.cluster
    async def test_a_message_that_is_published_meanwhile(self, queue: Queue) -> None:
        waiter = await waits(queue)
        await queue.publish("g", 1)
        with at_most(SOON):
            lease = held(await waiter)
        assert (lease.group_id, lease.event, lease.attempts) == ("g", 1, 1)
        await queue.ack(lease)

    async def test_a_message_that_another_transport_publishes(self, queue: Queue) -> None:
        other = await queue.another()
        waiter = await waits(queue)
        await other.publish("g", 1)
        with at_most(SOON):
            assert held(await waiter).event == 1

    async def test_the_next_message_of_a_group_when_the_one_before_is_finished(self, queue: Queue) -> None:
        await queue.publish("g", 1)
        await queue.publish("g", 2)
        lease = await queue.get()
        waiter = await waits(queue)
        await queue.ack(lease)
        with at_most(SOON):
            assert held(await waiter).event == 2

    @pytest.mark.parametrize("delay", [0, 1])
    async def test_a_message_that_was_given_back_when_its_delay_ends(self, queue: Queue, delay: int) -> None:
        await queue.publish("g", 1)
        lease = await queue.get()
        waiter = await waits(queue)
        began = time.monotonic()
        await queue.nack(lease, delay)
        with at_most(SOON):
            assert held(await waiter).attempts == 2
        assert time.monotonic() - began >= 0.9 * delay

    async def test_a_message_whose_lease_ends(self, queue: Queue) -> None:
        await queue.publish("g", 1)
        await queue.get("gone", 1)
        waiter = await waits(queue)
        with at_most(SOON):
            assert held(await waiter).attempts == 2

    @pytest.mark.needs("release")
    async def test_a_message_that_an_operator_releases(self, queue: Queue) -> None:
        await queue.publish("g", 1)
        await queue.get("gone", LONG)
        waiter = await waits(queue)
        assert await queue.release("g")
        with at_most(SOON):
            assert held(await waiter).attempts == 2

    @pytest.mark.parametrize("how", ["publish_many", "ack_many", "ack_and_claim"])
    async def test_a_message_of_a_batch(self, queue: Queue, how: str) -> None:
        for group in ("a", "b"):
            await queue.fill([(group, 1), (group, 2)])
        leases = [await queue.get() for _ in range(2)]
        waiter = await waits(queue)
        does: dict[str, Callable[[], Awaitable[Any]]] = {
            "publish_many": lambda: queue.publish_many([Message("c", 2)]),
            "ack_many": lambda: queue.ack_many(leases),
            "ack_and_claim": lambda: queue.ack_and_claim(leases[0], "w", LONG),
        }
        found = await does[how]()
        if how == "ack_and_claim" and found is not None:  # its own claim was faster
            await queue.ack_many([leases[1]])
        with at_most(SOON):
            assert held(await waiter).event == 2

    @pytest.mark.needs("priorities")
    async def test_only_a_message_of_its_priority(self, queue: Queue) -> None:
        waiter = await waits(queue, min_priority=3)
        low = await waits(queue)
        await queue.publish("low", 1, 2)
        with at_most(SOON):
            assert held(await low).group_id == "low"
        assert not waiter.done()
        await queue.publish("high", 1, 3)
        with at_most(SOON):
            assert held(await waiter).group_id == "high"


@pytest.mark.promise(2)
async def test_each_of_many_waiting_claims_gets_a_message_of_its_own(queue: Queue) -> None:
    """Guards against a wake-up that reaches a claim which is served already, while another one sleeps on."""
    number = 12
    waiters = [await waits(queue) for _ in range(number)]
    for group in range(number):
        await queue.publish(f"g{group}", group)
    with at_most(SOON):
        leases = await asyncio.gather(*waiters)
    assert sorted(held(lease).event for lease in leases) == list(range(number))


@pytest.mark.promise(2)
async def test_a_batch_serves_all_claims_that_wait(queue: Queue) -> None:
    """Guards against one wake-up for many messages, after which nobody tells the other claims."""
    number = 8
    waiters = [await waits(queue) for _ in range(number)]
    await queue.publish_many([Message(f"g{group}", group) for group in range(number)])
    with at_most(SOON):
        leases = await asyncio.gather(*waiters)
    assert sorted(held(lease).event for lease in leases) == list(range(number))


@pytest.mark.promise(2)
@pytest.mark.lacks("claim_wait")
@pytest.mark.twins("async")
async def test_a_cancelled_wait_leases_nothing_and_leaves_its_place_to_the_next(queue: Queue) -> None:
    """Guards against a wake-up that reaches a claim which has gone, and against the first place that stays empty."""
    first, second, third = [await waits(queue) for _ in range(3)]
    for gone in (first, third):
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    await queue.publish("g", 1)
    with at_most(SOON):
        assert held(await second).attempts == 1
    assert not queue.transport._operations.room


@pytest.mark.promise(2)
@pytest.mark.lacks("claim_wait")
@pytest.mark.twins("async")
async def test_a_wake_up_that_a_cancelled_claim_got_is_passed_on(queue: Queue) -> None:
    first, second = [await waits(queue) for _ in range(2)]
    (floor,) = queue.transport._operations.room.floors.values()
    first_ear = floor._ears[0]
    await queue.publish("g", 1)
    first_ear.ring(3)
    first.cancel()
    with at_most(SOON):
        done, _ = await asyncio.wait([first, second], return_when=asyncio.ALL_COMPLETED, timeout=3)
    leases = [task.result() for task in done if not task.cancelled()]
    assert len([lease for lease in leases if lease is not None]) == 1
    for task in (first, second):
        task.cancel()


@pytest.mark.promise(2)
@pytest.mark.lacks("claim_wait")  # SQS may still give a message to the request of a closed client
async def test_a_closed_transport_ends_its_waits(queue: Queue) -> None:
    other = await queue.another()
    waiter, stays = await waits(other), await waits(queue)
    await other.close()
    with at_most(SOON), pytest.raises(TransportClosed):
        await waiter
    await queue.publish("g", 1)
    with at_most(SOON):
        assert held(await stays).event == 1


@pytest.mark.promise(2)
@pytest.mark.lacks("claim_wait")
@pytest.mark.twins("sync")
async def test_an_interrupted_wait_leases_nothing(queue: Queue) -> None:
    """A signal handler raises in the thread that waits, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with at_most(SOON), pytest.raises(KeyboardInterrupt):
            queue.transport.claim("w", LONG, wait=PATIENT)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not queue.transport._operations.room
    await queue.publish("g", 1)
    assert (await queue.get()).attempts == 1


@pytest.mark.promise(2)
@pytest.mark.lacks("claim_wait")
async def test_many_idle_claims_cost_one_request_a_second_together(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against looks of each claim, and against looks that follow each other without a pause."""
    transport, sent = queue.transport, []
    original = transport._execute

    def counted(request: Any) -> Any:
        sent.append(time.monotonic())
        return original(request)

    monkeypatch.setattr(transport, "_execute", counted)
    waiters = [asyncio.create_task(queue.claim("waiter", LONG, wait=PATIENT)) for _ in range(5)]
    await asyncio.sleep(2 * POLL)  # the first looks follow each other quickly where nobody rings
    began = time.monotonic()
    await asyncio.sleep(3 * POLL)
    late = [moment for moment in sent if moment >= began]
    assert 1 <= len(late) <= 4, late
    for number in range(len(waiters)):
        await queue.publish(f"g{number}", number)
    with at_most(SOON):
        await asyncio.gather(*waiters)


@pytest.mark.promise(12)
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, ValueError),
        (math.nan, ValueError),
        (43201, ValueError),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
    ],
)
async def test_a_bad_wait_is_refused(queue: Queue, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="wait must be"):
        await queue.claim("w", LONG, wait=value)
