"""Data changed by hand: other groups are served, the error names the record, and a migration repairs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import fairlane
from fairlane import QueueDamaged, migrate
from fairlane.templates import render, split_sqlite, statement
from tests.backends.sqlite.database import Database

QUEUE = "fairlane"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    migrate.upgrade(f"sqlite:///{tmp_path}/q.db")
    return tmp_path / "q.db"


@pytest.fixture
def queue(path: Path) -> Iterator[Any]:
    with fairlane.connect(f"sqlite:///{path}") as made:
        yield made


def by_hand(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def without_triggers(path: Path, statement: str) -> None:
    """Run a statement without triggers, as a tool that copies tables one by one does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"drop trigger {name}")
        connection.execute(statement)
        for _, text in triggers:
            connection.execute(text)


def drained(queue: Any) -> list[tuple[str, Any]]:
    found = []
    while (lease := queue.claim("w", 30)) is not None:
        found.append((lease.group_id, lease.event))
        queue.ack(lease)
    return found


@pytest.mark.parametrize("head", ["99", "-1"])
def test_a_head_without_its_message_stops_no_other_group(path: Path, queue: Any, head: str) -> None:
    """Guards against an untranslated TypeError in each claim that reaches the group."""
    for number in range(2):
        queue.publish("damaged", number)
        queue.publish("whole", number)
    by_hand(path, f"update {QUEUE}_groups set head_seq = {head} where group_id = 'damaged'")
    with pytest.raises(QueueDamaged, match=r"group 'damaged' begins with message .*, which is not there; .* parked"):
        queue.claim("w", 30)
    assert {group.group_id: group.state for group in queue.inspect.groups()}["damaged"] == "parked"
    assert drained(queue) == [("whole", 0), ("whole", 1)]
    migrate.upgrade(f"sqlite:///{path}")
    assert drained(queue) == [("damaged", 0), ("damaged", 1)]
    assert queue.inspect.queue().groups == 0


def test_a_damaged_group_hides_no_other_lease_of_a_batch(path: Path, queue: Any) -> None:
    for group in ("a", "damaged", "b"):
        queue.publish(group, group)
    by_hand(path, f"update {QUEUE}_groups set head_seq = 99 where group_id = 'damaged'")
    leases = queue.claim_many("w", 30, 10)
    assert [lease.group_id for lease in leases] == ["a", "b"]
    assert {group.group_id: group.state for group in queue.inspect.groups()}["damaged"] == "parked"
    assert queue.ack_many(leases) == []


@pytest.mark.parametrize("call", ["claim_many", "ack_and_claim"])
def test_a_damaged_group_that_is_alone_is_named(path: Path, queue: Any, call: str) -> None:
    queue.publish("whole", 1)
    lease = queue.claim("w", 30)
    queue.publish("damaged", 1)
    by_hand(path, f"update {QUEUE}_groups set head_seq = 99 where group_id = 'damaged'")
    with pytest.raises(QueueDamaged, match=r"group 'damaged' begins with message 99, which is not there") as raised:
        queue.claim_many("w", 30, 10) if call == "claim_many" else queue.ack_and_claim(lease, "w", 30)
    assert getattr(raised.value, "__notes__", []) == (
        [] if call == "claim_many" else ["The message 1 of group 'whole' was acked."]
    )
    assert {group.group_id: group.state for group in queue.inspect.groups()}["damaged"] == "parked"


def test_messages_whose_group_was_deleted_keep_their_order(path: Path, queue: Any) -> None:
    """Guards against a publish that makes the group again with its own message as head: the newest would come first."""
    for number in range(3):
        queue.publish("g", number, 3)
    by_hand(path, f"delete from {QUEUE}_groups")
    queue.publish("g", 3)
    assert drained(queue) == [("g", number) for number in range(4)]


def test_a_migration_restores_the_deleted_group_of_messages(path: Path, queue: Any) -> None:
    queue.publish("old", 0, 3)
    queue.publish("new", 0)
    queue.publish("old", 1, 1)
    by_hand(path, f"delete from {QUEUE}_groups where group_id = 'old'")
    migrate.upgrade(f"sqlite:///{path}")
    assert queue.inspect.queue().groups == 2
    lease = queue.claim("w", 30, 3)
    assert (lease.group_id, lease.event) == ("old", 0), "the priority of its first message"
    queue.ack(lease)
    assert sorted(drained(queue)) == [("new", 0), ("old", 1)]


def test_a_group_without_messages_is_dropped_by_a_migration(path: Path, queue: Any) -> None:
    queue.publish("g", 0)
    without_triggers(path, f"delete from {QUEUE}_messages")
    with pytest.raises(QueueDamaged):
        queue.claim("w", 30)
    migrate.upgrade(f"sqlite:///{path}")
    assert queue.inspect.queue().groups == 0
    queue.publish("g", 1)
    assert drained(queue) == [("g", 1)]


