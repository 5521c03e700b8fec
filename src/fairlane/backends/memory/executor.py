"""The executors of the in-memory backend. They perform requests on a `MemoryStore`, without waiting."""

from __future__ import annotations

from typing import Self

from fairlane.backends.memory.address import check_url
from fairlane.backends.memory.options import OPTIONS
from fairlane.backends.memory.store import MemoryStore
from fairlane.backends.shared.options import read_options
from fairlane.backends.stored import QUEUE_STATUS, Call, Rows
from fairlane.errors import ConfigurationError


class MemoryExecutor:
    """Performs requests on a store in this process."""

    def __init__(self, store: MemoryStore, queue: str) -> None:
        self._store = store
        self._queue = queue
        self.room = store.room

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the process's store of this queue; the URL is `memory://`."""
        check_url(url)
        read_options("memory", OPTIONS, url, options)
        return cls(MemoryStore.shared(queue), queue)

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the application's store or, for None, the process's store of this queue."""
        read_options("memory", OPTIONS, None, options)
        store = MemoryStore.shared(queue) if client is None else client
        if not isinstance(store, MemoryStore):
            raise ConfigurationError(f"memory needs a MemoryStore or None, not {type(client).__name__}")
        return cls(store, queue)

    def execute(self, request: Call) -> Rows:
        """Perform one operation."""
        if request.operation is QUEUE_STATUS:  # a store does not know its name
            return self._store.perform(QUEUE_STATUS, {"p_queue": self._queue})
        return self._store.perform(request.operation, request.arguments)

    def close(self) -> None:
        """Do nothing: the store belongs to the process."""


class AsyncMemoryExecutor:
    """The same for asyncio. No operation waits, so the methods await nothing."""

    def __init__(self, executor: MemoryExecutor) -> None:
        self._executor = executor
        self.room = executor.room

    @classmethod
    def from_url(cls, url: str, queue: str, **options: object) -> Self:
        """Use the process's store of this queue."""
        return cls(MemoryExecutor.from_url(url, queue, **options))

    @classmethod
    def from_client(cls, client: object, queue: str, **options: object) -> Self:
        """Use the application's store or, for None, the process's store of this queue."""
        return cls(MemoryExecutor.from_client(client, queue, **options))

    async def execute(self, request: Call) -> Rows:
        """Perform one operation."""
        return self._executor.execute(request)

    async def close(self) -> None:
        """Do nothing: the store belongs to the process."""
