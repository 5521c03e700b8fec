"""A migration step and its revision are one atomic batch. It is made once, also if it is lost or sent twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fairlane import BackendUnavailable, connect, migrate
from fairlane.contract import CLIENT_REVISION
from tests.backends.libsql.relay import Relay, busy, garbage, late, lose, refuse, slow, status, twice
from tests.harness import LONG, Queues, held
from tests.harness.kits.libsql import LibsqlKit
from tests.servers import Server

pytestmark = pytest.mark.xdist_group("libsql-others")

SCHEMA = "select type, name, sql from sqlite_master where name like '{}%' order by type, name"


@pytest.fixture
def name(server: Server) -> Iterator[Any]:
    """The name of a queue that does not exist yet."""
    name = Queues.fresh_name()
    yield name
    server.start()
    migrate.downgrade(server.url, queue=name, revision="base")


def layout(server: Server, name: str) -> Any:
    kit = LibsqlKit()
    kit.server_url = server.url
    return kit.send("", [(SCHEMA.format(name), {})], reads=True)[0]


def works(server: Server, name: str) -> Any:
    with connect(server.url, name) as transport:
        transport.publish("g", 1)
        transport.ack(held(transport.claim("w", LONG)))
        return transport.inspect.queue().messages == 0


def batches(relay: Relay) -> Any:
    return [request for request in relay.seen if len(request.statements) > 1]


def test_a_step_is_one_atomic_batch(relay: Relay, server: Server, name: str) -> None:
    migrate.upgrade(relay.url, queue=name)
    steps = batches(relay)
    assert len(steps) == int(CLIENT_REVISION)
    for step in steps:
        assert "alembic_version" in step.statements[-1]
        assert step.body["requests"][0]["type"] == "batch"
    assert works(server, name)


def test_migrating_again_writes_nothing(relay: Relay, server: Server, name: str) -> None:
    migrate.upgrade(relay.url, queue=name)
    before = layout(server, name)
    relay.seen.clear()
    migrate.upgrade(relay.url, queue=name)
    assert batches(relay) == []
    assert layout(server, name) == before


def test_up_down_up_leaves_nothing_and_makes_the_same(server: Server, name: str) -> None:
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
def test_a_step_whose_request_fails_is_made_once(relay: Relay, server: Server, name: str, fault: Any) -> None:
    relay.fail(*FAULTS[fault])
    migrate.upgrade(relay.url, queue=name)
    assert relay.pending == 0
    assert migrate.status(server.url, queue=name).ready
    assert works(server, name)


@pytest.mark.parametrize("fault", [slow(0.9), late(0.9)], ids=["the answer comes late", "it arrives late"])
def test_a_step_that_takes_longer_than_the_timeout_is_made_once(
    relay: Relay, server: Server, name: str, fault: Any
) -> None:
    relay.fail(fault)
    migrate.upgrade(f"{relay.url}?timeout=1.8", queue=name)
    assert migrate.status(server.url, queue=name).ready
    assert works(server, name)


def test_a_server_that_stays_busy_is_one_typed_error_and_nothing_is_created(
    relay: Relay, server: Server, name: str
) -> None:
    relay.fail(busy, 1000)
    with pytest.raises(BackendUnavailable, match=r"busy.*nothing was changed"):
        migrate.upgrade(f"{relay.url}?retry_seconds=0.5", queue=name)
    assert layout(server, name) == []
    relay.clear()


EIGHT = """if True:
    import os, sys, time
    import fairlane
    from fairlane import migrate
    from fairlane.migrate import engines, ledger  # what takes long is done once
    import alembic.command, fairlane.backends.libsql.target
    start, children = time.time() + 0.3, []
    for number in range(8):
        if (child := os.fork()) == 0:
            time.sleep(max(0.0, start - time.time()))
            try:
                migrate.upgrade(sys.argv[1], queue=sys.argv[2])
                with fairlane.connect(sys.argv[1], sys.argv[2]) as transport:
                    transport.publish("g", number)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        children.append(child)
    sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


def test_eight_processes_that_migrate_an_empty_database_at_once_all_succeed(server: Server, name: str) -> None:
    command = [sys.executable, "-c", EIGHT, server.url, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with connect(server.url, name) as transport:
        assert transport.inspect.queue().messages == 8
