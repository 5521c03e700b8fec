"""SQLite accepts values of any type. In no column does a value that was written by hand stop another group."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress

import pytest
from libsql_client import LibsqlError

import fairlane
from fairlane import EventDecodingError, FairlaneError, QueueDamaged, SchemaNotReady, migrate
from fairlane.backends.shared.retry import Refused
from tests.backends.sqlite.damages import DAMAGES, SETTINGS, Damage, Setting
from tests.harness import Queue
from tests.harness.kits.libsql import LibsqlKit
from tests.harness.kits.rqlite import RqliteKit
from tests.harness.kits.sqlite import SqliteKit

pytestmark = [pytest.mark.backends("sqlite", "libsql", "rqlite"), pytest.mark.twins("sync"), pytest.mark.promise(1, 2)]

REFUSED = [each for each in DAMAGES if each.outcome == "refused"]
STORED = [each for each in DAMAGES if each.outcome != "refused"]


def by_hand(queue: Queue, statement: str) -> None:
    text = statement.replace("q_", f"{queue.name}_")
    if isinstance(queue.kit, SqliteKit):
        with closing(queue.kit.connect()) as connection:
            connection.execute(text)
    else:
        assert isinstance(queue.kit, LibsqlKit | RqliteKit)
        queue.kit.send(queue.name, [(text, {})])


def filled(queue: Queue) -> None:
    for group, event in (("bad", 0), ("whole", 1), ("bad", 2)):
        queue.transport.publish(group, event)


def look(queue: Queue) -> None:
    """Check that inspection works on a damaged queue."""
    queue.transport.inspect.queue()
    groups = queue.transport.inspect.groups()
    assert all(isinstance(group.group_id, str) for group in groups)
    for group in groups:
        if group.group_id.isprintable():
            queue.transport.inspect.messages(group.group_id)


def served(queue: Queue) -> tuple[list[str], list[FairlaneError]]:
    """Claim and ack until nothing is left; return the groups, and the errors on the way."""
    groups: list[str] = []
    errors: list[FairlaneError] = []
    for _ in range(9):
        try:
            lease = queue.transport.claim("w", 30)
        except EventDecodingError as error:
            errors.append(error)
            queue.transport.ack(error.lease)
        except FairlaneError as error:
            errors.append(error)
        else:
            if lease is None:
                return groups, errors
            groups.append(lease.group_id)
            queue.transport.ack(lease)
        look(queue)
    raise AssertionError(errors)


def test_what_would_stop_a_claim_is_refused_where_it_is_written(queue: Queue) -> None:
    filled(queue)
    taken = []
    for damage in REFUSED:
        with suppress(sqlite3.IntegrityError, LibsqlError, Refused):
            by_hand(queue, damage.statement)
            taken.append(damage.statement)
    assert taken == []
    assert served(queue) == (["bad", "whole", "bad"], [])


@pytest.mark.parametrize("damage", STORED, ids=lambda damage: damage.name)
def test_a_damaged_record_stops_no_other_group(queue: Queue, damage: Damage) -> None:
    filled(queue)
    by_hand(queue, damage.statement)
    url = queue.kit.url(queue.name)
    fault = migrate.status(url, queue=queue.name).fault
    assert (fault is not None) == damage.seen, fault
    look(queue)
    groups, errors = served(queue)
    assert "whole" in groups
    kinds = {type(error) for error in errors}
    if damage.outcome == "aside":
        assert kinds <= {QueueDamaged}
        assert migrate.status(url, queue=queue.name).fault
    elif damage.outcome == "told":
        assert kinds == {EventDecodingError}
    else:
        assert kinds == set()
    assert (sorted(groups) == ["bad", "bad", "whole"]) == (damage.outcome == "served"), groups
    migrate.upgrade(url, queue=queue.name)
    look(queue)
    more, still = served(queue)
    told = [error for error in errors if isinstance(error, EventDecodingError)]
    assert len(groups) + len(told) + len(more) == 3 or "no UTF-8" in str(still)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.statement)
def test_a_damaged_setting_raises_a_typed_error_until_a_migration(queue: Queue, setting: Setting) -> None:
    filled(queue)
    by_hand(queue, setting.statement)
    url = queue.kit.url(queue.name)
    assert migrate.status(url, queue=queue.name).ready == (setting.stops == "nothing")
    if setting.stops == "publish":
        with pytest.raises(QueueDamaged, match="last_seq"):
            queue.transport.publish("more", 3)
    elif setting.stops == "start":
        with pytest.raises(SchemaNotReady):
            fairlane.connect(url, queue.name)
    migrate.upgrade(url, queue=queue.name)
    assert migrate.status(url, queue=queue.name).ready
    with fairlane.connect(url, queue.name) as transport:
        transport.publish("more", 3)
    assert served(queue) == (["bad", "whole", "more", "bad"], [])
