"""The executors of the libSQL backend. Every request is one HTTP request, sent from an event loop.

The blocking executor has an event loop in its own thread.
"""

from __future__ import annotations

import concurrent.futures
import threading
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Self

from libsql_client import ResultSet

from fairlane.backends.libsql.address import Address, locate
from fairlane.backends.libsql.connections import Client, LoopThread
from fairlane.backends.libsql.errors import Errors
from fairlane.backends.libsql.given import HOST, GivenClient, GivenClientSync
from fairlane.backends.libsql.options import OPTIONS
from fairlane.backends.libsql.wire import Wire, answer_to, rows_of
from fairlane.backends.shared import forks
from fairlane.backends.shared.http import Clock
from fairlane.backends.shared.loops import PerLoop
from fairlane.backends.shared.options import read_options
from fairlane.backends.shared.sent_twice import Batch
from fairlane.backends.stored import Call, Rows
from fairlane.errors import TransportClosed
from fairlane.program import RequestT, ResultT


class AsyncLibsqlExecutor(forks.ForkAware):
    """Sends requests with a client, one for each event loop."""

    def __init__(
        self,
        wire: Wire,
        errors: Errors,
        clock: Clock,
        *,
        address: Address | None = None,
        given: GivenClient | None = None,
    ) -> None:
        self._wire = wire
        self.limit = clock.limit
        self._clock = clock
        self._errors = errors
        self._given = given
        self._own = None if address is None else PerLoop(partial(Client.opened, address), Client.close)
        self._closed = False
        forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the server at a URL; `locate` documents URLs and options."""
        address = locate(url, options)
        return cls(Wire(queue), Errors(address.host, address.retry_seconds), Clock(address.timeout), address=address)

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the application's `libsql_client.Client`. Its errors do not say why the server refused a request."""
        values = read_options("libsql", OPTIONS, None, options)
        errors = Errors(HOST, values["retry_seconds"])
        return cls(Wire(queue), errors, Clock(values["timeout"]), given=GivenClient(client))

    async def _client(self) -> Client | GivenClient:
        if self._closed:
            raise TransportClosed  # closed while a call was between two tries
        if self._own is not None:
            return await self._own.client()
        assert self._given is not None
        return self._given

    async def execute(self, call: Call) -> Rows:
        """Send one operation, and return its rows."""
        operation = call.operation
        return answer_to(call, await self._send(call, writes=not operation.looks, publishes=operation.adds))

    async def together(self, batch: Batch) -> list[Rows]:
        """Carry out several statements in one request, and return the rows of each."""
        return rows_of(await self._send(batch, writes=not batch.reads))

    async def _send(self, request: Call | Batch, *, writes: bool, publishes: bool = False) -> list[ResultSet]:
        parts, seconds = self._wire.parts(request), self._clock.seconds_for(request)
        try:
            client = await self._client()
            return await client.run(parts, writes=writes, seconds=seconds)
        except Exception as error:
            failure = self._errors.translate(error, publishes=publishes)
            if failure is None:
                raise
        raise failure  # outside of the handler, since an error with the token must not become its context

    def after_fork_in_child(self) -> object:
        """Forget the parent's clients; see `forks`."""
        return None if self._own is None else self._own.forget()

    async def close(self) -> None:
        """Close the connections, unless they belong to the application's client."""
        self._closed = True
        if self._own is not None:
            await self._own.close()


class LibsqlExecutor(forks.ForkAware):
    """Sends requests through an event loop in its own thread. Any number of threads may use it."""

    def __init__(
        self,
        wire: Wire,
        errors: Errors,
        clock: Clock,
        *,
        address: Address | None = None,
        given: GivenClientSync | None = None,
    ) -> None:
        self._wire = wire
        self.limit = clock.limit
        self._clock = clock
        self._errors = errors
        self._given = given
        self._inner = AsyncLibsqlExecutor(wire, errors, clock, address=address)
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False
        forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the server at a URL; `locate` documents URLs and options."""
        address = locate(url, options)
        return cls(Wire(queue), Errors(address.host, address.retry_seconds), Clock(address.timeout), address=address)

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the application's `libsql_client.ClientSync`. Its errors do not say why the server refused a request."""
        values = read_options("libsql", OPTIONS, None, options)
        errors = Errors(HOST, values["retry_seconds"])
        return cls(Wire(queue), errors, Clock(values["timeout"]), given=GivenClientSync(client))

    def execute(self, call: Call) -> Rows:
        """Send one operation, and return its rows."""
        if self._given is not None:
            return self._through(self._given, call)
        return self._in_thread(self._inner.execute, call)

    def together(self, batch: Batch) -> list[Rows]:
        """Carry out several statements in one request, and return the rows of each."""
        return self._in_thread(self._inner.together, batch)

    def _through(self, client: GivenClientSync, call: Call) -> Rows:
        parts, seconds = self._wire.parts(call), self._clock.seconds_for(call)
        try:
            return answer_to(call, client.run(parts, seconds=seconds))
        except Exception as error:
            failure = self._errors.translate(error, publishes=call.operation.adds)
            if failure is None:
                raise
        raise failure

    def _in_thread(self, send: Callable[[RequestT], Coroutine[Any, Any, ResultT]], request: RequestT) -> ResultT:
        thread = self._running()
        try:
            return thread.run(send(request))
        except concurrent.futures.CancelledError:  # another thread closed the transport
            raise TransportClosed from None

    def _running(self) -> LoopThread:
        """Return the thread. The first request in this process starts it, since a forked child has no other threads."""
        thread = self._thread
        if thread is None:
            with self._lock:
                if self._closed:
                    raise TransportClosed
                thread = self._thread
                if thread is None:
                    self._thread = thread = LoopThread()
                    # ends the thread without close(), when this object is deleted or the process ends; then other
                    # threads may still be in a call
                    weakref.finalize(self, thread.end, self._inner.close, only_if_idle=True)
        return thread

    def after_fork_in_child(self) -> object:
        """Forget the parent's thread; see `forks`."""
        left, self._thread = self._thread, None
        self._lock = threading.Lock()
        return left

    def close(self) -> None:
        """Close the connections, unless they belong to the application's client."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end(self._inner.close)
