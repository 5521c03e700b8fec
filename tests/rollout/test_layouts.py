"""An upgraded queue equals a fresh one, and a downgraded queue equals one that the old release has made."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from fairlane import migrate
from tests.backends.postgres.fresh import Database as WithRoles
from tests.backends.postgres.fresh import fresh_database
from tests.harness.kits.postgres import PostgresKit
from tests.migrate.conftest import Database
from tests.rollout.layouts import layout
from tests.rollout.release import COMMIT, REVISION, ROOT, Release
from tests.schema.superseded import copies

pytestmark = pytest.mark.twins("sync")

served = pytest.mark.backends("sqlite", "postgres", "redis", "libsql", "rqlite", "mongo")


def test_the_copies_of_templates_are_those_of_the_release(previous: Release) -> None:
    """Guards against copies that were made of something else than what was released."""
    found = copies(REVISION)
    git = ["git", "-C", str(ROOT), "show"]
    released = {path: subprocess.run([*git, f"{COMMIT}:{path}"], capture_output=True).stdout for path in found}
    assert [path for path in found if found[path] != released[path]] == []


@served
@pytest.mark.parametrize("head_start", ["1", "always"])
def test_upgraded_is_fresh_and_downgraded_is_the_old_release(
    database: Database, others: list[Database], previous: Release, head_start: str
) -> None:
    """Guards against a queue that depends on its history: one that keeps an old body, a new body, or a lost choice."""
    kit, (fresh, down) = database.kit, others
    previous.migrate(database.url, database.queue, head_start=head_start)
    old = layout(kit, database.queue)
    migrate.upgrade(down.url, queue=down.queue, revision=REVISION, head_start=head_start)
    assert layout(kit, down.queue) == old
    migrate.upgrade(database.url, queue=database.queue)
    migrate.upgrade(down.url, queue=down.queue)
    migrate.upgrade(fresh.url, queue=fresh.queue, head_start=head_start)
    new = layout(kit, fresh.queue)
    assert layout(kit, database.queue) == new
    assert layout(kit, down.queue) == new
    for each in (database, fresh):
        migrate.downgrade(each.url, queue=each.queue, revision=REVISION)
        assert layout(kit, each.queue) == old


class RolesKit(PostgresKit):
    """A database of its own, with roles."""

    def __init__(self, database: WithRoles) -> None:
        self.server_url = database.url()


@pytest.fixture
def with_roles() -> Iterator[WithRoles]:
    with fresh_database() as made:
        yield made


def test_rights_are_the_same_after_an_upgrade_and_after_a_downgrade(with_roles: WithRoles, previous: Release) -> None:
    """Guards against a role that has no right to a new function, or that keeps one to an old function."""
    kit, url, choices = RolesKit(with_roles), with_roles.url(), with_roles.migration_roles()
    names = {name: f"<{role}>" for role, name in with_roles.roles.items()}
    previous.migrate(url, "lane_used", **choices)
    old = layout(kit, "lane_used", names)
    migrate.upgrade(url, queue="lane_used", owner_role=choices["owner_role"])
    migrate.upgrade(url, queue="lane_made", **choices)
    assert layout(kit, "lane_used", names) == layout(kit, "lane_made", names)
    for queue in ("lane_used", "lane_made"):
        migrate.downgrade(url, queue=queue, revision=REVISION, owner_role=choices["owner_role"])
        assert layout(kit, queue, names) == old


def test_a_script_made_without_a_connection_does_not_change_the_head_start(with_roles: WithRoles) -> None:
    """Guards against a script that sets the head start back, since the text of functions contains it."""
    kit, url = RolesKit(with_roles), with_roles.url()
    migrate.upgrade(url, queue="lane_used", revision=REVISION, head_start=0)
    migrate.upgrade(url, queue="lane_made", head_start=0)
    wrong = migrate.script(url, queue="lane_used", revision=f"{REVISION}:head")
    right = migrate.script(url, queue="lane_used", revision=f"{REVISION}:head", head_start=0)
    with with_roles.connect() as connection:
        with pytest.raises(psycopg.errors.RaiseException, match="head_start=1, and the queue has another one"):
            connection.execute(wrong.encode())
        connection.execute("rollback")
        connection.execute(right.encode())
    assert layout(kit, "lane_used") == layout(kit, "lane_made")
