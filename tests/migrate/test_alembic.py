"""Plain Alembic, from the root of the checkout, on every backend."""

from __future__ import annotations

import re

import pytest

from fairlane import connect, migrate
from fairlane.contract import CLIENT_REVISION
from tests.commands import Done, alembic, fairlane
from tests.migrate.conftest import Database, everywhere

pytestmark = [
    pytest.mark.twins("sync"),
    pytest.mark.cluster,
]


def run(database: Database, *arguments: object) -> Done:
    return alembic(database.url, database.queue, *arguments)


def works(database: Database) -> bool:
    with connect(database.url, database.queue) as queue:
        queue.publish("g", {"a": [1, None]})
        lease = queue.claim("w", 60)
        assert lease is not None
        queue.ack(lease)
        return queue.inspect.queue().messages == 0


@everywhere
def test_up_current_down_stamp(database: Database) -> None:
    assert run(database, "current").ok().out == ""
    done = run(database, "upgrade", "head").ok()
    assert "Running upgrade  -> 0001" in done.err
    assert run(database, "current").ok().out == f"{CLIENT_REVISION} (head)\n"
    assert works(database)
    assert "Running" not in run(database, "upgrade", "head").ok().err
    run(database, "downgrade", "base").ok()
    assert run(database, "current").ok().out == ""
    assert database.revision is None
    run(database, "upgrade", "+1").ok()
    assert database.revision == "0001"
    run(database, "upgrade", "+1").ok()
    assert works(database)
    run(database, "stamp", "base").ok()
    assert run(database, "current").ok().out == ""
    assert database.revision is None, "clients see what Alembic sees"
    run(database, "stamp", "head").ok()
    assert run(database, "current").ok().out == f"{CLIENT_REVISION} (head)\n"
    assert works(database)
    run(database, "downgrade", "-1").ok()
    assert database.revision == "0001"
    run(database, "downgrade", "-1").ok()
    assert database.revision is None


@everywhere
def test_commands_that_only_look_leave_nothing_behind(database: Database) -> None:
    assert f"{CLIENT_REVISION} (head)" in run(database, "history").ok().out
    run(database, "current", "--verbose").ok()
    assert migrate.status(database.url, queue=database.queue).found is None
    if database.kit.backend == "sqlite":
        assert list(database.kit.folder.iterdir()) == []


def test_offline_scripts_connect_to_nothing_and_name_the_queue() -> None:
    nowhere = "u:geheim@127.0.0.1:1"
    urls = ("sqlite:////no/such/folder/x.db", f"postgresql://{nowhere}/x", f"redis://{nowhere}", f"rqlite://{nowhere}")
    for url in urls:
        for arguments in (("upgrade", "head"), ("downgrade", f"{CLIENT_REVISION}:base")):
            done = alembic(url, "orders", *arguments, "--sql").ok()
            assert "orders" in done.out
            assert "geheim" not in done.out + done.err


@everywhere
def test_an_unknown_revision_is_one_line(database: Database) -> None:
    done = run(database, "upgrade", "9999")
    assert done.code != 0
    assert "Traceback" not in done.err
    assert "Can't locate revision identified by '9999'" in done.err
    error = fairlane("migrate", "9999", "--url", database.url, "-q", database.queue).failed_in_one_line()
    assert "9999" in error
    assert database.revision is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-x", "ulr=x"), "unknown -x argument: ulr"),
        (("-x", "queue=Nonsense"), "queue must match"),
        (("-x", "head_start=last"), "head_start must be 0 to 86400 seconds, or always: 'last'"),
    ],
)
@pytest.mark.backends("sqlite")
def test_bad_arguments_are_one_line(database: Database, arguments: tuple[str, ...], says: str) -> None:
    done = run(database, *arguments, "upgrade", "head")
    assert done.code != 0
    assert "Traceback" not in done.err
    assert re.search(f"FAILED: .*{re.escape(says)}", done.out + done.err)


@pytest.mark.backends("sqlite")
def test_a_refused_connection_is_one_line_without_the_password(database: Database) -> None:
    for url in ("postgresql://u:s%25e%40c@127.0.0.1:1/x", "redis://u:s%25e%40c@127.0.0.1:1"):
        done = alembic(url, "q", "upgrade", "head")
        assert done.code != 0
        assert "Traceback" not in done.err
        assert "127.0.0.1" in done.err
        assert "s%25e%40c" not in done.err + done.out
        assert "s%e@c" not in done.err + done.out
