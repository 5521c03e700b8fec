"""Servers that do not answer, close idle connections or are slow: each call ends in time and says what is known."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest

from fairlane import BackendUnavailable
from tests.backends.shared.breakable import backends
from tests.backends.shared.silence import SLACK
from tests.harness import LONG, Queue, Queues, eventually
from tests.harness.calls import NAMES, every_call
from tests.harness.queues import in_thread
from tests.harness.waiting import at_most

TIMEOUT = 3.0
"""Seconds for a call. One request gets a third of it, which must be enough on a busy machine."""


@pytest.fixture
async def queues(behind: Any, twin: Any, folder: Any) -> Any:
    made = Queues(behind.kit, twin, folder)
    yield made
    behind.proxy.cut()  # what the proxy held back is not needed any more
    behind.proxy.resume()
    await made.close()


@pytest.fixture
async def queue(queues: Any, behind: Any) -> Any:
    return await queues.make(url=behind.url, timeout=TIMEOUT)


@pytest.mark.parametrize("call", NAMES)
@backends()
async def test_every_call_on_a_silent_server_ends_within_the_timeout(queue: Queue, behind: Any, call: Any) -> None:
    """Guards against a worker that waits for ever when a server keeps the connection open and does not answer."""
    await queue.publish("g", 1)
    lease = await queue.get()
    behind.proxy.silence()
    with at_most(TIMEOUT + SLACK), pytest.raises(BackendUnavailable, match="not known"):
        await every_call(queue, lease)[call]()


@backends()
async def test_a_call_after_the_silence_works_again(queue: Queue, behind: Any) -> None:
    behind.proxy.silence()
    with pytest.raises(BackendUnavailable):
        await queue.publish("g", 1, dedup_id="d")
    behind.proxy.resume()
    await queue.publish("g", 1, dedup_id="d")
    assert [row.event for row in await queue.messages("g")] == [1]


@backends()
async def test_many_calls_at_once_end_within_the_timeout_too(queue: Queue, behind: Any) -> None:
    """A call that waits for other calls of the same transport has its own timeout."""
    behind.proxy.silence()
    with at_most(TIMEOUT + SLACK):
        failures = await asyncio.gather(*(queue.publish("g", n) for n in range(20)), return_exceptions=True)
    assert {type(each) for each in failures} == {BackendUnavailable}


@backends()
async def test_connecting_to_a_silent_server_ends_within_the_startup_timeout(queue: Queue, behind: Any) -> None:
    behind.proxy.silence()
    with at_most(1.0 + SLACK), pytest.raises(BackendUnavailable):
        await queue.another(url=behind.url, startup_timeout=1.0)


@backends()
async def test_close_does_not_wait_for_a_silent_server(queues: Any, queue: Queue, behind: Any) -> None:
    other = await queues.open(queue.name, url=behind.url)
    await other.publish("g", 1)
    behind.proxy.silence()
    with at_most(SLACK):
        await other.close()


@backends("async")
async def test_a_cancelled_call_ends_at_once(queues: Any, queue: Queue, behind: Any) -> None:
    patient = await queues.open(queue.name, url=behind.url)
    await patient.publish("g", 1)
    behind.proxy.silence()
    with at_most(SLACK), pytest.raises(TimeoutError):
        await asyncio.wait_for(patient.claim("w", LONG), 0.2)


SILENT_PROGRAMS = {
    "a cancelled call, and the end of the event loop": """
async def main():
    t = await fairlane.connect_async(url, queue)
    await t.publish("g", 1)
    silence()
    try:
        await asyncio.wait_for(t.claim("w", 30), 0.2)
    except TimeoutError:
        pass
    finally:
        began()
asyncio.run(main())
""",
    "asyncio without close": """
async def main():
    t = await fairlane.connect_async(url, queue)
    await t.publish("g", 1)
    silence()
    began()
asyncio.run(main())
""",
    "blocking without close": """
t = fairlane.connect(url, queue)
t.publish("g", 1)
silence()
began()
""",
    "blocking without close, in use": """
t = fairlane.connect(url, queue)
t.publish("g", 1)
silence()
threading.Thread(target=lambda: t.claim("w", 30), daemon=True).start()
time.sleep(0.2)
began()
""",
}
PROLOGUE = """
import asyncio, sys, threading, time, fairlane
url, queue = sys.argv[1:]
def silence():
    print("silence", flush=True)
    sys.stdin.readline()
def began():
    print("began", flush=True)
"""


@pytest.mark.parametrize("program", SILENT_PROGRAMS)
@backends("sync")
async def test_a_process_ends_at_once_and_prints_nothing_when_the_server_is_silent(
    queue: Queue, behind: Any, program: Any
) -> None:
    command = [sys.executable, "-c", PROLOGUE + SILENT_PROGRAMS[program], behind.url, queue.name]

    def run() -> Any:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process: Any  # `Any`: its streams are pipes, never None
        with subprocess.Popen(command, text=True, **pipes) as process:
            try:
                assert process.stdout.readline() == "silence\n"
                behind.proxy.silence()
                process.stdin.write("\n")
                process.stdin.flush()
                assert process.stdout.readline() == "began\n"
                with at_most(2 * SLACK):
                    _, errors = process.communicate(timeout=30)
                return errors, process.returncode
            finally:
                process.kill()

    assert await in_thread(run) == ("", 0)


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("idle", ["the loop runs", "the loop is blocked"])
@backends()
async def test_a_connection_that_was_closed_while_idle_is_replaced_without_an_error(
    queues: Any, queue: Queue, behind: Any, reset: Any, idle: Any
) -> None:
    """An ack that may have been carried out is not sent again. So a dead connection must be detected before sending."""
    queue = await queues.open(queue.name, url=behind.url)
    for event in range(3):
        await queue.publish("g", event)
    lease = await queue.get()
    behind.proxy.cut(reset=reset)
    if idle == "the loop runs":
        await asyncio.sleep(0.3)
    else:
        time.sleep(1.2)  # noqa: ASYNC251 - like a worker that blocks its event loop
    await queue.ack(lease)
    await eventually(lambda: behind.proxy.accepted > 1)
    assert (await queue.get()).event == 1


@backends()
async def test_a_refused_connection_says_that_nothing_was_changed(queue: Queue, behind: Any) -> None:
    await queue.publish("g", 1)
    lease = await queue.get()
    hasty = await queue.another(url=behind.url, timeout=TIMEOUT, retry_seconds=0.2)
    behind.proxy.close()
    # so that the client has seen the old connection end; before that, a request has no certain outcome
    await asyncio.sleep(0.3)
    with pytest.raises(BackendUnavailable, match="nothing was changed"):
        await hasty.ack(lease)
