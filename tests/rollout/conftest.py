"""The previous release, and a database without a queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import Kit
from tests.migrate.conftest import Database, database
from tests.rollout.release import Release, unpack

__all__ = ["database"]


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return unpack(tmp_path_factory.mktemp("previous"))


@pytest.fixture
def others(arm: tuple[Kit, str], database: Database) -> Iterator[list[Database]]:
    """Places for two more queues in the same database."""
    made = [Database(database.kit), Database(database.kit)]
    yield made
    for each in made:
        if each.revision is not None:
            each.kit.drop(each.queue)
