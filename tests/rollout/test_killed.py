"""A migration that is killed before any of its statements is done by the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from tests.migrate.conftest import Database
from tests.rollout.layouts import layout
from tests.rollout.release import REVISION, ROOT

pytestmark = pytest.mark.twins("sync")

ATOMIC = ("sqlite", "postgres", "libsql", "rqlite")
"""The backends where a step is one transaction."""


class Migrations:
    """Migrations of one queue, each in a process of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        command = [sys.executable, "-m", "tests.rollout.killing", database.url, database.queue]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def killed(self, revision: str, statement: int) -> bool:
        """Migrate, and kill the migration before a statement. Return whether it had so many statements."""
        code = self._run(revision, statement)
        assert code in (0, -signal.SIGKILL), code
        self._expire()
        return code != 0

    def done(self, revision: str) -> str:
        """Migrate, and return the layout of the queue."""
        assert self._run(revision, 0) == 0
        return layout(self._database.kit, self._database.queue)

    def _run(self, revision: str, statement: int) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{revision} {statement}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def _expire(self) -> None:
        """Remove the lock of a killed migration, which would expire after some seconds."""
        kit: Any = self._database.kit
        queue = self._database.queue
        if kit.backend == "redis":
            with kit.connect(queue) as client:
                client.delete(f"{{{queue}}}:meta:lock")
        elif kit.backend == "mongo":
            kit.database(queue)[f"{queue}_meta"].delete_one({"_id": "lock"})

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture
def migrations(database: Database) -> Iterator[Migrations]:
    made = Migrations(database)
    yield made
    with suppress(subprocess.TimeoutExpired):
        made.close()


@pytest.mark.timeout(600)
@pytest.mark.backends("sqlite", "postgres", "redis", "libsql", "rqlite", "mongo")
def test_a_migration_that_is_killed_at_any_statement_is_done_by_the_next_one(
    database: Database, migrations: Migrations
) -> None:
    """Guards against a step that leaves a part of itself, which then nobody finishes or takes back."""
    migrate.upgrade(database.url, queue=database.queue, revision=REVISION, head_start=0)
    old = layout(database.kit, database.queue)
    new = migrations.done("head")
    with fairlane.connect(database.url, database.queue) as transport:
        published = [transport.publish("g", number) for number in range(3)]
    for statement in count(1):
        killed = migrations.killed(REVISION, statement)
        if database.kit.backend not in ATOMIC:
            assert migrations.done("head") == new, f"killed on the way back, before statement {statement}"
            migrations.killed(REVISION, statement)
        assert migrations.done(REVISION) == old, f"killed on the way back, before statement {statement}"
        killed |= migrations.killed("head", statement)
        assert migrations.done("head") == new, f"killed before statement {statement}"
        if not killed:
            break
    assert statement > 3
    with fairlane.connect(database.url, database.queue) as transport:
        leases = []
        while lease := transport.claim("worker", 30):
            leases.append(lease.seq)
            transport.ack(lease)
    assert leases == published
