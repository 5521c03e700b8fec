"""The two executors of the MongoDB backend: pymongo's blocking client, and its asyncio one."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Generic, Self

from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.command_cursor import AsyncCommandCursor
from pymongo.command_cursor import CommandCursor
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.results import DeleteResult

from fairlane.backends.mongo.address import AnyDatabase, AsyncClient, Client, ClientT, database_of, hosts_of, make
from fairlane.backends.mongo.errors import translate
from fairlane.backends.mongo.options import OPTIONS
from fairlane.backends.mongo.wire import Answer, AnyCollection, Duplicate, Request
from fairlane.backends.shared import forks
from fairlane.backends.shared.options import read_options
from fairlane.urls import host_of


class _Executor(forks.ForkAware, Generic[ClientT]):
    """What both executors share: one client, ours or the application's, and the queue's collections in it."""

    kind: ClassVar[type[Any]]
    """pymongo's class of clients."""

    def __init__(self, url: str | None, client: ClientT, host: str, queue: str, *, database: str | None) -> None:
        self._url = url
        self._host = host
        self._queue = queue
        self._name = database
        self._use(client)
        if url is not None:
            forks.register(self)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: Any) -> Self:
        """Make a client of our own; it connects with the first request."""
        chosen = read_options("mongo", OPTIONS, url, options, others=True)
        return cls(url, make(cls.kind, url), host_of(url), queue, **chosen)

    @classmethod
    def from_client(cls, client: ClientT, queue: str, **options: Any) -> Self:
        """Use the application's client."""
        return cls(None, client, hosts_of(client), queue, **read_options("mongo", OPTIONS, None, options))

    def _use(self, client: ClientT) -> None:
        self._client = client
        self._database: AnyDatabase = database_of(client, self._name)

    def after_fork_in_child(self) -> object:
        """Begin anew, in a forked child.

        pymongo itself would go on with the parent's client, whose locks may be held for ever.
        """
        assert self._url is not None
        left = self._client
        self._use(make(self.kind, self._url))
        return left

    def _collection(self, request: Request) -> AnyCollection:
        return self._database[f"{self._queue}_{request.collection}"]


def _answer(result: object) -> Answer:
    """Return what the programs are told of pymongo's result."""
    if isinstance(result, DeleteResult):
        return result.deleted_count > 0
    return result if isinstance(result, dict | list) else None


def _duplicate(error: DuplicateKeyError) -> Duplicate:
    pattern: dict[str, Any] = (error.details or {}).get("keyPattern") or {"_id": 1}
    return Duplicate(next(iter(pattern)))


class MongoExecutor(_Executor[Client]):
    """Carries requests with a `pymongo.MongoClient`, which many threads may use."""

    kind = MongoClient

    def execute(self, request: Request) -> Answer:
        """Carry out one request."""
        try:
            result = request.send(self._collection(request))
            return _answer(result.to_list() if isinstance(result, CommandCursor) else result)
        except DuplicateKeyError as error:
            return _duplicate(error)
        except PyMongoError as error:
            known = translate(error, self._host)
            if known is None:
                raise
            raise known from error

    def close(self) -> None:
        """Close the client if it is ours."""
        if self._url is not None:
            self._client.close()


class AsyncMongoExecutor(_Executor[AsyncClient]):
    """Carries requests with a `pymongo.AsyncMongoClient`, which many tasks of one event loop may use."""

    kind = AsyncMongoClient

    async def execute(self, request: Request) -> Answer:
        """Carry out one request."""
        try:
            result = request.send(self._collection(request))
            if inspect.isawaitable(result):
                result = await result
            return _answer(await result.to_list() if isinstance(result, AsyncCommandCursor) else result)
        except DuplicateKeyError as error:
            return _duplicate(error)
        except PyMongoError as error:
            known = translate(error, self._host)
            if known is None:
                raise
            raise known from error

    async def close(self) -> None:
        """Close the client if it is ours."""
        if self._url is not None:
            await self._client.close()
