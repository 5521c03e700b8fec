"""What operators do: they end the lease of a worker that is gone, and delete what waits in a group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import LeaseLost, UnsupportedByBackend
from fairlane.backends.stored import PURGED_AT_ONCE
from tests.harness import LONG, Queue

BRIEF = 0.02


@pytest.mark.needs("release")
@pytest.mark.promise(1, 2, 3, 8)
class TestRelease:
    async def test_the_message_is_claimable_at_once_and_the_old_token_is_void(self, queue: Queue) -> None:
        """Guards against a release that only shortens the lease, after which the old worker can still ack."""
        for event in (1, 2):
            await queue.publish("g", event)
        gone = await queue.get("gone", LONG)
        assert await queue.claim("w", LONG) is None
        assert await queue.release("g") is True
        for use in (lambda: queue.ack(gone), lambda: queue.nack(gone), lambda: queue.extend(gone, LONG)):
            with pytest.raises(LeaseLost):
                await use()
        again = await queue.get("w", LONG)
        assert (again.event, again.attempts) == (1, 2)
        assert again.token != gone.token
        with pytest.raises(LeaseLost):
            await queue.ack(gone)
        await queue.ack(again)
        assert await queue.drain() == [("g", 2)]

    @pytest.mark.parametrize("state", ["absent", "never leased", "nacked", "parked", "acked"])
    async def test_a_group_that_is_not_leased_stays_as_it_is(self, queue: Queue, state: str) -> None:
        if state != "absent":
            await queue.publish("g", 1)
            await queue.publish("g", 2)
        if state in ("nacked", "parked"):
            await queue.nack(await queue.get(), 3600 if state == "parked" else 0)
        if state == "acked":
            await queue.ack(await queue.get())
        before = await queue.groups()
        assert await queue.release("g") is False
        after = await queue.groups()
        assert [(g.group_id, g.state, g.attempts) for g in after] == [(g.group_id, g.state, g.attempts) for g in before]
        assert await queue.release("h") is False
        assert len(await queue.groups()) == len(before)

    async def test_the_group_goes_behind_those_that_wait_but_keeps_the_place_of_an_expired_lease(
        self, queue: Queue
    ) -> None:
        for group in ("expired", "leased", "waits"):
            await queue.publish(group, 1)
        expired, leased, waits = [await queue.get("w", LONG) for _ in range(3)]
        await queue.expired(await queue.extend(expired, BRIEF))
        await queue.nack(waits)
        assert await queue.release(expired.group_id) is True
        assert await queue.release(leased.group_id) is True
        assert await queue.line() == [lease.group_id for lease in (expired, waits, leased)]

    async def test_it_counts_once_when_many_release_at_the_same_time(self, queue: Queue) -> None:
        await queue.publish("g", 1)
        await queue.get("gone", LONG)
        found = await asyncio.gather(*(queue.release("g") for _ in range(8)))
        assert sorted(found) == [False] * 7 + [True]


@pytest.mark.needs("release")
@pytest.mark.promise(1, 2, 7, 9)
class TestPurge:
    async def test_what_waits_is_deleted_and_the_leased_message_stays(self, queue: Queue) -> None:
        for event in range(4):
            await queue.publish("g", event)
            await queue.publish("h", event)
        lease = await queue.get()
        other = "h" if lease.group_id == "g" else "g"
        assert await queue.purge(lease.group_id) == 3
        assert [m.event for m in await queue.messages(lease.group_id)] == [0]
        assert [m.event for m in await queue.messages(other)] == [0, 1, 2, 3]
        await queue.publish(lease.group_id, "later")
        await queue.ack(lease)
        assert [event for group, event in await queue.drain() if group == lease.group_id] == ["later"]
        assert await queue.leftovers() == {}

    async def test_the_message_of_an_expired_lease_stays_since_its_worker_may_still_ack(self, queue: Queue) -> None:
        for event in range(2):
            await queue.publish("g", event)
        lease = await queue.get("w", BRIEF)
        await queue.expired(lease)
        assert await queue.purge("g") == 1
        await queue.ack(lease)
        assert await queue.leftovers() == {}

    @pytest.mark.parametrize("state", ["fresh", "nacked", "parked"])
    async def test_a_group_that_is_not_leased_is_gone_and_can_begin_anew(self, queue: Queue, state: str) -> None:
        """Guards against deliveries, a delay, a priority or a dedup id that outlive the purge."""
        for event in range(3):
            await queue.publish("g", event, 0, dedup_id=f"d{event}")
        if state != "fresh":
            await queue.nack(await queue.get(), 3600 if state == "parked" else 0)
        assert await queue.purge("g") == 3
        assert await queue.leftovers() == {}
        assert await queue.purge("g") == 0
        await queue.publish("g", "new", 3, dedup_id="d0")
        lease = await queue.get(min_priority=3)
        assert (lease.event, lease.attempts) == ("new", 1)

    async def test_more_messages_than_one_request_deletes(self, queue: Queue) -> None:
        """Guards against a purge that ends after its first request, or that takes messages of a neighbour."""
        many = 2 * PURGED_AT_ONCE if queue.caps.tested_messages >= 2 * PURGED_AT_ONCE else 100
        await queue.fill([("g", event) for event in range(many)])
        await queue.fill([("f", 0), ("g0", 0), ("h", 0)])
        assert await queue.purge("g") == many
        assert sorted(await queue.drain()) == [("f", 0), ("g0", 0), ("h", 0)]
        assert await queue.leftovers() == {}

    async def test_publishers_and_workers_go_on_meanwhile(self, queue: Queue) -> None:
        """Every message is either handled or purged, and none both, except where the backend says so."""
        handled: list[Any] = []
        published = 0

        async def publish() -> None:
            nonlocal published
            for _ in range(40):
                published += 1
                await queue.publish("g", published)

        async def work() -> None:
            for _ in range(60):
                if (lease := await queue.claim("w", LONG)) is not None:
                    handled.append(lease.event)
                    await queue.ack(lease)

        async def purge() -> int:
            return sum([await queue.purge("g") for _ in range(20)])

        _, _, purged = await asyncio.gather(publish(), work(), purge())
        handled += [event for _, event in await queue.drain()]
        assert handled == sorted(set(handled))
        assert len(handled) + purged >= published
        if queue.kit.backend != "mongo":
            assert len(handled) + purged == published
        assert await queue.leftovers() == {}


@pytest.mark.lacks("release")
@pytest.mark.promise(13)
async def test_a_backend_that_cannot_end_a_lease_refuses_it(queue: Queue) -> None:
    await queue.publish("g", 1)
    lease = await queue.get()
    for refused in (queue.release, queue.purge):
        with pytest.raises(UnsupportedByBackend):
            await refused("g")
    await queue.ack(lease)
