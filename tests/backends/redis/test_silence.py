"""Servers that say nothing, connections that are closed or all in use, callers that are cancelled: every call ends."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest

import fairlane
from fairlane import migrate
from fairlane.errors import BackendUnavailable, TransportClosed
from tests.backends.redis.servers import VARIABLES, connect, missing, private
from tests.backends.redis.twins import TWINS, Twin, from_url, on_client
from tests.conftest import require_server
from tests.harness.proxy import Proxy

TIMEOUT = 0.6
OPERATIONS = ("publish", "claim", "ack", "nack", "extend", "inspect.queue")


@pytest.fixture
def url() -> str:
    require_server(missing("single"))
    return os.environ[VARIABLES["single"]]


@pytest.fixture
def queue(url: str) -> Iterator[str]:
    name = f"t{secrets.token_hex(6)}"
    migrate.upgrade(url, queue=name)
    yield name
    migrate.downgrade(url, queue=name, revision="base")


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(int(url.rpartition(":")[2].partition("/")[0])) as made:
        yield made


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def through(proxy: Proxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0"


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


@pytest.fixture(params=["url", "client"])
async def transport(
    request: pytest.FixtureRequest, twin: str, proxy: Proxy, queue: str, opened: AsyncExitStack
) -> Twin:
    """Through the proxy, with one message leased and one waiting."""
    if request.param == "url":
        made = await from_url(twin, through(proxy), queue, timeout=TIMEOUT)
    else:
        made = on_client(twin, through(proxy), queue, timeout=TIMEOUT)
    opened.push_async_callback(made.close)
    await made.call("publish", "g", 1)
    await made.call("publish", "h", 2)
    made.lease = await made.call("claim", "w", 30)
    return made


def arguments(transport: Twin, operation: str) -> tuple[Any, ...]:
    given: dict[str, tuple[Any, ...]] = {
        "publish": ("g", 3),
        "claim": ("w", 30),
        "ack": (transport.lease,),
        "nack": (transport.lease,),
        "extend": (transport.lease, 30),
    }
    return given.get(operation, ())


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("twin", TWINS)
async def test_silence_ends_every_call_in_time(transport: Twin, proxy: Proxy, operation: str) -> None:
    """Guards against a worker that hangs for ever on a server that keeps the connection open and says nothing."""
    proxy.silence()
    with at_most(TIMEOUT + 1), pytest.raises(BackendUnavailable, match=r"in time.*not known"):
        await transport.call(operation, *arguments(transport, operation))
    proxy.resume()
    await asyncio.sleep(0.05)
    status = await transport.call("inspect.queue")
    assert status.messages in (1, 2, 3), "the silent connection was thrown away: no answer goes to another call"


@pytest.mark.parametrize("twin", TWINS)
async def test_drops_of_an_answer_do_not_prolong_a_call(proxy: Proxy, queue: str, twin: str, opened: Any) -> None:
    """Each piece comes in time, the whole does not."""
    transport = await from_url(twin, through(proxy), queue, timeout=TIMEOUT)
    opened.push_async_callback(transport.close)
    await transport.call("publish", "g", "x" * 4_000_000)
    proxy.delay = 0.1
    with at_most(TIMEOUT + 1), pytest.raises(BackendUnavailable, match="in time"):
        await transport.call("claim", "w", 30)


@pytest.mark.parametrize("twin", TWINS)
async def test_a_slow_handshake_does_not_prolong_a_call(proxy: Proxy, queue: str, twin: str, opened: Any) -> None:
    """Each answer while connecting comes in time, all of them do not."""
    transport = await from_url(twin, through(proxy), queue, timeout=TIMEOUT)
    opened.push_async_callback(transport.close)
    proxy.cut()
    await asyncio.sleep(0.05)  # a connection that has just been used is not looked at
    proxy.delay = TIMEOUT * 0.8
    # asyncio's handshake takes one round trip, after which the call itself is sent
    outcome = "nothing was changed" if twin == "sync" else "not known"
    with at_most(TIMEOUT * 1.5), pytest.raises(BackendUnavailable, match=f"in time .*{outcome}"):
        await transport.call("publish", "g", 1)


@pytest.mark.parametrize("silent", ["before the handshake", "after it"])
@pytest.mark.parametrize("twin", TWINS)
async def test_a_transport_is_made_or_refused_within_startup_timeout(
    proxy: Proxy, queue: str, twin: str, silent: str
) -> None:
    if silent == "before the handshake":
        proxy.silence()
    else:
        proxy.break_next(b"FCALL_RO", "before")
        threading.Timer(0.05, proxy.silence).start()
        await asyncio.sleep(0.1)
    with at_most(3), pytest.raises(BackendUnavailable):
        await from_url(twin, through(proxy), queue, startup_timeout=0.5)


async def test_a_cancelled_call_comes_back_at_once_and_so_does_the_loop(proxy: Proxy, queue: str) -> None:
    transport = await fairlane.connect_async(through(proxy), queue=queue)
    await transport.publish("g", 1)
    proxy.silence()
    with at_most(1):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(transport.claim("w", 30), 0.1)
        await transport.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not others, "nothing is left that asyncio.run would wait for"


@pytest.mark.parametrize("twin", TWINS)
async def test_closing_never_waits_for_a_silent_server(transport: Twin, proxy: Proxy) -> None:
    proxy.silence()
    call = asyncio.ensure_future(transport.call("claim", "w", 30))
    await asyncio.sleep(0.1)
    with at_most(0.4):
        await transport.call("close")
    with pytest.raises((BackendUnavailable, TransportClosed)):
        await call


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("twin", TWINS)
async def test_a_connection_closed_while_idle_is_replaced_without_an_error(
    proxy: Proxy, queue: str, twin: str, reset: bool, opened: AsyncExitStack
) -> None:
    """Guards against the first call after each pause failing, where a firewall or the server ends idle connections."""
    transport = await from_url(twin, through(proxy), queue)
    opened.push_async_callback(transport.close)
    for number in range(3):
        proxy.cut(reset=reset)
        time.sleep(0.05)  # noqa: ASYNC251 - the loop has no time to find out by itself
        assert await transport.call("publish", "g", number) == number + 1
    assert proxy.accepted >= 4


@pytest.mark.parametrize("twin", TWINS)
async def test_connections_that_are_all_in_use_are_named_and_nothing_was_sent(
    proxy: Proxy, queue: str, twin: str, opened: AsyncExitStack
) -> None:
    transport = await from_url(twin, through(proxy), queue, max_connections=1, timeout=TIMEOUT)
    other = await from_url(twin, through(proxy), queue)
    opened.push_async_callback(transport.close)
    opened.push_async_callback(other.close)
    proxy.silence()
    waiting = [asyncio.ensure_future(transport.call("publish", "g", number)) for number in range(2)]
    await asyncio.wait(waiting)
    texts = sorted(str(each.exception()) for each in waiting)
    assert any("max_connections" in text and "nothing was changed" in text for text in texts), texts
    proxy.resume()


def test_a_refused_connection_says_that_nothing_was_changed(url: str, queue: str) -> None:
    with Proxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy:
        transport = fairlane.connect(through(proxy), queue=queue)
        transport.publish("g", 1)
    time.sleep(0.05)  # a connection that was in use a moment ago is not looked at again
    for operation in (lambda: transport.publish("g", 2), lambda: transport.claim("w", 30)):
        with pytest.raises(BackendUnavailable, match="nothing was changed"):
            operation()
    transport.close()


SCRIPT = """
import asyncio, sys, fairlane
url, queue = sys.argv[1:]
keep = []
async def main():
    keep.append(await fairlane.connect_async(url, queue))
    await keep[0].publish("g", 1)
    for wait in range(2):
        try:
            await asyncio.wait_for(keep[0].claim("w", 0.001), 0.0001 if wait else 5)
        except TimeoutError:
            pass
