"""A migration leaves exactly the golden schema in a Postgres database, and a downgrade leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from tests.backends.postgres.catalogue import catalogue
from tests.backends.postgres.fresh import Database, fresh_database
from tests.golden import golden
from tests.harness import held
from tests.servers.postgres import find_tool


@pytest.fixture
def database() -> Iterator[Database]:
    with fresh_database() as made:
        yield made


def described(database: Database, queue: str) -> str:
    roles = {name: f"<{role}>" for role, name in database.roles.items()}
    with database.connect() as connection:
        return catalogue(connection, queue, roles)


def test_the_schema_is_the_golden_one(database: Database) -> None:
    migrate.upgrade(database.url(), queue="lane_under_test", **database.migration_roles())
    dump = described(database, "lane_under_test")
    assert dump == golden("postgres.txt", dump)


def test_up_down_up_leaves_the_same_and_down_leaves_nothing(database: Database) -> None:
    options = database.migration_roles()
    migrate.upgrade(database.url(), queue="again", **options)
    first = described(database, "again")
    with fairlane.connect(database.url(), queue="again") as queue:
        queue.publish("g", 1)
        queue.claim("w", 30)
    migrate.downgrade(database.url(), queue="again", revision="base", **options)
    with database.connect() as connection:
        left = connection.execute("select nspname from pg_namespace where nspname = 'again'").fetchall()
        assert left == []
    migrate.upgrade(database.url(), queue="again", **options)
    assert described(database, "again") == first


def test_an_upgrade_of_a_used_queue_keeps_its_messages(database: Database) -> None:
    migrate.upgrade(database.url(), queue="used")
    with fairlane.connect(database.url(), queue="used") as queue:
        queue.publish("g", 1, 3)
        lease = held(queue.claim("w", 30))
        before = described(database, "used")
        migrate.upgrade(database.url(), queue="used")
        assert described(database, "used") == before
        queue.ack(lease)


def test_two_queues_in_one_database_never_touch(database: Database) -> None:
    for name in ("one", "two"):
        migrate.upgrade(database.url(), queue=name)
    untouched = described(database, "two")
    with fairlane.connect(database.url(), "one") as one, fairlane.connect(database.url(), "two") as two:
        assert one.publish("g", "of one", dedup_id="d") == two.publish("g", "of two", dedup_id="d") == 1
        lease = held(one.claim("w", 30))
        assert lease.event == "of one"
        with pytest.raises(fairlane.LeaseLost):
            two.ack(lease)
        one.ack(lease)
        migrate.downgrade(database.url(), queue="one", revision="base")
        assert described(database, "two") == untouched
        assert held(two.claim("w", 30)).event == "of two"


@pytest.mark.parametrize("with_roles", [False, True])
def test_offline_sql_applied_with_psql_gives_the_same_as_online(database: Database, with_roles: bool) -> None:
    psql = find_tool("psql")
    if psql is None:
        pytest.skip("psql is not installed")
    options: dict[str, Any] = {**database.migration_roles()} if with_roles else {}
    migrate.upgrade(database.url(), queue="online", **options)
    script = migrate.script(database.url(), queue="offline", **options)
    path = f"/tmp/{database.name}.sql"
    with open(path, "w") as file:  # noqa: PTH123
        file.write(script)
    psql.run(database.url(), "-v", "ON_ERROR_STOP=1", "-q", "-X", "-f", path)
    assert described(database, "offline") == described(database, "online")
    with fairlane.connect(database.url(), queue="offline") as queue:
        queue.publish("g", {"a": 1})
        queue.ack(held(queue.claim("w", 30)))


def test_migrations_at_once_all_succeed(database: Database) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: migrate.upgrade(database.url(), queue="crowded"), range(8)))
    with fairlane.connect(database.url(), queue="crowded") as queue:
        queue.publish("g", 1)


def test_a_queue_of_the_longest_name_works(database: Database) -> None:
    name = "q" + "_" * 30
    migrate.upgrade(database.url(), queue=name)
    with fairlane.connect(database.url(), queue=name) as queue:
        queue.publish("g", 1)
        queue.ack(held(queue.claim("w", 30)))
        assert queue.inspect.queue().messages == 0


def test_the_sequence_hands_out_one_number_at_a_time(database: Database) -> None:
    migrate.upgrade(database.url(), queue="counted")
    with database.connect() as connection:
        ((cache,),) = connection.execute(
            "select cache_size from pg_sequences where sequencename = 'message_seq' and schemaname = 'counted'"
        ).fetchall()
    assert cache == 1
