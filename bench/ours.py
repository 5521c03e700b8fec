"""Fairlane's queues, filled through the stored operations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.harness import KITS, Kit

import fairlane
from bench.cases import READY_MESSAGES, Case
from fairlane.backends.stored import CLAIM, NACK, PUBLISH, Call

HOUR = 3600.0
CHUNK = 5000


class Ours:
    """The queue of one case in Fairlane."""

    name = "fairlane"

    def __init__(self, backend: str, case: Case, number: int, folder: Path, payload: str) -> None:
        self.case = case
        self.queue = f"bench_{uuid4().hex[:8]}_{number}"
        self.kit: Kit = KITS[backend]()
        self.kit.folder = folder / self.queue
        self.kit.folder.mkdir()
        self.kit.create(self.queue)
        self._payload = payload
        self._fill()
        self.transport = fairlane.connect(self.kit.url(self.queue), self.queue)

    def _fill(self) -> None:
        case = self.case
        if case.parked:
            self._send(self._publishes("parked", case.parked, 0, 1))
            self._park(case.parked)
        self._send(self._publishes("low", case.low, 0, 1))
        self._send(self._publishes("ready", case.ready, case.floor, READY_MESSAGES))
        self.kit.settle(self.queue)

    def _publishes(self, prefix: str, groups: int, priority: int, messages: int) -> Iterator[Call]:
        for _ in range(messages):
            for number in range(groups):
                yield Call(
                    PUBLISH,
                    {
                        "p_group_id": f"{prefix}-{number}",
                        "p_event": self._payload,
                        "p_priority": priority,
                        "p_dedup_id": None,
                    },
                )

    def _send(self, calls: Iterator[Call]) -> list[Any]:
        rows: list[Any] = []
        while chunk := list(itertools.islice(calls, CHUNK)):
            rows += self.kit.batch(self.queue, chunk)
        return rows

    def _park(self, groups: int) -> None:
        for done in range(0, groups, CHUNK):
            claims = [
                {"p_worker_id": "filler", "p_visibility": HOUR, "p_min_priority": 0, "p_token": str(uuid4())}
                for _ in range(min(CHUNK, groups - done))
            ]
            leases = self._send(Call(CLAIM, claim) for claim in claims)
            fences = ({"p_group_id": rows[0]["group_id"], "p_token": str(rows[0]["token"])} for rows in leases)
            self._send(Call(NACK, {**fence, "p_delay": HOUR}) for fence in fences)

    def renew(self) -> bool:
        """Use a fresh connection where that makes a difference. Return whether it did."""
        if self.kit.backend != "postgres":
            return False
        self.transport.close()
        self.transport = fairlane.connect(self.kit.url(self.queue), self.queue)
        return True

    def claim(self) -> Any:
        """Claim once; there is always a deliverable message."""
        return self.transport.claim("bench", 60, self.case.floor)

    def ack(self, lease: Any) -> None:
        """Finish the message."""
        self.transport.ack(lease)

    def refill(self, lease: Any) -> None:
        """Publish one message into the group of a lease."""
        self.transport.publish(lease.group_id, lease.event, self.case.floor)

    def close(self) -> None:
        """Remove the queue."""
        self.transport.close()
        self.kit.drop(self.queue)
