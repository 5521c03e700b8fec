"""How one waiting claim sleeps, in a thread or a task, and how it is woken."""

from __future__ import annotations

import time
from _thread import LockType, allocate_lock
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

from fairlane.program import Sleep

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

LONGEST = 3600.0
"""Seconds that a thread sleeps at once. The system limits them."""


class Ring(IntEnum):
    """Why a claim was woken. The larger one counts if there are two."""

    NONE = 0
    MOVED = 1
    """It is the first now, or its transport was closed."""
    LOOK = 2
    """There may be a message."""
    CLAIM = 3
    """There is a message, and only this claim was told."""


class Ear:
    """One waiting claim. It sleeps until it is rung, or until a time.

    There is no lock, since a signal handler may ring. `ring` writes the reason before it reads how to wake, and a
    sleeper says how to wake it before it reads the reason. So one of them sees the other.
    """

    __slots__ = ("_wake", "rung")

    def __init__(self) -> None:
        self.rung = Ring.NONE
        self._wake: Callable[[], object] | None = None

    def ring(self, reason: Ring) -> bool:
        """Wake it; return False if its event loop was closed, so that it cannot wake up any more."""
        self.rung = max(self.rung, reason)
        wake = self._wake
        if wake is not None:
            try:
                wake()
            except RuntimeError:
                return False
        return True

    def heard(self) -> Ring:
        """Return why it was rung, and forget it."""
        reason, self.rung = self.rung, Ring.NONE
        return reason

    def sleep(self, seconds: float, watch: Watch | None = None) -> None:
        """Sleep in this thread. With a watch, look for changes meanwhile, and be rung by one."""
        sleeping = allocate_lock()  # half of what an Event takes, and with a watch this runs often
        sleeping.acquire()
        self._wake = partial(_release, sleeping)
        ends = time.monotonic() + seconds
        try:
            while not self.rung and (left := ends - time.monotonic()) > 0:
                sleeping.acquire(timeout=min(left, LONGEST if watch is None else watch.interval))
                if watch is not None and watch.changed():
                    self.rung = max(self.rung, Ring.LOOK)
        finally:
            self._wake = None

    async def sleep_async(self, seconds: float, watch: Watch | None = None) -> None:
        """Sleep in this task. With a watch, look for changes meanwhile, and be rung by one."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        woken: Future[None] = loop.create_future()
        looking = timer = loop.call_later(seconds, _end, woken)

        def look(watch: Watch) -> None:
            """Look without waking the task, which would take twice as long."""
            nonlocal looking
            if watch.changed():
                self.rung = max(self.rung, Ring.LOOK)
                _end(woken)
            else:
                looking = loop.call_later(watch.interval, look, watch)

        if watch is not None:
            looking = loop.call_later(watch.interval, look, watch)
        self._wake = lambda: _end_from_anywhere(loop, woken)
        try:
            if not self.rung:
                await woken
        finally:
            self._wake = None
            timer.cancel()
            looking.cancel()


def _release(lock: LockType) -> None:
    with suppress(RuntimeError):  # it was rung twice
        lock.release()


def _end(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _end_from_anywhere(loop: AbstractEventLoop, future: Future[None]) -> None:
    loop.call_soon_threadsafe(_end, future)


@dataclass(frozen=True, slots=True)
class Watch:
    """A cheap way to learn of changes without a request to the server.

    Attributes:
        changed: returns whether there may have been a change since it was last called.
        interval: seconds between two calls.
    """

    changed: Callable[[], bool]
    interval: float


@dataclass(frozen=True, slots=True)
class Nap(Sleep):
    """Sleep until the ear is rung."""

    ear: Ear
    watch: Watch | None = None

    def wait(self) -> None:
        self.ear.sleep(self.seconds, self.watch)

    async def wait_async(self) -> None:
        await self.ear.sleep_async(self.seconds, self.watch)
