"""All promises at once: random operations on every backend and on a model, side by side.

Guards against cases that no other test has: an order of publishes, claims with floors, stale and current leases,
expiries, delays and duplicates after which a backend and the model differ. Hypothesis finds the shortest such example.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fairlane import Lease, LeaseLost, Message
from tests.harness import LONG, Queues
from tests.harness.model import SECOND, Model

pytestmark = pytest.mark.promise(1, 2, 3, 5, 6, 8, 9)

BRIEF = 0.02
"""A visibility or delay that the test waits for."""

HELD = 3600 * SECOND
"""What the model gets for any other visibility or delay: its clock stands still."""

GROUPS = ["a", "A", "b:{}", "\N{PILE OF POO}"]
DEDUP_IDS = ["x", "X"]

groups = st.sampled_from(GROUPS)
events = st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=3), st.lists(st.booleans(), max_size=2))
priorities = st.integers(0, 4)
which = st.integers(0, 2**16)


class Machine(RuleBasedStateMachine):
    """One queue and its model. The backend, the twin and the event loop come from the test."""

    kit: Any
    twin: Any
    folder: Any
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        self.queues = Queues(self.kit, self.twin, self.folder)
        self.leases: list[Lease] = []  # all leases that were ever given, also the stale ones
        self.caps = self.kit.caps

    @initialize(head_start=st.sampled_from([3600, "always", 0]))
    def make(self, head_start: Any) -> None:
        """An hour lasts longer than any test, so the order does not depend on the speed of the machine."""
        self.queue = self.wait(self.queues.make(head_start=head_start if self.caps.head_start else None))
        self.model = Model(head_start)

    def wait(self, awaitable: Any) -> Any:
        return self.runner.run(awaitable)

    def teardown(self) -> None:
        self.wait(self.queues.close())

    def some_lease(self, number: int) -> Lease:
        """Choose the newest ones more often, since most of the older ones are stale."""
        recent = self.leases[-6:] if number % 4 else self.leases
        return recent[number // 4 % len(recent)]

    # Publishing

    @rule(group=groups, event=events, priority=priorities)
    def publish(self, group: str, event: Any, priority: int) -> None:
        self._publish(group, event, priority, None)

    @rule(group=groups, event=events, priority=priorities, dedup_id=st.sampled_from(DEDUP_IDS))
    def publish_with_dedup(self, group: str, event: Any, priority: int, dedup_id: str) -> None:
        self._publish(group, event, priority, dedup_id if self.caps.dedup_seconds is None else None)

    def _publish(self, group: str, event: Any, priority: int, dedup_id: str | None) -> None:
        if not self.caps.priorities:
            priority = 0
        seq = self.wait(self.queue.publish(group, event, priority, dedup_id=dedup_id))
        newest = self.model.last_seq
        assert self.model.publish(seq, group, event, priority, dedup_id) == seq
        assert seq > newest or dedup_id is not None

    @rule(
        messages=st.lists(st.tuples(groups, events, priorities, st.sampled_from([None, None, *DEDUP_IDS])), max_size=5)
    )
    def publish_many(self, messages: list[tuple[str, Any, int, str | None]]) -> None:
        chosen = [
            Message(
                group,
                event,
                priority if self.caps.priorities else 0,
                dedup_id if self.caps.dedup_seconds is None else None,
            )
            for group, event, priority, dedup_id in messages
        ]
        seqs = self.wait(self.queue.publish_many(chosen))
        assert len(seqs) == len(chosen)
        self.model.publish_many(seqs, chosen)

    # Claiming

    @rule(floor=priorities)
    def claim(self, floor: int) -> None:
        self._claim(floor)

    @rule()
    def claim_any(self) -> None:
        self._claim(0)

    def _claim(self, floor: int) -> Lease | None:
        if not self.caps.priorities:
            floor = 0
        line = self.model.line(floor)
        lease: Lease | None = self.wait(self.queue.claim("worker", LONG, floor))
        assert (lease is None) == (not line), f"got {lease}, the line is {line}"
        if lease is None:
            return None
        assert lease.group_id in line
        assert lease.group_id == line[0] or not self.caps.fairness, f"got {lease.group_id}, the line is {line}"
        self._leased(lease)
        return lease

    def _leased(self, lease: Lease) -> None:
        assert lease.token not in {old.token for old in self.leases}
        message = self.model.claim(lease.group_id, lease.token, HELD)
        assert (lease.seq, lease.event) == (message.seq, message.event)
        assert type(lease.event) is type(message.event)
        assert lease.attempts == self.model.groups[lease.group_id].attempts
        self.leases.append(lease)

    @rule(limit=st.integers(1, 5), floor=st.sampled_from([0, 0, 0, 2, 4]))
    def claim_many(self, limit: int, floor: int) -> None:
        if not self.caps.priorities:
            floor = 0
        line = self.model.line(floor)
        leases = self.wait(self.queue.claim_many("worker", LONG, limit, floor))
        found = [lease.group_id for lease in leases]
        assert found == line[:limit] or (
            not self.caps.fairness and len(found) == min(limit, len(line)) and set(found) <= set(line)
        ), f"got {found}, the line is {line}"
        for lease in leases:
            self._leased(lease)

    @rule(count=st.integers(1, 3), floor=st.sampled_from([0, 0, 0, 2, 4]))
    def claim_and_abandon(self, count: int, floor: int) -> None:
        """Several leases that run out one after the other, before anybody claims again."""
        taken = [lease for lease in [self._claim(floor) for _ in range(count)] if lease]
        short = [self.wait(self.queue.extend(lease, BRIEF)) for lease in taken]
        if short:
            self.wait(self.queue.expired(*short))
        for lease in taken:
            self.model.expire(lease.group_id)

    # Giving back, with leases of any age

    def _try(self, lease: Lease, operation: Any) -> bool:
        """Carry out an operation, which must succeed if the model says that the lease holds, and fail otherwise."""
        if self.model.holds(lease.group_id, lease.token):
            if self.caps.extend_after_expiry or self.model.state(lease.group_id) != "ready":
                self.wait(operation())
                return True
            return False
        try:
            self.wait(operation())
        except LeaseLost:
            return False
        raise AssertionError(f"a stale lease on {lease.group_id!r} was accepted")

    @precondition(lambda self: self.leases)
    @rule(number=which)
    def ack(self, number: int) -> None:
        lease = self.some_lease(number)
        if self._try(lease, lambda: self.queue.ack(lease)):
            self.model.ack(lease.group_id)

    @precondition(lambda self: self.leases and self.caps.extend_after_expiry)
    @rule(numbers=st.lists(which, max_size=4))
    def ack_many(self, numbers: list[int]) -> None:
        chosen = [self.some_lease(number) for number in numbers]
        lost = []
        for lease in chosen:
            if self.model.holds(lease.group_id, lease.token):
                self.model.ack(lease.group_id)
            else:
                lost.append(lease)
        found = self.wait(self.queue.ack_many(chosen))
        assert sorted(lease.token for lease in found) == sorted(lease.token for lease in lost)

    @precondition(lambda self: self.leases)
    @rule(number=which, floor=st.sampled_from([0, 0, 0, 2, 4]))
    def ack_and_claim(self, number: int, floor: int) -> None:
        if not self.caps.priorities:
            floor = 0
        lease = self.some_lease(number)
        found: list[Lease | None] = []

        async def call() -> None:
            found.append(await self.queue.ack_and_claim(lease, "worker", LONG, floor))

        if self._try(lease, call):
            self.model.ack(lease.group_id)
            line = self.model.line(floor)
            assert (found[0] is None) == (not line), f"got {found}, the line is {line}"
            if found[0] is not None:
                assert found[0].group_id == line[0] or (not self.caps.fairness and found[0].group_id in line)
                self._leased(found[0])

    @precondition(lambda self: self.leases)
    @rule(number=which)
    def nack(self, number: int) -> None:
        lease = self.some_lease(number)
        if self._try(lease, lambda: self.queue.nack(lease)):
            self.model.nack(lease.group_id)

    @precondition(lambda self: self.leases)
    @rule(number=which)
    def park(self, number: int) -> None:
        lease = self.some_lease(number)
        if self._try(lease, lambda: self.queue.nack(lease, 3600)):
            self.model.nack(lease.group_id, HELD)

    @precondition(lambda self: self.leases and self.caps.inspect_messages)
    @rule(number=which)
    def park_and_wait(self, number: int) -> None:
        lease = self.some_lease(number)
        if self._try(lease, lambda: self.queue.nack(lease, BRIEF)):
            self.wait(self.queue.unparked(lease.group_id))
            self.model.nack(lease.group_id)

    @precondition(lambda self: self.leases)
    @rule(number=which)
    def extend(self, number: int) -> None:
        lease = self.some_lease(number)
        if self._try(lease, lambda: self.queue.extend(lease, 2 * LONG)):
            self.model.extend(lease.group_id, HELD)

    @precondition(lambda self: self.leases)
    @rule(number=which)
    def let_run_out(self, number: int) -> None:
        lease = self.some_lease(number)
        if self._try(lease, lambda: self._expire(lease)):
            self.model.expire(lease.group_id)

    # Operators

    @precondition(lambda self: self.caps.release)
    @rule(group=groups)
    def release(self, group: str) -> None:
        assert self.wait(self.queue.release(group)) == self.model.release(group)

    @precondition(lambda self: self.caps.release)
    @rule(group=groups)
    def purge(self, group: str) -> None:
        assert self.wait(self.queue.purge(group)) == self.model.purge(group)

    @precondition(lambda self: self.caps.pause)
    @rule(group=groups)
    def pause(self, group: str) -> None:
        assert self.wait(self.queue.pause(group)) == self.model.pause(group)

    @precondition(lambda self: self.caps.pause)
    @rule(group=st.one_of(groups, st.none()))
    def resume(self, group: str | None) -> None:
        assert self.wait(self.queue.resume(group)) == self.model.resume(group)

    @precondition(lambda self: self.caps.pause)
    @rule()
    def pause_all(self) -> None:
        assert self.wait(self.queue.pause()) == self.model.pause(None)

    async def _expire(self, lease: Lease) -> None:
        await self.queue.expired(await self.queue.extend(lease, BRIEF))

    # Looking

    @precondition(lambda self: self.caps.exact_counts)
    @invariant()
    def counts_agree(self) -> None:
        status = self.wait(self.queue.status())
        figures = [status.groups, status.ready, status.in_flight, status.parked, status.paused or 0]
        assert figures == self.model.states()
        assert status.is_paused == (None in self.model.paused)
        assert status.messages == self.model.messages()

    @precondition(lambda self: self.caps.inspect_messages)
    @rule()
    def look(self) -> None:
        rows = {row.group_id: row for row in self.wait(self.queue.groups())}
        assert set(rows) == set(self.model.groups) | (self.model.paused - {None})
        for name, group in self.model.groups.items():
            row = rows[name]
            expected = (self.model.state(name), group.priority, len(group.messages), group.attempts)
            assert (row.state, row.priority, row.depth, row.attempts) == expected
            messages = self.wait(self.queue.messages(name))
            assert [(m.seq, m.event, m.dedup_id) for m in messages] == [
                (m.seq, m.event, m.dedup_id) for m in group.messages
            ]
        if self.caps.fairness:
            ready = [name for name in self.model.order() if self.model.state(name) == "ready"]
            assert [name for name in rows if rows[name].state == "ready"] == ready

    @rule()
    def drain(self) -> None:
        """Claim and ack everything that is claimable. If there was nothing else in the queue, it must then be empty."""
        while (lease := self._claim(0)) is not None:
            self.wait(self.queue.ack(lease))
            self.model.ack(lease.group_id)
        if not self.model.groups and not self.model.paused:
            assert self.wait(self.queue.leftovers()) == {}


@pytest.mark.cluster
def test_stateful_every_backend_does_what_the_model_does(arm: Any, folder: Path) -> None:
    kit, twin = arm
    kit.folder = folder
    with asyncio.Runner() as runner:
        bound = type("Machine", (Machine,), {"kit": kit, "twin": twin, "folder": folder, "runner": runner})
        run_state_machine_as_test(
            bound,
            settings=settings(
                max_examples=12 if kit.caps.tested_messages >= 10_000 else 4 if kit.caps.resolution < 1 else 2,
                stateful_step_count=40 if kit.caps.resolution < 1 else 25,  # an expiry takes a second or more there
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
