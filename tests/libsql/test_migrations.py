"""Migrations: one atomic batch for a step and its revision, which may be lost, repeated, or come second."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairlane import BackendUnavailable, connect, migrate
from tests.harness import LONG, Queues
from tests.harness.kits import LibsqlKit
from tests.libsql.relay import busy, garbage, late, lose, refuse, slow, status, twice

pytestmark = pytest.mark.xdist_group("libsql-others")

SCHEMA = "select type, name, sql from sqlite_master where name like '{}%' order by type, name"


@pytest.fixture
def name(server):
    """The name of a queue that is not there."""
    name = Queues.fresh_name()
    yield name
    server.start()
    migrate.downgrade(server.url, queue=name, revision="base")


def layout(server, name):
    kit = LibsqlKit()
    kit.server_url = server.url
    return kit.send("", [(SCHEMA.format(name), {})], reads=True)[0]


def works(server, name):
    with connect(server.url, name) as transport:
        transport.publish("g", 1)
        transport.ack(transport.claim("w", LONG))
        return transport.inspect.queue().messages == 0


def batches(relay):
    return [request for request in relay.seen if len(request.statements) > 1]


def test_a_step_is_one_atomic_batch(relay, server, name):
    migrate.upgrade(relay.url, queue=name)
    (step,) = batches(relay)
    assert "alembic_version" in step.statements[-1]
    assert step.body["requests"][0]["type"] == "batch"
    assert works(server, name)


def test_migrating_again_writes_nothing(relay, server, name):
    migrate.upgrade(relay.url, queue=name)
    before = layout(server, name)
    relay.seen.clear()
    migrate.upgrade(relay.url, queue=name)
    assert batches(relay) == []
    assert layout(server, name) == before


def test_up_down_up_leaves_nothing_and_makes_the_same(server, name):
    migrate.upgrade(server.url, queue=name)
    before = layout(server, name)
    assert len(before) > 10
    migrate.downgrade(server.url, queue=name, revision="base")
    assert layout(server, name) == []
    assert migrate.status(server.url, queue=name).found is None
    migrate.upgrade(server.url, queue=name)
    assert layout(server, name) == before
    assert works(server, name)


FAULTS = {
    "the answer is lost": (lose, 1),
    "several answers are lost": (lose, 3),
    "the connection breaks first": (refuse, 2),
    "it is applied twice": (twice, 1),
    "others write": (busy, 5),
    "a proxy's 502": (status(502), 1),
    "it comes back as garbage": (garbage, 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_that_fails_on_the_way_is_made_once(relay, server, name, fault):
    relay.fail(*FAULTS[fault])
    migrate.upgrade(relay.url, queue=name)
    assert relay.pending == 0
    assert migrate.status(server.url, queue=name).ready
    assert works(server, name)


@pytest.mark.parametrize("fault", [slow(0.9), late(0.9)], ids=["the answer comes late", "it arrives late"])
def test_a_step_that_takes_longer_than_the_timeout_is_made_once(relay, server, name, fault):
    relay.fail(fault)
    migrate.upgrade(f"{relay.url}?timeout=0.6", queue=name)
    assert migrate.status(server.url, queue=name).ready
    assert works(server, name)


def test_a_server_that_stays_busy_is_one_typed_error_and_nothing_is_there(relay, server, name):
    relay.fail(busy, 1000)
    with pytest.raises(BackendUnavailable, match=r"busy.*nothing was changed"):
        migrate.upgrade(f"{relay.url}?retry_seconds=0.5", queue=name)
    assert layout(server, name) == []
    relay.clear()


def test_eight_processes_that_migrate_an_empty_database_at_once_all_succeed(server, name):
    code = (
        "import sys, fairlane\n"
        "sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
        "fairlane.migrate.upgrade(sys.argv[1], queue=sys.argv[2])\n"
        "with fairlane.connect(sys.argv[1], sys.argv[2]) as transport:\n"
        "    transport.publish('g', 1)\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", code, server.url, name]
    processes = [subprocess.Popen(command, **pipes) for _ in range(8)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(lambda process: process.communicate("go\n", timeout=60), processes))
    assert [process.returncode for process in processes] == [0] * 8, [errors for _, errors in ends]
    with connect(server.url, name) as transport:
        assert transport.inspect.queue().messages == 8
