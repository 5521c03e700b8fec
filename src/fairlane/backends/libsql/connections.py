"""The client: libsql-client's protocol in streams that are kept, and a thread for callers without an event loop.

libsql-client itself opens a connection in the server for every request. Of sqld 0.24 that asks too much. While a
checkpoint empties the queue of all who wait for the write lock, a writer may be sent away, as busy, and yet keep its
place. When its turn comes it is given the lock; if it has gone by then, nobody writes any more until the server is
started anew. So writes go through streams, connections that are kept: one that was sent away comes again, and takes
what it was given. For the same reason a write that was sent is never broken off: who waits for it may go, the request
is seen through. Streams are as few as keep the server busy, and answer in half the time. Looking needs no lock and no
stream. (A server is safest with `--checkpoint-interval-s 60`: then a timer makes checkpoints, and not every writer.)
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
"""At most. The server writes for one at a time, so more than one is of use only where the network takes its time."""

SECONDS_PER_STREAM = 0.004
"""One more stream for each of these that the quickest of the first answers took."""

SAMPLES = 8
SECONDS_KEPT = 5.0
"""The server forgets a stream that was not used for 10."""

SECONDS_TO_CLOSE = 2.0
IDLE_SECONDS = 0.5
LOOP_STEPS = 3
"""To read the end of a connection, to tell its protocol, and to take it out of the pool."""

_WRITE = "fairlane-libsql-write"
"""The name of tasks that must not be cancelled."""

_CLOSE = {"type": "close"}


@dataclass(slots=True)
class Stream:
    """A connection inside the server. A baton, from the last answer, stands for it in the next request."""

    baton: str | None = None
    used: float = 0.0


class Client:
    """Carries statements to one server. Belongs to the event loop in which it is made."""

    @classmethod
    async def opened(cls, address: Address) -> Self:
        """Make one in the running loop; it connects when it is first used."""
        return cls(address)

    def __init__(self, address: Address) -> None:
        limits = aiohttp.ClientTimeout(
            total=address.request_timeout,
            connect=address.request_timeout / 2,  # for a free connection, or a new one
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
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._used = time.monotonic()

    async def run(self, parts: Sequence[Part], *, writes: bool, seconds: float) -> list[ResultSet]:
        """Carry out statements, several of them in one transaction, and return the result of each.

        Raises:
            Failed: it was not carried out.
            TimeoutError: there was no answer for so many seconds.
        """
        ends = asyncio.get_running_loop().time() + seconds
        if len(parts) == 1:
            request: dict[str, Any] = {"type": "execute", "stmt": _stmt_to_proto(*parts[0])}
        else:
            request = {"type": "batch", "batch": _batch_to_proto([*parts])}
            if writes:  # else the lock is asked for too late, when others may have written after our first look
                request["batch"]["steps"][0]["stmt"]["sql"] = "BEGIN IMMEDIATE"
        if writes:
            await self._turn(seconds)
            if self._closing:
                self._turns.release()  # others wait, and must be told too
                raise TransportClosed
            task = asyncio.create_task(self._written(request), name=_WRITE)
            self._under_way.add(task)
            task.add_done_callback(self._done)
            async with asyncio.timeout_at(ends):
                answer = await asyncio.shield(task)
        else:
            async with asyncio.timeout_at(ends):
                answer = await self._post(None, [request, _CLOSE])
        result = _response(answer)["result"]
        return [_result_set_from_proto(result)] if len(parts) == 1 else _batch_results_from_proto(result, len(parts))

    async def _turn(self, seconds: float) -> None:
        """Wait for a stream; `_written` gives it back."""
        if not self._turns.locked():
            await self._turns.acquire()
            return
        try:
            async with asyncio.timeout(seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise Failed("requests of this client that came before have no answer yet", uncertain=False) from None

    async def _written(self, request: dict[str, Any]) -> Any:
        stream = self._idle.pop() if self._idle else Stream()
        try:
            return await self._through(stream, request)
        finally:
            self._idle.append(stream)
            self._turns.release()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # has been looked at, also when nobody waits for it any more

    async def _through(self, stream: Stream, request: dict[str, Any]) -> Any:
        baton, stream.baton = stream.baton, None  # it is spent, whatever comes
        began = time.monotonic()
        if baton is not None and began - stream.used > SECONDS_KEPT:
            baton = None
        try:
            answer = await self._post(baton, [request])
        except Failed as failed:
            if baton is None or failed.uncertain:
                raise
            answer = await self._post(None, [request])  # the server has forgotten the stream: it was started anew
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
        """Let the loop find out which connections the server has closed, if it was blocked while they were idle."""
        if time.monotonic() - self._used > IDLE_SECONDS:
            for _ in range(LOOP_STEPS):
                await asyncio.sleep(0)

    async def close(self) -> None:
        """See writes through, give the streams back, if the server is there to take them, and close the connections."""
        self._closing = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=SECONDS_TO_CLOSE / 4)
        batons = [stream.baton for stream in self._idle if stream.baton]
        with contextlib.suppress(Exception):
            async with asyncio.timeout(SECONDS_TO_CLOSE / 4):
                await asyncio.gather(*(self._post(baton, [_CLOSE]) for baton in batons))
        await self._session.close()


def _response(answer: Any) -> Any:
    """Return what the server says to the first request of a pipeline."""
    result = answer["results"][0]
    if result["type"] == "error":
        error = result["error"]
        raise LibsqlError(str(error["message"]), error.get("code") or "UNKNOWN")
    return result["response"]


class LoopThread:
    """An event loop in a thread that does not keep the process alive. Many threads may use it at once.

    libsql-client's own blocking client has a thread that does, and carries out one request at a time.
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
        """Let a coroutine run in the loop, and wait for it. Interrupted, it is cancelled."""
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

    def end(self, farewell: Callable[[], Coroutine[Any, Any, None]], *, only_if_idle: bool = False) -> None:
        """Cancel the calls of other threads, let `farewell` run, and end the thread. May be called from any thread.

        Args:
            only_if_idle: do nothing if there are such calls.
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
                await farewell()
            done.set()
            self._loop.stop()

        if not self._thread.is_alive():
            return  # in a forked process too: there it is the parent's
        asyncio.run_coroutine_threadsafe(last(), self._loop)
        if threading.current_thread() is not self._thread:
            done.wait(SECONDS_TO_CLOSE)
            if not left.is_set():
                self._thread.join(SECONDS_TO_CLOSE)
