"""The application's own clients of libsql-client. They have no timeout, so it is added here."""

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

HOST = "the application's client"
"""The host for messages, since such a client does not show its address."""


class ClientSync(Protocol):
    """A `libsql_client.ClientSync`, for type checkers, since the package has no marker of its types."""

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
    """The application's `libsql_client.Client`."""

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
    """The application's `libsql_client.ClientSync`. It carries out one request at a time, in its own thread."""

    def __init__(self, client: Any) -> None:
        _check(client, getattr(client, "_client", client), libsql_client.ClientSync)
        self._client: libsql_client.ClientSync = client

    def run(self, parts: Sequence[Part], *, seconds: float) -> list[ResultSet]:
        """Carry out statements, several of them in one transaction, and return the result of each."""
        ends = time.monotonic() + seconds

        async def bounded() -> list[ResultSet]:
            # this may begin late, after the requests of other threads
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


def _check(client: Any, inner: Any, wanted: type) -> None:
    """Refuse an object of another class, and a client for a file."""
    if not isinstance(client, wanted):
        raise ConfigurationError(f"libsql needs a libsql_client.{wanted.__name__} here, not {type(client).__name__}")
    if isinstance(inner, Sqlite3Client):
        raise ConfigurationError("a client for a URL with file: is plain SQLite: use SqliteTransport")


def _refuse_closed(client: libsql_client.Client | libsql_client.ClientSync) -> None:
    if client.closed:
        raise ConfigurationError("the application's client is closed: make a transport with an open one")
