"""Fairlane's own connections under stress: threads, tasks, event loops and forks at once, on breaking connections.

No call may get the answer of another. No confirmed message may be lost or doubled. No connection may be left open.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from typing import Any

import fairlane
from fairlane.errors import BackendUnavailable
from tests.backends.redis.servers import connect
from tests.harness.proxy import Proxy

SECONDS = 5.0


class Storm:
    """What the callers have done and seen."""

    def __init__(self) -> None:
        self.until = time.monotonic() + SECONDS
        self.lock = threading.Lock()
        self.confirmed: Counter[str] = Counter()
        self.unsure: set[str] = set()
        self.problems: list[str] = []

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self.until and not self.problems

    def published(self, event: str) -> None:
        with self.lock:
            self.confirmed[event] += 1

    def failed(self, event: str, error: BaseException) -> None:
        with self.lock:
            if not isinstance(error, BackendUnavailable):
                self.problems.append(f"{event}: {error!r}")
            elif "nothing was changed" not in str(error):
                self.unsure.add(event)

    def looked(self, group: str, rows: Any) -> None:
        """Check that the answer is about this group: the answer of another call would be about another group."""
        wrong = [row for row in rows if row.group_id != group or not row.event.startswith(f"{group} ")]
        if wrong:
            self.problems.append(f"{group}: {wrong}")


def blocking(storm: Storm, queue: fairlane.RedisTransport[Any], name: str) -> None:
    turn = 0
    while storm.is_on:
        turn += 1
        event = f"{name} {turn}"
        try:
            queue.publish(name, event)
            storm.published(event)
        except Exception as error:
            storm.failed(event, error)
        try:
            storm.looked(name, queue.inspect.messages(name, limit=3))
        except Exception as error:
            storm.failed("", error)


async def awaiting(storm: Storm, queue: fairlane.AsyncRedisTransport[Any], name: str) -> None:
    turn = 0
    dice = random.Random(name)
    while storm.is_on:
        turn += 1
        event = f"{name} {turn}"
        call = asyncio.ensure_future(queue.publish(name, event))
        if dice.random() < 0.1:
            await asyncio.sleep(dice.random() * 0.002)
            call.cancel()
        try:
            await call
            storm.published(event)
        except asyncio.CancelledError:
            storm.unsure.add(event)
        except Exception as error:
            storm.failed(event, error)
        try:
            storm.looked(name, await queue.inspect.messages(name, limit=3))
        except Exception as error:
            storm.failed("", error)


def loop(storm: Storm, queue: fairlane.AsyncRedisTransport[Any], name: str) -> None:
    async def main() -> None:
        await asyncio.gather(*(awaiting(storm, queue, f"{name}-{number}") for number in range(4)))

    asyncio.run(main())


def fork(storm: Storm, queue: fairlane.RedisTransport[Any], number: int) -> int:
    """Start a child process that publishes ten messages, while threads of the parent use the same transport."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            for turn in range(10):
                while True:
                    try:
                        queue.publish(f"child-{number}", f"child-{number} {turn}", dedup_id=f"child-{number} {turn}")
                        break
                    except BackendUnavailable:
                        pass
            code = 0
        finally:
            os._exit(code)
    return child


def test_connections_that_break_at_random_never_mix_up_answers(url: str, name: str) -> None:
    storm = Storm()
    dice = random.Random(1)
    with Proxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy:
        there = f"redis://127.0.0.1:{proxy.port}/0?max_connections=4&timeout=10"
        sync = fairlane.RedisTransport.from_url(there, queue=name)
        asyncio_one = asyncio.run(fairlane.AsyncRedisTransport.from_url(there, queue=name))
        threads = [threading.Thread(target=blocking, args=(storm, sync, f"thread-{n}")) for n in range(6)]
        threads += [threading.Thread(target=loop, args=(storm, asyncio_one, f"loop-{n}")) for n in range(2)]
        for each in threads:
            each.start()
        children: list[int] = []
        while storm.is_on:
            time.sleep(dice.random() * 0.05)
            proxy.cut(reset=dice.random() < 0.5)
            if len(children) < 5:
                children.append(fork(storm, sync, len(children)))
        for each in threads:
            each.join()
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        sync.close()
        asyncio.run(asyncio_one.close())
    assert storm.problems == []
    assert set(codes) == {0}
    assert len(storm.confirmed) > 100
    with connect(url) as client:
        stored = Counter(event.decode()[1:-1] for event in client.hvals(f"{{{name}}}:events"))
    assert max(stored.values()) == 1, "nothing was sent twice"
    assert not set(storm.confirmed) - set(stored), "nothing that was confirmed is lost"
    extra = {event for event in set(stored) - set(storm.confirmed) if not event.startswith("child")}
    assert extra <= storm.unsure, "what was said not to be changed was not"
