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

from fairlane import BackendUnavailable
from tests.harness import Queue
from tests.harness.proxy import Proxy

pytestmark = [pytest.mark.backends("sqs"), pytest.mark.promise(9)]

TIMEOUT = 3.0
SLACK = 3.0
"""Seconds for a busy machine."""


@pytest.fixture
def proxy(queue: Any) -> Iterator[Proxy]:
    with Proxy(int(queue.kit.url(queue.name).rpartition(":")[2])) as made:
        yield made


def url(proxy: Proxy) -> str:
    return f"sqs://any:any@elasticmq/?endpoint=http://127.0.0.1:{proxy.port}"


class took:  # noqa: N801 - reads like a statement
    """The block ends in time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        assert time.monotonic() - self._began < self._seconds + SLACK


async def test_a_silent_server_ends_every_call_within_its_timeout(queue: Queue, proxy: Proxy, capfd: Any) -> None:
    silenced = await queue.owner.open(queue.name, url=url(proxy), timeout=TIMEOUT)
    await silenced.publish("g", 0)
    lease = await silenced.get()
    proxy.silence()
    for call in (
        silenced.publish("g", 1),
        silenced.claim("w", 30),
        silenced.extend(lease, 30),
        silenced.nack(lease),
    ):
        with took(TIMEOUT), pytest.raises(BackendUnavailable, match="is not known"):
            await call
    with took(0.0):
        await silenced.close()
    assert capfd.readouterr().err == ""


async def test_a_server_that_is_silent_from_the_start_is_given_up_within_startup_timeout(
    queue: Queue, proxy: Proxy
) -> None:
    proxy.silence()
    with took(1.0), pytest.raises(BackendUnavailable):
        await queue.owner.open(queue.name, url=url(proxy), startup_timeout=1.0)


@pytest.mark.twins("async")
async def test_a_cancelled_call_ends_at_once_and_harms_no_other(queue: Queue, proxy: Proxy) -> None:
    silenced = await queue.owner.open(queue.name, url=url(proxy))
    proxy.silence()
    with took(0.2), pytest.raises(TimeoutError):
        await asyncio.wait_for(silenced.publish("g", 0), 0.2)
    proxy.resume()
    await silenced.publish("g", 1)
    assert [event for _, event in await silenced.drain()] in ([1], [0, 1])


async def test_a_server_that_refuses_connections_has_certainly_changed_nothing(queue: Queue, proxy: Proxy) -> None:
    gone = await queue.owner.open(queue.name, url=url(proxy))
    proxy.close()
    await asyncio.sleep(0.1)  # until the asyncio client has seen it, too
    for call in (gone.publish("g", 1), gone.claim("w", 30)):
        with took(2.0), pytest.raises(BackendUnavailable, match="nothing was changed"):
            await call


async def test_an_answer_that_was_lost_is_told_as_unknown(queue: Queue, proxy: Proxy) -> None:
    broken = await queue.owner.open(queue.name, url=url(proxy))
    await broken.publish("g", 0)
    lease = await broken.get()
    proxy.break_next(b"DeleteMessage", "after")
    with pytest.raises(BackendUnavailable, match="is not known"):
        await broken.ack(lease)


async def test_a_connection_that_was_closed_while_it_was_idle_is_replaced(queue: Queue, proxy: Proxy) -> None:
    idle = await queue.owner.open(queue.name, url=url(proxy))
    await idle.publish("g", 0)
    lease = await idle.get()
    for call in (idle.extend(lease, 30), idle.ack(lease)):
        proxy.cut()
        await asyncio.sleep(0.1)
        await call


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


async def test_a_transport_that_was_never_closed_lets_its_process_end_at_once(queue: Queue, proxy: Proxy) -> None:
    arguments = [sys.executable, "-c", PROGRAM, url(proxy), queue.name, queue.twin]
    program = await asyncio.create_subprocess_exec(
        *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert await asyncio.wait_for(program.stdout.readline(), 30) == b"published\n"
    proxy.silence()
    with took(3.0):
        _, err = await asyncio.wait_for(program.communicate(b"\n"), 30)
    assert (program.returncode, err) == (0, b"")
