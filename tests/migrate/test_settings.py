"""`fairlane queue` and `fairlane.migrate` show and change the settings of a queue, on every backend."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from inspect import signature
from typing import Any

import pytest

from fairlane import ConfigurationError, SchemaNotReady, Transport, UnsupportedByBackend, connect, migrate
from fairlane.backends.targets import Choices
from fairlane.cli import queues
from fairlane.contract import CLIENT_REVISION
from fairlane.migrate.stored_settings import CHANGEABLE, SETTINGS, QueueSettings
from tests.commands import fairlane
from tests.migrate.conftest import Database, everywhere, set_revision

pytestmark = [pytest.mark.twins("sync"), pytest.mark.cluster]

LONG_AGO = "0001"
"""A revision that is older than the package's."""


def served_and_new(database: Database) -> list[str]:
    """Publish into a group that was just served, and into a new one. Return the order in which they are claimed."""
    with connect(database.url, database.queue) as transport:
        return order(transport)


def order(transport: Transport) -> list[str]:
    """Do the same with a transport that is open."""
    for number in range(2):
        transport.publish("served", number)
    lease = transport.claim("w", 60)
    assert lease is not None
    transport.ack(lease)
    transport.publish("new", 1)
    leases = [transport.claim("w", 60), transport.claim("w", 60)]
    for each in leases:
        assert each is not None
        transport.ack(each)
    return [each.group_id for each in leases if each is not None]


def head_start(database: Database) -> Any:
    return migrate.queue_settings(database.url, queue=database.queue).head_start


@contextmanager
def unchanged(database: Database) -> Iterator[None]:
    before = migrate.queue_settings(database.url, queue=database.queue)
    yield
    assert migrate.queue_settings(database.url, queue=database.queue) == before


def test_the_table_the_fields_and_the_options_name_the_same_settings() -> None:
    """Guards against a setting that is stored, but cannot be shown or changed."""
    names = [setting.name for setting in SETTINGS]
    assert [field.name for field in fields(QueueSettings)] == ["queue", "revision", "serves", *names]
    assert set(names) <= {field.name for field in fields(Choices)}
    for function in (migrate.configure, queues.change):
        assert set(CHANGEABLE) <= set(signature(function).parameters)
    assert set(CHANGEABLE) <= set(signature(migrate.upgrade).parameters)


@everywhere
@pytest.mark.needs("head_start")
def test_a_new_head_start_counts_from_then_on(database: Database) -> None:
    migrate.upgrade(database.url, queue=database.queue)
    with connect(database.url, database.queue) as transport:  # is open all the time
        assert order(transport) == ["new", "served"]
        before, after = migrate.configure(database.url, queue=database.queue, head_start=0)
        assert (before.head_start, after.head_start) == (1.0, 0.0)
        assert order(transport) == ["served", "new"]
        for choice in (100, "always", 0.000001, 86_400):
            migrate.configure(database.url, queue=database.queue, head_start=choice)
            assert head_start(database) == choice
        assert order(transport) == ["new", "served"]
    assert migrate.status(database.url, queue=database.queue).ready


@everywhere
@pytest.mark.needs("head_start")
def test_an_upgrade_keeps_the_head_start_of_a_queue(database: Database) -> None:
    """Guards against procedures that an upgrade installs with the default head start."""
    migrate.upgrade(database.url, queue=database.queue, revision=LONG_AGO, head_start=0)
    migrate.upgrade(database.url, queue=database.queue)
    assert head_start(database) == 0
    assert served_and_new(database) == ["served", "new"]


@everywhere
@pytest.mark.needs("head_start")
def test_a_migration_can_change_the_head_start_of_a_queue_too(database: Database) -> None:
    """With a step and without one, in the same way."""
    migrate.upgrade(database.url, queue=database.queue, revision=LONG_AGO, head_start=0)
    migrate.upgrade(database.url, queue=database.queue, head_start=50)
    assert head_start(database) == 50
    assert served_and_new(database) == ["new", "served"]
    shown = fairlane("migrate", "--url", database.url, "--queue", database.queue, "--head-start", "0").ok()
    assert "It has the head start that you named." in shown.out
    assert head_start(database) == 0
    assert served_and_new(database) == ["served", "new"]


@everywhere
@pytest.mark.needs("head_start")
def test_the_command_line_shows_and_sets(database: Database) -> None:
    where = ("--url", database.url, "--queue", database.queue)
    migrate.upgrade(database.url, queue=database.queue)
    done = fairlane("queue", "set", *where, "--head-start", "0.5").ok()
    assert done.out == f"head_start of the queue {database.queue} is now 0.5 s; it was 1 s.\n"
    shown = fairlane("queue", "show", *where, "--json").ok().json
    roles = {"owner_role", "app_role", "reader_role"}
    assert {name: value for name, value in shown.items() if name not in roles} == {
        "queue": database.queue,
        "revision": CLIENT_REVISION,
        "serves": "0001",
        "head_start": 0.5,
    }
    text = fairlane("queue", "show", *where).ok().out
    rows = dict(line.split(maxsplit=1) for line in text.splitlines()[2:])
    assert rows["head_start"].strip() == "0.5 s"
    assert roles.isdisjoint(rows) == (database.kit.backend != "postgres")


