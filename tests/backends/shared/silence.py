"""What must hold on MongoDB and SQS when a server does not answer. Their drivers have their own connection pools."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from tests.harness import Queue
from tests.harness.proxy import Proxy
from tests.harness.waiting import at_most

SLACK = 5.0
"""Seconds that a busy machine may add."""

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


async def assert_a_cancelled_call_harms_no_other(queue: Queue, proxy: Proxy, url: str) -> None:
    """A cancelled call ends at once, and the next call does not get its answer."""
    silenced = await queue.owner.open(queue.name, url=url)
    proxy.silence()
    with at_most(0.2 + SLACK), pytest.raises(TimeoutError):
        await asyncio.wait_for(silenced.publish("g", 0), 0.2)
    proxy.resume()
    await silenced.publish("g", 1)
    assert [event for _, event in await silenced.drain()] in ([1], [0, 1])


async def assert_a_process_that_closes_nothing_ends_at_once(
    queue: Queue, proxy: Proxy, url: str, *, silent: bool = True
) -> None:
    """Also when its server does not answer any more. The process prints nothing."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, url, queue.name, queue.twin),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    assert program.stdout is not None
    assert await asyncio.wait_for(program.stdout.readline(), 30) == b"published\n"
    if silent:
        proxy.silence()
    with at_most(3.0 + SLACK):
        _, err = await asyncio.wait_for(program.communicate(b"\n"), 30)
    assert (program.returncode, err) == (0, b"")
