"""A server may restart, crash, be away or never answer: no message is lost, and each call ends in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from fairlane import BackendUnavailable, ConfigurationError, LeaseLost
from tests.backends.libsql.relay import Relay, open_socket, sql_error
from tests.harness import LONG, Queue, Queues, eventually
from tests.harness.queues import in_thread
from tests.servers import Server
from tests.servers.base import free_port

pytestmark = [pytest.mark.promise(9), pytest.mark.xdist_group("libsql-others")]


@pytest.mark.parametrize("how", ["restarted", "crashed"])
async def test_a_restart_in_the_middle_of_everything_loses_nothing(queues: Queues, server: Server, how: str) -> None:
    """Publishers and workers go on. An operation fails once at most, and its error says if the outcome is known."""
    queue = await queues.make(retry_seconds=20)
    sent: list[tuple[str, int]] = []
    claimed: list[tuple[str, int]] = []
    acked: list[tuple[str, int]] = []
    errors: list[BackendUnavailable] = []
    publishing = {"a", "b"}
    stop = asyncio.Event()

    async def publisher(group: str) -> None:
        number = 0
        while not stop.is_set():
            await queue.publish(group, number)  # never fails here, since it may be sent again
            sent.append((group, number))
            number += 1
            await asyncio.sleep(0.005)
        publishing.remove(group)

    async def worker(name: str) -> None:
        while publishing or len(acked) < len(sent):
            lease = await queue.claim(name, LONG)  # the same holds for a claim
            if lease is None:
                await asyncio.sleep(0.01)
                continue
            # noted before the ack: if its answer is lost, another worker may claim before this one gets the error
            claimed.append((lease.group_id, lease.event))
            try:
                await queue.ack(lease)
            except BackendUnavailable as error:
                errors.append(error)
                with contextlib.suppress(LeaseLost):  # the first ack was applied, which its error could not say
                    await queue.ack(lease)
            acked.append((lease.group_id, lease.event))

    tasks = [publisher("a"), publisher("b"), worker("v"), worker("w"), worker("x")]
    running = asyncio.gather(*tasks)
    await asyncio.sleep(0.3)
    for _ in range(2):
        await in_thread(server.restart, kill=how == "crashed")
        before = len(acked)
        async with asyncio.timeout(20):
            while len(acked) < before + 10 and not running.done():  # noqa: ASYNC110 - until acks succeed again
                await asyncio.sleep(0.01)
    stop.set()
    async with asyncio.timeout(30):
        await running
    assert len(errors) <= 2 * 3, "more than one error of a worker for one restart"
    assert sorted(acked) == sorted(sent), "a message was lost"
    assert sorted(claimed) == sorted(sent), "a message was delivered twice"
    for group in "ab":
        own = [event for name, event in claimed if name == group]
        assert own == sorted(own), "a group got out of order"
    assert await queue.leftovers() == {}


WRITERS = """if True:
    import os, sys, time, fairlane
    end = time.time() + 20  # should nobody come to kill them
    fairlane.connect(sys.argv[1], sys.argv[2]).close()  # what takes long is done once
    for number in range(4):
        if os.fork() == 0:
            transport = fairlane.connect(sys.argv[1], sys.argv[2])
            print(os.getpid(), flush=True)
            while time.time() < end:
                transport.publish(f"g{number}", 1)
                lease = transport.claim("doomed", 0.5)
                if lease is not None:
                    transport.ack(lease)
            os._exit(0)
"""


def writers_of(server: Server, queue: Queue) -> Any:
    """Start some processes that write all the time, and return their process ids."""
    command = [sys.executable, "-c", WRITERS, server.url, queue.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        return [int(process.stdout.readline()) for _ in range(4)]


@pytest.mark.parametrize("twin", ["async"], indirect=True)
async def test_writers_that_are_killed_block_no_other_writer(queues: Queues, server: Server) -> None:
    """Their messages are claimable when the leases expire, and at no time do all other writers wait for them."""
    queue = await queues.make()
    writers = await in_thread(writers_of, server, queue)
    try:
        longest, end = 0.0, time.monotonic() + 1.2
        while time.monotonic() < end:
            began = time.monotonic()
            await queue.publish("mine", began)
            longest = max(longest, time.monotonic() - began)
    finally:
        for writer in writers:
            os.kill(writer, signal.SIGKILL)
    began = time.monotonic()
    await queue.publish("mine", began)
    assert max(longest, time.monotonic() - began) < 4, "a gap in the queue of writers takes 5 seconds, or for ever"

    async def empty() -> Any:
        await queue.drain()
        return not await queue.leftovers()

    await eventually(empty)


async def test_a_connection_that_the_server_closed_meanwhile_is_not_a_lost_answer(
    queues: Queues, server: Server
) -> None:
    """The server restarts while a worker handles a message. The outcome of its ack must not be unknown."""
    queue = await queues.make(retry_seconds=20)
    await queue.publish("g", 1)
    lease = await queue.get()
    await in_thread(server.restart)
    await queue.ack(lease)
    assert await queue.leftovers() == {}


async def test_a_refused_connection_is_one_typed_error_within_the_deadline(queues: Queues) -> None:
    url = f"libsql+http://:secret-token@127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match=r"127\.0\.0\.1.*nothing was changed") as caught:
        await queues.open("q", url=url, startup_timeout=0)
    assert time.monotonic() - began < 5
    assert "secret-token" not in f"{caught.value!r}"


async def test_a_server_that_never_answers_is_given_up_after_the_timeout(queues: Queues) -> None:
    with open_socket() as silent:
        url = f"libsql+http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match="not known"):
            await queues.open("q", url=url, timeout=0.9, startup_timeout=0)
    assert 0.25 < time.monotonic() - began < 5


async def test_a_read_only_server_is_a_configuration_error(queue: Any, relay: Relay) -> None:
    relay.fail(sql_error("SQLITE_READONLY", "attempt to write a readonly database"))
    with pytest.raises(ConfigurationError, match="accepts writes"):
        await queue.publish("g", 1)
    assert await queue.publish("g", 1) == 1


async def test_a_request_without_an_answer_ends_after_the_timeout(queue: Queue, relay: Relay) -> None:
    """An ack is not sent again. A claim is sent again until the deadline."""
    await queue.fill([("g", 1), ("h", 2)])
    hasty = await queue.another(url=relay.url, timeout=1.2, retry_seconds=1.0)
    lease = await hasty.get("w", LONG)
    stop = asyncio.Event()
    relay.fail(lambda request: until_stopped(stop), 100)
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match="not known"):
        await hasty.ack(lease)
    assert 0.35 < time.monotonic() - began < 3
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match="not known"):
        await hasty.claim("w", LONG)
    assert 0.6 < time.monotonic() - began < 5
    relay.clear()
    stop.set()
    await hasty.ack(lease)


def until_stopped(stop: Any) -> None:
    """Keep a request without an answer until the test does not need it any more."""
    end = time.monotonic() + 10
    while not stop.is_set() and time.monotonic() < end:
        time.sleep(0.05)
