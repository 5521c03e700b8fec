"""Random orders of the steps of several clients, on a real server and at the same time on the server in memory.

Both servers must give the same answers. So the results of `test_protocol`, which uses the server in memory, are also
valid for real servers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from fairlane.backends.mongo.core import MongoCore
from fairlane.backends.mongo.executor import MongoExecutor
from fairlane.model import Lease
from fairlane.program import Sleep, run
from tests.backends.mongo.explorer import Note, Script, consumer, operator, publisher
from tests.backends.mongo.fake import FakeServer
from tests.backends.mongo.watcher import Ghost, Path, delivered, watched
from tests.harness import Queue, Queues

pytestmark = [pytest.mark.backends("mongo"), pytest.mark.twins("sync"), pytest.mark.promise(1, 2, 3, 7)]

SCRIPTS: list[dict[str, Script]] = [
    {"P": publisher(("g", "gA"), ("g", "gB")), "Q": publisher(("g", "gC"), ("h", "hA")), "C": consumer(*["ack"] * 4)},
    {
        "P": publisher(("g", "gA")),
        "Q": publisher(("g", "gB")),
        "C": consumer("ack", "ack"),
        "D": consumer("nack", "ack"),
    },
    {
        "P": publisher(("g", "gA"), ("h", "hA"), dedup_id="same"),
        "Q": publisher(("g", "gB"), dedup_id="same"),
        "C": consumer("ack", "ack"),
        "D": consumer("extend", "ack"),
    },
    {
        "P": publisher(("g", "gA"), ("h", "hA"), ("g", "gB")),
        "C": consumer("ack", "nack", "ack"),
        "D": consumer("ack", "ack"),
        "O": operator("pause", "resume", "pause", "resume"),
    },
]


class Walk:
    """One order of steps. On the server in memory, too, a little time passes with every step."""

    def __init__(self, executor: MongoExecutor, core: MongoCore) -> None:
        self.real = executor
        self.core = core
        self.fake = FakeServer(head_start="always")
        self.ghost = Ghost()
        self.path: Path = None

    def go(self, scripts: dict[str, Script], choice: random.Random) -> None:
        programs = {name: script(self.core) for name, script in scripts.items()}
        requests: dict[str, Any] = {}
        for name in scripts:
            self._advance(name, programs, requests, None, first=True)
        while requests:
            name = choice.choice(sorted(requests))
            self._advance(name, programs, requests, self._ask(name, requests[name]))

    def _ask(self, name: str, request: Any) -> Any:
        self.fake.pass_time(0.001)
        answer, expected = self.real.execute(request), self.fake.execute(request)
        self.path = (self.path, (name, request, answer))
        assert comparable(answer, request) == comparable(expected, request)
        self.ghost = watched(self.ghost, name, request, expected)
        return answer

    def _advance(self, name: str, programs: Any, requests: Any, answer: Any, *, first: bool = False) -> None:
        program = programs[name]
        try:
            request = next(program) if first else program.send(answer)
            while isinstance(request, Note | Sleep):
                if isinstance(request, Note) and request.what == "claimed" and request.lease is not None:
                    self.ghost = delivered(self.ghost, name, request.lease, self.fake, self.path, ())
                request = program.send(None)
        except StopIteration:
            requests.pop(name, None)
        else:
            requests[name] = request

    def drain(self) -> set[str]:
        found = set()
        execute: Callable[[Any], Any] = self.real.execute
        while (lease := run(self.core.claim("w", 60, 0, Lease), execute)) is not None:
            found.add(lease.event)
            run(self.core.ack(lease), execute)
        return found


def comparable(answer: Any, request: Any) -> Any:
    """Leave out what may differ: times, and fields that the request does not ask for."""
    if isinstance(answer, list):
        return [comparable(item, request) for item in answer]
    if isinstance(answer, dict):
        fields = getattr(request, "fields", None)
        kept = {key: value for key, value in answer.items() if not fields or key in (*fields, "_id")}
        return {key: value for key, value in kept.items() if not isinstance(value, datetime)}
    return answer


@pytest.fixture
async def queue(queues: Queues) -> Any:
    """A queue with `head_start=always`. So places of new groups do not depend on the clocks, which differ."""
    return await queues.make(head_start="always")


@pytest.fixture
def executor(queue: Queue) -> Iterator[MongoExecutor]:
    made = MongoExecutor.from_url(queue.kit.url(queue.name), queue.name)
    yield made
    made.close()


@pytest.mark.parametrize("scripts", SCRIPTS, ids=["one-consumer", "two-of-each", "dedup", "paused"])
@pytest.mark.parametrize("seed", range(5))
async def test_random_orders_of_steps_break_no_promise(
    queue: Queue, executor: MongoExecutor, scripts: Any, seed: int
) -> None:
    walk = Walk(executor, MongoCore(queue.name))
    walk.go(scripts, random.Random(seed))
    inserted = {event for _, event in walk.ghost.inserted}
    left = inserted - walk.ghost.acked
    held = [lease for _, lease in walk.ghost.held]
    execute: Callable[[Any], Any] = executor.execute
    for lease in held:
        run(walk.core.nack(lease, 0.0), execute)
    assert walk.drain() == left
    assert await queue.leftovers() == {}
