"""The transports of the rqlite backend."""

from __future__ import annotations

from fairlane.backends.rqlite import MANIFEST
from fairlane.model import T
from fairlane.transport import AsyncTransport, Transport


class RqliteTransport(Transport[T]):
    """Queue in an rqlite cluster, through requests: built on a URL, or on a `requests.Session` and `url=…`."""

    manifest = MANIFEST


class AsyncRqliteTransport(AsyncTransport[T]):
    """Queue in an rqlite cluster for asyncio, through httpx: built on a URL, or on an `AsyncClient` and `url=…`."""

    manifest = MANIFEST
