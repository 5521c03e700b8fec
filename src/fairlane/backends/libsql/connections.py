"""The client: it speaks libsql-client's protocol in streams that it keeps. A thread serves callers without a loop.

A stream is a connection inside the server. libsql-client opens a new one for every request, which is dangerous with
sqld 0.24. During a checkpoint, sqld may answer "busy" to a writer but keep its place in the queue for the write lock.
Later it gives the lock to this writer. If the stream is closed by then, no stream can write until the server is
restarted. So writes use streams that are kept: the next write of the stream takes the lock that it was given. For the
same reason a write that was sent is never aborted. A caller may stop waiting, but the request is carried out to its
end. There are only as many streams as the server can use; requests in them take half the time. Reads need no lock and
no stream. (The option `--checkpoint-interval-s 60` makes a server safest: then a timer makes checkpoints instead of
every writer.)
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from libsql_client import LibsqlError, ResultSet
from libsql_client.hrana.convert import (
    _batch_results_from_proto,
    _batch_to_proto,
    _result_set_from_proto,
    _stmt_to_proto,
)

from fairlane.backends.libsql.address import Address
from fairlane.backends.libsql.errors import Failed
from fairlane.backends.libsql.wire import Part
from fairlane.errors import TransportClosed
from fairlane.program import ResultT

STREAMS = 8
"""The maximum. The server carries out one write at a time, so more streams help only if the network is slow."""

SECONDS_PER_STREAM = 0.004
"""One more stream is used for each of these seconds in the time of the fastest of the first answers."""

SAMPLES = 8
SECONDS_KEPT = 5.0
"""An idle stream is used again only within this time: the server forgets streams that are idle for 10 seconds."""

SECONDS_TO_CLOSE = 2.0
IDLE_SECONDS = 0.5
LOOP_STEPS = 3
"""Steps of the loop to read the end of a connection, to inform its protocol, and to remove it from the pool."""

_WRITE = "fairlane-libsql-write"
"""The name of tasks that must not be cancelled."""

_CLOSE = {"type": "close"}


@dataclass(slots=True)
class Stream:
    """A connection inside the server. Its baton, from the last answer, identifies it in the next request."""

    baton: str | None = None
    used: float = 0.0


class Client:
    """Sends statements to one server. It belongs to the event loop in which it is made."""

    @classmethod
    async def opened(cls, address: Address) -> Self:
        """Make a client in the running loop. It connects when it is first used."""
        return cls(address)

    def __init__(self, address: Address) -> None:
        limits = aiohttp.ClientTimeout(
            total=address.request_timeout,
            connect=address.request_timeout / 2,  # to get a free connection or open a new one
            sock_connect=address.connect_timeout,
        )
        self._session = aiohttp.ClientSession(
            headers={"Authorization": address.authorization} if address.authorization else {},
            timeout=limits,
            connector=aiohttp.TCPConnector(limit=2 * STREAMS, ssl=address.tls()),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._url = f"{address.url}v2/pipeline"
        self._turns = asyncio.Semaphore(1)
        self._idle: list[Stream] = []
        self._samples: list[float] = []
        self._writes: set[asyncio.Task[object]] = set()
        self._closing = False
        self._used = time.monotonic()

    async def run(self, parts: Sequence[Part], *, writes: bool, seconds: float) -> list[ResultSet]:
        """Carry out statements, several of them in one transaction, and return the result of each.

        Raises:
            Failed: the server did not carry out the request, or that is unknown.
            TimeoutError: there was no answer within these seconds.
        """
        ends = asyncio.get_running_loop().time() + seconds
        if len(parts) == 1:
            request: dict[str, Any] = {"type": "execute", "stmt": _stmt_to_proto(*parts[0])}
        else:
            request = {"type": "batch", "batch": _batch_to_proto([*parts])}
            if writes:  # take the lock first, or another connection could write after the first read of this batch
                request["batch"]["steps"][0]["stmt"]["sql"] = "BEGIN IMMEDIATE"
        if writes:
            await self._turn(seconds)
            if self._closing:
                self._turns.release()  # other calls may wait here, and they must raise too
                raise TransportClosed
            task = asyncio.create_task(self._written(request), name=_WRITE)
            self._writes.add(task)
            task.add_done_callback(self._done)
            async with asyncio.timeout_at(ends):
                answer = await asyncio.shield(task)
        else:
            async with asyncio.timeout_at(ends):
                answer = await self._post(None, [request, _CLOSE])
        result = _response(answer)["result"]
        return [_result_set_from_proto(result)] if len(parts) == 1 else _batch_results_from_proto(result, len(parts))

    async def _turn(self, seconds: float) -> None:
        """Wait for a turn to use a stream; `_done` releases it."""
        if not self._turns.locked():
            await self._turns.acquire()
            return
        try:
            async with asyncio.timeout(seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise Failed("earlier requests of this client have no answer yet", uncertain=False) from None

    async def _written(self, request: dict[str, Any]) -> Any:
        stream = self._idle.pop() if self._idle else Stream()
        try:
            return await self._through(stream, request)
        finally:
            self._idle.append(stream)

    def _done(self, task: asyncio.Task[object]) -> None:
        self._turns.release()  # here, since a task that is cancelled at once never begins
        self._writes.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: asyncio would log it if no caller waits any more

    async def _through(self, stream: Stream, request: dict[str, Any]) -> Any:
        baton, stream.baton = stream.baton, None  # a baton is valid for one request, also if that fails
        began = time.monotonic()
        if baton is not None and began - stream.used > SECONDS_KEPT:
            baton = None
        try:
            answer = await self._post(baton, [request])
        except Failed as failed:
            if baton is None or failed.uncertain:
                raise
            answer = await self._post(None, [request])  # the server has forgotten the stream, perhaps after a restart
        stream.baton, stream.used = answer["baton"], time.monotonic()
        if baton is not None and len(self._samples) < SAMPLES:
            self._sampled(stream.used - began)
        return answer

    def _sampled(self, seconds: float) -> None:
        self._samples.append(seconds)
        if len(self._samples) == SAMPLES:
            for _ in range(min(STREAMS - 1, int(min(self._samples) / SECONDS_PER_STREAM))):
                self._turns.release()

    async def _post(self, baton: str | None, requests: list[dict[str, Any]]) -> Any:
        if self._session.closed:
            raise TransportClosed
        await self._notice_closed()
        body = {"baton": baton, "requests": requests}
        try:
            async with self._session.post(self._url, json=body, allow_redirects=False) as response:
                if response.status != 200:
                    raise Failed.by(response.status, await response.text())
                return await response.json()
        finally:
            self._used = time.monotonic()

    async def _notice_closed(self) -> None:
        """Let the loop detect connections that the server has closed, if it could not run while they were idle."""
        if time.monotonic() - self._used > IDLE_SECONDS:
            for _ in range(LOOP_STEPS):
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Wait for the end of writes, close the streams if the server answers, and close the connections."""
        self._closing = True
        if self._writes:
            await asyncio.wait(self._writes, timeout=SECONDS_TO_CLOSE / 4)
        batons = [stream.baton for stream in self._idle if stream.baton]
        with contextlib.suppress(Exception):
            async with asyncio.timeout(SECONDS_TO_CLOSE / 4):
                await asyncio.gather(*(self._post(baton, [_CLOSE]) for baton in batons))
        await self._session.close()


