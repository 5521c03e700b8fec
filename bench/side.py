"""One side of `before.py`, in its own process: it answers each line that it reads with the figures of one slice.

It uses only what every version of Fairlane has, since the older version runs it as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.cases import READY_MESSAGES, Case

PAYLOAD = {"kind": "order.paid", "data": {"order": 4711, "lines": [{"sku": "A-1", "n": 2}], "note": "x" * 80}}
WARM_CYCLES = 12
"""Cycles without timing at the beginning of a slice: the other sides have changed the caches, and drivers prepare a
statement at its sixth use."""

Figures = dict[str, tuple[float, float]]
"""Seconds of CPU time and of wall time: of a claim with its ack, and of a publish."""


def measure(cycles: int, claim_and_ack: Callable[[int], Any], publish: Callable[[Any], None]) -> Figures:
    """Time claim and ack together, since reading the CPU time takes as long as half an ack."""
    publish(claim_and_ack(WARM_CYCLES))
    begun = time.process_time(), time.perf_counter()
    leases = claim_and_ack(cycles)
    acked = time.process_time(), time.perf_counter()
    publish(leases)
    published = time.process_time(), time.perf_counter()
    return {
        "claim and ack": ((acked[0] - begun[0]) / cycles, (acked[1] - begun[1]) / cycles),
        "publish": ((published[0] - acked[0]) / cycles, (published[1] - acked[1]) / cycles),
    }


class Blocking:
    """A transport, Fairlane's or the peer's."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport

    def claim_and_ack(self, cycles: int) -> Any:
        leases, claim, ack = [], self.transport.claim, self.transport.ack
        for _ in range(cycles):
            lease = claim("bench", 60)
            ack(lease)
            leases.append(lease)
        return leases

    def publish(self, leases: Any) -> None:
        for lease in leases:
            self.transport.publish(lease.group_id, lease.event)

    def close(self) -> None:
        self.transport.close()


class Tasks:
    """A transport for asyncio."""

    def __init__(self, connecting: Awaitable[Any]) -> None:
        self._runner = asyncio.Runner()
        self.transport = self._run(connecting)

    def _run(self, what: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await what

        return self._runner.run(awaited())

    def claim_and_ack(self, cycles: int) -> Any:
        async def run() -> Any:
            leases, claim, ack = [], self.transport.claim, self.transport.ack
            for _ in range(cycles):
                lease = await claim("bench", 60)
                await ack(lease)
                leases.append(lease)
            return leases

        return self._run(run())

    def publish(self, leases: Any) -> None:
        async def run() -> None:
            for lease in leases:
                await self.transport.publish(lease.group_id, lease.event)

        self._run(run())

    def close(self) -> None:
        self._run(self.transport.close())
        self._runner.close()


class Ours:
    """A queue of the version of Fairlane that this interpreter has."""

    def __init__(self, backend: str, groups: int, folder: Path, tasks: bool) -> None:
        import fairlane
        from fairlane import migrate

        self.url = os.environ.get(f"FAIRLANE_TEST_{backend.upper()}_URL") or f"sqlite:///{folder / uuid4().hex}.db"
        self.queue = f"bench_{uuid4().hex[:8]}"
        self._fairlane, self._migrate, self._tasks = fairlane, migrate, tasks
        migrate.upgrade(self.url, queue=self.queue)
        with fairlane.connect(self.url, self.queue) as transport:
            for number in range(READY_MESSAGES * groups):
                transport.publish(f"ready-{number % groups}", PAYLOAD)

    def open(self) -> Blocking | Tasks:
        if self._tasks:
            return Tasks(self._fairlane.connect_async(self.url, self.queue))
        return Blocking(self._fairlane.connect(self.url, self.queue))

    def close(self) -> None:
        with self._fairlane.connect(self.url, self.queue) as transport:
            while lease := transport.claim("bench", 60):
                transport.ack(lease)
        self._migrate.downgrade(self.url, queue=self.queue, revision="base")


class Theirs:
    """A queue of harel."""

    def __init__(self, backend: str, groups: int, folder: Path) -> None:
        from harel.spec.states import Event

        from bench.theirs import THEIRS

        self.system = THEIRS[backend](Case("ready", groups), 0, folder, Event(**PAYLOAD))

    def open(self) -> Blocking:
        self.system.renew()
        return Blocking(self.system.transport)

    def close(self) -> None:
        self.system.close()


def main() -> None:
    """Fill a queue, then answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=("ours", "theirs"))
    parser.add_argument("backend")
    parser.add_argument("folder", type=Path)
    parser.add_argument("groups", type=int)
    parser.add_argument("cycles", type=int)
    parser.add_argument("--tasks", action="store_true")
    chosen = parser.parse_args()
    arguments = chosen.backend, chosen.groups, chosen.folder
    system = Ours(*arguments, chosen.tasks) if chosen.system == "ours" else Theirs(*arguments)
    opened = None
    print("ready", flush=True)
    for _ in sys.stdin:
        if opened is None or chosen.backend == "postgres":  # fresh connections there, as in `claim.py`
            if opened is not None and chosen.system == "ours":
                opened.close()
            opened = system.open()
        print(json.dumps(measure(chosen.cycles, opened.claim_and_ack, opened.publish)), flush=True)
    if opened is not None and chosen.system == "ours":
        opened.close()
    system.close()


if __name__ == "__main__":
    main()
