"""The kit of the in-memory backend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fairlane import MemoryStore
from fairlane.backends.stored import Call, Rows
from tests.harness.kits.base import EPOCH, Kit


class MemoryKit(Kit):
    backend = "memory"

    def url(self, queue: str) -> str:
        return "memory://"

    def create(self, queue: str, head_start: float | str | None = None) -> None:
        if head_start is not None:
            chosen: Any = head_start  # the store itself checks what it accepts
            MemoryStore._shared[queue] = MemoryStore(chosen)

    def drop(self, queue: str) -> None:
        MemoryStore._shared.pop(queue, None)

    def batch(self, queue: str, calls: Sequence[Call]) -> list[Rows]:
        store = MemoryStore.shared(queue)
        return [store.perform(call.operation, call.arguments) for call in calls]

    def now(self, queue: str) -> datetime:
        return EPOCH + timedelta(microseconds=MemoryStore.shared(queue).now())

    def leftovers(self, queue: str) -> dict[str, int]:
        store = MemoryStore.shared(queue)
        lines = sum(len(line) for line in store._lines)
        return {"groups": len(store._groups), "lines": lines, "dedup": len(store._dedup)}
