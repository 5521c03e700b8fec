"""The transports of the SQLite backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import Unpack

from fairlane.async_transport import AsyncTransport
from fairlane.backends.sqlite import MANIFEST
from fairlane.backends.sqlite.options import SqliteOptions
from fairlane.codec import Codec, EventT
from fairlane.contract import DEFAULT_QUEUE
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, Transport

if TYPE_CHECKING:
    import sqlite3

    import aiosqlite


class SqliteTransport(Transport[T]):
    """A queue in an SQLite file, for the threads and processes of one machine. It is made from a URL or a connection.

    With the application's connection, operations are part of its open transaction.
    """

    manifest = MANIFEST

    def __init__(
        self, connection: sqlite3.Connection, *, queue: str = DEFAULT_QUEUE, codec: Codec[T] | None = None
    ) -> None:
        super().__init__(connection, queue=queue, codec=codec)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[SqliteOptions],
    ) -> SqliteTransport[EventT]:
        """Use the file at a URL: `sqlite:///relative.db`, `sqlite:////absolute.db`; see `Transport.from_url`.

        Args:
            options: see `SqliteOptions` and `OPTIONS` in `fairlane.backends.sqlite.options`.
        """
        made: SqliteTransport[EventT] = super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made


class AsyncSqliteTransport(AsyncTransport[T]):
    """A queue in an SQLite file for asyncio, with aiosqlite; see `SqliteTransport`."""

    manifest = MANIFEST

    def __init__(
        self, connection: aiosqlite.Connection, *, queue: str = DEFAULT_QUEUE, codec: Codec[T] | None = None
    ) -> None:
        super().__init__(connection, queue=queue, codec=codec)

    @classmethod
    async def from_url(
        cls,
        url: str,
        *,
        queue: str = DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[SqliteOptions],
    ) -> AsyncSqliteTransport[EventT]:
        """Use the file at a URL; see `SqliteTransport.from_url`."""
        made: AsyncSqliteTransport[EventT] = await super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made
