"""Clients of libsql-client that the application has opened and keeps. They have no timeout of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

import libsql_client
from libsql_client import ResultSet
from libsql_client.sqlite3_utils import Sqlite3Client

from fairlane.backends.libsql.wire import Part
from fairlane.backends.shared.loops import OwnerLoop
from fairlane.errors import ConfigurationError

HOST = "the given client"
"""For messages: such a client does not tell where its server is."""


class ClientSync(Protocol):
    """A `libsql_client.ClientSync`, for type checkers: the package does not tell them that it is typed."""

    @property
    def closed(self) -> bool: ...
    def batch(self, stmts: Any, /) -> Any: ...
    def close(self) -> None: ...


class Client(Protocol):
    """A `libsql_client.Client`, for type checkers."""

    @property
    def closed(self) -> bool: ...
    def batch(self, stmts: Any, /) -> Awaitable[Any]: ...
    def close(self) -> Awaitable[None]: ...


class GivenClient:
    """A `libsql_client.Client`."""

    def __init__(self, client: Any) -> None:
        _check(client, client, libsql_client.Client)
        self._client: libsql_client.Client = client
        self._loop = OwnerLoop("libsql", "a client")

    async def run(self, parts: Sequence[Part], *, writes: bool, seconds: float) -> list[ResultSet]:
        """Carry out statements, several of them in one transaction, and return the result of each."""
        self._loop.check()
        try:
            async with asyncio.timeout(seconds):
                return await _sent(self._client, parts)
        except Exception:
            _refuse_closed(self._client)
            raise


class GivenClientSync:
    """A `libsql_client.ClientSync`. It carries out one request at a time, in a thread of its own."""

    def __init__(self, client: Any) -> None:
        _check(client, getattr(client, "_client", client), libsql_client.ClientSync)
        self._client: libsql_client.ClientSync = client

    def run(self, parts: Sequence[Part], *, seconds: float) -> list[ResultSet]:
        """Carry out statements, several of them in one transaction, and return the result of each."""
        ends = time.monotonic() + seconds

        async def bounded() -> list[ResultSet]:
            # it may begin late, after the requests of other threads
            async with asyncio.timeout(max(0.0, ends - time.monotonic())):
                return await _sent(self._client._client, parts)

        try:
            results: list[ResultSet] = self._client._executor.submit_coro(bounded())
            return results
        except Exception:
            _refuse_closed(self._client)
            raise


async def _sent(client: libsql_client.Client, parts: Sequence[Part]) -> list[ResultSet]:
    return [await client.execute(*parts[0])] if len(parts) == 1 else await client.batch([*parts])


def _check(client: Any, inner: Any, kind: type) -> None:
    """Refuse a client of another kind, and one of a file."""
    if not isinstance(client, kind):
        raise ConfigurationError(f"libsql takes a libsql_client.{kind.__name__} here, not {type(client).__name__}")
    if isinstance(inner, Sqlite3Client):
        raise ConfigurationError("a client of a file: URL is plain SQLite: use SqliteTransport")


def _refuse_closed(client: libsql_client.Client | libsql_client.ClientSync) -> None:
    if client.closed:
        raise ConfigurationError("the client that was given is closed: make a transport with an open one")
