"""An exception from a signal handler leaves no lock and no broken connection behind, wherever it is raised."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from tests.interruption import interrupted

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "publish": lambda queue: queue.publish("g", 1),
    "claim": lambda queue: queue.claim("w", 30),
    "stats": lambda queue: queue.inspect.queue(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_after_an_interrupted_call_others_can_write_and_the_transport_goes_on(tmp_path: Path, name: str) -> None:
    """Guards against a half-read answer: it would keep the write lock as long as a frame of the traceback exists."""
    url = f"sqlite:///{tmp_path}/q.db?synchronous=full"
    migrate.upgrade(url)
    with closing(sqlite3.connect(tmp_path / "q.db", timeout=0, isolation_level=None)) as other:
        at = 0
        while True:
            with fairlane.connect(url, busy_timeout=0) as queue:
                for _ in range(3):
                    queue.publish(f"before {at}", 0)
                error = interrupted(partial(OPERATIONS[name], queue), at, "fairlane/backends/sqlite/")
                if error is None:
                    break
                other.execute("begin immediate")
                other.execute("rollback")
                queue.publish("after", at)
                lease = queue.claim("w", 30)
                assert lease is not None
                queue.ack(lease)
            at += 1
    assert at > 10, "nothing was interrupted"
