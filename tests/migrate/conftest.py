"""Databases to migrate: one for each backend, without a queue in it yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fairlane import migrate
from tests.harness import KITS, Kit, Queues

everywhere = pytest.mark.backends(*(name for name in KITS if name != "memory"))
"""The kits of all backends that have something to migrate."""


class Database:
    """The place where a test may make its queue."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.queue = Queues.fresh_name()
        self.url = kit.url(self.queue)

    @property
    def revision(self) -> str | None:
        return migrate.status(self.url, queue=self.queue).found


@pytest.fixture
def database(arm: tuple[Kit, str], tmp_path: Path) -> Iterator[Database]:
    """A database of the backend that the test runs on; the queue is removed afterwards."""
    kit, _ = arm
    kit.folder = tmp_path
    made = Database(kit)
    yield made
    with suppress(Exception):
        kit.drop(made.queue)
