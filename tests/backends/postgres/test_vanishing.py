"""A call, thread or event loop may end at any moment: while it opens, awaits or has a connection. Others go on at once.

`test_pool.py` goes through all states of the pool. Here the same faults happen with a real server.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import fairlane
from fairlane import BackendUnavailable
from fairlane.backends.postgres.sessions import OwnConnection
from tests.harness import Queue, eventually
from tests.harness.proxy import Proxy
from tests.interruption import interrupted

pytestmark = [pytest.mark.backends("postgres"), pytest.mark.promise(1, 9)]

AT_ONCE = 5.0
"""The most seconds for a call that goes on at once. A waiting call checks the pool every second."""


@contextmanager
def at_once() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < AT_ONCE


@pytest.fixture
def proxy(queue: Queue) -> Iterator[Proxy]:
    with Proxy(urlsplit(queue.kit.url(queue.name)).port or 5432) as made:
        yield made


def named(queue: Queue, proxy: Proxy | None = None) -> str:
    """A URL whose sessions have the queue's name as application name."""
    url: str = queue.kit.url(queue.name)
    if proxy is not None:
        url = url.replace(f":{proxy.target}/", f":{proxy.port}/")
    return f"{url}?application_name={queue.name}"


def sessions(queue: Queue) -> int:
    with psycopg.connect(queue.kit.url(queue.name), autocommit=True) as connection:
        text = "select count(*) from pg_stat_activity where application_name = %s"
        (count,) = connection.execute(text, (queue.name,)).fetchone() or (0,)
    return int(count)


def without_connection(transport: Any) -> Any:
    """Remove the only connection of a transport, as after a broken connection; return the pool."""
    pool = transport._executor._source._pool
    pool.drop(pool.take())
    return pool


def left_alone(work: Coroutine[Any, Any, Any], until: Callable[[], bool]) -> asyncio.AbstractEventLoop:
    """Run a coroutine in its own event loop until a condition holds. Then stop, and return the loop."""
    loop = asyncio.new_event_loop()
    task: Any = loop.create_task(work)
    task._log_destroy_pending = False  # this task belongs to the test; asyncio shall not print about it

    loop.run_until_complete(eventually(until))
    return loop


