"""Waiting calls, and attempts to open a connection, in threads or in tasks of event loops.

Both may end at any moment without a report: a loop may be closed or stopped, a thread may not start, and an exception
out of a signal handler may come at any line. So the pool asks them whether they still run.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from math import inf
from traceback import clear_frames
from typing import Generic, TypeVar

from fairlane.backends.postgres.errors import NoThread
from fairlane.backends.postgres.sessions import Opening, OwnAsyncConnection, OwnConnection

ConnectionT = TypeVar("ConnectionT", OwnConnection, OwnAsyncConnection)

NO_CALL = -inf
"""The deadline of an idle connection."""

OVERDUE = 5.0
"""Seconds after the deadline of its call at which a connection is lost: the call has ended without giving it back."""

STOP_TIMEOUT = 1.0
"""Seconds for which a transport that closes waits for a connection that is being opened to be given up."""


def is_lost(connection: ConnectionT, now: float) -> bool:
    """Tell whether a connection that is not at rest is in the hands of nobody who will give it back."""
    return now > connection.deadline + OVERDUE or (connection.loop is not None and connection.loop.is_closed())


class Waiter(ABC, Generic[ConnectionT]):
    """A call that waits for a connection. It is woken when there is one, when there will be none, or to look again.

    Attributes:
        deadline: by time.monotonic(): until when the call needs the connection.
        loop: of whoever waits; None for threads.
        gone: it does not wait any more.
        error: why there will be none.
    """

    def __init__(self, deadline: float, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.deadline = deadline
        self.loop = loop
        self.gone = False
        self.error: BaseException | None = None
        self._handed: list[ConnectionT] = []

    @abstractmethod
    def wake(self) -> bool:
        """Let it look; False if it cannot now, and perhaps never will."""

    def hand(self, connection: ConnectionT) -> bool:
        """Give it a connection; False if it cannot have it. It may leave at the same time, with or without it."""
        if self.gone or not self.wake():
            return False
        self._handed.append(connection)
        self.wake()
        return not self.gone or self.taken() is None

    def taken(self) -> ConnectionT | None:
        """Return the connection that was handed over, once."""
        try:
            return self._handed.pop()
        except IndexError:
            return None

    @property
    def has_outcome(self) -> bool:
        """Whether there is no need to wait any longer."""
        return bool(self._handed) or self.error is not None

    def outcome(self) -> ConnectionT:
        """Return the connection.

        Raises:
            BaseException: why there will be none.
        """
        if self.error is not None and not self._handed:
            raise self.error
        return self._handed.pop()


class ThreadWaiter(Waiter[OwnConnection]):
    """A thread that waits."""

    def __init__(self, deadline: float) -> None:
        super().__init__(deadline)
        self._woken = threading.Event()

    def wake(self) -> bool:
        self._woken.set()
        return True

    def wait(self, seconds: float) -> None:
        """Wait until it is woken, or so many seconds."""
        self._woken.wait(max(0.0, seconds))
        self._woken.clear()


class TaskWaiter(Waiter[OwnAsyncConnection]):
    """A task that waits."""

    def __init__(self, deadline: float) -> None:
        self._running = asyncio.get_running_loop()
        super().__init__(deadline, self._running)
        self._woken = asyncio.Event()

    def wake(self) -> bool:
        try:
            self._running.call_soon_threadsafe(self._woken.set)
        except RuntimeError:  # its loop is closed
            return False
        return self._running.is_running()  # else it looks when the loop runs again, which may be never

    async def wait(self, seconds: float) -> None:
        """Wait until it is woken, or so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()
        self._woken.clear()


class Attempt(ABC, Generic[ConnectionT]):
    """One attempt to open a connection, beside those who wait for it.

    Args:
        opening: how.
        ended: is called at the end, with the attempt.

    Attributes:
        began_at: by time.monotonic().
        connection: what came of it.
        error: why nothing came of it; None also if whoever opened it was stopped, so that another attempt is worth it.
    """

    def __init__(self, opening: Opening, ended: Callable[[Attempt[ConnectionT]], None]) -> None:
        self._opening = opening
        self._ended: Callable[[Attempt[ConnectionT]], None] = ended
        self.began_at = time.monotonic()
        self.connection: ConnectionT | None = None
        self.error: BaseException | None = None

    @abstractmethod
    def begin(self) -> None:
        """Begin, without waiting for anything."""

    @abstractmethod
    def goes_on(self) -> bool:
        """Tell whether somebody is at it, so that `ended` will be called."""

    @abstractmethod
    def stop(self) -> None:
        """Give it up, if that is possible."""


class ThreadAttempt(Attempt[OwnConnection]):
    """A connection that a thread opens."""

    def __init__(self, opening: Opening, ended: Callable[[Attempt[OwnConnection]], None]) -> None:
        super().__init__(opening, ended)
        self._thread = threading.Thread(target=self._open, name="fairlane-connect", daemon=True)

    def begin(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            raise NoThread(f"no connection is free, and no thread could be started to open one: {error}") from error

    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Do nothing: the thread keeps no process alive, and what it opens is closed when it comes."""

    def _open(self) -> None:
        try:
            self.connection = OwnConnection.opened(self._opening)
        except Exception as error:
            self.error = error
        self._ended(self)


class TaskAttempt(Attempt[OwnAsyncConnection]):
    """A connection that a task opens, in the event loop of the call that needed it first."""

    _task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        task = self._task = self._loop.create_task(self._open())
        # a loop that is closed meanwhile is no fault of ours, and asyncio would write about the task to stderr
        with suppress(AttributeError):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio.gather does

    def goes_on(self) -> bool:
        return self._task is not None and not self._task.done() and self._loop.is_running()

    def stop(self) -> None:
        if self._task is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._task.cancel)
        except RuntimeError:  # the loop is closed
            self._task.get_coro().close()

    async def stopped(self) -> None:
        """Wait until it has been given up, if that happens in this event loop."""
        if self._task is not None and self._loop is asyncio.get_running_loop():
            await asyncio.wait([self._task], timeout=STOP_TIMEOUT)

    async def _open(self) -> None:
        try:
            self.connection = await OwnAsyncConnection.opened(self._opening)
        except Exception as error:
            self.error = error
        except BaseException as error:
            clear_frames(error.__traceback__)  # they hold a connection, whose session would last until it is collected
            raise
        finally:
            self._ended(self)  # also if the loop ends, since calls of other loops may wait
