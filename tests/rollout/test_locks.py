"""A migration keeps no client waiting. `make bench-rollout` measures it on Postgres, and these tests count."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

import fairlane
from fairlane import migrate
from tests.harness import held
from tests.migrate.conftest import Database
from tests.rollout.release import REVISION

pytestmark = pytest.mark.twins("sync")

FEW = 18
"""Statements that a migration may send while it keeps clients waiting: a few milliseconds each."""

TABLES = """
    select c.oid, c.relfilenode from pg_class as c
    where c.relnamespace = %s::regnamespace and c.relkind = 'r' and c.relname <> 'alembic_version'
"""
BLOCKING = """
    select count(*) from pg_locks where pid = %s and granted and relation = any(%s)
    and mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""


class Watcher:
    """Looks after each statement of a migration whether it holds a lock that keeps clients waiting."""

    def __init__(self, connection: Any, tables: list[int]) -> None:
        self.transactions: list[list[str]] = []
        """The statements of each transaction that were sent while it held such a lock, the one that took it first."""
        self.timeouts: set[str] = set()
        self._connection = connection
        self._tables = tables
        self._now: list[str] = []

    def after(self, connection: object, cursor: Any, statement: str, *_: object) -> None:
        pid = cursor.connection.info.backend_pid
        if self._connection.execute(BLOCKING, (pid, self._tables)).fetchone()[0]:
            self._now.append(statement)

    def commit(self, connection: sa.Connection) -> None:
        raw: Any = connection.connection.driver_connection
        self.timeouts.add(raw.execute("show lock_timeout").fetchone()[0])
        self.transactions.append(self._now)
        self._now = []


@contextmanager
def watched(database: Database) -> Iterator[Watcher]:
    """Watch the migrations in the block, and check that they rewrite no table."""
    kit: Any = database.kit
    with kit.connect(database.queue) as connection:
        tables = dict(connection.execute(TABLES, (database.queue,)).fetchall())
        watcher = Watcher(connection, list(tables))
        hooks = (("after_cursor_execute", watcher.after), ("commit", watcher.commit))
        for name, hook in hooks:
            sa.event.listen(sa.engine.Engine, name, hook)
        try:
            yield watcher
        finally:
            for name, hook in hooks:
                sa.event.remove(sa.engine.Engine, name, hook)
        after = dict(connection.execute(TABLES, (database.queue,)).fetchall())
    assert {table: tables[table] for table in after if table in tables}.items() <= after.items()


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("revision", ["head", REVISION])
def test_a_step_keeps_clients_waiting_for_a_few_statements_only(database: Database, revision: str) -> None:
    """Guards against a table that is rewritten, and a lock that is taken early in a step or while the queue is read."""
    migrate.upgrade(database.url, queue=database.queue, revision=REVISION if revision == "head" else "head")
    with watched(database) as watcher:
        migrate.migrate(database.url, queue=database.queue, revision=revision)
    step, repair = watcher.transactions
    assert len(step) <= FEW, step
    assert repair == []
    assert watcher.timeouts == {"50ms"}


@pytest.mark.backends("postgres")
def test_a_migration_that_waits_for_a_lock_lets_others_pass(database: Database) -> None:
    """Guards against clients that queue up behind a migration, which waits for one long transaction."""
    migrate.upgrade(database.url, queue=database.queue)
    kit: Any = database.kit
    with fairlane.connect(database.url, database.queue) as transport, kit.connect(database.queue) as admin:
        for number in range(50):  # more than are acked: without messages there is nothing to repair
            transport.publish(f"g{number}", 1)
        with ThreadPoolExecutor(1) as threads, admin.transaction():
            admin.execute(f"select {database.queue}.publish('open', '1')")
            # now a repair needs a lock on messages, which this transaction forbids
            admin.execute(f"select setval('{database.queue}.message_seq', 1)")
            migrating = threads.submit(migrate.upgrade, database.url, queue=database.queue)
            slowest, began = 0.0, time.monotonic()
            for _ in range(40):
                start = time.monotonic()
                transport.ack(held(transport.claim("w", 60)))
                slowest = max(slowest, time.monotonic() - start)
                time.sleep(0.05)
            assert not migrating.done(), "it did not wait"
            assert slowest < (time.monotonic() - began) / 2, "an ack waited for the migration"
    migrating.result()
    assert migrate.status(database.url, queue=database.queue).ready


@pytest.mark.backends("sqlite")
def test_writers_do_not_wait_while_a_migration_reads_the_queue(database: Database) -> None:
    """Guards against a search for damage in the transaction that excludes all writers: with 1,000,000 messages it takes
    seconds."""
    migrate.upgrade(database.url, queue=database.queue, revision=REVISION)
    seen: list[str] = []

    def before(connection: object, cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)

    sa.event.listen(sa.engine.Engine, "before_cursor_execute", before)
    try:
        migrate.upgrade(database.url, queue=database.queue)
    finally:
        sa.event.remove(sa.engine.Engine, "before_cursor_execute", before)
    begins = [number for number, statement in enumerate(seen) if statement.startswith("begin")]
    assert [seen[number] for number in begins] == ["begin immediate", "begin"]
    # `create trigger` and `create view` name the table, and read nothing
    reads = [number for number, each in enumerate(seen) if "_messages" in each and not each.startswith("create")]
    assert [seen[number] for number in reads if number < begins[1]] == []
    assert reads
