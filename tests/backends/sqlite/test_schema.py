"""A migration leaves the golden schema in an SQLite file: also in a used file, beside another queue, by script."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

import fairlane
from fairlane import migrate
from tests.backends.sqlite.database import install
from tests.golden import golden
from tests.harness import held

HEADER = "-- Written by tests/backends/sqlite/test_schema.py with FAIRLANE_UPDATE_GOLDEN=1.\n\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


def catalogue(path: Path | str) -> str:
    """Return every table, index, trigger and view of a database, and the settings of its queues."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return described(connection)


def described(connection: sqlite3.Connection) -> str:
    rows = connection.execute(
        "select type, name, sql from sqlite_master where name not like 'sqlite_%' order by type, name"
    ).fetchall()
    # Alembic indents its own table differently in online and offline mode
    rows = [(kind, name, " ".join(text.split()) if "alembic" in name and text else text) for kind, name, text in rows]
    parts = [f"-- {kind} {name}\n{text or '(made by a constraint)'}\n" for kind, name, text in rows]
    for kind, name, _ in rows:
        if kind == "table" and name.endswith("_settings"):
            settings = connection.execute(f'select name, value from "{name}" order by name').fetchall()
            parts.append(f"-- settings in {name}\n" + "".join(f"{key} = {value!r}\n" for key, value in settings))
    return "\n".join(parts)


@pytest.mark.parametrize("head_start", ["1", "always"])
def test_the_schema_is_the_golden_one(path: Any, head_start: Any) -> None:
    migrate.upgrade(f"sqlite:///{path}", queue="lane_under_test", head_start=head_start)
    dump = catalogue(path)
    assert HEADER + dump == golden(f"sqlite_{head_start}.sql", HEADER + dump)


@pytest.mark.parametrize("dialect", ["libsql", "rqlite"])
def test_the_schema_of_the_rest_of_the_family_is_the_golden_one(dialect: str) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        install(connection, dialect, queue="lane_under_test")
        dump = described(connection)
    assert HEADER + dump == golden(f"{dialect}.sql", HEADER + dump)


def test_up_down_up_leaves_the_same_and_down_leaves_nothing(path: Any) -> None:
    url = f"sqlite:///{path}"
    migrate.upgrade(url)
    first = catalogue(path)
    with fairlane.connect(url) as queue:
        queue.publish("g", 1, dedup_id="d")
        queue.claim("w", 30)
    migrate.downgrade(url, revision="base")
    assert "fairlane" not in catalogue(path).replace("fairlane_alembic_version", "")
    migrate.upgrade(url)
    assert catalogue(path) == first


def test_an_upgrade_of_a_used_queue_keeps_its_messages_and_leases(path: Any) -> None:
    url = f"sqlite:///{path}"
    migrate.upgrade(url)
    with fairlane.connect(url) as queue:
        for number in range(5):
            queue.publish("g", number, 3)
        lease = held(queue.claim("w", 30))
        before = catalogue(path)
        migrate.upgrade(url)
        assert catalogue(path) == before
        queue.ack(lease)
        assert held(queue.claim("w", 30, 3)).event == 1


def test_two_queues_and_an_application_in_one_file_never_touch(path: Any) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as mine:
        mine.execute("create table messages (id)")
        mine.execute("create table alembic_version (version_num)")
        mine.execute("insert into alembic_version values ('mine')")
    url = f"sqlite:///{path}"
    application = catalogue(path)
    for queue in ("one", "one_messages"):
        migrate.upgrade(url, queue=queue)
    with fairlane.connect(url, queue="one") as one, fairlane.connect(url, queue="one_messages") as two:
        one.publish("g", "one")
        two.publish("g", "two")
        migrate.downgrade(url, queue="one", revision="base")
        assert held(two.claim("w", 30)).event == "two"
    migrate.downgrade(url, queue="one_messages", revision="base")
    left = catalogue(path)
    assert application in left or all(line in left for line in application.splitlines())
    with contextlib.closing(sqlite3.connect(path)) as mine:
        assert mine.execute("select * from alembic_version").fetchall() == [("mine",)]


@pytest.mark.parametrize("head_start", ["1", "always"])
def test_the_offline_script_gives_the_same_as_a_migration(path: Any, tmp_path: Path, head_start: Any) -> None:
    migrate.upgrade(f"sqlite:///{path}", queue="lane", head_start=head_start)
    script = migrate.script("sqlite:///nowhere.db", queue="lane", head_start=head_start)
    by_hand = tmp_path / "by_hand.db"
    with contextlib.closing(sqlite3.connect(by_hand, isolation_level=None)) as connection:
        connection.executescript(script)
    assert catalogue(by_hand) == catalogue(path)
    with fairlane.connect(f"sqlite:///{by_hand}", queue="lane") as queue:
        queue.publish("g", 1)
        queue.ack(held(queue.claim("w", 30)))


def test_a_failed_migration_leaves_nothing_behind(path: Any) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as mine:
        mine.execute("create view fairlane_message_status as select 1 as mine")
        mine.execute("create table fairlane_groups (mine)")
        before = described(mine)
    with pytest.raises(Exception, match="fairlane_groups"):
        migrate.upgrade(f"sqlite:///{path}")
    assert catalogue(path) == before


def test_a_change_of_a_setting_that_fails_at_its_end_changes_nothing(path: Any) -> None:
    """The triggers are made again before the setting is stored."""
    url = f"sqlite:///{path}"
    migrate.upgrade(url)
    guard = (
        "create trigger guard before update on fairlane_settings when new.name = 'head_start' "
        "begin select raise(abort, 'no'); end"
    )
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(guard)
    before = catalogue(path)
    with pytest.raises(IntegrityError):
        migrate.configure(url, head_start=5)
    assert catalogue(path) == before
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("drop trigger guard")
    migrate.configure(url, head_start=5)
    migrate.configure(url, head_start=1)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(guard)
    assert catalogue(path) == before


def test_a_setting_that_was_damaged_by_hand_is_named_and_can_be_set_again(path: Any) -> None:
    url = f"sqlite:///{path}"
    migrate.upgrade(url)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("update fairlane_settings set value = 'soon' where name = 'head_start'")
        connection.commit()
    with pytest.raises(fairlane.QueueDamaged, match=r"head_start is 'soon': `fairlane queue set .* --head-start"):
        migrate.queue_settings(url)
    migrate.upgrade(url)
    before, after = migrate.configure(url, head_start=2)
    assert (before.head_start, after.head_start) == (None, 2)
    assert migrate.queue_settings(url).head_start == 2
