"""For each cause the error is one line that names the missing or disturbing thing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import psycopg
import psycopg_pool
import pytest

from fairlane import AuthenticationFailed, BackendUnavailable, FairlaneError, PostgresTransport, connect, migrate
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import ConfigurationError, QueueDamaged
from tests.backends.postgres.fresh import Database, fresh_database
from tests.commands import alembic, fairlane


@pytest.fixture
def database() -> Iterator[Database]:
    with fresh_database() as made:
        migrate.upgrade(made.url("owner"), queue="q", app_role=made.roles["app"], reader_role=made.roles["reader"])
        yield made


def one_line(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    return text


class TestCalls:
    def test_a_pool_without_a_free_connection(self, database: Database) -> None:
        with psycopg_pool.ConnectionPool(database.url(), min_size=1, max_size=1, timeout=0.2) as pool:
            queue: PostgresTransport[Any] = PostgresTransport(pool, queue="q")
            with pool.connection(), pytest.raises(BackendUnavailable) as caught:
                queue.publish("g", 1)
        text = one_line(caught.value)
        assert "is not available" not in text
        assert "no connection of the pool became free in time" in text
        assert "nothing was changed" in text

    def test_own_connections_that_are_all_in_use(self, database: Database) -> None:
        with connect(database.url(), "q", max_connections=1, timeout=0.5) as queue:
            pool = queue._executor._source._pool  # type: ignore[attr-defined]
            connection = pool.take(time.monotonic() + 60)  # two calls would end at the same time, so either could win
            with pytest.raises(BackendUnavailable) as caught:
                queue.publish("g", 1)
            pool.give(connection)
            assert queue.publish("g", 1) == 1
        text = one_line(caught.value)
        assert "all 1 are in use (nothing was changed); raise max_connections of the transport" in text

    def test_a_server_that_lets_nobody_write(self, database: Database) -> None:
        url = f"{database.url()}?options={quote('-c default_transaction_read_only=on')}"
        with connect(url, "q") as queue, pytest.raises(BackendUnavailable) as caught:
            queue.publish("g", 1)
        text = one_line(caught.value)
        assert "try again" not in text
        assert "target_session_attrs=read-write" in text

    def test_a_right_that_is_missing(self, database: Database) -> None:
        with connect(database.url("reader"), "q") as queue, pytest.raises(AuthenticationFailed) as caught:
            queue.publish("g", 1)
        assert "fairlane migrate --queue q --app-role ROLE" in one_line(caught.value)
        with connect(database.url("app"), "q") as queue, pytest.raises(AuthenticationFailed) as caught:
            queue.inspect.queue()
        assert "fairlane migrate --queue q --reader-role ROLE" in one_line(caught.value)

    def test_a_role_without_any_right(self, database: Database) -> None:
        with pytest.raises(AuthenticationFailed) as caught:
            connect(database.url("stranger"), "q")
        assert "fairlane migrate --queue q --app-role ROLE` (or --reader-role) gives" in one_line(caught.value)

    def test_a_schema_that_was_renamed(self, database: Database) -> None:
        with database.connect() as connection:
            connection.execute("alter schema q rename to r")
        with pytest.raises(QueueDamaged, match="the schema was renamed"):
            connect(database.url(), "r")


class TestMigrations:
    def test_a_schema_that_is_missing_and_may_not_be_made(self, database: Database) -> None:
        with pytest.raises(AuthenticationFailed) as caught:
            migrate.upgrade(database.url("stranger"), queue="fresh")
        text = one_line(caught.value)
        assert "the schema fresh is not there" in text
        assert f"grant create on database {database.name} to {database.roles['stranger']}" in text

    def test_a_view_that_depends_on_the_queue(self, database: Database) -> None:
        with database.connect() as connection:
            connection.execute("create view public.mine as select * from q.queue_status")
        with pytest.raises(ConfigurationError, match=r"view mine depends on view q\.queue_status.*nothing was changed"):
            migrate.downgrade(database.url(), queue="q", revision="base")
        with connect(database.url("app"), "q") as queue:
            queue.publish("g", 1)
        where = ("--url", database.url(), "--queue", "q")
        assert "view mine depends" in fairlane("migrate", "base", "--yes", *where).failed_in_one_line()

    def test_a_schema_that_was_renamed_is_not_said_to_be_fine(self, database: Database) -> None:
        with database.connect() as connection:
            connection.execute("alter schema q rename to r")
        for arguments in (("migrate",), ("migrate", "base", "--yes"), ("status",)):
            said = fairlane(*arguments, "--url", database.url(), "--queue", "r").failed_in_one_line()
            assert "the schema was renamed" in said

    def test_up_and_down_at_once_leave_all_or_nothing(self, database: Database) -> None:
        def go(number: int) -> str | None:
            try:
                if number % 2:
                    migrate.upgrade(database.url(), queue="both")
                else:
                    migrate.downgrade(database.url(), queue="both", revision="base")
            except FairlaneError as error:
                return one_line(error)
            return None

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(go, range(12)))
        if migrate.status(database.url(), queue="both").found is None:
            with psycopg.connect(database.url()) as connection:
                left = connection.execute(
                    "select relname from pg_class where relnamespace = to_regnamespace('both')"
                    " and relkind in ('r', 'v') and relname <> 'alembic_version'"
                ).fetchall()
            assert left == []
        else:
            with connect(database.url(), "both") as queue:
                queue.publish("g", 1)

    @pytest.mark.parametrize("revision", ["base", f"-{int(CLIENT_REVISION)}"])
    def test_alembic_removes_no_queue_that_holds_messages_unless_told_so(
        self, database: Database, revision: str
    ) -> None:
        with connect(database.url("app"), "q") as queue:
            queue.publish("g", 1)
            done = alembic(database.url("owner"), "q", "downgrade", revision)
            assert done.code != 0
            assert "holds 1 message, which would be lost: add -x yes=1" in done.out + done.err
            queue.publish("g", 2)
        alembic(database.url("owner"), "q", "-x", "yes=1", "downgrade", revision).ok()
        assert migrate.status(database.url(), queue="q").found is None