@pytest.mark.parametrize("value", ["0", "'x'", "9223372036854775807", "-5"])
def test_no_seq_is_used_again_whatever_the_setting_says(path: Path, queue: Any, value: str) -> None:
    """Guards against a setting that was set back: new messages would come before old ones, or have an existing key."""
    seqs = [queue.publish("g", number) for number in range(3)]
    by_hand(path, f"update {QUEUE}_settings set value = {value} where name = 'last_seq'")
    if value in ("0", "-5"):
        assert queue.publish("g", 3) > seqs[-1]
    else:
        with pytest.raises(QueueDamaged, match="last_seq"):
            queue.publish("g", 3)
    by_hand(path, f"update {QUEUE}_settings set value = {value} where name = 'last_seq'")
    migrate.upgrade(f"sqlite:///{path}")
    assert queue.publish("h", 4) > seqs[-1]
    assert [event for group, event in drained(queue) if group == "g"][:3] == [0, 1, 2]


def test_a_migration_rebuilds_the_settings_that_clients_need(path: Path, queue: Any) -> None:
    """Guards against a `fairlane migrate` that does nothing because Alembic's table already has the newest revision."""
    seq = queue.publish("g", 0)
    by_hand(path, f"delete from {QUEUE}_settings")
    with pytest.raises(QueueDamaged, match="last_seq"):
        queue.publish("g", 1)
    with pytest.raises(fairlane.SchemaNotReady):
        fairlane.connect(f"sqlite:///{path}")
    migrate.upgrade(f"sqlite:///{path}")
    assert migrate.status(f"sqlite:///{path}").ready
    assert queue.publish("g", 1) == seq + 1
    assert drained(queue) == [("g", 0), ("g", 1)]


def repaired(db: Database) -> None:
    db.connection.execute("create table if not exists q_alembic_version (version_num)")
    db.connection.execute("insert into q_alembic_version values ('0001')")
    for each in split_sqlite(render("schema/sqlite/repaired.sql.j2", queue="q", dialect=db.dialect)):
        db.connection.execute(each)


def damaged(db: Database) -> bool:
    (row,) = db.connection.execute(statement("schema/sqlite/damaged.sql.j2", queue="q", dialect=db.dialect))
    return bool(row[0])


def contents(db: Database) -> list[Any]:
    tables = ("q_messages", "q_groups", "q_settings")
    return [db.connection.execute(f"select * from {table} order by 1, 2").fetchall() for table in tables]


def test_a_repair_of_an_undamaged_queue_changes_nothing(db: Database) -> None:
    for number in range(20):
        db.publish(f"g{number % 7}", str(number), number % 5)
    db.must_claim()
    lease = db.must_claim()
    db.call("nack", **db.fence(lease), delay=60.0)
    before = contents(db)
    assert not damaged(db)
    repaired(db)
    assert contents(db) == before


DAMAGES = (
    "update q_groups set head_seq = 5 where group_id = 'g1'",
    "delete from q_groups where group_id = 'g2'",
    "insert into q_groups (group_id, priority, head_seq, ready_at) values ('none', 0, 99, 1)",
    "update q_settings set value = 'x' where name = 'serves'",
    "update q_groups set ready_at = 9223372036854775807 where group_id = 'g1'",
    "update q_settings set value = 1 where name = 'last_seq'",
    "update q_settings set value = 9223372036854775807 where name = 'last_seq'",
    "delete from q_settings where name = 'last_seq'",
    "delete from q_settings where name = 'revision'",
)


@pytest.mark.parametrize("damage", [*DAMAGES, None])
def test_a_repair_restores_what_can_be_computed_from_the_messages(db: Database, damage: str | None) -> None:
    for number in range(6):
        db.publish(f"g{number % 3}", str(number), number % 3)
    whole = contents(db)
    for each in (*DAMAGES[:3], DAMAGES[5]) if damage is None else (damage,):
        db.connection.execute(each)
    assert damaged(db)
    repaired(db)
    assert not damaged(db)
    heads = db.connection.execute("select group_id, priority, head_seq from q_groups order by 1").fetchall()
    assert heads == [("g0", 0, 1), ("g1", 1, 2), ("g2", 2, 3)]
    assert contents(db)[::2] == whole[::2]
    assert db.publish("g9") == 7


@pytest.mark.parametrize("command", ["current", "check"])
def test_a_command_that_only_reads_repairs_nothing(path: Path, queue: Any, command: str) -> None:
    from tests.commands import alembic

    queue.publish("g", 0)
    by_hand(path, f"delete from {QUEUE}_groups")
    alembic(f"sqlite:///{path}", QUEUE, command)
    assert queue.inspect.queue().groups == 0
