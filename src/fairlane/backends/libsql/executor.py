"""The libSQL backend: an SQLite database behind HTTP, every operation one request.

Both executors send requests from an event loop; the blocking one has one in a thread of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Self

import libsql_client
from libsql_client.sqlite3_utils import Sqlite3Client

from fairlane.backends.libsql.address import Address, locate
from fairlane.backends.libsql.connections import Client, LoopThread
from fairlane.backends.libsql.wire import Refused, Script, Wire, delivered, is_write
from fairlane.backends.shared.http import RETRY_SECONDS
from fairlane.backends.shared.options import check_options
from fairlane.backends.shared.sqlite_statements import EXISTS, SentTwiceCore
from fairlane.backends.stored import EXTEND, REVISION, Call, Operation, Rows
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import ConfigurationError, SchemaNotReady, TransportClosed
from fairlane.model import Revision
from fairlane.program import Program


class LibsqlCore(SentTwiceCore):
    """The stored operations of a queue in libSQL.

    A claim sent twice finds the lease that it has made, by its token. A publish finds its message by its dedup id, or
    by the id of the call when the message is finished already: the queue remembers the last 10,000. An ack or a nack
    that may have been applied is not sent again: its answer would be LeaseLost, and would look like somebody else's
    doing. Nor is an extend, whose caller counts from the moment of the call.
    """

    def call(self, operation: Operation, arguments: Mapping[str, Any] | None = None) -> Program[Call, Rows, Rows]:
        request = Call(operation, arguments or {})
        for _ in range(2):
            try:
                rows: Rows = yield from delivered(request, repeatable=operation.repeatable and operation is not EXTEND)
                return rows
            except Refused as refused:
                error = refused.error
            if not (yield from self._is_there()):
                raise SchemaNotReady(self.queue, None, CLIENT_REVISION) from error
            # perhaps it was made just now: what was refused has changed nothing, and may be asked once more
        raise error

    def _is_there(self) -> Program[Call, Rows, bool]:
        """Ask whether the queue exists: of a missing table, and of much else, libSQL says "unknown error"."""
        rows: Rows = yield from delivered(Call(EXISTS, {}), repeatable=True)
        return bool(rows[0]["found"])

    def revision(self) -> Program[Call, Rows, Revision | None]:
        for _ in range(2):
            try:
                # asked once at start-up, where operations.start does the waiting; else with the first operation
                rows: Rows = yield from delivered(Call(REVISION, {}), repeatable=True, patience=0.0)
            except Refused as refused:
                error = refused.error
            else:
                return Revision(rows[0]["revision"], rows[0]["serves"]) if rows and rows[0]["revision"] else None
            if not (yield from self._is_there()):
                return None
        raise error


class AsyncLibsqlExecutor:
    """Sends requests with a client made by the first of them, in the event loop that it runs in."""

    def __init__(self, wire: Wire, address: Address | None, client: libsql_client.Client | None = None) -> None:
        self._wire = wire
        self._address = address
        self._given = client
        self._own: Client | None = None
        self._maker: tuple[asyncio.AbstractEventLoop, int] | None = None
        self._closed = False

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Talk to the server at a URL; `libsql_address.locate` says how URLs look and which options there are."""
        address = locate(url, options)
        return cls(Wire(queue, address.host, address.retry_seconds), address)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use a `libsql_client.Client` of the application; it has no timeout, and does not tell why it is refused."""
        check_options("libsql", options)
        return cls(_wire_for(client, libsql_client.Client, queue), None, client)

    def _client(self) -> Client:
        """Return the client for the running loop. One whose loop has ended goes with that loop's connections."""
        if self._closed:
            raise TransportClosed  # this is a second try
        maker = (asyncio.get_running_loop(), os.getpid())
        if self._own is None or self._maker != maker or self._own.closed:
            if self._maker and self._maker[1] != maker[1]:
                _INHERITED.append(self._own)
            assert self._address is not None
            self._own, self._maker = Client(self._address), maker
        return self._own

    async def execute(self, request: Call | Script) -> Any:
        """Send one request."""
        parts = self._wire.parts(request)
        try:
            if self._given is None:
                results = await self._client().run(parts, writes=is_write(request))
            else:
                results = [await self._given.execute(*parts[0])] if len(parts) == 1 else await self._given.batch(parts)
            return self._wire.answer(request, results)
        except Exception as error:
            _refuse_closed(self._given)
            failure = self._wire.failure(request, error)
            if failure is None:
                raise
        raise failure  # not in the handler: an error that holds the token must not become its context

    async def close(self) -> None:
        """Close the connections, unless they are the application's."""
        self._closed = True
        if self._own is not None and self._maker == (asyncio.get_running_loop(), os.getpid()):
            await self._own.close()
        self._own = None


class LibsqlExecutor:
    """Sends requests from any number of threads, through an event loop in a thread of its own."""

    def __init__(self, wire: Wire, address: Address | None, client: libsql_client.ClientSync | None = None) -> None:
        self._wire = wire
        self._given = client
        self._inner = AsyncLibsqlExecutor(wire, address)
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._closed = False

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Talk to the server at a URL; `libsql_address.locate` says how URLs look and which options there are."""
        address = locate(url, options)
        return cls(Wire(queue, address.host, address.retry_seconds), address)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use a `libsql_client.ClientSync` of the application.

        It has no timeout, does not tell why it is refused, and carries out one request at a time.
        """
        check_options("libsql", options)
        return cls(_wire_for(client, libsql_client.ClientSync, queue), None, client)

    def execute(self, request: Call | Script) -> Any:
        """Send one request."""
        if self._given is not None:
            return self._through(self._given, request)
        try:
            return self._running().run(self._inner.execute(request))
        except concurrent.futures.CancelledError:  # another thread closed the transport
            raise TransportClosed from None

    def _through(self, client: libsql_client.ClientSync, request: Call | Script) -> Any:
        parts = self._wire.parts(request)
        try:
            results = [client.execute(*parts[0])] if len(parts) == 1 else client.batch(parts)
            return self._wire.answer(request, results)
        except Exception as error:
            _refuse_closed(client)
            failure = self._wire.failure(request, error)
            if failure is None:
                raise
        raise failure

    def _running(self) -> LoopThread:
        """Return the thread, started by the first request of this process: threads do not survive a fork."""
        thread = self._thread
        if thread is None or thread.pid != os.getpid():
            with self._lock:
                if self._closed:
                    raise TransportClosed
                thread = self._thread
                if thread is None or thread.pid != os.getpid():
                    self._thread = thread = LoopThread()
                    # when close() is forgotten: with this object, or with the process
                    weakref.finalize(self, thread.end, self._inner.close)
        return thread

    def close(self) -> None:
        """Close the connections, unless they are the application's."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end(self._inner.close)


def _wire_for(client: Any, kind: type, queue: str) -> Wire:
    """Check a client of the application."""
    if not isinstance(client, kind):
        raise ConfigurationError(f"libsql takes a libsql_client.{kind.__name__} here, not {type(client).__name__}")
    if isinstance(getattr(client, "_client", client), Sqlite3Client):
        raise ConfigurationError("a client of a file: URL is plain SQLite: use SqliteTransport")
    return Wire(queue, "the given client", RETRY_SECONDS)


def _refuse_closed(client: Any) -> None:
    if client is not None and client.closed:
        raise ConfigurationError("the client that was given is closed: make a transport with an open one")


_INHERITED: list[Any] = []
"""Clients of a parent process. Were they freed after a fork, they would take the parent's connections along."""
