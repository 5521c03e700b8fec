"""An exception from a signal handler does not damage a store, wherever it is raised."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fairlane import InMemoryTransport, Lease, LeaseLost, MemoryStore
from tests.interruption import interrupted

WITHIN = "fairlane/backends/memory/"


def prepared() -> tuple[Any, MemoryStore, Lease]:
    """Two groups of two messages, one leased; a third group of one message."""
    store = MemoryStore()
    queue = InMemoryTransport[Any](store)
    for number in range(2):
        queue.publish("leased", number, 2, dedup_id=f"l{number}")
    lease = queue.claim("w", 30)
    assert lease is not None
    for number in range(2):
        queue.publish("waits", number, dedup_id=f"w{number}")
    queue.publish("single", 0, dedup_id="s")
    return queue, store, lease


OPERATIONS = {
    "publish a new group": lambda queue, lease: queue.publish("new", 0, 4, dedup_id="n"),
    "publish": lambda queue, lease: queue.publish("waits", 2, dedup_id="w2"),
    "claim": lambda queue, lease: queue.claim("other", 30),
    "ack": lambda queue, lease: queue.ack(lease),
    "nack": lambda queue, lease: queue.nack(lease, 5),
    "extend": lambda queue, lease: queue.extend(lease, 60),
    "stats": lambda queue, lease: queue.inspect.groups(),
}


def drained(queue: Any, store: MemoryStore) -> dict[str, list[int]]:
    """All messages, in the order of each group. Leased and parked groups come when their time is over."""
    store.advance(3600)
    found: dict[str, list[int]] = {}
    while (lease := queue.claim("w", 30)) is not None:
        found.setdefault(lease.group_id, []).append(lease.event)
        queue.ack(lease)
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_is_interrupted_has_happened_completely_or_not_at_all(name: str) -> None:
    queue, store, lease = prepared()
    OPERATIONS[name](queue, lease)
    after = drained(queue, store)
    before = {"leased": [0, 1], "waits": [0, 1], "single": [0]}
    at = 0
    while True:
        queue, store, lease = prepared()
        if not interrupted(partial(OPERATIONS[name], queue, lease), at, WITHIN):
            break
        assert queue.publish("waits", 9, dedup_id="w0") == 3, "a dedup id was forgotten"
        found = drained(queue, store)
        assert found in (before, after), f"interrupted at line {at}"
        with pytest.raises(LeaseLost):
            queue.ack(lease)
        assert (store._groups, store._dedup, store._sizes) == ({}, {}, [0] * 5)
        at += 1
    assert at > 5, "nothing was interrupted"


def test_a_late_lease_is_lost_after_an_interrupted_ack() -> None:
    """Guards against a token that stays when its message is gone, so that a late ack deletes the next message."""
    at = 0
    while True:
        queue, _, lease = prepared()
        if not interrupted(partial(queue.ack, lease), at, WITHIN):
            break
        if queue.inspect.queue().messages == 4:
            with pytest.raises(LeaseLost):
                queue.ack(lease)
        else:
            queue.ack(lease)
        assert queue.inspect.queue().messages == 4
        at += 1
