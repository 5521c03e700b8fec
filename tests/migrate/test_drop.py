"""`fairlane drop` and `fairlane.migrate.drop` remove a queue on every backend, also after an earlier try was killed."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import psycopg
import pytest

from fairlane import ConfigurationError, SchemaNotReady, connect, migrate
from fairlane.backends.targets import Choices, LedgerTarget
from fairlane.contract import CLIENT_REVISION
from fairlane.migrate.settings import Settings
from tests.commands import fairlane
from tests.migrate.conftest import Database, everywhere, set_revision

pytestmark = [pytest.mark.twins("sync"), pytest.mark.cluster]


def fill(database: Database) -> None:
    """Publish three messages into two groups, one of them leased."""
    migrate.upgrade(database.url, queue=database.queue)
    with connect(database.url, database.queue) as transport:
        for group in "aab":
            transport.publish(group, 1)
        assert transport.claim("w", 600) is not None


def is_left(database: Database) -> bool:
    """Return whether there is anything of the queue, as far as migrations can see it."""
    target = Settings(database.url, Choices(database.queue)).target()
    if not isinstance(target, LedgerTarget):
        return database.revision is not None
    with closing(target):
        return target.read() is not None or target.stored() is not None or target.remains()


@everywhere
def test_without_yes_it_says_what_would_be_lost_and_does_nothing(database: Database) -> None:
    where = ("--url", database.url, "--queue", database.queue)
    fill(database)
    error = fairlane("drop", *where).failed_in_one_line()
    held = "3 messages in 2 groups (1 leased)" if database.kit.caps.exact_counts else "3 messages (1 leased)"
    assert f"the queue {database.queue} holds {held}, which would be lost: add --yes" in error
    assert fairlane("stats", "--json", *where).ok().json["messages"] == 3
    assert fairlane("drop", *where, "--yes").ok().out == f"The queue {database.queue} is removed.\n"
    assert not is_left(database)
    assert "there is no queue" in fairlane("drop", *where, "--yes").failed_in_one_line()


@everywhere
def test_an_empty_queue_needs_yes_too(database: Database) -> None:
    """Guards against workers that fail: that a queue is empty now does not mean that nobody uses it."""
    migrate.upgrade(database.url, queue=database.queue)
    where = ("--url", database.url, "--queue", database.queue)
    assert "holds 0 messages" in fairlane("drop", *where).failed_in_one_line()
    assert database.revision == CLIENT_REVISION


@everywhere
def test_a_queue_that_is_not_there_is_named_and_nothing_is_made(database: Database) -> None:
    where = ("--url", database.url, "--queue", database.queue)
    for options in ((), ("--yes",)):
        error = fairlane("drop", *where, *options).failed_in_one_line()
        assert f"there is no queue '{database.queue}' at " in error
    with pytest.raises(ConfigurationError, match="there is no queue"):
        migrate.drop(database.url, queue=database.queue)
    assert not is_left(database)
    if database.kit.backend == "sqlite":
        assert list(database.kit.folder.iterdir()) == []


@everywhere
def test_a_queue_of_a_newer_revision_is_refused(database: Database) -> None:
    """This version of the package does not know what to remove."""
    fill(database)
    set_revision(database, "0009")
    for options in ((), ("--yes",)):
        error = fairlane("drop", "--url", database.url, "-q", database.queue, *options).failed_in_one_line()
        assert "upgrade the fairlane package" in error
    with pytest.raises(SchemaNotReady):
        migrate.drop(database.url, queue=database.queue)
    set_revision(database, CLIENT_REVISION)
    with connect(database.url, database.queue) as transport:
        assert transport.inspect.queue().messages == 3


@everywhere
def test_a_queue_of_an_older_revision_is_counted_and_removed(database: Database) -> None:
    """Guards against messages that are lost unasked, since a client that needs more cannot connect."""
    fill(database)
    migrate.downgrade(database.url, queue=database.queue, revision="0001")
    where = ("--url", database.url, "--queue", database.queue)
    assert "3 messages" in fairlane("migrate", "base", *where).failed_in_one_line()
    assert "3 messages" in fairlane("drop", *where).failed_in_one_line()
    assert database.revision == "0001"
    fairlane("drop", *where, "--yes").ok()
    assert not is_left(database)


def kill_in_the_middle(database: Database, calls: int) -> None:
    """Begin to remove the queue in another process, which is killed before the n-th call of a function."""
    where = {
        "redis": ("fairlane.backends.redis.target", "RedisTarget", "_unlink"),
        "redis-cluster": ("fairlane.backends.redis.target", "RedisTarget", "_unlink"),
        "mongo": ("pymongo.collection", "Collection", "drop"),
    }
    module, owner, name = where[database.kit.backend]
    program = (
        f"import os, signal; from {module} import {owner}; left = [{calls}]; real = {owner}.{name}\n"
        "def drop(self, *arguments):\n"
        "    left[0] -= 1\n"
        "    if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(self, *arguments)\n"
        f"{owner}.{name} = drop; from fairlane import migrate\n"
        f"migrate.drop({database.url!r}, queue={database.queue!r})"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=60)
    assert done.returncode == -9, done.stderr.decode()


@pytest.mark.backends("redis", "redis-cluster", "mongo")
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_after_a_kill_in_the_middle_it_can_be_run_again(database: Database, calls: int) -> None:
    """Guards against keys or collections that nothing finds any more, since the revision was removed first."""
    if calls and database.kit.backend != "mongo":
        pytest.skip("its keys are removed by one command")
    fill(database)
    kill_in_the_middle(database, calls)
    assert database.revision is None, "it was killed too early for this test"
    where = ("--url", database.url, "--queue", database.queue)
    error = fairlane("drop", *where).failed_in_one_line()
    assert "is incomplete, so what it holds cannot be counted" in error
    assert is_left(database)
    migrate.downgrade(database.url, queue=database.queue, revision="base")  # there is no step to make
    assert is_left(database)
    assert "is removed" in fairlane("drop", *where, "--yes").ok().out
    assert not is_left(database)
    migrate.upgrade(database.url, queue=database.queue)
    with connect(database.url, database.queue) as transport:
        assert transport.inspect.queue().messages == 0


@pytest.mark.backends("postgres")
def test_a_removal_that_fails_in_the_middle_changes_nothing(database: Database) -> None:
    """Somebody's view stops it when most of the queue is removed already."""
    fill(database)
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(f"create view public.{database.queue}_seen as select seq from {database.queue}.messages")
        where = ("--url", database.url, "--queue", database.queue)
        error = fairlane("drop", *where, "--yes").failed_in_one_line()
        assert f"{database.queue}_seen" in error
        assert "nothing was changed" in error
        assert fairlane("stats", "--json", *where).ok().json["messages"] == 3
        connection.execute(f"drop view public.{database.queue}_seen")
        fairlane("drop", *where, "--yes").ok()
    assert not is_left(database)
