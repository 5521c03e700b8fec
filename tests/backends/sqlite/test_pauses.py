"""Pauses of SQLite, libSQL and rqlite are kept by triggers on the tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import fairlane
from fairlane import migrate
from fairlane.backends.sqlite.address import locate
from tests.harness import held

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.promise(1, 2, 3, 5)]

OLD_NACK = "update fairlane_groups set ready_at = ?, token = null, worker_id = null where group_id = ? and token = ?"
OLD_CLAIM = """
update fairlane_groups set token = 'old', attempts = attempts + 1 where group_id = (
    select group_id from fairlane_groups where ready_at < 253370764800000000 order by ready_at limit 1
) returning group_id
"""
TRIGGERS = "select count(*) from sqlite_master where type = 'trigger' and name like 'fairlane_paused_%'"


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/queue.db"
    migrate.upgrade(url)
    return url


@pytest.fixture
def raw(url: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(locate(url, {}).path, isolation_level=None)) as connection:
        yield connection


def test_statements_of_clients_that_know_no_pauses_cannot_end_them(url: str, raw: sqlite3.Connection) -> None:
    """Clients of revision 0001 bring their own statements. Guards against rules that only the new ones have."""
    with fairlane.connect(url) as queue:
        queue.publish("g", 1)
        lease = held(queue.claim("w", 60))
        queue.pause("g")
        assert raw.execute(OLD_NACK, (lease.expires_at.timestamp() * 1e6, "g", lease.token)).rowcount == 1
        assert queue.claim("w", 60) is None
        assert [row.state for row in queue.inspect.groups()] == ["paused"]
        queue.pause()
        queue.publish("h", 1)
        assert raw.execute(OLD_CLAIM).fetchall() == []
        queue.resume()
        assert raw.execute(OLD_CLAIM).fetchall() == [("h",)]


def test_a_queue_that_was_never_paused_has_no_trigger_that_its_claims_would_pay_for(
    url: str, raw: sqlite3.Connection
) -> None:
    assert raw.execute(TRIGGERS).fetchone() == (2,)  # on the table of pauses itself
    with fairlane.connect(url) as queue:
        queue.pause("g")
        assert raw.execute(TRIGGERS).fetchone() == (5,)


def test_a_pause_in_the_transaction_of_the_application_is_undone_with_it(url: str, raw: sqlite3.Connection) -> None:
    with fairlane.SqliteTransport(raw) as given, fairlane.connect(url) as queue:
        queue.publish("g", 1)
        raw.execute("begin immediate")
        assert given.pause("g") is True
        raw.execute("rollback")
        assert given.pause() is True
        assert given.resume() is True
        assert held(queue.claim("w", 60)).group_id == "g"


def test_a_migration_takes_no_pause_for_damage(url: str, raw: sqlite3.Connection) -> None:
    with fairlane.connect(url) as queue:
        queue.publish("g", 1)
        queue.pause("g")
        queue.pause("empty")
        assert migrate.status(url).fault is None
        migrate.upgrade(url)
        assert sorted((row.group_id, row.state) for row in queue.inspect.groups()) == [
            ("empty", "paused"),
            ("g", "paused"),
        ]


def test_a_group_whose_pause_was_deleted_by_hand_is_found_and_repaired(url: str, raw: sqlite3.Connection) -> None:
    """Guards against a group that no claim finds and no resume frees."""
    with fairlane.connect(url) as queue:
        queue.publish("g", 1)
        queue.pause("g")
        raw.execute("drop trigger fairlane_paused_ends")
        raw.execute("delete from fairlane_paused")
        assert "parked for longer" in str(migrate.status(url).fault)
        migrate.upgrade(url)
        assert held(queue.claim("w", 60)).group_id == "g"


def test_a_downgrade_ends_all_pauses_and_takes_their_triggers_along(url: str, raw: sqlite3.Connection) -> None:
    with fairlane.connect(url) as queue:
        queue.publish("g", 1)
        for which in ("g", "empty", None):
            queue.pause(which)
        migrate.downgrade(url, revision="0001")
        assert raw.execute(TRIGGERS).fetchone() == (0,)
        assert raw.execute("select state from fairlane_group_status").fetchall() == [("ready",)]
        migrate.upgrade(url)
        assert held(queue.claim("w", 60)).group_id == "g"