@pytest.mark.twins("async")
@pytest.mark.parametrize("how", ["closed", "stopped"])
@pytest.mark.parametrize("what", ["opens a connection", "waits for an answer"])
async def test_a_loop_that_ends_in_the_middle_of_a_call_blocks_no_other_call(
    queue: Queue, proxy: Proxy, what: str, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Guards against waiting for a connection that no loop opens any more, and against a connection that still counts
    although no call has it."""
    if (what, how) == ("waits for an answer", "stopped"):
        pytest.skip("the loop may go on, and use the connection")
    url = f"{named(queue, proxy)}&max_connections=1&timeout=20"
    transport: Any = await fairlane.connect_async(url, queue=queue.name)
    before = proxy.accepted
    if what == "opens a connection":
        without_connection(transport)
    pool = transport._executor._source._pool

    def begun() -> bool:
        return proxy.accepted > before if what == "opens a connection" else not pool._idle

    def work() -> None:
        proxy.silence()
        loop = left_alone(transport.publish("g", 1), begun)
        if how == "closed":
            loop.close()
        proxy.resume()
        with at_once():
            asyncio.run(transport.publish("g", 2))
        if how == "stopped":
            loop.run_until_complete(transport.publish("g", 3))
            loop.close()

    await asyncio.to_thread(work)
    await transport.close()
    assert 2 in [event for _, event in await queue.drain()]
    assert capfd.readouterr().err == ""
    await eventually(lambda: sessions(queue) == 0)


@pytest.mark.twins("async")
async def test_a_transport_that_closes_gives_up_what_it_opens(
    queue: Queue, proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    """Guards against a task of Fairlane that is left in a loop. asyncio would print about it when the loop closes."""
    transport: Any = await fairlane.connect_async(named(queue, proxy), queue=queue.name)
    without_connection(transport)
    proxy.silence()
    publishing = asyncio.ensure_future(transport.publish("g", 1))
    others = asyncio.all_tasks()
    await eventually(lambda: asyncio.all_tasks() - others)
    with at_once():
        await transport.close()
    with pytest.raises(fairlane.TransportClosed):
        await publishing
    assert asyncio.all_tasks() == others - {publishing}
    assert capfd.readouterr().err == ""


@pytest.mark.twins("sync")
@pytest.mark.parametrize(
    ("refusal", "seen"),
    [(RuntimeError("can't start new thread"), BackendUnavailable), (MemoryError(), MemoryError)],
    ids=["too many threads", "no memory"],
)
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
async def test_a_thread_that_cannot_be_started_fails_one_call_at_most(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, refusal: Exception, seen: type[Exception], others: bool
) -> None:
    """Guards against waiting for a connection whose opening never began."""
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def once(self: threading.Thread) -> None:
        if self.name == "fairlane-connect" and not refused:
            refused.append(self)
            raise refusal
        start(self)

    with fairlane.connect(named(queue), queue=queue.name, max_connections=2, timeout=20) as transport:
        pool: Any = without_connection(transport)
        if others:
            transport.publish("g", 0)
            busy = pool.take()
        monkeypatch.setattr(threading.Thread, "start", once)
        with at_once():
            if others:
                transport.publish("g", 1)  # waits a second, and then opens a connection
                pool.give(busy)
            else:
                with pytest.raises(seen) as caught:
                    transport.publish("g", 1)
                assert seen is MemoryError or "can't start new thread (nothing was changed)" in str(caught.value)
            transport.publish("g", 2)
    assert len(refused) == 1


SITUATIONS: dict[str, Callable[[Any], object]] = {
    "a connection at rest": lambda pool: None,
    "none": lambda pool: pool.drop(pool.take()),
    "one that is tried first": lambda pool: setattr(pool._idle[0], "used_at", 0.0),
    "one that has ended": lambda pool: pool._idle[0].pgconn.finish(),
}


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_an_exception_from_a_signal_handler_leaves_the_transport_working(queue: Queue, situation: str) -> None:
    """The exception comes at each line of Fairlane's Postgres code in turn, and its traceback keeps all objects of the
    frames. Guards against a lost connection, waiter or attempt that still counts."""

    def work() -> None:
        url, loop = f"{named(queue)}&max_connections=1&timeout=20", asyncio.new_event_loop()
        if queue.twin == "sync":
            transport: Any = fairlane.connect(url, queue=queue.name)
        else:
            transport = loop.run_until_complete(fairlane.connect_async(url, queue=queue.name))

        def call(method: str, *arguments: Any) -> Any:
            answer = getattr(transport, method)(*arguments)
            return answer if queue.twin == "sync" else loop.run_until_complete(answer)

        at = 0
        held: list[BaseException] = []
        while True:
            call("publish", "before", at)
            SITUATIONS[situation](transport._executor._source._pool)
            error = interrupted(partial(call, "publish", "g", at), at, "fairlane/backends/postgres/")
            if error is None:
                break
            held.append(error)
            began = time.monotonic()
            try:
                call("publish", "after", at)
            except BackendUnavailable as failure:
                raise AssertionError(f"after an exception at {error}") from failure
            assert time.monotonic() - began < AT_ONCE, f"after an exception at {error}"
            at += 1
        assert at > 15, "nothing was interrupted"
        call("close")
        loop.close()

    await asyncio.to_thread(work)
    published = [event for group, event in await queue.drain() if group == "after"]
    assert published == list(range(len(published)))


@pytest.mark.twins("sync")
async def test_a_child_forked_while_a_connection_is_opened_opens_its_own(queue: Queue, proxy: Proxy) -> None:
    """The thread that opens the connection does not exist in the child. Guards against a child that waits for it."""
    transport: Any = fairlane.connect(named(queue, proxy), queue=queue.name, max_connections=1, timeout=20)
    without_connection(transport)
    before = proxy.accepted
    proxy.silence()
    parent = asyncio.ensure_future(asyncio.to_thread(transport.publish, "parent", 1))
    await eventually(lambda: proxy.accepted > before)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with at_once():
                transport.publish("child", 1)
            code = 0
        finally:
            os._exit(code)
    proxy.resume()
    await parent
    assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1]) == 0
    await asyncio.to_thread(transport.close)
    assert sorted(await queue.drain()) == [("child", 1), ("parent", 1)]


@pytest.mark.twins("sync")
async def test_a_call_at_the_end_of_the_interpreter_gets_a_connection_or_says_why_not(queue: Queue) -> None:
    """At that time Python 3.12 starts no threads any more. Guards against an untranslated error and an endless wait."""
    program = f"""
        import atexit, time, fairlane
        transport = fairlane.connect({named(queue)!r}, queue={queue.name!r}, timeout=20)
        pool = transport._executor._source._pool
        pool.drop(pool.take())
        def last():
            began = time.monotonic()
            try:
                transport.publish("g", 1)
            except fairlane.BackendUnavailable as error:
                assert "nothing was changed" in str(error)
            assert time.monotonic() - began < {AT_ONCE}
            print("ended")
        atexit.register(last)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = await asyncio.to_thread(partial(subprocess.run, command, capture_output=True, text=True, timeout=60))
    assert (done.stdout, done.stderr) == ("ended\n", "")


@pytest.mark.twins("sync")
async def test_a_call_from_inside_of_the_pool_ends(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler or a finalizer may publish while its thread is inside of the pool. Guards against a deadlock of
    that thread with itself."""
    with fairlane.connect(named(queue), queue=queue.name, max_connections=2, timeout=20) as transport:
        pool: Any = without_connection(transport)
        original = type(pool)._has_room
        calls: list[Any] = []

        def room(self: Any) -> bool:
            if not calls:
                calls.append(self)
                other = OwnConnection.opened(transport._executor._source._opening)  # type: ignore[attr-defined]
                self.drop(other)
            return bool(original(self))

        monkeypatch.setattr(type(pool), "_has_room", room)
        with at_once():
            await asyncio.to_thread(transport.publish, "g", 1)
    assert calls
