"""The two executors of the Postgres backend. They use their own connections or those of the application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import psycopg
import psycopg_pool

from fairlane.backends.base import LeaseGone
from fairlane.backends.postgres.address import AnyConnection, host_in, separated
from fairlane.backends.postgres.connections import AsyncOwnPool, AsyncSource, OwnPool, Source
from fairlane.backends.postgres.core import statements
from fairlane.backends.postgres.errors import (
    IDLE_FOR_TOO_LONG,
    NO_TABLE,
    NOT_THERE,
    SEQUENCE_BEHIND,
    TORN,
    UNDONE,
    NotSent,
    for_operation,
    lost_lease,
    sequence_behind,
    translate,
    undone,
)
from fairlane.backends.postgres.given import (
    AsyncGivenConnection,
    AsyncGivenPool,
    AsyncPool,
    GivenConnection,
    GivenPool,
    Pool,
)
from fairlane.backends.postgres.listener import Listener
from fairlane.backends.postgres.options import OPTIONS
from fairlane.backends.postgres.sessions import Opening
from fairlane.backends.shared.listening import ListeningRoom
from fairlane.backends.shared.options import read_options
from fairlane.backends.shared.waiting import Room
from fairlane.backends.stored import BATCHES, CLAIM, REVISION, Call, Rows
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import ConfigurationError, QueueDamaged, SchemaNotReady
from fairlane.urls import host_of

_UNDONE = frozenset({CLAIM, *BATCHES})
"""Operations that are repeated after the server has rolled them back because of other transactions."""

TRIES = 5
"""The number of tries for a claim that the server rolls back because of other transactions."""


class _Requests:
    """The statements of requests, and the meaning of errors. Both executors use it."""

    def __init__(self, queue: str, host: str, joins: bool) -> None:
        self._queue = queue
        self._host = host
        self._joins = joins  # calls are part of the application's transactions, which only the application can repeat
        self.texts = statements(queue)

    def repeats(self, error: psycopg.Error, request: Call, tries: int) -> bool:
        """Return whether to send a request again without raising the error.

        Two claims may wait for each other although they use `skip locked`, since PostgreSQL waits for the lock of a row
        that was just updated. Then the server rolls back one of them, which has changed nothing.
        """
        if error.sqlstate == IDLE_FOR_TOO_LONG:  # the session ended before the request, so nothing was carried out
            return tries < TRIES and not self._joins
        if request.operation is REVISION:  # a queue that is just being removed looks like a damaged one
            return tries == 1 and not self._joins and error.sqlstate == NO_TABLE
        return request.operation in _UNDONE and tries < TRIES and not self._joins and error.sqlstate in UNDONE

    def answer(self, error: psycopg.Error, request: Call, *, sent: bool = True) -> Rows:
        """Return the rows that an error means, or raise another error for it."""
        if lost_lease(error, request.operation):
            raise LeaseGone() from error
        if error.sqlstate == NO_TABLE and request.operation is REVISION:
            raise QueueDamaged(self._queue, TORN) from error
        if error.sqlstate in NOT_THERE:
            if request.operation is REVISION:
                return ()
            raise SchemaNotReady(self._queue, None, CLIENT_REVISION) from error
        if error.sqlstate == SEQUENCE_BEHIND:
            raise QueueDamaged(self._queue, sequence_behind(self._queue)) from error
        known = for_operation(error, request.operation, self._queue, self._host) or translate(
            error, self._host, sent=sent
        )
        if known is None and not self._joins:
            known = undone(error, self._host)
        if known is None:
            raise error
        raise known from error


def _own(url: str, keywords: Mapping[str, object]) -> tuple[Opening, int, float]:
    """Return how to open connections, their maximum number, and the seconds that a call may take."""
    rest, options = separated(url, keywords)
    return Opening.at(rest, options), options["max_connections"], options["timeout"]


def _room(opening: Opening, queue: str, host: str) -> ListeningRoom:
    """Return the room of a transport with connections of its own."""
    where = f"queue {queue} on postgres at {host}"
    return ListeningRoom(lambda: Listener.opened(opening, queue, host), where)


def _timeout(keywords: Mapping[str, object]) -> float:
    """Return the seconds that a call on the application's pool or connection may take."""
    timeout: float = read_options("postgres", OPTIONS, None, keywords)["timeout"]
    return timeout


