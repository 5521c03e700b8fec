"""Many workers ack, nack, extend or stop: the order is kept, no message is lost, and the keys agree."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.redis.invariants import check
from tests.backends.redis.library import LeaseLost, Library, leased
from tests.backends.redis.servers import connect

WORKERS = 8
GROUPS = 12
MESSAGES = 40
MILLISECOND = 1000
SECONDS = 60.0


class Work:
    """What all workers share, and what they have seen."""

    def __init__(self, library: Library, url: str) -> None:
        self.library = library
        self.url = url
        self.lock = threading.Lock()
        self.done: dict[bytes, list[int]] = defaultdict(list)
        self.problems: list[str] = []
        self.finished = threading.Event()

    def run(self, number: int) -> None:
        dice = random.Random(number)
        with connect(self.url) as client:
            calls = _calls(self.library, client)
            turn = 0
            try:
                while not self.finished.is_set():
                    turn += 1
                    self.one(dice, calls, f"{number}-{turn}")
            except Exception as error:
                self.problems.append(repr(error))
                raise

    def one(self, dice: random.Random, call: Callable[..., Any], token: str) -> None:
        # long leases are acked in time; short leases expire, and are acked or nacked too late on purpose
        short = dice.random() < 0.3
        visibility = MILLISECOND * (dice.randrange(1, 6) if short else 60_000)
        reply = leased(call("claim", f"w{token}", visibility, dice.choice([0, 0, 0, 1, 3]), token))
        if reply is None:
            time.sleep(0.001)
            return
        group, seq, event = reply[0], reply[1], reply[2]
        if short:
            time.sleep(0.001 * dice.randrange(0, 8))
        action = dice.random()
        try:
            if action < 0.15:
                call("nack", group, token, dice.choice([0, 0, MILLISECOND, 5 * MILLISECOND]))
            elif action < 0.25 and short:
                pass  # as if the worker had died: it sends nothing more
            else:
                if action < 0.5:
                    call("extend", group, token, 60_000 * MILLISECOND)
                with self.lock:  # so that the list is in the order in which it happened
                    call("ack", group, token)
                    self.done[group].append(int(event))
                    if int(event) != len(self.done[group]):
                        self.problems.append(f"{group!r}: {event!r} (seq {seq}) after {len(self.done[group]) - 1}")
        except LeaseLost:
            if not short:
                self.problems.append(f"lost a long lease on {group!r}")


def _calls(library: Library, client: Any) -> Callable[..., Any]:
    mine = Library.__new__(Library)
    mine.__dict__.update(library.__dict__, client=client)
    return mine.call


@pytest.mark.parametrize("head_start", ["1", "always"])
def test_eight_workers_lose_nothing_and_keep_the_order(single: Any, head_start: str) -> None:
    library = Library(single, head_start=head_start)
    work = Work(library, os.environ["FAIRLANE_TEST_REDIS_URL"])
    threads = [threading.Thread(target=work.run, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for event in range(1, MESSAGES + 1):
        for group in range(GROUPS):
            library.publish(f"g{group}", str(event), group % 5, f"{group}/{event}")
    deadline = time.monotonic() + SECONDS
    while library.call("queue_status")[5] and time.monotonic() < deadline and not work.problems:
        time.sleep(0.01)
    work.finished.set()
    for thread in threads:
        thread.join()
    assert work.problems == []
    check(library)
    assert {len(done) for done in work.done.values()} == {MESSAGES}
    assert len(work.done) == GROUPS
    assert library.leftovers() == ["meta"]
    library.remove()
