"""The MongoDB backend: the same programs, carried out by pymongo's blocking client or by its asyncio one.

Options: `database` (a name), instead of the URL's path or the client's default.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

import pymongo
from pymongo.asynchronous.command_cursor import AsyncCommandCursor
from pymongo.errors import DuplicateKeyError

from fairlane.backends import mongo_client as clients
from fairlane.backends.base import Backend, check_options, translated
from fairlane.backends.mongo_programs import MongoCore
from fairlane.backends.mongo_requests import Duplicate, Request
from fairlane.errors import FairlaneError
from fairlane.urls import host_of


class _Executor:
    """What both executors share: one client, one database, a prefix."""

    def __init__(self, client: Any, host: str, queue: str, options: dict[str, Any], *, owned: bool) -> None:
        check_options("mongo", options, ("database",))
        self._client = client
        self._host = host
        self._queue = queue
        self._owned = owned
        self._database = clients.database_of(client, options.get("database"))

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
        return cls(clients.make(pymongo.MongoClient, url), host_of(url), queue, options, owned=True)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the application's client."""
        return cls(client, clients.hosts_of(client), queue, options, owned=False)

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
        return cls(clients.make(pymongo.AsyncMongoClient, url), host_of(url), queue, options, owned=True)

    @classmethod
    def from_client(cls, client: Any, queue: str, **options: Any) -> Self:
        """Use the application's client."""
        return cls(client, clients.hosts_of(client), queue, options, owned=False)

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


BACKEND = Backend("mongo", MongoCore, MongoExecutor, AsyncMongoExecutor)
