"""Each role in a Postgres queue can do what it is meant to do, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import fairlane
from fairlane import migrate
from tests.backends.postgres.fresh import Database, fresh_database
from tests.commands import fairlane as run_fairlane
from tests.harness import held

TABLES = ("messages", "groups", "settings", "alembic_version")
VIEWS = ("queue_status", "group_status", "message_status")
CALLS = {
    "publish": "select q.publish('g', '1')",
    "claim": "select q.claim('w', 30)",
    "ack": "select q.ack('g', gen_random_uuid())",
    "nack": "select q.nack('g', gen_random_uuid())",
    "extend": "select q.extend('g', gen_random_uuid(), 1)",
    "revision": "select q.revision()",
}
DDL = (
    "create table q.mine (a int)",
    "create or replace function q.revision() returns void language sql as ''",
    "create trigger t after insert on q.messages execute function suppress_redundant_updates_trigger()",
    "drop table q.messages",
    "drop schema q cascade",
    "select nextval('q.message_seq')",
    "select setval('q.message_seq', 1)",
)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with fresh_database() as made:
        migrate.upgrade(made.url("owner"), queue="q", app_role=made.roles["app"], reader_role=made.roles["reader"])
        yield made


def allowed(database: Database, role: str, statement: str) -> bool:
    """Say whether a role may run a statement, and roll the statement back."""
    with database.connect(role) as connection, connection.transaction(force_rollback=True):
        try:
            connection.execute(statement)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState):
            return False  # the second error is for a view that cannot be changed
        except psycopg.Error as error:
            assert error.sqlstate == "QF001", error  # noqa: PT017 - the role had the right; the lease did not exist
        return True


@pytest.mark.parametrize("role", ["app", "reader", "stranger"])
@pytest.mark.parametrize("table", TABLES)
def test_no_table_can_be_read_or_changed_by_anyone_but_the_owner(database: Database, role: str, table: str) -> None:
    for statement in (f"select from q.{table}", f"delete from q.{table}", f"insert into q.{table} default values"):
        assert not allowed(database, role, statement), statement


@pytest.mark.parametrize("role", ["owner", "app", "reader", "stranger"])
@pytest.mark.parametrize("call", CALLS)
def test_app_may_call_every_function_and_reader_only_revision(database: Database, role: str, call: str) -> None:
    expected = role in ("owner", "app") or (role == "reader" and call == "revision")
    assert allowed(database, role, CALLS[call]) == expected


@pytest.mark.parametrize("role", ["owner", "app", "reader", "stranger"])
@pytest.mark.parametrize("view", VIEWS)
def test_reader_may_read_every_view_and_app_none(database: Database, role: str, view: str) -> None:
    assert allowed(database, role, f"select * from q.{view}") == (role in ("owner", "reader"))
    if role != "owner":
        assert not allowed(database, role, f"delete from q.{view}")


@pytest.mark.parametrize("role", ["app", "reader", "stranger"])
@pytest.mark.parametrize("statement", DDL)
def test_nobody_but_the_owner_can_change_the_schema(database: Database, role: str, statement: str) -> None:
    assert not allowed(database, role, statement)


def test_the_owner_owns_everything_although_a_superuser_migrates(database: Database) -> None:
    migrate.upgrade(database.url(), queue="by_superuser", **database.migration_roles())
    with database.connect() as connection:
        owners = connection.execute(
            "select distinct pg_get_userbyid(relowner) from pg_class where relnamespace = 'by_superuser'::regnamespace"
            " union select pg_get_userbyid(proowner) from pg_proc where pronamespace = 'by_superuser'::regnamespace"
            " union select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'by_superuser'"
        ).fetchall()
    assert owners == [(database.roles["owner"],)]
    assert not allowed(database, "stranger", "select from by_superuser.queue_status")


def test_a_transport_works_as_app_and_the_inspection_as_reader(database: Database) -> None:
    with fairlane.connect(database.url("app"), "q") as queue, fairlane.connect(database.url("reader"), "q") as reader:
        queue.publish("g", {"a": [1]}, 2)
        lease = queue.extend(held(queue.claim("w", 30, 2)), 60)
        assert reader.inspect.groups()[0].state == "in_flight"
        assert reader.inspect.messages("g")[0].event == {"a": [1]}
        queue.nack(lease)
        queue.ack(held(queue.claim("w", 30)))
        assert reader.inspect.queue().messages == 0
        with pytest.raises(fairlane.AuthenticationFailed):
            queue.inspect.queue()
        with pytest.raises(fairlane.AuthenticationFailed):
            reader.publish("g", 1)


def test_a_role_without_rights_gets_a_typed_error_without_the_password(database: Database) -> None:
    with pytest.raises(fairlane.AuthenticationFailed) as caught:
        fairlane.connect(database.url("stranger"), "q")
    assert "permission denied for schema q" in str(caught.value)
    assert "ss" not in str(caught.value).replace("permission", "").replace("password", "")


def test_a_wrong_password_is_refused_at_once_and_never_shown(database: Database) -> None:
    url = database.url("app").replace("p%25%40%2Fss", "s3cret%40")
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url):
        pytest.skip("this server asks for no password")
    with pytest.raises(fairlane.AuthenticationFailed) as caught:
        fairlane.connect(url, "q", startup_timeout=30)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("option", ["owner_role", "app_role", "reader_role"])
def test_a_role_that_is_not_there_is_named_and_nothing_is_made(database: Database, option: str) -> None:
    wrong: dict[str, Any] = {option: "nobody_at_all"}
    with pytest.raises(fairlane.ConfigurationError, match=r'role "nobody_at_all" does not exist.*create it first'):
        migrate.upgrade(database.url(), queue="without_role", **wrong)
    assert migrate.status(database.url(), queue="without_role").found is None


def test_an_owner_role_that_the_user_may_not_set_is_refused(database: Database) -> None:
    with pytest.raises(fairlane.AuthenticationFailed, match="permission denied to set role"):
        migrate.upgrade(database.url("stranger"), queue="foreign", owner_role=database.roles["owner"])


@pytest.fixture
def later() -> Iterator[Database]:
    """A database with a queue `q` that was migrated without roles."""
    with fresh_database() as made:
        migrate.upgrade(made.url("owner"), queue="q")
        yield made


def may(database: Database) -> dict[str, tuple[bool, bool]]:
    """For each role: whether it may claim, and whether it may read."""
    return {
        role: (allowed(database, role, CALLS["claim"]), allowed(database, role, "select from q.queue_status"))
        for role in ("app", "reader", "stranger")
    }


NOTHING, CALL, READ, BOTH = (False, False), (True, False), (False, True), (True, True)


def test_roles_are_set_changed_and_removed_on_an_existing_queue(later: Database) -> None:
    """Guards against a migration that sees nothing to do, and against rights that an earlier role keeps."""
    names, url = later.roles, later.url("owner")
    assert may(later) == {"app": NOTHING, "reader": NOTHING, "stranger": NOTHING}
    migrate.upgrade(url, queue="q", app_role=names["app"], reader_role=names["reader"])
    assert may(later) == {"app": CALL, "reader": READ, "stranger": NOTHING}
    migrate.upgrade(url, queue="q")
    assert may(later) == {"app": CALL, "reader": READ, "stranger": NOTHING}, "what was not named was changed"
    migrate.upgrade(url, queue="q", app_role=names["stranger"])
    assert may(later) == {"app": NOTHING, "reader": READ, "stranger": CALL}
    migrate.upgrade(url, queue="q", app_role=names["reader"])
    assert may(later) == {"app": NOTHING, "reader": BOTH, "stranger": NOTHING}
    migrate.upgrade(url, queue="q", reader_role="none")
    assert may(later) == {"app": NOTHING, "reader": CALL, "stranger": NOTHING}
    migrate.upgrade(url, queue="q", app_role="none")
    assert may(later) == {"app": NOTHING, "reader": NOTHING, "stranger": NOTHING}
    with later.connect() as connection:
        settings = dict(connection.execute("select name, value from q.settings").fetchall())
        schema = connection.execute("select nspacl::text from pg_namespace where nspname = 'q'").fetchone()
    assert (settings["app_role"], settings["reader_role"]) == (None, None)
    assert schema is None or all(names[role] not in str(schema[0]) for role in ("app", "reader", "stranger"))


def test_a_role_that_was_dropped_meanwhile_stops_no_migration(later: Database) -> None:
    with later.connect() as connection:
        connection.execute("create role gone_" + later.name)
        migrate.upgrade(later.url("owner"), queue="q", app_role=f"gone_{later.name}")
        connection.execute(f"drop owned by gone_{later.name}")
        connection.execute(f"drop role gone_{later.name}")
    migrate.upgrade(later.url("owner"), queue="q")
    migrate.upgrade(later.url("owner"), queue="q", app_role=later.roles["app"])
    assert may(later)["app"] == CALL


def test_a_role_that_is_not_the_owner_changes_no_roles(later: Database) -> None:
    with pytest.raises(fairlane.AuthenticationFailed):
        migrate.upgrade(later.url("stranger"), queue="q", app_role=later.roles["stranger"])
    assert may(later)["stranger"] == NOTHING


def test_the_command_line_says_that_roles_were_set(later: Database) -> None:
    where = ("--url", later.url("owner"), "--queue", "q")
    said = run_fairlane("migrate", *where, "--app-role", later.roles["app"]).ok()
    assert "It has the roles that you named." in said.out
    assert may(later)["app"] == CALL
