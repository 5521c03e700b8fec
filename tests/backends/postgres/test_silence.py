"""A server that keeps the connection open and does not answer delays no call beyond its timeout."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import psycopg_pool
import pytest

from fairlane import BackendUnavailable
from tests.backends.postgres.relay import Relay, relayed
from tests.harness import LONG, Queue, Queues, eventually
from tests.harness.calls import NAMES, every_call
from tests.harness.waiting import at_most

pytestmark = [pytest.mark.backends("postgres"), pytest.mark.promise(9)]

TIMEOUT = 0.6
KINDS = pytest.mark.parametrize("kind", ["own", "pool", "connection"])


@pytest.fixture
def relay(queue: Queue) -> Iterator[Relay]:
    with relayed(queue.kit.url(queue.name)) as made:
        yield made


async def through(relay: Relay, queues: Queues, name: str, kind: str, timeout: float) -> Queue:
    """A transport whose connections go through the relay."""
    if kind == "own":
        return await queues.open(name, url=relay.url, timeout=timeout)
    sync = queues.twin == "sync"
    made: Any
    opening: Any
    if kind == "pool":
        made = (psycopg_pool.ConnectionPool if sync else psycopg_pool.AsyncConnectionPool)(relay.url, open=False)
        opening = made.open()
        if not sync:
            await opening
    else:
        opening = (psycopg.Connection if sync else psycopg.AsyncConnection).connect(relay.url, autocommit=True)
        made = opening if sync else await opening
    queues.afterwards(made.close)
    return queues.over(name, made, timeout=timeout)


@KINDS
@pytest.mark.parametrize("operation", NAMES)
async def test_every_call_ends_in_time_and_says_what_is_known(
    queue: Queue, queues: Queues, relay: Relay, kind: str, operation: str
) -> None:
    mine = await through(relay, queues, queue.name, kind, TIMEOUT)
    await mine.publish("g", 1)
    lease = await mine.get()
    call = every_call(mine, lease)[operation]
    relay.fall_silent()
    with at_most(TIMEOUT + 2), pytest.raises(BackendUnavailable, match="not answered in time") as caught:
        await call()
    assert "whether the request was carried out is not known" in str(caught.value)
    if kind == "own":
        with at_most(TIMEOUT + 2), pytest.raises(BackendUnavailable, match="nothing was changed"):
            await call()
        relay.speak()
        await mine.publish("later", 3)


@pytest.mark.twins("async")
@KINDS
async def test_a_cancelled_call_ends_at_once(queue: Queue, queues: Queues, relay: Relay, kind: str) -> None:
    mine = await through(relay, queues, queue.name, kind, 30)
    await mine.publish("g", 1)
    relay.fall_silent()
    with at_most(1), pytest.raises(TimeoutError):
        await asyncio.wait_for(mine.claim("w", LONG), 0.3)
    relay.speak()
    if kind != "connection":
        await asyncio.wait_for(mine.publish("h", 2), 5)


async def test_closing_does_not_wait_for_a_silent_server(queue: Queue, queues: Queues, relay: Relay) -> None:
    mine = await through(relay, queues, queue.name, "own", 3)
    await mine.publish("g", 1)
    relay.fall_silent()
    waiting = asyncio.ensure_future(mine.claim("w", LONG))
    await asyncio.sleep(0.2)
    with at_most(1):
        await mine.close()
    with pytest.raises(BackendUnavailable):
        await waiting


@pytest.mark.parametrize("silent", ["from the start", "after the handshake"])
async def test_a_transport_waits_for_a_silent_server_no_longer_than_it_was_told(
    queue: Queue, queues: Queues, relay: Relay, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if silent == "from the start":
        relay.fall_silent()
    else:
        sleeping = "select pg_sleep(60), 1 as pid, '' as isolation"
        monkeypatch.setattr("fairlane.backends.postgres.sessions.PROBE", sleeping)
    with at_most(3.5), pytest.raises(BackendUnavailable, match="nothing was changed"):
        await queues.open(queue.name, url=relay.url, startup_timeout=1)


async def test_the_server_stops_a_call_that_no_client_waits_for(queue: Queue, queues: Queues) -> None:
    """Guards against calls that are carried out long after they failed, and against more and more open sessions."""
    mine = await queues.open(queue.name, timeout=0.5, url=f"{queue.kit.url(queue.name)}?application_name={queue.name}")
    await mine.publish("g", 1)
    with psycopg.connect(queue.kit.url(queue.name)) as other:
        other.execute(f'lock table "{queue.name}".messages in access exclusive mode')
        with pytest.raises(BackendUnavailable, match="not answered in time"):
            await mine.publish("g", 2)

        def at_work() -> int:
            with psycopg.connect(queue.kit.url(queue.name)) as connection:
                found = connection.execute(
                    "select count(*) from pg_stat_activity where application_name = %s and state = 'active'",
                    (queue.name,),
                ).fetchone()
            assert found is not None
            return int(found[0])

        await eventually(lambda: at_work() == 0)
    assert [event for _, event in await mine.drain()] == [1]


BLOCKING = """
import sys, threading, time, fairlane
queue = fairlane.connect(sys.argv[1], sys.argv[2], timeout=60)
queue.publish("g", 1)
if sys.argv[3] == "waiting":
    sys.stdin.readline()
    threading.Thread(target=lambda: queue.claim("w", 5), daemon=True).start()
    time.sleep(0.3)
print("end", flush=True)
"""

AWAITED = """
import asyncio, sys, fairlane
async def main():
    queue = await fairlane.connect_async(sys.argv[1], sys.argv[2], timeout=60)
    await queue.publish("g", 1)
    if sys.argv[3] == "waiting":
        sys.stdin.readline()
        try:
            await asyncio.wait_for(queue.claim("w", 5), 0.3)
        except TimeoutError:
            pass
    print("end", flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["waiting", "at rest"])
async def test_a_process_that_closes_nothing_ends_at_once_and_prints_nothing(
    queue: Queue, relay: Relay, state: str
) -> None:
    """Guards against threads and tasks that a process waits for at its end, also when a call is running."""
    text = BLOCKING if queue.twin == "sync" else AWAITED

    def run() -> tuple[float, int, str]:
        command = [sys.executable, "-c", text, relay.url, queue.name, state]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            if state == "waiting":
                while not published():
                    time.sleep(0.05)
                relay.fall_silent()
                process.stdin.write("go\n")
                process.stdin.flush()
            assert process.stdout.readline() == "end\n"
            began = time.monotonic()
            code = process.wait(30)
            return time.monotonic() - began, code, process.stderr.read()

    def published() -> bool:
        return queue.kit.leftovers(queue.name)["messages"] > 0

    took, code, errors = await queue.call_blocking(run)
    assert (code, errors) == (0, "")
    assert took < 5
