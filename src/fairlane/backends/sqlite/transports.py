"""The transports of the sqlite backend."""

from __future__ import annotations

from fairlane.backends.sqlite import MANIFEST
from fairlane.model import T
from fairlane.transport import AsyncTransport, Transport


class SqliteTransport(Transport[T]):
    """Queue in an SQLite file, shared by the threads and processes of one machine."""

    manifest = MANIFEST


class AsyncSqliteTransport(AsyncTransport[T]):
    """Queue in an SQLite file for asyncio, through aiosqlite."""

    manifest = MANIFEST
