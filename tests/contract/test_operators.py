"""What operators do: they end the lease of a worker that is gone, delete what waits in a group, and pause groups."""

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


@pytest.mark.needs("pause")
@pytest.mark.promise(1, 2, 3, 5)
class TestPause:
    async def test_a_paused_group_is_passed_over_and_goes_to_the_back_of_the_line_afterwards(
        self, queue: Queue
    ) -> None:
        for event in (1, 2):
            for group in ("f", "g", "h"):
                await queue.publish(group, event)
        assert await queue.pause("f") is True
        assert await queue.pause("f") is False
        assert await queue.claim_many("w", LONG, 10) != []
        await queue.publish("f", 3)
        assert await queue.claim("w", LONG) is None
        await queue.publish("i", 1)
        assert await queue.resume("f") is True
        assert await queue.resume("f") is False
        first, second = await queue.get("w", LONG), await queue.get("w", LONG)
        if queue.caps.fairness:
            assert [first.group_id, second.group_id] == ["i", "f"]
        for lease in (first, second):
            await queue.ack(lease)
        assert await queue.drain() == [("f", 2), ("f", 3)]

    async def test_a_lease_that_is_under_way_may_finish(self, queue: Queue) -> None:
        """Guards against an ack, a nack or an extend that ends the pause, or is refused."""
        for group in ("acked", "nacked", "extended"):
            for event in (1, 2):
                await queue.publish(group, event)
        leases = {lease.group_id: lease for lease in [await queue.get("w", LONG) for _ in range(3)]}
        for group in leases:
            assert await queue.pause(group) is True
        assert {row.state for row in await queue.groups()} == {"in_flight"}
        await queue.ack(leases["acked"])
        await queue.nack(leases["nacked"])
        longer = await queue.extend(leases["extended"], 2 * LONG)
        assert longer.expires_at > leases["extended"].expires_at
        assert (longer.expires_at - await queue.now()).total_seconds() < 3 * LONG
        states = {row.group_id: row.state for row in await queue.groups()}
        assert states == {"acked": "paused", "nacked": "paused", "extended": "in_flight"}
        assert await queue.claim("w", LONG) is None
        await queue.ack(longer)
        assert await queue.claim("w", LONG) is None
        for group in leases:
            assert await queue.resume(group) is True
        assert sorted(await queue.drain()) == [("acked", 2), ("extended", 2), ("nacked", 1), ("nacked", 2)]

    async def test_an_expired_lease_is_taken_over_after_the_pause_only(self, queue: Queue) -> None:
        await queue.publish("g", 1)
        lease = await queue.get("w", BRIEF)
        await queue.pause("g")
        await queue.expired(lease)
        assert await queue.claim("w", LONG) is None
        assert [row.state for row in await queue.groups()] == ["paused"]
        await queue.resume("g")
        again = await queue.get("w", LONG)
        assert (again.event, again.attempts) == (1, 2)
        with pytest.raises(LeaseLost):
            await queue.ack(lease)

    async def test_a_lease_that_still_runs_is_not_taken_over_after_the_pause(self, queue: Queue) -> None:
        """Guards against a resume that forgets the lease or the delay under it."""
        for group in ("leased", "parked"):
            await queue.publish(group, 1)
        leases = [await queue.get("w", LONG) for _ in range(2)]
        by_group = {lease.group_id: lease for lease in leases}
        await queue.nack(by_group["parked"], 3600)
        for group in ("leased", "parked"):
            await queue.pause(group)
            await queue.resume(group)
        assert {row.group_id: row.state for row in await queue.groups()} == {"leased": "in_flight", "parked": "parked"}
        assert await queue.claim("w", LONG) is None
        await queue.ack(by_group["leased"])

    @pytest.mark.parametrize("emptied", ["never filled", "acked", "purged"])
    async def test_a_pause_outlives_the_messages_of_its_group(self, queue: Queue, emptied: str) -> None:
        """Guards against a pause that is lost when its group is empty for a moment."""
        if emptied != "never filled":
            await queue.publish("g", "old", 1 if queue.caps.priorities else 0)
            lease = await queue.get() if emptied == "acked" else None
        assert await queue.pause("g") is True
        if emptied == "acked":
            await queue.ack(lease)
        elif emptied == "purged":
            assert await queue.purge("g") == 1
        assert await queue.drain() == []
        (row,) = await queue.groups()
        assert (row.group_id, row.state, row.depth, row.oldest_seconds) == ("g", "paused", 0, None)
        assert (await queue.status()).groups == 0
        await queue.publish("g", "new", 3 if queue.caps.priorities else 0)
        assert await queue.claim("w", LONG) is None
        (row,) = await queue.groups()
        assert (row.state, row.depth, row.priority) == ("paused", 1, 3 if queue.caps.priorities else 0)
        assert await queue.resume("g") is True
        assert await queue.drain() == [("g", "new")]
        assert await queue.leftovers() == {}
        assert list(await queue.groups()) == []

    async def test_the_whole_queue_is_paused_whichever_groups_are(self, queue: Queue) -> None:
        for group in ("f", "g"):
            await queue.publish(group, 1)
        lease = await queue.get("w", LONG)
        assert await queue.pause() is True
        assert await queue.pause() is False
        await queue.pause("h")
        await queue.publish("i", 1)
        assert await queue.claim("w", LONG) is None
        assert await queue.claim_many("w", LONG, 10) == []
        if queue.caps.extend_after_expiry:
            assert await queue.ack_and_claim(lease, "w", LONG) is None
        status = await queue.status()
        assert (status.is_paused, status.paused, status.groups) == (True, 0, 2)
        assert await queue.resume() is True
        assert await queue.resume() is False
        assert (await queue.status()).is_paused is False
        await queue.publish("h", 1)
        assert sorted(group for group, _ in await queue.drain()) == sorted({"f", "g", "i"} - {lease.group_id})
        assert (await queue.status()).paused == 1
        await queue.resume("h")
        assert await queue.drain() == [("h", 1)]
        assert await queue.leftovers() == {}

    async def test_nothing_is_lost_or_reordered_when_publishers_and_workers_go_on_meanwhile(self, queue: Queue) -> None:
        handled: dict[str, list[int]] = {"f": [], "g": []}

        async def publish() -> None:
            for event in range(30):
                for group in handled:
                    await queue.publish(group, event)

        async def work() -> None:
            for _ in range(80):
                if (lease := await queue.claim("w", LONG)) is not None:
                    handled[lease.group_id].append(lease.event)
                    await queue.ack(lease)

        async def pause() -> None:
            for _ in range(10):
                await queue.pause("g")
                await queue.resume("g")
                await queue.pause()
                await queue.resume()

        await asyncio.gather(publish(), work(), work(), pause())
        for group, event in await queue.drain():
            handled[group].append(event)
        assert handled == {"f": list(range(30)), "g": list(range(30))}
        assert await queue.leftovers() == {}


@pytest.mark.lacks("pause")
@pytest.mark.promise(13)
async def test_a_backend_that_cannot_pause_refuses_it(queue: Queue) -> None:
    for refused in (queue.pause, queue.resume):
        for group in ("g", None):
            with pytest.raises(UnsupportedByBackend):
                await refused(group)


@pytest.mark.lacks("release")
@pytest.mark.promise(13)
async def test_a_backend_that_cannot_end_a_lease_refuses_it(queue: Queue) -> None:
    await queue.publish("g", 1)
    lease = await queue.get()
    for refused in (queue.release, queue.purge):
        with pytest.raises(UnsupportedByBackend):
            await refused("g")
    await queue.ack(lease)
