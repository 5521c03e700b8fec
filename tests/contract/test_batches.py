"""Many messages at once: the same promises as one by one, with fewer round trips."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import EventDecodingError, EventEncodingError, Lease, LeaseLost, Message
from fairlane.contract import MAX_BATCH
from tests.harness import LONG, Queue

BRIEF = 0.02

GROUPS = 5


def numbered(count: int, groups: int = GROUPS) -> list[Message[Any]]:
    """Messages of several groups in turn, numbered from 0 in each group."""
    return [Message(f"g{number % groups}", number // groups) for number in range(count)]


def in_order(handled: list[tuple[str, Any]]) -> bool:
    """Whether the messages of each group were handled from 0 on, without a gap."""
    groups: dict[str, list[Any]] = {}
    for group, event in handled:
        groups.setdefault(group, []).append(event)
    return all(events == list(range(len(events))) for events in groups.values())


@pytest.mark.promise(1, 9, 10)
class TestPublishMany:
    async def test_the_messages_of_a_group_keep_their_order(self, queue: Queue) -> None:
        messages = numbered(53)
        seqs = await queue.publish_many(messages)
        assert len(set(seqs)) == len(seqs)
        for group in range(GROUPS):
            assert seqs[group::GROUPS] == sorted(seqs[group::GROUPS])
        handled = await queue.drain()
        assert len(handled) == 53
        assert in_order(handled)

    async def test_more_messages_than_one_request_takes(self, queue: Queue) -> None:
        count = (2 * MAX_BATCH + 7) if queue.caps.tested_messages >= 10_000 else 37
        messages = numbered(count, groups=50)
        seqs = await queue.publish_many(messages)
        assert len(seqs) == count
        assert seqs == sorted(seqs) or not queue.caps.inspect_messages or len(set(seqs)) == count
        assert (await queue.status()).messages == count
        assert await queue.publish_many([]) == []

    async def test_none_is_published_if_one_cannot_be_encoded(self, queue: Queue) -> None:
        for wrong in (float("nan"), {1: 2}):
            with pytest.raises(EventEncodingError):
                await queue.publish_many([Message("g", 1), Message("g", wrong)])
        for bad in (Message("", 1), Message("g", 1, 9), Message("g", 1, dedup_id="")):
            with pytest.raises(ValueError, match="must be"):
                await queue.publish_many([Message("g", 1), bad])
        with pytest.raises(TypeError, match="Message"):
            await queue.publish_many([("g", 1)])  # type: ignore[list-item]
        assert await queue.claim("w", LONG) is None

    @pytest.mark.needs("priorities")
    async def test_the_first_message_of_a_group_fixes_its_priority(self, queue: Queue) -> None:
        await queue.publish("old", 0, 2)
        await queue.publish_many([Message("new", 1, 4), Message("old", 1, 4), Message("new", 2, 0), Message("low", 1)])
        found = [(await queue.get(min_priority=floor)).group_id for floor in (3, 2)]
        assert found == ["new", "old"]
        assert await queue.claim("w", LONG, 1) is None

    async def test_a_dedup_id_counts_in_the_queue_and_in_the_batch(self, queue: Queue) -> None:
        first = await queue.publish("g", "first", dedup_id="a")
        seqs = await queue.publish_many(
            [
                Message("g", "again", dedup_id="a"),
                Message("h", 1, dedup_id="b"),
                Message("g", 2, dedup_id="b"),
                Message("h", 3),
            ]
        )
        assert seqs[0] == first
        assert seqs[1] == seqs[2]
        assert len(set(seqs)) == 3
        assert sorted(await queue.drain()) == [("g", "first"), ("h", 1), ("h", 3)]

    async def test_events_of_every_kind_come_back_equal(self, queue: Queue) -> None:
        events: list[Any] = [
            None,
            True,
            0,
            -1.5,
            "",
            "\u0000'\"\\{}\U0001f4a9",
            [],
            {},
            {"a": [None, {"b": "x\ny"}]},
            2**53 + 1,
        ]
        await queue.publish_many([Message("g", event) for event in events])
        found = [event for _, event in await queue.drain()]
        assert found == events
        assert [type(event) for event in found] == [type(event) for event in events]

    async def test_two_batches_at_once_do_not_block_each_other_for_ever(self, queue: Queue) -> None:
        """The groups come in opposite orders. Guards against locks that are taken in the order of the messages."""
        names = [f"g{number}" for number in range(20)]
        batches = [names, names[::-1]] * 4
        await asyncio.gather(*(queue.publish_many([Message(name, 1) for name in batch]) for batch in batches))
        assert len(await queue.drain()) == 160


@pytest.mark.promise(1, 2, 3, 5, 8)
class TestClaimMany:
    async def test_up_to_the_limit_of_different_groups_in_the_order_of_the_line(self, queue: Queue) -> None:
        for name in ("a", "b", "c", "d"):
            for event in range(2):
                await queue.publish(name, event)
        leases = await queue.claim_many("w", LONG, 3)
        names = [lease.group_id for lease in leases]
        assert len(set(names)) == 3
        assert names == ["a", "b", "c"] or not queue.caps.fairness
        assert {lease.event for lease in leases} == {0}
        assert {lease.attempts for lease in leases} == {1}
        assert len({lease.token for lease in leases}) == 3
        (last,) = await queue.claim_many("w", LONG, 3)
        assert {*names, last.group_id} == {"a", "b", "c", "d"}
        assert await queue.claim_many("w", LONG, 3) == []

    async def test_each_lease_stands_alone(self, queue: Queue) -> None:
        await queue.publish_many(numbered(6, groups=3))
        one, two, three = await queue.claim_many("w", LONG, 3)
        await queue.ack(one)
        await queue.nack(two)
        three = await queue.extend(three, 2 * LONG)
        again = {lease.group_id: lease for lease in await queue.claim_many("w", LONG, 3)}
        assert (again[one.group_id].event, again[one.group_id].attempts) == (1, 1)
        assert (again[two.group_id].event, again[two.group_id].attempts) == (0, 2)
        assert three.group_id not in again
        await queue.ack(three)

    @pytest.mark.parametrize("limit", [0, -1, MAX_BATCH + 1])
    async def test_a_limit_out_of_range_is_refused(self, queue: Queue, limit: int) -> None:
        with pytest.raises(ValueError, match="limit"):
            await queue.claim_many("w", LONG, limit)

    @pytest.mark.needs("priorities")
    async def test_the_floor_is_exact(self, queue: Queue) -> None:
        for priority in range(5):
            await queue.publish(f"p{priority}", 1, priority)
        found = [lease.group_id for lease in await queue.claim_many("w", LONG, 10, 3)]
        assert sorted(found) == ["p3", "p4"]

    async def test_many_workers_never_get_one_group_twice(self, queue: Queue) -> None:
        groups, each = (60, 3) if queue.caps.tested_messages >= 10_000 else (12, 2)
        await queue.publish_many(numbered(groups * each, groups=groups))
        handled: list[tuple[str, Any]] = []
        busy: set[str] = set()

        async def work(number: int) -> None:
            while leases := await queue.claim_many(f"w{number}", LONG, 7):
                for lease in leases:
                    assert lease.group_id not in busy
                    busy.add(lease.group_id)
                    handled.append((lease.group_id, lease.event))
                await asyncio.sleep(0)
                busy.difference_update(lease.group_id for lease in leases)
                assert await queue.ack_many(leases) == []

        await asyncio.gather(*(work(number) for number in range(6)))
        handled += await queue.drain()
        assert len(handled) == groups * each
        assert in_order(handled)

    async def test_one_event_that_cannot_be_decoded_hides_no_other(self, queue: Queue) -> None:
        class Picky:
            def encode(self, event: Any) -> str:
                return f'"{event}"'

            def decode(self, text: str) -> Any:
                if "bad" in text:
                    raise ValueError(text)
                return text.strip('"')

        picky = await queue.another(codec=Picky())
        await picky.publish_many(
            [Message("a", "good"), Message("b", "bad"), Message("c", "fine"), Message("d", "bad too")]
        )
        with pytest.raises(EventDecodingError) as caught:
            await picky.claim_many("w", LONG, 10)
        error = caught.value
        assert sorted(lease.event for lease in error.others) == ["fine", "good"]
        assert sorted(lease.event for lease in error.undecoded) == ['"bad too"', '"bad"']
        assert error.lease == error.undecoded[0]
        assert await picky.ack_many([*error.others, *error.undecoded]) == []
        assert await picky.claim("w", LONG) is None


@pytest.mark.promise(1, 2, 7)
async def test_batches_and_single_calls_race_on_groups_that_run_empty(queue: Queue) -> None:
    """Guards against a message that is published while its group is dropped, and against one that two calls finish."""
    rounds = 40 if queue.caps.tested_messages >= 10_000 else 6
    groups = ["a", "b", "c"]
    published = dict.fromkeys(groups, 0)
    handled: list[tuple[str, Any]] = []
    done = False

    async def publish() -> None:
        nonlocal done
        for number in range(rounds):
            batch = []
            for group in groups[number % 2 :]:
                batch.append(Message(group, published[group]))
                published[group] += 1
            await queue.publish_many(batch)
        done = True

    async def work(number: int) -> None:
        while True:
            over = done
            leases = await queue.claim_many(f"w{number}", LONG, 1 + number)
            handled.extend((lease.group_id, lease.event) for lease in leases)
            if number % 2 and leases:
                *leases, last = leases
                while (following := await queue.ack_and_claim(last, f"w{number}", LONG)) is not None:
                    handled.append((following.group_id, following.event))
                    last = following
            assert await queue.ack_many(leases) == []
            if over and not leases:
                return

    await asyncio.gather(publish(), *(work(number) for number in range(3)))
    handled += await queue.drain()
    assert len(handled) == sum(published.values())
    assert in_order(handled)
    assert await queue.leftovers() == {}


@pytest.mark.promise(1, 3)
class TestAckMany:
    async def test_lost_leases_come_back_and_the_others_are_done(self, queue: Queue) -> None:
        await queue.publish_many(numbered(8, groups=4))
        leases = await queue.claim_many("w", LONG, 4)
        await queue.ack(leases[1])
        await queue.nack(leases[2])
        made_up = Lease("nobody", 1, 1, "no token", 1, leases[0].published_at, leases[0].expires_at)
        lost = await queue.ack_many([*leases, made_up])
        assert {lease.group_id for lease in lost} == {leases[1].group_id, leases[2].group_id, "nobody"}
        rest = sorted(await queue.drain())
        assert rest == sorted([(lease.group_id, 1) for lease in leases] + [(leases[2].group_id, 0)])
        assert await queue.ack_many([]) == []

    async def test_a_lease_counts_once(self, queue: Queue) -> None:
        await queue.publish("g", 1)
        await queue.publish("g", 2)
        lease = await queue.get()
        assert await queue.ack_many([lease, lease]) == [lease]
        assert await queue.drain() == [("g", 2)]

    async def test_nothing_is_left_of_groups_without_messages(self, queue: Queue) -> None:
        await queue.publish_many(numbered(30, groups=30))
        taken = 0
        while leases := await queue.claim_many("w", LONG, 12):
            taken += len(leases)
            assert await queue.ack_many(leases) == []
        assert taken == 30
        assert await queue.leftovers() == {}


@pytest.mark.promise(1, 2, 3, 5)
class TestAckAndClaim:
    async def test_a_worker_goes_through_the_line(self, queue: Queue) -> None:
        messages = numbered(9, groups=3)
        await queue.publish_many(messages)
        handled = []
        lease: Lease | None = await queue.get("w", LONG)
        while lease is not None:
            handled.append((lease.group_id, lease.event))
            lease = await queue.ack_and_claim(lease, "w", LONG)
        assert len(handled) == 9
        assert in_order(handled)
        if queue.caps.fairness:
            assert handled == [(message.group_id, message.event) for message in messages]
        assert await queue.leftovers() == {}

    async def test_a_lost_lease_claims_nothing(self, queue: Queue) -> None:
        await queue.publish("g", 1)
        await queue.publish("h", 1)
        lease = await queue.get("w", LONG)
        await queue.nack(lease)
        for _ in range(2):
            with pytest.raises(LeaseLost):
                await queue.ack_and_claim(lease, "w", LONG)
        assert len(await queue.claim_many("w", LONG, 5)) == 2

    async def test_its_own_group_comes_again_if_it_is_alone(self, queue: Queue) -> None:
        for event in (1, 2):
            await queue.publish("g", event)
        lease = await queue.get("w", LONG)
        again = await queue.ack_and_claim(lease, "w", LONG)
        assert again is not None
        assert (again.group_id, again.event, again.attempts) == ("g", 2, 1)
        assert await queue.ack_and_claim(again, "w", LONG) is None
        assert await queue.leftovers() == {}

    @pytest.mark.needs("priorities")
    async def test_the_floor_is_exact(self, queue: Queue) -> None:
        await queue.publish("low", 1, 1)
        await queue.publish("high", 1, 3)
        lease = await queue.get("w", LONG, 3)
        assert await queue.ack_and_claim(lease, "w", LONG, 2) is None
        assert await queue.drain() == [("low", 1)]