def _response(answer: Any) -> Any:
    """Return the answer to the first request of a pipeline."""
    result = answer["results"][0]
    if result["type"] == "error":
        error = result["error"]
        raise LibsqlError(str(error["message"]), error.get("code") or "UNKNOWN")
    return result["response"]


class LoopThread:
    """An event loop in a daemon thread, which does not keep the process alive. Many threads may use it at once.

    The thread of libsql-client's blocking client keeps the process alive, and carries out one request at a time.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="fairlane-libsql", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine in the loop, and wait for its result. If the wait is interrupted, cancel the coroutine."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop is closed
            coroutine.close()
            raise concurrent.futures.CancelledError from error
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end(self, closing: Callable[[], Coroutine[Any, Any, None]], *, only_if_idle: bool = False) -> None:
        """Cancel the calls of other threads, run `closing`, and end the thread. Any thread may call this.

        Args:
            only_if_idle: whether to do nothing if there are such calls.
        """

        left = threading.Event()
        done = threading.Event()

        async def last() -> None:
            me = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not me and task.get_name() != _WRITE]
            if others and only_if_idle:
                left.set()
                done.set()
                return
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            with contextlib.suppress(Exception):
                await closing()
            done.set()
            self._loop.stop()

        if not self._thread.is_alive():
            return  # also in a forked process, where the thread belongs to the parent
        asyncio.run_coroutine_threadsafe(last(), self._loop)
        if threading.current_thread() is not self._thread:
            done.wait(SECONDS_TO_CLOSE)
            if not left.is_set():
                self._thread.join(SECONDS_TO_CLOSE)
