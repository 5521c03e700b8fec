"""Settings of a queue on Postgres: who may show and change them, and what a change must not break."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy.exc import IntegrityError

import fairlane
from fairlane import migrate, templates
from fairlane.backends.postgres.target import PostgresTarget
from tests.backends.postgres.fresh import Database, fresh_database
from tests.backends.postgres.sessions import Lane
from tests.commands import fairlane as run_fairlane


@pytest.fixture
def database() -> Iterator[Database]:
    """A database with a queue `q` and its roles."""
    with fresh_database() as made:
        migrate.upgrade(made.url(), queue="q", **made.migration_roles())
        yield made


def bodies(database: Database) -> list[str]:
    """Return all functions of the queue."""
    with database.connect() as connection:
        rows = connection.execute(
            "select pg_get_functiondef(p.oid) from pg_proc as p where p.pronamespace = 'q'::regnamespace order by 1"
        ).fetchall()
    return [text for (text,) in rows]


def test_the_roles_of_a_queue_are_shown_to_its_owner_and_to_nobody_else(database: Database) -> None:
    found = migrate.queue_settings(database.url("owner"), queue="q")
    assert (found.owner_role, found.app_role, found.reader_role) == tuple(
        database.roles[name] for name in ("owner", "app", "reader")
    )
    for role in ("app", "reader", "stranger"):
        error = run_fairlane("queue", "show", "--url", database.url(role), "-q", "q").failed_in_one_line()
        assert "permission denied" in error
        assert "needs the rights of the queue's owner" in error
        with pytest.raises(fairlane.AuthenticationFailed):
            migrate.queue_settings(database.url(role), queue="q")


def test_only_the_owner_can_change_settings_or_drop_the_queue(database: Database) -> None:
    before = bodies(database)
    for role in ("app", "reader", "stranger"):
        where = ("--url", database.url(role), "--queue", "q")
        for command in (("queue", "set", "--head-start", "5"), ("drop", "--yes")):
            assert "permission denied" in run_fairlane(*command, *where).failed_in_one_line(), (role, command)
        with pytest.raises(fairlane.AuthenticationFailed):
            migrate.configure(database.url(role), queue="q", head_start=5)
    assert bodies(database) == before
    assert migrate.queue_settings(database.url("owner"), queue="q").head_start == 1
    migrate.configure(database.url("owner"), queue="q", head_start=5)
    migrate.drop(database.url("owner"), queue="q")


def test_a_superuser_changes_settings_as_the_owner_and_the_app_keeps_its_rights(database: Database) -> None:
    """Guards against functions that belong to another role afterwards, or that applications may not call any more."""
    where = ("--url", database.url(), "--queue", "q", "--owner-role", database.roles["owner"])
    run_fairlane("queue", "set", *where, "--head-start", "7").ok()
    with database.connect() as connection:
        owners = connection.execute(
            "select distinct pg_get_userbyid(proowner) from pg_proc where pronamespace = 'q'::regnamespace"
        ).fetchall()
    assert owners == [(database.roles["owner"],)]
    with fairlane.connect(database.url("app"), "q") as queue:
        queue.publish("g", 1)
        queue.publish_many([fairlane.Message("h", 2)])
        assert queue.claim("w", 30) is not None
    run_fairlane("drop", *where, "--yes").ok()
    error = run_fairlane("queue", "set", *where[:-1], "nobody_at_all", "--head-start", "7").failed_in_one_line()
    assert 'role "nobody_at_all" does not exist' in error


def test_a_user_who_must_set_the_owner_s_role_first_can_change_settings(database: Database) -> None:
    """Guards against a part of the change that runs without the role."""
    stranger, owner = database.roles["stranger"], database.roles["owner"]
    with database.connect() as connection:
        connection.execute(f"alter role {stranger} noinherit")
        connection.execute(f"grant {owner} to {stranger}")
    with pytest.raises(fairlane.AuthenticationFailed):
        migrate.configure(database.url("stranger"), queue="q", head_start=7)
    migrate.configure(database.url("stranger"), queue="q", owner_role=owner, head_start=7)
    assert migrate.queue_settings(database.url("owner"), queue="q").head_start == 7


def test_a_change_that_fails_at_its_end_changes_nothing(database: Database) -> None:
    """The functions are installed before the setting is stored."""
    with database.connect() as connection:
        connection.execute("alter table q.settings add constraint kept check (name <> 'head_start' or value = '1')")
    before = bodies(database)
    with pytest.raises(IntegrityError):
        migrate.configure(database.url("owner"), queue="q", head_start=5)
    assert bodies(database) == before
    with database.connect() as connection:
        connection.execute("alter table q.settings drop constraint kept")
    migrate.configure(database.url("owner"), queue="q", head_start=5)
    assert bodies(database) != before


def test_a_larger_head_start_hides_no_group(lane: Lane, url: str) -> None:
    """Guards against new groups that stand before the beginning of the line, where claims do not search."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(3):
            connection.execute(f"select {lane.queue}.look_ahead()")
        row = connection.execute(f"select fresh[1] from {lane.queue}.line order by id desc limit 1").fetchone()
        assert row is not None
        assert row[0].year > 2000, "the line does not begin later, so this test proves nothing"
        migrate.configure(url, queue=lane.queue, head_start=3600)
        with fairlane.connect(url, lane.queue) as queue:
            queue.publish("new", 1)
            lease = queue.claim("w", 30)
            assert lease is not None
            assert lease.group_id == "new"


def test_a_last_step_that_fails_is_only_logged(
    lane: Lane, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards against an error that says that nothing was changed."""
    monkeypatch.setattr(PostgresTarget, "configured", lambda self: "select from nowhere")
    assert migrate.configure(url, queue=lane.queue, head_start=9)[1].head_start == 9
    assert "the settings are changed" in caplog.text
    assert migrate.queue_settings(url, queue=lane.queue).head_start == 9


def test_a_change_waits_for_a_migration_and_not_for_open_transactions(lane: Lane, url: str) -> None:
    """Guards against two changes at once, and against one that waits until an application commits."""
    with psycopg.connect(url) as application, psycopg.connect(url) as migration, ThreadPoolExecutor() as threads:
        application.execute(f"select {lane.queue}.publish('g', '1')")
        lock = "select pg_advisory_xact_lock(hashtextextended('fairlane migrate ' || %s, 0))"
        migration.execute(lock, (lane.queue,))
        change = threads.submit(migrate.configure, url, queue=lane.queue, head_start=9)
        deadline = time.monotonic() + 20
        waiting = "select from pg_locks where locktype = 'advisory' and not granted"
        with psycopg.connect(url, autocommit=True) as watcher:
            while not watcher.execute(waiting).fetchall():
                assert time.monotonic() < deadline, "it does not wait"
                time.sleep(0.02)
        assert not change.done()
        migration.rollback()
        assert change.result(timeout=20)[1].head_start == 9
        application.rollback()


def test_a_transaction_that_keeps_the_line_stops_a_change_that_then_changes_nothing(
    lane: Lane, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a change that waits without end for an application."""
    render = "fairlane.migrate.configuring.render"
    monkeypatch.setattr(render, lambda name, **names: templates.render(name, **names).replace("'60s'", "'1s'"))
    with psycopg.connect(url) as application:
        application.execute(f"select {lane.queue}.look_ahead()")
        with pytest.raises(fairlane.BackendUnavailable, match="nothing was changed"):
            migrate.configure(url, queue=lane.queue, head_start=9)
    assert migrate.queue_settings(url, queue=lane.queue).head_start == 1
    migrate.configure(url, queue=lane.queue, head_start=9)