@everywhere
@pytest.mark.lacks("head_start")
def test_a_setting_that_the_backend_lacks_is_refused_and_not_shown(database: Database) -> None:
    where = ("--url", database.url, "--queue", database.queue)
    migrate.upgrade(database.url, queue=database.queue)
    with pytest.raises(UnsupportedByBackend, match="head_start"):
        migrate.configure(database.url, queue=database.queue, head_start=1)
    assert "head_start" in fairlane("queue", "set", *where, "--head-start", "1").failed_in_one_line()
    assert "head_start" not in fairlane("queue", "show", *where).ok().out
    assert fairlane("queue", "show", *where, "--json").ok().json["head_start"] is None


@everywhere
@pytest.mark.needs("head_start")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--head-start", "-1"), "head_start must be 0 to 86400 seconds, or always: '-1'"),
        (("--head-start", "86401"), "head_start must be 0 to 86400 seconds"),
        (("--head-start", "nan"), "head_start must be 0 to 86400 seconds"),
        (("--head-start", "'; drop"), "head_start must be 0 to 86400 seconds"),
        (("--colour", "red"), "No such option"),
        ((), "name a setting and its new value: --head-start"),
    ],
)
def test_wrong_values_and_unknown_settings_change_nothing(
    database: Database, options: tuple[str, ...], says: str
) -> None:
    migrate.upgrade(database.url, queue=database.queue)
    with unchanged(database):
        error = fairlane("queue", "set", "--url", database.url, "-q", database.queue, *options).failed_in_one_line()
    assert says in error


@everywhere
def test_a_queue_that_is_not_there_is_named_and_nothing_is_made(database: Database) -> None:
    where = ("--url", database.url, "--queue", database.queue)
    assert "is not there" in fairlane("queue", "show", *where).failed_in_one_line()
    if database.kit.caps.head_start:
        assert "is not there" in fairlane("queue", "set", *where, "--head-start", "1").failed_in_one_line()
        with pytest.raises(SchemaNotReady):
            migrate.configure(database.url, queue=database.queue, head_start=1)
    assert database.revision is None
    if database.kit.backend == "sqlite":
        assert list(database.kit.folder.iterdir()) == []


@everywhere
@pytest.mark.needs("head_start")
@pytest.mark.parametrize(
    ("revision", "says"), [("0009", "upgrade the fairlane package"), (LONG_AGO, "run `fairlane migrate")]
)
def test_a_queue_of_another_revision_is_shown_but_not_changed(database: Database, revision: str, says: str) -> None:
    """Its procedures are not those of this version of the package."""
    migrate.upgrade(database.url, queue=database.queue)
    if revision == LONG_AGO:
        migrate.downgrade(database.url, queue=database.queue, revision=LONG_AGO)
    else:
        set_revision(database, revision)
    with unchanged(database):
        command = ("queue", "set", "--url", database.url, "-q", database.queue, "--head-start", "7")
        error = fairlane(*command).failed_in_one_line()
    assert says in error
    assert f"at revision {revision}" in error
    assert migrate.queue_settings(database.url, queue=database.queue).revision == revision
    if revision != LONG_AGO:
        set_revision(database, CLIENT_REVISION)  # so that it can be removed


@everywhere
def test_a_process_queue_and_wrong_options_of_python_are_refused(database: Database) -> None:
    for call in (migrate.queue_settings, migrate.drop):
        with pytest.raises(ConfigurationError, match="lives in one process"):
            call("memory://")
    with pytest.raises(ConfigurationError, match="name a setting"):
        migrate.configure(database.url, queue=database.queue)
    if database.kit.backend != "postgres":
        with pytest.raises(ConfigurationError, match="owner_role is an option of postgres"):
            migrate.configure(database.url, queue=database.queue, owner_role="me", head_start=1)


@everywhere
@pytest.mark.needs("head_start")
def test_nothing_is_lost_while_the_head_start_is_changed(database: Database) -> None:
    """Guards against groups that a change hides from claims: each group is new, and published and claimed meanwhile."""
    migrate.upgrade(database.url, queue=database.queue)
    ended = threading.Event()

    def publish(name: str) -> int:
        with connect(database.url, database.queue) as transport:
            number = 0
            while not ended.is_set():
                transport.publish(f"{name}-{number}", number)
                number += 1
        return number

    def claim() -> int:
        with connect(database.url, database.queue) as transport:
            done = 0
            while True:
                last = ended.is_set()
                while (lease := transport.claim("w", 60)) is not None:
                    transport.ack(lease)
                    done += 1
                if last and transport.inspect.queue().messages == 0:
                    return done

    with ThreadPoolExecutor() as threads:
        published = [threads.submit(publish, name) for name in "ab"]
        claimed = threads.submit(claim)
        end = time.monotonic() + 3
        choices: list[float | str] = [100, 0, "always", 1]
        while time.monotonic() < end:
            choices.append(choices.pop(0))
            migrate.configure(database.url, queue=database.queue, head_start=choices[-1])
        ended.set()
        assert claimed.result(timeout=30) == sum(each.result() for each in published)
