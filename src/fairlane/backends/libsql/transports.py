"""The transports of the libsql backend."""

from __future__ import annotations

from fairlane.backends.libsql import MANIFEST
from fairlane.model import T
from fairlane.transport import AsyncTransport, Transport


class LibsqlTransport(Transport[T]):
    """Queue in libSQL (sqld, Turso), through libsql-client: built on a URL or a `ClientSync`.

    A `ClientSync` carries out one request at a time; on a URL, threads do not wait for each other.
    """

    manifest = MANIFEST


class AsyncLibsqlTransport(AsyncTransport[T]):
    """Queue in libSQL (sqld, Turso) for asyncio: built on a URL or a `libsql_client.Client`."""

    manifest = MANIFEST
