"""Every call ends in time: on a silent server, with closed or used-up connections, and when the caller is cancelled."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import fairlane
from fairlane import migrate
from fairlane.errors import BackendUnavailable, TransportClosed
from tests.backends.redis.servers import TWINS, connect, on_client, private
from tests.harness import Queue, Queues
from tests.harness.calls import NAMES, every_call
from tests.harness.proxy import Proxy
from tests.harness.waiting import at_most

TIMEOUT = 0.6


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(int(url.rpartition(":")[2].partition("/")[0])) as made:
        yield made


def through(proxy: Proxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0"


@pytest.fixture(params=["url", "client"])
async def queue(request: pytest.FixtureRequest, queues: Queues, proxy: Proxy, name: str) -> Queue:
    """A queue behind the proxy, on a URL or on a client of the application."""
    if request.param == "url":
        return await queues.open(name, url=through(proxy), timeout=TIMEOUT)
    return on_client(queues, through(proxy), name, timeout=TIMEOUT)


@pytest.mark.parametrize("call", NAMES)
@pytest.mark.parametrize("twin", TWINS)
async def test_silence_ends_every_call_in_time(queue: Queue, proxy: Proxy, call: str) -> None:
    """Guards against a worker that waits for ever when a server keeps the connection open and does not answer."""
    await queue.publish("g", 1)
    await queue.publish("h", 2)
    lease = await queue.get()
    proxy.silence()
    with at_most(TIMEOUT + 1), pytest.raises(BackendUnavailable, match=r"in time.*not known"):
        await every_call(queue, lease)[call]()
    proxy.resume()
    await asyncio.sleep(0.05)
    status = await queue.status()
    assert status.messages in (1, 2, 3), "the silent connection was thrown away: no answer goes to another call"


@pytest.mark.parametrize("twin", TWINS)
async def test_an_answer_in_small_pieces_does_not_prolong_a_call(proxy: Proxy, queues: Queues, name: str) -> None:
    """Each piece comes within the timeout, but the whole answer does not."""
    queue = await queues.open(name, url=through(proxy), timeout=TIMEOUT)
    await queue.publish("g", "x" * 4_000_000)
    proxy.delay = 0.1
    with at_most(TIMEOUT + 1), pytest.raises(BackendUnavailable, match="in time"):
        await queue.claim("w", 30)


@pytest.mark.parametrize("twin", TWINS)
async def test_a_slow_handshake_does_not_prolong_a_call(proxy: Proxy, queues: Queues, name: str) -> None:
    """Each answer while connecting comes within the timeout, but all of them together do not. How far the call gets
    depends on the machine; the error must not say that nothing was changed when the message was added."""
    queue = await queues.open(name, url=through(proxy), timeout=3)
    proxy.cut()
    await asyncio.sleep(0.05)  # a connection that was used just now is not checked
    proxy.delay = 2
    with at_most(5), pytest.raises(BackendUnavailable, match=r"in time .*(nothing was changed|not known)") as caught:
        await queue.publish("g", 1)
    proxy.delay = 0
    if "nothing was changed" in str(caught.value):
        await asyncio.sleep(2)  # what was sent has arrived by now
        assert (await queue.status()).messages == 0


@pytest.mark.parametrize("silent", ["before the handshake", "after it"])
@pytest.mark.parametrize("twin", TWINS)
async def test_a_transport_is_made_or_refused_within_startup_timeout(
    proxy: Proxy, queues: Queues, name: str, silent: str
) -> None:
    if silent == "before the handshake":
        proxy.silence()
    else:
        proxy.break_next(b"FCALL_RO", "before")
        threading.Timer(0.05, proxy.silence).start()
        await asyncio.sleep(0.1)
    with at_most(3), pytest.raises(BackendUnavailable):
        await queues.open(name, url=through(proxy), startup_timeout=0.5)


async def test_a_cancelled_call_comes_back_at_once_and_so_does_the_loop(proxy: Proxy, name: str) -> None:
    transport = await fairlane.connect_async(through(proxy), queue=name)
    await transport.publish("g", 1)
    proxy.silence()
    with at_most(1):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(transport.claim("w", 30), 0.1)
        await transport.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not others, "nothing is left that asyncio.run would wait for"


@pytest.mark.parametrize("twin", TWINS)
async def test_closing_never_waits_for_a_silent_server(queue: Queue, proxy: Proxy) -> None:
    proxy.silence()
    call = asyncio.ensure_future(queue.claim("w", 30))
    await asyncio.sleep(0.1)
    with at_most(0.4):
        await queue.close()
    with pytest.raises((BackendUnavailable, TransportClosed)):
        await call


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("twin", TWINS)
async def test_a_connection_closed_while_idle_is_replaced_without_an_error(
    proxy: Proxy, queues: Queues, name: str, reset: bool
) -> None:
    """Guards against an error in the first call after a pause, when a firewall or the server closed the connection."""
    queue = await queues.open(name, url=through(proxy))
    for number in range(3):
        proxy.cut(reset=reset)
        time.sleep(0.05)  # noqa: ASYNC251 - the loop must not run, so that it cannot notice the end itself
        assert await queue.publish("g", number) == number + 1
    assert proxy.accepted >= 4


@pytest.mark.parametrize("twin", TWINS)
async def test_connections_that_are_all_in_use_are_named_and_nothing_was_sent(
    proxy: Proxy, queues: Queues, name: str
) -> None:
    queue = await queues.open(name, url=through(proxy), max_connections=1, timeout=TIMEOUT)
    proxy.silence()
    waiting = [asyncio.ensure_future(queue.publish("g", number)) for number in range(2)]
    await asyncio.wait(waiting)
    texts = sorted(str(each.exception()) for each in waiting)
    assert any("max_connections" in text and "nothing was changed" in text for text in texts), texts
    proxy.resume()


def test_a_refused_connection_says_that_nothing_was_changed(url: str, name: str) -> None:
    with Proxy(int(url.rpartition(":")[2].partition("/")[0])) as proxy:
        transport = fairlane.connect(through(proxy), queue=name)
        transport.publish("g", 1)
    time.sleep(0.05)  # a connection that was used a moment ago is not checked
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


def test_a_process_that_closes_nothing_ends_at_once_and_prints_nothing(url: str, name: str) -> None:
    done = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, url, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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


@pytest.mark.parametrize("twin", ["async"])
async def test_a_client_of_another_loop_is_refused_before_anything_is_sent(queues: Queues, url: str, name: str) -> None:
    queue = on_client(queues, url, name)
    await queue.publish("g", 1)

    def elsewhere() -> None:
        with pytest.raises(fairlane.ConfigurationError, match="event loop"):
            asyncio.run(queue.transport.publish("g", 2))

    await asyncio.to_thread(elsewhere)
    assert (await queue.status()).messages == 1
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(fairlane.ConfigurationError, match="fork"):
                asyncio.run(queue.transport.publish("g", 2))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1]) == 0
    assert (await queue.status()).messages == 1


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
