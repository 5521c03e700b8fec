"""All calls of a transport, for tests of promises that hold for every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fairlane import Lease, LeaseLost, Message
from tests.harness import LONG, Queue

NAMES = ("publish", "claim", "ack", "nack", "extend", "look")
"""The calls that every backend has."""


def every_call(queue: Queue, lease: Lease) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return each call of the contract by its name. Calls that need a lease use this one. Calls that look at the queue
    are included."""
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "publish": lambda: queue.publish("g", 1),
        "claim": lambda: queue.claim("w", LONG),
        "ack": lambda: queue.ack(lease),
        "nack": lambda: queue.nack(lease),
        "extend": lambda: queue.extend(lease, LONG),
        "look": queue.status,
    }
    calls |= {
        "publish_many": lambda: queue.publish_many([Message("g", 1), Message("h", 2)]),
        "claim_many": lambda: queue.claim_many("w", LONG, 2),
        "ack_many": lambda: _all_acked(queue, lease),
        "ack_and_claim": lambda: queue.ack_and_claim(lease, "w", LONG),
    }
    if queue.caps.inspect_messages:
        calls |= {"look at groups": queue.groups, "look at messages": lambda: queue.messages("g")}
    if queue.caps.release:
        calls |= {"release": lambda: queue.release("g"), "purge": lambda: queue.purge("g")}
    if queue.caps.pause:
        calls |= {"pause": lambda: queue.pause("other"), "resume": lambda: queue.resume("other")}
    return calls


async def _all_acked(queue: Queue, lease: Lease) -> None:
    """Raise `LeaseLost` as `ack` does, for tests of all calls."""
    if await queue.ack_many([lease]):
        raise LeaseLost(lease.group_id, lease.seq)
