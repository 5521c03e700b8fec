"""The transports of the memory backend."""

from __future__ import annotations

from fairlane import contract
from fairlane.backends.memory import MANIFEST
from fairlane.backends.memory.executor import MemoryStore
from fairlane.codec import Codec
from fairlane.model import T
from fairlane.transport import AsyncTransport, Transport


class InMemoryTransport(Transport[T]):
    """Queue in this process's memory, for tests and single-process programs; gone when the process ends.

    Transports of one queue name share their messages unless they are given a `MemoryStore` of their own.
    """

    manifest = MANIFEST

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        queue: str = contract.DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
    ) -> None:
        super().__init__(store, queue=queue, codec=codec)


class AsyncInMemoryTransport(AsyncTransport[T]):
    """Queue in this process's memory for asyncio; shares its messages with `InMemoryTransport` of the same queue."""

    manifest = MANIFEST

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        queue: str = contract.DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
    ) -> None:
        super().__init__(store, queue=queue, codec=codec)
