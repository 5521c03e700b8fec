"""The transports of the in-memory backend."""

from __future__ import annotations

from typing_extensions import Unpack

from fairlane import contract
from fairlane.async_transport import AsyncTransport
from fairlane.backends.memory import MANIFEST
from fairlane.backends.memory.options import MemoryOptions
from fairlane.backends.memory.store import MemoryStore
from fairlane.codec import Codec, EventT
from fairlane.model import T
from fairlane.transport import STARTUP_TIMEOUT, Transport


class InMemoryTransport(Transport[T]):
    """A queue in the memory of this process, for tests and single-process programs. It ends with the process.

    Transports with the same name of the queue share their messages, unless they are made with their own `MemoryStore`.
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

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        queue: str = contract.DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[MemoryOptions],
    ) -> InMemoryTransport[EventT]:
        """Use the process's store of this queue; the URL is `memory://`, and there are no options."""
        made: InMemoryTransport[EventT] = super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made


class AsyncInMemoryTransport(AsyncTransport[T]):
    """A queue in the memory of this process, for asyncio. It shares its messages with `InMemoryTransport`."""

    manifest = MANIFEST

    def __init__(
        self,
        store: MemoryStore | None = None,
        *,
        queue: str = contract.DEFAULT_QUEUE,
        codec: Codec[T] | None = None,
    ) -> None:
        super().__init__(store, queue=queue, codec=codec)

    @classmethod
    async def from_url(
        cls,
        url: str,
        *,
        queue: str = contract.DEFAULT_QUEUE,
        codec: Codec[EventT] | None = None,
        startup_timeout: float = STARTUP_TIMEOUT,
        **options: Unpack[MemoryOptions],
    ) -> AsyncInMemoryTransport[EventT]:
        """Use the process's store of this queue; the URL is `memory://`, and there are no options."""
        made: AsyncInMemoryTransport[EventT] = await super()._from_url(
            url, queue=queue, codec=codec, startup_timeout=startup_timeout, **options
        )
        return made
