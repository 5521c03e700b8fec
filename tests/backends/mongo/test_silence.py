"""Servers that keep the connection open and say nothing, or are gone: calls end in time, and say what is known."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import fairlane
from fairlane import BackendUnavailable
from tests.harness import Queue
from tests.harness.proxy import Proxy

pytestmark = [pytest.mark.backends("mongo"), pytest.mark.promise(9)]

TIMEOUT = 1.0
SLACK = 3.0
"""Seconds for a busy machine."""


@pytest.fixture
def proxy(queue: Queue) -> Iterator[Proxy]:
    port = queue.kit.url(queue.name).partition("?")[0].rstrip("/").rpartition(":")[2]
    with Proxy(int(port)) as made:
        yield made


def url(proxy: Proxy) -> str:
    return f"mongodb://127.0.0.1:{proxy.port}/?directConnection=true"


class took:  # noqa: N801 - reads like a statement
    """The block ends in time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        assert time.monotonic() - self._began < self._seconds + SLACK


CALLS: dict[str, Any] = {
    "publish": lambda transport, lease: transport.publish("g", 1),
    "claim": lambda transport, lease: transport.claim("w", 30),
    "ack": lambda transport, lease: transport.ack(lease),
    "nack": lambda transport, lease: transport.nack(lease),
    "extend": lambda transport, lease: transport.extend(lease, 30),
    "inspect": lambda transport, lease: transport.inspect.queue(),
}


async def test_a_silent_server_ends_every_call_within_its_timeout(queue: Queue, proxy: Proxy, capfd: Any) -> None:
    silenced = await queue.owner.open(queue.name, url=url(proxy), timeout=TIMEOUT)
    await silenced.publish("g", 0)
    lease = await silenced.get()
    proxy.silence()
    for name, call in CALLS.items():
        known = "nothing was changed" if name in ("publish", "inspect") else "is not known"
        with took(TIMEOUT), pytest.raises(BackendUnavailable, match=known):
            await silenced.call(call, silenced.transport, lease)
    with took(TIMEOUT):
        await silenced.close()
    assert capfd.readouterr().err == ""


async def test_a_server_that_is_silent_from_the_start_is_given_up_within_startup_timeout(
    queue: Queue, proxy: Proxy
) -> None:
    proxy.silence()
    with took(TIMEOUT), pytest.raises(BackendUnavailable, match="nothing was changed"):
        await queue.owner.open(queue.name, url=url(proxy), startup_timeout=TIMEOUT)


@pytest.mark.twins("sync")
async def test_a_migration_gives_up_a_silent_server_in_time(queue: Queue, proxy: Proxy) -> None:
    proxy.silence()
    for act in (fairlane.migrate.upgrade, fairlane.migrate.status):
        with took(2 * TIMEOUT), pytest.raises(BackendUnavailable):
            await queue.call_blocking(act, f"{url(proxy)}&timeout={TIMEOUT}", queue=queue.name)


@pytest.mark.twins("async")
async def test_a_cancelled_call_ends_at_once_and_harms_no_other(queue: Queue, proxy: Proxy) -> None:
    silenced = await queue.owner.open(queue.name, url=url(proxy))
    proxy.silence()
    with took(0.2), pytest.raises(TimeoutError):
        await asyncio.wait_for(silenced.claim("w", 30), 0.2)
    proxy.resume()
    await silenced.publish("g", 1)
    assert (await silenced.get()).event == 1


async def test_a_server_that_refuses_connections_has_certainly_changed_nothing(queue: Queue, proxy: Proxy) -> None:
    silenced = await queue.owner.open(queue.name, url=f"{url(proxy)}&serverSelectionTimeoutMS=300", timeout=TIMEOUT)
    proxy.close()
    await asyncio.sleep(0)
    with pytest.raises(BackendUnavailable):
        await silenced.publish("g", 1)  # it may have been under way when the connection broke
    with took(TIMEOUT), pytest.raises(BackendUnavailable, match="nothing was changed"):
        await silenced.publish("g", 1)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_an_answer_that_was_lost_is_told_as_unknown(queue: Queue, proxy: Proxy, moment: Any) -> None:
    broken = await queue.owner.open(queue.name, url=url(proxy), timeout=TIMEOUT)
    await broken.publish("g", 0)
    proxy.break_next(f"{queue.name}_messages".encode(), moment)
    with pytest.raises(BackendUnavailable, match="is not known"):
        await broken.publish("g", 1)


async def test_a_connection_that_was_closed_while_it_was_idle_is_replaced(queue: Queue, proxy: Proxy) -> None:
    """pymongo looks at connections that were idle for more than a second."""
    idle = await queue.owner.open(queue.name, url=url(proxy), timeout=10)
    await idle.publish("g", 0)
    await asyncio.sleep(1.1)
    proxy.cut()
    await asyncio.sleep(0.1)
    await idle.publish("g", 1)


PROGRAM = """
import asyncio, sys, fairlane
url, queue, twin = sys.argv[1:]
if twin == "sync":
    transport = fairlane.connect(url, queue)
    transport.publish("g", 1)
else:
    async def main():
        transport = await fairlane.connect_async(url, queue)
        await transport.publish("g", 1)
        return transport
    transport = asyncio.run(main())
print("published", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("silent", [False, True], ids=["answering", "silent"])
async def test_a_transport_that_was_never_closed_lets_its_process_end_at_once(
    queue: Queue, proxy: Proxy, silent: bool
) -> None:
    arguments = [sys.executable, "-c", PROGRAM, url(proxy), queue.name, queue.twin]
    program = await asyncio.create_subprocess_exec(
        *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert await asyncio.wait_for(program.stdout.readline(), 30) == b"published\n"
    if silent:
        proxy.silence()
    with took(3.0):
        _, err = await asyncio.wait_for(program.communicate(b"\n"), 30)
    assert (program.returncode, err) == (0, b"")


async def test_a_shorter_timeout_of_the_url_counts(queue: Queue, proxy: Proxy) -> None:
    silenced = await queue.owner.open(queue.name, url=f"{url(proxy)}&timeoutMS=300")
    proxy.silence()
    with took(0.3), pytest.raises(BackendUnavailable):
        await silenced.claim("w", 30)


async def test_the_option_may_stand_in_the_url(queue: Queue, proxy: Proxy) -> None:
    silenced = await queue.owner.open(queue.name, url=f"{url(proxy)}&timeout=0.3")
    proxy.silence()
    with took(0.3), pytest.raises(BackendUnavailable):
        await silenced.claim("w", 30)
    assert fairlane.capabilities(url(proxy)).backend == "mongo"
