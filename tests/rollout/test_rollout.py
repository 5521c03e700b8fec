"""The life of a rollout, with processes of the previous release and of this version on one queue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fairlane import migrate
from tests.migrate.conftest import Database
from tests.rollout.clients import Clients, errors, shares, work
from tests.rollout.release import NOW, REVISION, Release
from tests.torture.checker import check
from tests.torture.history import Journal, read
from tests.torture.run import drain

SECONDS = float(os.environ.get("FAIRLANE_ROLLOUT_SECONDS", "0.3"))
"""The length of each part. There are seven."""

LIMIT = 60.0
"""Seconds that a call may take: its timeout of 30 s, and an allowance for a loaded machine."""

Start = Callable[[str, Release], Clients]


@pytest.fixture
def start(database: Database, folder: Path) -> Iterator[Start]:
    """Starts the clients of a version. What still runs after the test is killed."""
    with ExitStack() as stack:

        def started(name: str, release: Release) -> Clients:
            clients = Clients(name, release, database.url, database.queue, folder)
            stack.callback(clients.kill)
            return clients

        yield started


@pytest.mark.timeout(7 * SECONDS + 600)
@pytest.mark.twins("sync")
@pytest.mark.backends("sqlite", "postgres", "redis", "libsql", "rqlite", "mongo")
def test_old_and_new_clients_work_on_while_the_queue_is_upgraded_and_downgraded(
    database: Database, previous: Release, start: Start, folder: Path
) -> None:
    """Guards against a migration or a version that loses, doubles or reorders messages, or that clients notice."""
    previous.migrate(database.url, database.queue)
    old = start("old", previous)
    work(SECONDS, old)
    migrate.upgrade(database.url, queue=database.queue)
    work(SECONDS, old)
    new = start("new", NOW)
    work(SECONDS, old, new)
    wrong = old.end()
    work(SECONDS, new)
    again = start("again", previous)
    work(SECONDS, again, new)
    wrong += new.end()
    migrate.downgrade(database.url, queue=database.queue, revision=REVISION)
    work(SECONDS, again)
    wrong += again.end("publisher")
    migrate.upgrade(database.url, queue=database.queue)
    wrong += again.end()
    wrong += drain(database.url, database.queue, Journal(folder / "drain.log"))
    calls = read(folder)
    wrong += check(calls, limit=LIMIT)
    wrong += [f"{who}: more than one error: {found}" for who, found in errors(calls).items() if len(found) > 1]
    assert wrong == []
    assert set(shares(calls)) >= {"old", "new", "again"}
