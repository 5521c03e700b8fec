"""All calls of a transport, for what must hold for each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fairlane import Lease
from tests.harness import LONG, Queue

NAMES = ("publish", "claim", "ack", "nack", "extend", "look")
"""Those that there are on every backend."""


def every_call(queue: Queue, lease: Lease) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Each call of the contract by its name, those with a lease with this one, and looks at the queue."""
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "publish": lambda: queue.publish("g", 1),
        "claim": lambda: queue.claim("w", LONG),
        "ack": lambda: queue.ack(lease),
        "nack": lambda: queue.nack(lease),
        "extend": lambda: queue.extend(lease, LONG),
        "look": queue.status,
    }
    if queue.caps.inspect_messages:
        calls |= {"look at groups": queue.groups, "look at messages": lambda: queue.messages("g")}
    return calls
