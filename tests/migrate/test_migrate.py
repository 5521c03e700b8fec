"""`fairlane migrate` and `fairlane.migrate` on every backend."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from fairlane import ConfigurationError, FairlaneError, SchemaNotReady, connect, connect_async, migrate
from fairlane.contract import CLIENT_REVISION
from tests.commands import environment, fairlane, run
from tests.migrate.conftest import Database, everywhere
from tests.servers import SERVERS, find_tool

pytestmark = [
    pytest.mark.twins("sync"),
    pytest.mark.cluster,
]


@everywhere
def test_up_and_down_from_the_command_line(database: Database) -> None:
    where = ("--url", database.url, "--queue", database.queue)
    assert fairlane("status", *where).code == 1
    assert f"is now at revision {CLIENT_REVISION}" in fairlane("migrate", *where).ok().out
    assert "there was nothing to do" in fairlane("migrate", CLIENT_REVISION, *where).ok().out
    assert fairlane("status", *where).code == 0
    assert fairlane("publish", "g", "1", *where).ok().out.strip().isdigit()
    assert fairlane("stats", "--json", *where).ok().json["messages"] == 1
    assert "would be lost" in fairlane("migrate", "base", *where).failed_in_one_line()
    assert "is removed" in fairlane("migrate", "base", "--yes", *where).ok().out
    assert fairlane("status", "--json", *where).json["found"] is None
    assert "run `fairlane migrate" in fairlane("stats", *where).failed_in_one_line()


@pytest.mark.backends("sqlite", "postgres")
@pytest.mark.parametrize("thing", ["table", "view"])
def test_tables_of_another_application_stop_a_migration_and_stay_as_they_are(database: Database, thing: str) -> None:
    name = database.queue
    what = "(x integer)" if thing == "table" else "as select 1 as x"
    if database.kit.backend == "sqlite":
        with closing(sqlite3.connect(database.kit.folder / "queue.db")) as connection:
            connection.execute(f"create {thing} {name}_groups {what}")
    else:
        with psycopg.connect(database.url) as connection:
            connection.execute(f"create schema {name}")
            connection.execute(f"create {thing} {name}.groups {what}")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="choose another name for the queue"):
            migrate.upgrade(database.url, queue=name)
    assert database.revision is None
    if database.kit.backend == "postgres":
        with psycopg.connect(database.url) as connection:
            rows = connection.execute("select relname from pg_class where relnamespace = %s::regnamespace", (name,))
            assert [row[0] for row in rows] == ["groups"]
            connection.execute(f"drop schema {name} cascade")


@pytest.mark.backends("sqlite", "postgres", "redis", "redis-cluster")
def test_a_queue_that_is_removed_and_made_again_while_in_use_gives_typed_errors(database: Database) -> None:
    """Guards against raw errors of a server in the moment when only a part of the queue exists."""
    migrate.upgrade(database.url, queue=database.queue)
    end, wrong = time.monotonic() + 4, set()

    def use() -> None:
        with connect(database.url, database.queue) as transport:
            while time.monotonic() < end:
                try:
                    transport.publish("g", 1, dedup_id="id")
                    if lease := transport.claim("w", 30):
                        transport.ack(lease)
                except FairlaneError:
                    pass
                except Exception as error:
                    wrong.add(f"{type(error).__name__}: {error!s:.200}")

    with ThreadPoolExecutor() as threads:
        users = [threads.submit(use) for _ in range(3)]
        while time.monotonic() < end:
            try:
                migrate.downgrade(database.url, queue=database.queue, revision="base")
                migrate.upgrade(database.url, queue=database.queue)
            except FairlaneError:
                pass  # it lost a deadlock, and changed nothing
            except Exception as error:
                wrong.add(f"migration: {type(error).__name__}: {error!s:.200}")
    for user in users:
        with suppress(SchemaNotReady):  # it came between the two migrations
            user.result()
    assert wrong == set()
    migrate.upgrade(database.url, queue=database.queue)
    with connect(database.url, database.queue) as transport:
        transport.publish("h", 1)


@pytest.mark.backends("sqlite", "postgres", "redis", "redis-cluster")
def test_migrate_base_leaves_nothing_behind(database: Database) -> None:
    kit, name = database.kit, database.queue
    migrate.upgrade(database.url, queue=name)
    migrate.downgrade(database.url, queue=name, revision="base")
    if kit.backend == "sqlite":
        with closing(sqlite3.connect(kit.folder / "queue.db")) as connection:
            left = connection.execute("select name from sqlite_master where name glob ?", (f"{name}*",)).fetchall()
    elif kit.backend == "postgres":
        with psycopg.connect(database.url) as connection:
            left = connection.execute("select from pg_namespace where nspname = %s", (name,)).fetchall()
    else:
        with kit.connect(name) as client:  # type: ignore[attr-defined]
            left = list(client.scan_iter(f"{{{name}}}*"))
            left += client.execute_command("FUNCTION", "LIST", "LIBRARYNAME", f"fairlane_{name}")
    assert left == []


@everywhere
def test_eight_processes_migrate_an_empty_database_at_once(database: Database) -> None:
    command = ("migrate", "--url", database.url, "--queue", database.queue)
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: fairlane(*command, timeout=120), range(8)))
    assert [each.code for each in done] == [0] * 8
    # where the server cannot queue migrations up by itself, one that waits says so
    said = [line for each in done for line in each.err.splitlines()]
    assert [line for line in said if not line.startswith("waiting for another migration")] == []
    assert database.revision == CLIENT_REVISION
    with connect(database.url, database.queue) as queue:
        queue.publish("g", 1)
        assert queue.claim("w", 60) is not None


@everywhere
def test_threads_may_migrate_at_once_too(database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: migrate.upgrade(database.url, queue=database.queue), range(4)))
    assert database.revision == CLIENT_REVISION


@everywhere
def test_an_upgrade_of_a_used_queue_keeps_its_messages(database: Database) -> None:
    migrate.upgrade(database.url, queue=database.queue)
    with connect(database.url, database.queue) as queue:
        queue.publish("g", "kept")
        migrate.upgrade(database.url, queue=database.queue)
        migrate.migrate(database.url, queue=database.queue)
        lease = queue.claim("w", 60)
    assert lease is not None
    assert lease.event == "kept"


@everywhere
async def test_connect_can_migrate_first(database: Database) -> None:
    with pytest.raises(SchemaNotReady) as caught:
        connect(database.url, database.queue)
    assert (caught.value.found, caught.value.needed) == (None, CLIENT_REVISION)
    assert f"run `fairlane migrate --queue {database.queue}`" in str(caught.value)
    with connect(database.url, database.queue, migrate=True) as queue:
        queue.publish("g", 1)
    async with await connect_async(database.url, database.queue, migrate=True) as queue:
        assert (await queue.inspect.queue()).messages == 1


@everywhere
def test_a_wrong_revision_or_option_changes_nothing(database: Database) -> None:
    for wrong in ("9999", "nonsense", "heads@x"):
        with pytest.raises(ConfigurationError):
            migrate.upgrade(database.url, queue=database.queue, revision=wrong)
    with pytest.raises(ConfigurationError, match="unknown option of a migration: colour"):
        migrate.upgrade(database.url, queue=database.queue, colour="red")
    with pytest.raises(ValueError, match="queue must match"):
        migrate.upgrade(database.url, queue="Nonsense")
    assert database.revision is None


@everywhere
def test_migrating_in_process_leaves_the_logging_of_the_host_alone(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    root, mine, theirs = logging.getLogger(), logging.getLogger("host.app"), logging.getLogger("alembic")
    before = [(each.level, list(each.handlers), each.disabled, each.propagate) for each in (root, mine, theirs)]
    migrate.upgrade(database.url, queue=database.queue)
    migrate.script(database.url, queue=database.queue)
    migrate.downgrade(database.url, queue=database.queue, revision="base")
    after = [(each.level, list(each.handlers), each.disabled, each.propagate) for each in (root, mine, theirs)]
    assert after == before
    assert capsys.readouterr() == ("", "")


@everywhere
def test_a_host_that_logs_everything_goes_on_doing_so(database: Database) -> None:
    program = (
        "import logging, sys, json, fairlane; logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)\n"
        "log = logging.getLogger('host')\n"
        "fairlane.migrate.upgrade(sys.argv[1], queue=sys.argv[2]); log.debug('still here')\n"
        "print(json.dumps([logging.getLogger().level, len(logging.getLogger().handlers), log.disabled]))"
    )
    done = run([sys.executable, "-c", program, database.url, database.queue]).ok()
    assert json.loads(done.out) == [logging.DEBUG, 1, False]
    assert "DEBUG:host:still here" in done.err


@pytest.mark.backends("sqlite", "postgres")
def test_the_script_applied_by_hand_makes_the_same_queue(database: Database) -> None:
    script = migrate.script(database.url, queue=database.queue)
    apply(database, script)
    assert database.revision == CLIENT_REVISION
    assert fairlane("status", "--url", database.url, "--queue", database.queue).code == 0
    migrate.upgrade(database.url, queue=database.queue)
    apply(database, migrate.script(database.url, queue=database.queue, revision="base"))
    assert database.revision is None
    migrate.upgrade(database.url, queue=database.queue)
    assert database.revision == CLIENT_REVISION


@pytest.mark.backends("redis")
def test_the_redis_script_is_for_a_shell(database: Database, tmp_path: Path) -> None:
    program = SERVERS["redis"].found()
    command = program.path.with_name("redis-cli")
    if not command.exists():
        pytest.skip("no redis-cli beside redis-server")
    parts = urlsplit(database.url)
    exports = "".join(f"export {name}='{value}'\n" for name, value in program.env.items())
    wrapper = tmp_path / "redis-cli"
    wrapper.write_text(f'#!/bin/sh\n{exports}exec {command} -h {parts.hostname} -p {parts.port} "$@"\n')
    wrapper.chmod(0o755)
    for revision, found in (("head", CLIENT_REVISION), ("base", None)):
        script = migrate.script(database.url, queue=database.queue, revision=revision)
        run(["/bin/sh", "-ec", script], env={"PATH": f"{tmp_path}:{environment()['PATH']}"}).ok()
        assert database.revision == found


def apply(database: Database, script: str) -> None:
    if database.kit.backend == "sqlite":
        with closing(sqlite3.connect(database.kit.folder / "queue.db")) as connection:
            connection.executescript(script)
        return
    psql = find_tool("psql")
    if psql is None:
        pytest.skip("no psql on this machine")
    command = [str(psql.path), "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--quiet", database.url]
    run(command, env=psql.env, stdin=script).ok()
