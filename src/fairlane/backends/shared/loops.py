"""Clients and event loops: an asyncio client works only in the loop that opened it, so each loop gets its own client.

When `asyncio.run` ends a loop, it finishes all asynchronous generators of this loop. Each client is opened and closed
by such a generator, so it is closed with its loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from fairlane.errors import ConfigurationError

ClientT = TypeVar("ClientT")


class _Slot(Generic[ClientT]):
    """The client of one loop."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.client: ClientT | None = None
        self.holder: AsyncGenerator[ClientT, None] | None = None

    async def close(self) -> None:
        self.client = None
        if self.holder is not None:
            await self.holder.aclose()


class PerLoop(Generic[ClientT]):
    """One client for each event loop that asks for one. Many tasks and threads may ask at once.

    Args:
        opening: opens a client.
        closing: closes a client.
    """

    def __init__(
        self, opening: Callable[[], Awaitable[ClientT]], closing: Callable[[ClientT], Awaitable[None]]
    ) -> None:
        self._opening = opening
        self._closing = closing
        self._slots: dict[asyncio.AbstractEventLoop, _Slot[ClientT]] = {}

    async def client(self) -> ClientT:
        """Return the client of the running loop; open it at the first call."""
        loop = asyncio.get_running_loop()
        slot = self._slots.get(loop)
        if slot is None:
            for ended in [each for each in list(self._slots) if each.is_closed()]:
                self._slots.pop(ended, None)
            slot = self._slots.setdefault(loop, _Slot())
        if slot.client is not None:
            return slot.client
        async with slot.lock:
            if slot.client is None:
                slot.holder = self._held()
                slot.client = await anext(slot.holder)
            return slot.client

    def forget(self) -> object:
        """Forget all clients in a forked child, and return them: they belong to the parent."""
        left, self._slots = self._slots, {}
        return left

    async def close(self) -> None:
        """Close the client of the running loop, and ask the other running loops to close theirs."""
        running = asyncio.get_running_loop()
        while self._slots:
            loop, slot = self._slots.popitem()
            if loop is running:
                await slot.close()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(slot.close(), loop)

    async def _held(self) -> AsyncGenerator[ClientT, None]:
        client = await self._opening()
        try:
            yield client
        finally:
            await self._closing(client)


class OwnerLoop:
    """The only event loop that may use a client of the application.

    Args:
        backend: name of the backend, for the message.
        resource: what each loop should open instead, for the message.
    """

    def __init__(self, backend: str, resource: str) -> None:
        self._backend = backend
        self._resource = resource
        self._owner: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Check that the running loop may use the client, before anything is sent. The first loop becomes its owner.

        Raises:
            ConfigurationError: the client belongs to another loop.
        """
        running = asyncio.get_running_loop()
        if self._owner is None:
            self._owner = running
        if self._owner is not running:
            raise self.refusal()

    def refusal(self) -> ConfigurationError:
        """Return the error for another loop."""
        return ConfigurationError(
            f"a client of {self._backend} works in one event loop only: let each loop open {self._resource} and make a "
            "transport from it, or make the transport from a URL"
        )
