"""The two executors of the MongoDB backend. They use pymongo's blocking client and its asyncio client."""

from __future__ import annotations

import inspect
import time
from contextlib import AbstractContextManager, suppress
from typing import Self

import pymongo
from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.command_cursor import AsyncCommandCursor
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.command_cursor import CommandCursor
from pymongo.errors import AutoReconnect, DuplicateKeyError, PyMongoError
from pymongo.results import DeleteResult

from fairlane.backends.base import Limit
from fairlane.backends.mongo.address import AsyncClient, Client, database_of, hosts_of, make, shortest_timeout
from fairlane.backends.mongo.errors import translate
from fairlane.backends.mongo.options import OPTIONS
from fairlane.backends.mongo.wire import Answer, Document, Duplicate, Request
from fairlane.backends.shared import forks
from fairlane.backends.shared.loops import OwnerLoop, PerLoop
from fairlane.backends.shared.options import read_options
from fairlane.urls import host_of

SHORTEST = 0.001
"""Minimum seconds for a request, also after the deadline, since 0 would mean no limit."""

IDLE_SECONDS = 1.0
"""After this pause a connection is checked before it is used. pymongo's blocking client has the same value."""

CLOSING_SECONDS = 1.0
"""Maximum seconds for closing a client, which sends requests to the server."""


class _Executor(forks.ForkAware):
    """The common part of both executors."""

    def __init__(self, queue: str, host: str, timeout: float) -> None:
        self._queue = queue
        self._host = host
        self.limit = Limit(timeout)

    def _name(self, request: Request) -> str:
        return f"{self._queue}_{request.collection}"

    def _in_time(self, request: Request) -> AbstractContextManager[None]:
        """Limit a request to the time that is left of its call."""
        now = time.monotonic()
        if request.ends is None:
            request.ends = self.limit.deadline(now)
        return pymongo.timeout(max(SHORTEST, request.ends - now))

    def _refused(self, error: PyMongoError, request: Request) -> Duplicate:
        """Return the answer that an error amounts to, or raise what it means."""
        if isinstance(error, DuplicateKeyError):
            pattern: Document = (error.details or {}).get("keyPattern") or {"_id": 1}
            return Duplicate(next(iter(pattern)))
        known = translate(error, self._host, f"{type(request).__name__.lower()} in {self._name(request)}")
        if known is None:
            raise error
        raise known from error


def _answer(result: object) -> Answer:
    """Return the answer for the programs from a result of pymongo."""
    if isinstance(result, DeleteResult):
        return result.deleted_count
    return result if isinstance(result, dict | list) else None


class MongoExecutor(_Executor):
    """Sends requests with a `pymongo.MongoClient`, which many threads may use."""

    def __init__(
        self, queue: str, client: Client, host: str, url: str | None, database: str | None, timeout: float
    ) -> None:
        super().__init__(queue, host, shortest_timeout(client, timeout))
        self._url = url
        self._chosen = database
        self._client = client
        self._database = database_of(client, database)
        if url is not None:
            forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Make a client. It connects with the first request."""
        chosen = read_options("mongo", OPTIONS, url, options, others=True)
        return cls(queue, make(MongoClient[Document], url), host_of(url), url, **chosen)

    @classmethod
    def from_client(cls, client: Client, queue: str, **options: object) -> Self:
        """Use the application's client."""
        return cls(queue, client, hosts_of(client), None, **read_options("mongo", OPTIONS, None, options))

    def execute(self, request: Request) -> Answer:
        """Send one request and return its answer."""
        try:
            with self._in_time(request):
                result = request.send(self._database[self._name(request)])
                return _answer(result.to_list() if isinstance(result, CommandCursor) else result)
        except PyMongoError as error:
            return self._refused(error, request)

    def after_fork_in_child(self) -> object:
        """Make a client for the child, since locks of the parent's client may stay locked; see `forks`."""
        assert self._url is not None
        left, self._client = self._client, make(MongoClient[Document], self._url)
        self._database = database_of(self._client, self._chosen)
        return left

    def close(self) -> None:
        """Close the client, unless it belongs to the application."""
        if self._url is not None:
            with pymongo.timeout(CLOSING_SECONDS):
                self._client.close()


class AsyncMongoExecutor(_Executor):
    """Sends requests with `pymongo.AsyncMongoClient`, one for each event loop. Many tasks may use it."""

    def __init__(self, queue: str, host: str, timeout: float, database: AsyncDatabase[Document] | _Opening) -> None:
        super().__init__(queue, host, timeout)
        self._given: _Database | None = None
        self._own: PerLoop[_Database] | None = None
        self._owner = OwnerLoop("mongo", "an AsyncMongoClient")
        if isinstance(database, _Opening):
            self._own = PerLoop(database.opened, _closed)
            forks.register(self)
        else:
            self._given = _Database(database)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Make clients. Each connects with its first request."""
        chosen = read_options("mongo", OPTIONS, url, options, others=True)
        opening = _Opening(url, chosen["database"])
        timeout = shortest_timeout(opening.client(), chosen["timeout"])  # making a client also checks the URL
        return cls(queue, host_of(url), timeout, opening)

    @classmethod
    def from_client(cls, client: AsyncClient, queue: str, **options: object) -> Self:
        """Use the application's client."""
        chosen = read_options("mongo", OPTIONS, None, options)
        timeout = shortest_timeout(client, chosen["timeout"])
        return cls(queue, hosts_of(client), timeout, database_of(client, chosen["database"]))

    async def execute(self, request: Request) -> Answer:
        """Send one request and return its answer."""
        here = await self._here()
        try:
            with self._in_time(request):
                await here.wake()
                result = request.send(here.database[self._name(request)])
                if inspect.isawaitable(result):
                    result = await result
                return _answer(await result.to_list() if isinstance(result, AsyncCommandCursor) else result)
        except PyMongoError as error:
            return self._refused(error, request)
        except RuntimeError as error:
            if self._given is None:
                raise
            raise self._owner.refusal() from error  # pymongo raises it for a client that another loop has used

    async def _here(self) -> _Database:
        if self._own is not None:
            return await self._own.client()
        assert self._given is not None
        self._owner.check()
        return self._given

    def after_fork_in_child(self) -> object:
        """Forget the parent's clients; see `forks`."""
        return self._own and self._own.forget()

    async def close(self) -> None:
        """Close the clients that this executor made."""
        if self._own is not None:
            await self._own.close()


class _Database:
    """The database of a client that belongs to one event loop."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self.database = database
        self._used = time.monotonic()

    async def wake(self) -> None:
        """After a pause, check the connection with a ping, so that pymongo replaces it if the server has closed it.

        pymongo's blocking client checks an idle connection before it uses it. Its asyncio client does not. Without the
        ping the first request would fail, and it would be unknown whether it was carried out.
        """
        idle, self._used = time.monotonic() - self._used, time.monotonic()
        if idle > IDLE_SECONDS:
            with suppress(AutoReconnect):
                await self.database.command("ping")


class _Opening:
    """Makes clients from a URL."""

    def __init__(self, url: str, database: str | None) -> None:
        self._url = url
        self._database = database

    def client(self) -> AsyncClient:
        client = make(AsyncMongoClient[Document], self._url)
        database_of(client, self._database)
        return client

    async def opened(self) -> _Database:
        return _Database(database_of(self.client(), self._database))


async def _closed(here: _Database) -> None:
    with pymongo.timeout(CLOSING_SECONDS):
        await here.database.client.close()
