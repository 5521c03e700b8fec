"""The transports of the mongo backend."""

from __future__ import annotations

from fairlane.backends.mongo import MANIFEST
from fairlane.model import T
from fairlane.transport import AsyncTransport, Transport


class MongoTransport(Transport[T]):
    """Queue in MongoDB, through pymongo: built on a URL or a `MongoClient`."""

    manifest = MANIFEST


class AsyncMongoTransport(AsyncTransport[T]):
    """Queue in MongoDB for asyncio: built on a URL or an `AsyncMongoClient`."""

    manifest = MANIFEST
