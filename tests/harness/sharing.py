"""Threads of one process and one transport, for the backends that send every request over HTTP."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import fairlane
from tests.harness import LONG


def assert_threads_share_a_transport(url: str, queue: str) -> None:
    """Sixteen publish, then claim until nothing is left: every message goes to one of them, in order."""
    fairlane.migrate.upgrade(url, queue=queue)
    seen: dict[str, list[int]] = {f"g{n}": [] for n in range(8)}
    guard = threading.Lock()

    def work(transport, number):
        for n in range(5):
            transport.publish(f"g{number % 8}", number * 100 + n)
        while (lease := transport.claim(f"w{number}", LONG)) is not None:
            with guard:
                seen[lease.group_id].append(lease.event)
            transport.ack(lease)

    with fairlane.connect(url, queue) as transport, ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: work(transport, number), range(16)))
        assert transport.inspect.queue().messages == 0
    everything = [event for events in seen.values() for event in events]
    assert Counter(everything) == Counter(number * 100 + n for number in range(16) for n in range(5))
    for events in seen.values():
        for number in {event // 100 for event in events}:
            own = [event for event in events if event // 100 == number]
            assert own == sorted(own)
