"""A migration leaves the right functions and keys on a Redis server, also after a failure and beside others."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from fairlane.backends.redis.target import RedisTarget
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import BackendUnavailable, ConfigurationError, SchemaNotReady
from tests import commands
from tests.backends.redis.listing import listing
from tests.backends.redis.servers import connect, private
from tests.golden import golden
from tests.servers.redis import Redis


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with private() as made:
        yield made


@pytest.fixture
def url(server: Redis) -> str:
    with connect(server.url) as client:
        client.flushall()
        client.function_flush()
    return server.url


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with connect(url) as made:
        yield made


def use(url: str, queue: str) -> fairlane.Lease:
    """Leave a leased, a parked and a waiting message in a queue, one with a dedup id. Return the lease."""
    with fairlane.connect(url, queue=queue) as transport:
        transport.publish("parked", 1, 4)
        parked = transport.claim("w", 60)
        assert parked is not None
        transport.nack(parked, 600)
        transport.publish("g", 2, 4, dedup_id="once")
        transport.publish("g", 3)
        lease = transport.claim("w", 60)
    assert lease is not None
    return lease


def test_the_functions_and_keys_are_the_golden_ones(url: str, client: Any) -> None:
    migrate.upgrade(url, queue="lane_under_test")
    use(url, "lane_under_test")
    found = listing(client, "lane_under_test")
    assert found == golden("redis.txt", found)


def test_up_down_up_leaves_the_same_and_down_leaves_nothing(url: str, client: Any) -> None:
    migrate.upgrade(url, queue="again")
    first = listing(client, "again")
    use(url, "again")
    migrate.downgrade(url, queue="again", revision="base")
    assert client.keys("*") == []
    assert client.function_list() == []
    assert migrate.status(url, queue="again").found is None
    migrate.upgrade(url, queue="again")
    assert listing(client, "again") == first
    with fairlane.connect(url, queue="again") as queue:
        assert queue.publish("g", 1) == 1


def test_an_upgrade_of_a_used_queue_keeps_its_messages(url: str, client: Any) -> None:
    migrate.upgrade(url, queue="used")
    lease = use(url, "used")
    before = listing(client, "used")
    migrate.upgrade(url, queue="used")
    assert listing(client, "used") == before
    client.function_delete("fairlane_used")  # as after a restore of the data that did not restore the functions
    migrate.upgrade(url, queue="used")
    assert listing(client, "used") == before
    with fairlane.connect(url, queue="used") as queue:
        queue.ack(lease)
        assert queue.inspect.queue().messages == 2


def test_two_queues_on_one_server_never_touch(url: str, client: Any) -> None:
    for name in ("one", "one_two", "two"):
        migrate.upgrade(url, queue=name)
    with fairlane.connect(url, "one") as one, fairlane.connect(url, "two") as two:
        assert one.publish("g", "of one", dedup_id="d") == two.publish("g", "of two", dedup_id="d") == 1
        untouched = listing(client, "two")
        lease = one.claim("w", 30)
        assert lease is not None
        assert lease.event == "of one"
        with pytest.raises(fairlane.LeaseLost):
            two.ack(lease)
        one.ack(lease)
        migrate.downgrade(url, queue="one", revision="base")
        assert listing(client, "two") == untouched
        assert migrate.status(url, queue="one_two").ready
        with pytest.raises(SchemaNotReady):
            one.publish("g", 1)
        other = two.claim("w", 30)
        assert other is not None
        assert other.event == "of two"


def test_queues_of_one_name_in_two_databases_share_the_functions_only(url: str) -> None:
    second = url.removesuffix("/0") + "/2"
    migrate.upgrade(url, queue="same")
    with pytest.raises(SchemaNotReady):
        fairlane.connect(second, queue="same")
    migrate.upgrade(second, queue="same")
    with fairlane.connect(url, "same") as one, fairlane.connect(second, "same") as two:
        one.publish("g", "first")
        assert two.claim("w", 30) is None
        migrate.downgrade(second, queue="same", revision="base")
        assert one.claim("w", 30) is not None
        with pytest.raises(SchemaNotReady):
            fairlane.connect(second, queue="same")
    migrate.downgrade(url, queue="same", revision="base")
    with connect(url) as client:
        assert client.function_list() == []


def test_head_start_is_chosen_kept_and_changed(url: str, client: Any) -> None:
    def chosen(queue: str) -> bytes:
        found: bytes = client.hget(f"{{{queue}}}:meta", "head_start")
        return found

    migrate.upgrade(url, queue="plain")
    assert chosen("plain") == b"1"
    migrate.upgrade(url, queue="fair", head_start="always")
    assert chosen("fair") == b"always"
    client.function_delete("fairlane_fair")
    migrate.upgrade(url, queue="fair")
    assert chosen("fair") == b"always"


def test_the_offline_script_gives_the_same_as_online(server: Redis, url: str, client: Any) -> None:
    cli = server.program.path.with_name("redis-cli")
    if not cli.exists():
        pytest.skip("redis-cli is not installed beside the server")
    environment = os.environ | server.program.env | {"REDIS_CLI": f"{cli} -p {server.port}"}

    def apply(script: str) -> None:
        subprocess.run(["/bin/sh"], input=script.encode(), env=environment, check=True, capture_output=True)

    choices: list[dict[str, Any]] = [{}, {"head_start": "always"}]
    for options in choices:
        migrate.upgrade(url, queue="online", **options)
        apply(migrate.script(url, queue="offline", **options))
        assert listing(client, "offline") == listing(client, "online")
        use(url, "offline")
        migrate.downgrade(url, queue="online", revision="base")
        migrate.downgrade(url, queue="offline", revision="base")


def test_an_offline_script_that_fails_writes_no_revision(server: Redis, url: str, client: Any) -> None:
    cli = server.program.path.with_name("redis-cli")
    if not cli.exists():
        pytest.skip("redis-cli is not installed beside the server")
    environment = os.environ | server.program.env | {"REDIS_CLI": f"{cli} -p {server.port}"}
    broken = migrate.script(url, queue="offline").replace("local function ack(", "local function ack(((")
    done = subprocess.run(["/bin/sh"], input=broken.encode(), env=environment, check=False, capture_output=True)
    assert done.returncode != 0
    assert client.keys("*") == []


def test_eight_processes_that_migrate_at_once_all_succeed(url: str, client: Any) -> None:
    code = f"from fairlane import migrate; migrate.upgrade({url!r}, queue='crowded')"
    started = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(8)]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert client.keys("*") == [b"{crowded}:meta"]
    use(url, "crowded")


def test_a_lock_that_a_killed_migration_left_expires(url: str, client: Any) -> None:
    client.set("{jobs}:meta:lock", "of somebody who died", px=300)
    migrate.upgrade(url, queue="jobs")
    assert client.keys("*") == [b"{jobs}:meta"]


def test_a_migration_says_that_it_waits_for_a_killed_one_and_waits_ten_seconds_at_most(
    url: str, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards against a migration that waits for a minute and prints nothing."""
    code = (
        "import os, signal; from fairlane.backends.redis import target;"
        "target.RedisTarget._check_servers = lambda self: os.kill(os.getpid(), signal.SIGKILL);"
        f"from fairlane import migrate; migrate.upgrade({url!r}, queue='jobs')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == -signal.SIGKILL
    assert client.keys("*") == [b"{jobs}:meta:lock"]
    assert 0 < client.ttl("{jobs}:meta:lock") <= 10
    client.pexpire("{jobs}:meta:lock", 1500)
    migrate.upgrade(url, queue="jobs")
    assert re.search(r"waiting for another migration of queue jobs.*\{jobs\}:meta:lock", caplog.text)
    use(url, "jobs")


def test_a_migration_that_has_lost_its_lock_writes_no_revision(
    url: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisTarget, "_check_servers", lambda self: client.set("{jobs}:meta:lock", "of another"))
    with pytest.raises(BackendUnavailable, match="migrate again"):
        migrate.upgrade(url, queue="jobs")
    assert client.get("{jobs}:meta:lock") == b"of another", "and it leaves the other's lock alone"
    assert not client.hexists("{jobs}:meta", "revision")


def test_a_library_that_does_not_load_leaves_no_revision(url: str, client: Any) -> None:
    """Another library has a function of the same name, so the server refuses the queue's library."""
    code = "#!lua name=other\nredis.register_function('jobs_ack', function() return 1 end)"
    client.execute_command("FUNCTION", "LOAD", code)
    with pytest.raises(ConfigurationError, match="jobs_ack"):
        migrate.upgrade(url, queue="jobs")
    assert client.keys("*") == []
    assert migrate.status(url, queue="jobs").found is None
    client.function_delete("other")
    migrate.upgrade(url, queue="jobs")
    use(url, "jobs")


@pytest.mark.parametrize("command", ["current", "history", "stamp"])
def test_alembic_itself_knows_the_queue(url: str, client: Any, command: str) -> None:
    def alembic(*arguments: str) -> str:
        return commands.alembic(url, "jobs", *arguments).ok().out

    if command == "stamp":
        alembic("upgrade", "head")
        alembic("stamp", "base")
        assert not client.hexists("{jobs}:meta", "revision")
        assert client.function_list(library="fairlane_jobs")
        alembic("stamp", CLIENT_REVISION)
        assert migrate.status(url, queue="jobs").ready
        return
    assert (CLIENT_REVISION in alembic(command)) == (command == "history")
    alembic("upgrade", "head")
    assert f"{CLIENT_REVISION} (head)" in alembic(command)
    alembic("downgrade", "base")
    assert client.keys("*") == []


def test_a_queue_of_the_longest_name_works(url: str) -> None:
    name = "q" + "_" * 30
    migrate.upgrade(url, queue=name)
    use(url, name)


@pytest.mark.parametrize(
    ("found", "serves", "ready"), [("0000", "0000", False), ("0009", "0001", True), ("0009", "0009", False)]
)
def test_clients_work_with_a_newer_queue_that_still_serves_them(
    url: str, client: Any, found: str, serves: str, ready: bool
) -> None:
    migrate.upgrade(url, queue="jobs")
    client.hset("{jobs}:meta", mapping={"revision": found, "serves": serves})
    assert migrate.status(url, queue="jobs").ready == ready
    if ready:
        use(url, "jobs")
        return
    with pytest.raises(SchemaNotReady, match=found):
        fairlane.connect(url, queue="jobs")
