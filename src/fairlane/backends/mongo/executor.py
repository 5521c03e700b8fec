"""The MongoDB backend: the same programs, carried out by pymongo's blocking client or by its asyncio one.

Options: `database` (a name), instead of the URL's path or the client's default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import pymongo
from pymongo.asynchronous.command_cursor import AsyncCommandCursor
from pymongo.errors import DuplicateKeyError

from fairlane.backends.base import translated
from fairlane.backends.mongo import address as clients
from fairlane.backends.mongo.wire import Duplicate, Request
from fairlane.backends.shared import forks
from fairlane.backends.shared.options import check_options
from fairlane.errors import FairlaneError
from fairlane.urls import host_of


class _Executor(forks.ForkAware):
    """What both executors share: one client, one database, a prefix."""

    def __init__(
        self, client: Any, host: str, queue: str, options: dict[str, Any], make: Callable[[], Any] | None = None
    ) -> None:
        check_options("mongo", options, ("database",))
        self._host = host
        self._queue = queue
        self._name = options.get("database")
        self._make = make
        self._use(client)
        if make is not None:
            forks.register(self)

    @property
    def _owned(self) -> bool:
        return self._make is not None

    def _use(self, client: Any) -> None:
        self._client = client
        self._database = clients.database_of(client, self._name)

    def after_fork_in_child(self) -> object:
        """Begin anew; see `forks`. pymongo would go on with the parent's client, whose locks may be held for ever."""
        assert self._make is not None
        left = self._client
        self._use(self._make())
        return left

    def _collection(self, request: Request) -> Any:
        return self._database[f"{self._queue}_{request.collection}"]

    def _translate(self, error: Exception) -> FairlaneError | None:
        return clients.translate(error, self._host)


def _duplicate(error: DuplicateKeyError) -> Duplicate:
    pattern: Any = (error.details or {}).get("keyPattern") or {"_id": 1}
    return Duplicate(next(iter(pattern)))


class MongoExecutor(_Executor):
    """Carries requests with a `pymongo.MongoClient`, which many threads may use."""

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Make a client of our own; it connects with the first request."""
        make = partial(clients.make, pymongo.MongoClient, url)
        return cls(make(), host_of(url), queue, options, make)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the application's client."""
        return cls(client, clients.hosts_of(client), queue, options)

    def execute(self, request: Request) -> Any:
        """Carry out one request."""
        with translated(self._translate):
            try:
                return request.answer(request.send(self._collection(request)))
            except DuplicateKeyError as error:
                return _duplicate(error)

    def close(self) -> None:
        """Close the client if it is ours."""
        if self._owned:
            self._client.close()


class AsyncMongoExecutor(_Executor):
    """Carries requests with a `pymongo.AsyncMongoClient`, which many tasks of one event loop may use."""

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Make a client of our own; it connects with the first request."""
        make = partial(clients.make, pymongo.AsyncMongoClient, url)
        return cls(make(), host_of(url), queue, options, make)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the application's client."""
        return cls(client, clients.hosts_of(client), queue, options)

    async def execute(self, request: Request) -> Any:
        """Carry out one request."""
        with translated(self._translate):
            try:
                raw = request.send(self._collection(request))
                if inspect.isawaitable(raw):
                    raw = await raw
                if isinstance(raw, AsyncCommandCursor):  # an aggregation
                    raw = await raw.to_list()
                return request.answer(raw)
            except DuplicateKeyError as error:
                return _duplicate(error)

    async def close(self) -> None:
        """Close the client if it is ours."""
        if self._owned:
            await self._client.close()