keep.append(fairlane.connect(url, queue))
keep[0].publish("g", 1)
keep.clear()
blocking = fairlane.connect(url, queue)
blocking.publish("g", 2)
asyncio.run(main())
print("done", flush=True)
"""


def test_a_process_that_closes_nothing_ends_at_once_and_says_nothing(url: str, queue: str) -> None:
    done = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, url, queue], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert done.stdout is not None
    assert done.stderr is not None
    try:
        assert done.stdout.readline() == "done\n"
        with at_most(2):
            done.wait(5)
        assert (done.returncode, done.stderr.read()) == (0, "")
    finally:
        done.kill()
        done.communicate()


async def test_a_client_of_another_loop_is_refused_before_anything_is_sent(url: str, queue: str) -> None:
    twin = on_client("async", url, queue)
    await twin.call("publish", "g", 1)

    def elsewhere() -> None:
        with pytest.raises(fairlane.ConfigurationError, match="event loop"):
            asyncio.run(twin.transport.publish("g", 2))

    await asyncio.to_thread(elsewhere)
    assert (await twin.call("inspect.queue")).messages == 1
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(fairlane.ConfigurationError, match="fork"):
                asyncio.run(twin.transport.publish("g", 2))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1]) == 0
    assert (await twin.call("inspect.queue")).messages == 1
    await twin.close()


def test_a_replica_is_one_typed_error_that_says_to_connect_to_the_primary() -> None:
    with private() as primary, private("--replicaof", "127.0.0.1", str(primary.port)) as replica:
        migrate.upgrade(primary.url, queue="jobs")
        with connect(replica.url) as client:
            deadline = time.monotonic() + 30
            while not client.exists("{jobs}:meta"):
                assert time.monotonic() < deadline
                time.sleep(0.02)
        with fairlane.connect(replica.url, queue="jobs") as queue:
            assert queue.inspect.queue().messages == 0
            with pytest.raises(BackendUnavailable, match=r"replica.*nothing was changed.*connect to the primary"):
                queue.publish("g", 1)
