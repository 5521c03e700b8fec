"""A client may stop at any step, before or after the server has carried it out: others go on, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from fairlane.backends.mongo.core import MongoCore
from fairlane.backends.mongo.executor import MongoExecutor
from fairlane.errors import LeaseLost
from fairlane.model import Lease
from fairlane.program import Program, ResultT, Sleep, run
from tests.harness import Queue

pytestmark = [pytest.mark.backends("mongo"), pytest.mark.twins("sync"), pytest.mark.promise(1, 2, 3, 7, 9)]

SHORT = 0.25
LONG = 60.0


@dataclass
class Client:
    """A client that runs one program after another."""

    core: MongoCore
    executor: MongoExecutor

    def run(self, program: Program[Any, Any, ResultT]) -> ResultT:
        execute: Callable[[Any], Any] = self.executor.execute
        return run(program, execute)

    def publish(self, group_id: str, event: str, dedup_id: str | None = None) -> int:
        return self.run(self.core.publish(group_id, event, 0, dedup_id))

    def claim(self, visibility: float = LONG) -> Lease | None:
        return self.run(self.core.claim("worker", visibility, 0, Lease))

    def get(self, visibility: float = LONG) -> Lease:
        lease = self.claim(visibility)
        assert lease is not None
        return lease

    def ack(self, lease: Lease) -> None:
        self.run(self.core.ack(lease))

    def drain(self) -> list[str]:
        seen = []
        while (lease := self.claim()) is not None:
            seen.append(lease.event)
            self.ack(lease)
        return seen

    def cut(self, program: Program[Any, Any, Any], steps: int, *, applied: bool) -> bool:
        """Carry out so many steps of a program, then stop. With `applied`, carry out one more, and lose its answer.

        Return False if the program has fewer steps, so that it has ended before.
        """
        try:
            request = next(program)
            while steps:
                if isinstance(request, Sleep):
                    request = program.send(None)
                    continue
                steps -= 1
                request = program.send(self.executor.execute(request))
            while isinstance(request, Sleep):
                request = program.send(None)
            if applied:
                self.executor.execute(request)
        except StopIteration:
            return False
        program.close()
        return True


@pytest.fixture
def client(queue: Queue) -> Iterator[Client]:
    executor = MongoExecutor.from_url(queue.kit.url(queue.name), queue.name)
    yield Client(MongoCore(queue.name), executor)
    executor.close()


async def recovered(queue: Queue, client: Client, cut_at: Any) -> list[str]:
    """Return the events that another client gets: first of free groups, then of leased ones when the lease expires."""
    seen = client.drain()
    await queue.expired(cut_at + timedelta(seconds=SHORT))
    seen += client.drain()
    assert await queue.leftovers() == {}, "something was left behind"
    return seen


def every_cut(first: int = 0) -> Iterator[tuple[int, bool]]:
    for steps in range(first, 20):
        yield steps, False
        yield steps, True


Before = Callable[[Client], object]
PLACES: dict[str, Before] = {
    "a new group": lambda client: None,
    "a group with messages": lambda client: client.publish("g", "first"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("retried", [True, False], ids=["retried", "given-up"])
async def test_a_publish_that_stops_anywhere_is_stored_once_or_not_at_all(
    queue: Queue, client: Client, place: str, retried: bool
) -> None:
    """If it is sent again with its dedup_id, the message is there once; else it may be missing. Others are unharmed."""
    cuts = 0
    for steps, applied in every_cut():
        PLACES[place](client)
        expected = ["first"] * (place != "a new group")
        program = client.core.publish("g", "cut", 0, "same")
        if not client.cut(program, steps, applied=applied):
            assert client.drain() == [*expected, "cut"]
            break
        cuts += 1
        if retried:
            client.publish("g", "cut", "same")
        seen = await recovered(queue, client, await queue.now())
        assert seen == [*expected, "cut"] or (not retried and steps <= 1 and seen == expected)
    assert cuts >= 6


@pytest.mark.parametrize("again", [False, True], ids=["first-delivery", "delivered-before"])
async def test_a_claim_that_stops_anywhere_loses_no_message(queue: Queue, client: Client, again: bool) -> None:
    """The group is claimable again when the lease expires, and the message is its head."""
    cuts = 0
    for steps, applied in every_cut():
        for event in ("a", "b"):
            client.publish("g", event)
        client.publish("other", "o")
        if again:
            held = client.get()
            client.run(client.core.nack(held, 0.0))
            client.ack(client.get())  # the other group, so that group `g` is first in line again
            client.publish("other", "o")
            client.run(client.core.nack(client.get(), 0.0))
        program = client.core.claim("worker", SHORT, 0, Lease)
        if not client.cut(program, steps, applied=applied):
            await queue.expired(await queue.now() + timedelta(seconds=SHORT))
            client.drain()
            break
        cuts += 1
        begun = await queue.now()
        at_once = client.drain()
        if (steps or applied) and await queue.now() < begun + timedelta(seconds=SHORT / 2):
            assert at_once == ["o"], "a leased message was delivered"
        seen = at_once + await recovered(queue, client, begun)
        assert sorted(seen) == ["a", "b", "o"]
        assert seen.index("a") < seen.index("b")
    assert cuts >= 4


async def test_a_claim_that_stops_while_it_drops_an_empty_group_loses_no_message(queue: Queue, client: Client) -> None:
    cuts = 0
    for steps, applied in every_cut():
        client.publish("g", "gone")
        assert client.cut(client.core.ack(client.get()), 2, applied=False)  # leaves a group without messages
        program = client.core.claim("worker", SHORT, 0, Lease)
        if not client.cut(program, steps, applied=applied):
            break
        cuts += 1
        client.publish("g", "next")
        assert await recovered(queue, client, await queue.now()) == ["next"]
    assert cuts >= 6


@pytest.mark.parametrize("more", [False, True], ids=["last-message", "more-messages"])
async def test_an_ack_that_stops_anywhere_has_happened_or_not(queue: Queue, client: Client, more: bool) -> None:
    """After its first step the message never comes back. Before that step, it comes back when the lease expires."""
    cuts = 0
    for steps, applied in every_cut():
        client.publish("g", "done")
        if more:
            client.publish("g", "next")
        lease = client.get(SHORT)
        begun = await queue.now()
        if not client.cut(client.core.ack(lease), steps, applied=applied):
            assert client.drain() == ["next"] * more
            break
        cuts += 1
        acked = steps > 0 or applied
        assert await recovered(queue, client, begun) == ["done"] * (not acked) + ["next"] * more
        with pytest.raises(LeaseLost):
            client.ack(lease)
    assert cuts >= 6


async def test_an_ack_that_stops_while_a_smaller_seq_arrives_finishes_its_own_message(
    queue: Queue, client: Client
) -> None:
    """The group must remember which message was acked when a message with a smaller seq comes before it."""
    for steps, applied in [(0, True), (1, False), (1, True), (2, False)]:
        execute: Callable[[Any], Any] = client.executor.execute
        late: Program[Any, Any, int] = client.core.publish("g", "late", 0, None)
        request = next(late)  # draws the smaller seq
        request = late.send(execute(request))
        client.publish("g", "early")
        assert client.cut(client.core.ack(client.get()), steps, applied=applied)
        while request is not None:
            try:
                request = late.send(execute(request))
            except StopIteration:
                request = None
        assert client.drain() == ["late"]
        assert await queue.leftovers() == {}


@pytest.mark.parametrize("operation", ["nack", "extend"])
async def test_a_nack_or_an_extend_that_stops_anywhere_loses_no_message(
    queue: Queue, client: Client, operation: str
) -> None:
    for applied in (False, True):
        client.publish("g", "a")
        client.publish("g", "b")
        lease = client.get(SHORT)
        begun = await queue.now()
        program = client.core.nack(lease, 0.0) if operation == "nack" else client.core.extend(lease, SHORT)
        assert client.cut(program, 0, applied=applied)
        if operation == "nack" and applied:
            assert client.get().event == "a"  # without waiting for the lease to expire
            with pytest.raises(LeaseLost):
                client.ack(lease)
            client.run(client.core.nack(Lease("g", "a", 0, _token(client), 1, begun, begun), 0.0))
        elif operation == "extend":
            assert client.claim() is None
        assert await recovered(queue, client, max(begun, await queue.now())) == ["a", "b"]


def _token(client: Client) -> str:
    from fairlane.backends.mongo.wire import GROUPS, FindOne

    group = client.executor.execute(FindOne(GROUPS, {"_id": "g"}))
    assert isinstance(group, dict)
    return str(group["token"])


async def test_a_dedup_id_is_free_again_when_the_ack_stopped_half_way(queue: Queue, client: Client) -> None:
    first = client.publish("g", "first", "same")
    assert client.cut(client.core.ack(client.get()), 0, applied=True)
    second = client.publish("g", "second", "same")
    assert second != first
    assert client.drain() == ["second"]
    assert await queue.leftovers() == {}


async def test_an_emptied_group_takes_the_priority_of_its_next_publish(client: Client) -> None:
    """Also when the last ack stopped before it dropped the group."""
    client.publish("g", "first")
    assert client.cut(client.core.ack(client.get()), 2, applied=False)
    client.run(client.core.publish("g", "urgent", 4, None))
    lease = client.run(client.core.claim("worker", LONG, 4, Lease))
    assert lease is not None
    assert lease.event == "urgent"


@pytest.mark.parametrize("act", ["pause", "resume"])
@pytest.mark.parametrize("filled", [False, True], ids=["empty", "with-a-message"])
async def test_a_pause_or_a_resume_that_stops_anywhere_has_happened_or_not(
    queue: Queue, client: Client, act: str, filled: bool
) -> None:
    """Guards against a group that is neither in line nor paused, and against a document that stays behind."""
    cuts = 0
    for steps, applied in every_cut():
        if filled:
            client.publish("g", "first")
        if act == "resume":
            client.run(client.core.pause("g"))
        done = not client.cut(getattr(client.core, act)("g"), steps, applied=applied)
        paused = [group.group_id for group in await queue.groups() if group.state == "paused"]
        assert client.claim() is None or not paused
        assert client.run(client.core.resume("g")) == bool(paused)
        client.publish("g", "next")
        await queue.release("g")
        assert client.drain() == ["first"] * filled + ["next"]
        assert await queue.leftovers() == {}
        if done:
            break
        cuts += 1
    assert cuts >= 2


async def test_a_message_outside_of_the_line_is_found_behind_paused_groups(queue: Queue, client: Client) -> None:
    """Guards against a claim that takes the oldest message for one without a group, although its group is paused."""
    for group_id in ("a", "f", "z"):
        client.publish(group_id, group_id)
        client.run(client.core.pause(group_id))
    for group_id in ("b", "g"):  # their publishers stop before they put them in line
        assert client.cut(client.core.publish(group_id, group_id, 0, None), 2, applied=False)
    assert client.drain() == ["b", "g"]
    assert {row.state for row in await queue.groups()} == {"paused"}


async def test_a_claim_asks_little_while_all_groups_are_paused(
    queue: Queue, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against claims that search again and again, or read many paused groups, and find nothing."""

    def requests() -> int:
        program, count = client.core.claim("worker", LONG, 0, Lease), 0
        try:
            request = next(program)
            while True:
                count += not isinstance(request, Sleep)
                request = program.send(None if isinstance(request, Sleep) else client.executor.execute(request))
        except StopIteration as stop:
            return count if stop.value is None else 0

    for group_id in ("f", "g"):
        client.publish(group_id, "1")
        client.run(client.core.pause(group_id))
    assert 0 < requests() <= 7
    monkeypatch.setattr("fairlane.backends.mongo.core.MOST_PAUSED", 1)
    assert 0 < requests() <= 7
    client.run(client.core.pause(None))
    assert requests() == 1