class PostgresExecutor:
    """Sends requests to Postgres with blocking calls."""

    def __init__(self, source: Source, queue: str, host: str, *, joins: bool = False, room: Room | None = None) -> None:
        self.limit = source.limit
        self.room = Room() if room is None else room
        self._source = source
        self._requests = _Requests(queue, host, joins)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Connect to the database at a URL; `options.OPTIONS` documents the options."""
        own, host = _own(url, options), host_of(url)
        return cls(OwnPool(*own), queue, host, room=_room(own[0], queue, host))

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the application's `psycopg_pool.ConnectionPool`, or its connection with its transactions."""
        timeout = _timeout(options)
        if isinstance(client, psycopg_pool.ConnectionPool):
            return cls(GivenPool(client, timeout), queue, _pool_host(client))
        if isinstance(client, psycopg.Connection):
            return cls(GivenConnection(client, timeout), queue, _host(client), joins=True)
        raise _unfit(client, "a psycopg_pool.ConnectionPool or a psycopg.Connection")

    def execute(self, request: Call) -> Rows:
        """Run one statement and return its rows."""
        tries = 0
        while True:
            try:
                return self._source.run(self._requests.texts[request.operation], request.arguments)
            except NotSent as failure:
                return self._requests.answer(failure.reason, request, sent=False)
            except psycopg.Error as error:
                tries += 1
                if not self._requests.repeats(error, request, tries):
                    return self._requests.answer(error, request)

    def close(self) -> None:
        """Close the connections that this executor opened."""
        self.room.close()
        self._source.close()


class AsyncPostgresExecutor:
    """Sends requests to Postgres with awaited calls."""

    def __init__(
        self, source: AsyncSource, queue: str, host: str, *, joins: bool = False, room: Room | None = None
    ) -> None:
        self.limit = source.limit
        self.room = Room() if room is None else room
        self._source = source
        self._requests = _Requests(queue, host, joins)

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Connect to the database at a URL; `options.OPTIONS` documents the options."""
        own, host = _own(url, options), host_of(url)
        return cls(AsyncOwnPool(*own), queue, host, room=_room(own[0], queue, host))

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the application's `psycopg_pool.AsyncConnectionPool`, or its connection with its transactions."""
        timeout = _timeout(options)
        if isinstance(client, psycopg_pool.AsyncConnectionPool):
            return cls(AsyncGivenPool(client, timeout), queue, _pool_host(client))
        if isinstance(client, psycopg.AsyncConnection):
            return cls(AsyncGivenConnection(client, timeout), queue, _host(client), joins=True)
        raise _unfit(client, "a psycopg_pool.AsyncConnectionPool or a psycopg.AsyncConnection")

    async def execute(self, request: Call) -> Rows:
        """Run one statement and return its rows."""
        tries = 0
        while True:
            try:
                return await self._source.run(self._requests.texts[request.operation], request.arguments)
            except NotSent as failure:
                return self._requests.answer(failure.reason, request, sent=False)
            except psycopg.Error as error:
                tries += 1
                if not self._requests.repeats(error, request, tries):
                    return self._requests.answer(error, request)

    async def close(self) -> None:
        """Close the connections that this executor opened."""
        self.room.close()
        await self._source.close()


def _pool_host(pool: Pool | AsyncPool) -> str:
    return host_in(pool.conninfo) if isinstance(pool.conninfo, str) else "the application's pool"


def _host(connection: AnyConnection) -> str:
    return f"{connection.info.host}:{connection.info.port}" if not connection.closed else "the application's connection"


def _unfit(client: object, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"postgres needs {wanted} here, not {type(client).__name__}")
