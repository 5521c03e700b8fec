"""Clients and event loops: a client of asyncio belongs to the loop in which it was opened, so each loop gets its own.

A loop that ends as `asyncio.run` ends it closes what was opened in it: it finishes all asynchronous generators that
were begun in it, and each client here is held by one.
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
    """One client for each event loop in which it is asked for. Many tasks and threads may ask at once.

    Args:
        opening: opens a client.
        closing: closes it.
    """

    def __init__(
        self, opening: Callable[[], Awaitable[ClientT]], closing: Callable[[ClientT], Awaitable[None]]
    ) -> None:
        self._opening = opening
        self._closing = closing
        self._slots: dict[asyncio.AbstractEventLoop, _Slot[ClientT]] = {}

    async def client(self) -> ClientT:
        """Return the client of the running loop; open it the first time."""
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
        """Begin anew in a forked child; return what belongs to the parent."""
        left, self._slots = self._slots, {}
        return left

    async def close(self) -> None:
        """Close the client of the running loop, and let other loops close theirs."""
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
    """The one event loop that may use a client of the application.

    Args:
        backend: for the message.
        what: what each loop should open, for the message.
    """

    def __init__(self, backend: str, what: str) -> None:
        self._backend = backend
        self._what = what
        self._owner: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Refuse every loop but the first one, before anything is sent.

        Raises:
            ConfigurationError: the client was in use in another loop.
        """
        running = asyncio.get_running_loop()
        if self._owner is None:
            self._owner = running
        if self._owner is not running:
            raise self.refusal()

    def refusal(self) -> ConfigurationError:
        """Return what is raised in another loop."""
        return ConfigurationError(
            f"a client of {self._backend} works in one event loop only: let each loop open {self._what} and make a "
            "transport of it, or make the transport of a URL"
        )
