"""A queue in the middle of its work, for tests that break an operation on its way to the server."""

from __future__ import annotations

from typing import Any, Self

from tests.harness import LONG, Queue


class Scene:
    """Group `g` holds A, B and C, and we hold the lease on A. Group `other` holds X and Y, and another worker holds the
    lease on X."""

    def __init__(self, queue: Queue, server: Any) -> None:
        self.queue, self.server = queue, server

    async def build(self) -> Self:
        for event in "ABC":
            await self.queue.publish("g", event)
        for event in "XY":
            await self.queue.publish("other", event)
        self.mine = await self.queue.get("me", LONG)
        self.other = await self.queue.get("other", LONG)
        assert (self.mine.event, self.other.event) == ("A", "X")
        self.before = await self.foreign()
        return self

    async def foreign(self) -> Any:
        (row,) = [row for row in await self.queue.groups() if row.group_id == "other"]
        return row.state, row.depth, row.worker_id, row.attempts

    async def assert_rest(self, expected: Any) -> None:
        """Check what is left of `g`, in order, after leases on it are given back. The other lease must be unchanged."""
        assert await self.foreign() == self.before, "somebody else's lease was touched"
        await self.queue.ack(self.other)
        seen = await self.queue.drain()
        assert [event for group, event in seen if group == "g"] == list(expected)
        assert [event for group, event in seen if group == "other"] == ["Y"]
        assert await self.queue.leftovers() == {}
