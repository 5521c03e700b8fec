"""Databases to migrate: one for each backend, without a queue in it yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from fairlane import migrate
from fairlane.backends.targets import Choices, SqlTarget
from fairlane.migrate import engines
from fairlane.migrate.settings import Settings
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


def set_revision(database: Database, revision: str) -> None:
    """Make a queue look as if another version of the package had migrated it."""
    settings = Settings(database.url, Choices(database.queue))
    target = settings.target()
    if isinstance(target, SqlTarget):
        versions = target.version_table()
        table = ".".join(filter(None, (versions.get("version_table_schema"), versions["version_table"])))
        with engines.connected(target, create=False, writes=True) as connection:
            connection.execute(sa.text(f"update {table} set version_num = :revision"), {"revision": revision})
            if database.kit.backend == "sqlite":
                change = f"update {database.queue}_settings set value = :revision where name = 'revision'"
                connection.execute(sa.text(change), {"revision": revision})
        return
    with closing(target), target.lock():
        target.read()
        target.apply((), revision, serves="0001", stamp=True)


@pytest.fixture
def database(arm: tuple[Kit, str], tmp_path: Path) -> Iterator[Database]:
    """A database of the backend that the test runs on; the queue is removed afterwards."""
    kit, _ = arm
    kit.folder = tmp_path
    made = Database(kit)
    yield made
    with suppress(Exception):
        kit.drop(made.queue)
