"""Waiting calls, and attempts to open a connection, in threads or in tasks of event loops.

Both may end at any moment without a report. A loop may be closed or stopped, a thread may not start, and a signal
handler may raise an exception at any line. So the pool checks whether they still run.
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
"""Seconds after the deadline of its call. A connection that is not returned by then is lost: the call has ended."""

STOP_TIMEOUT = 1.0
"""Seconds for which `close()` waits until a task that opens a connection has ended."""


def is_lost(connection: ConnectionT, now: float) -> bool:
    """Return whether no code will return this connection, which is not idle."""
    return now > connection.deadline + OVERDUE or (connection.loop is not None and connection.loop.is_closed())


class Waiter(ABC, Generic[ConnectionT]):
    """A call that waits for a connection. It is woken if there is one, if there will be none, or to check again.

    Attributes:
        deadline: by time.monotonic(): until when the call needs the connection.
        loop: the event loop of the call; None for threads.
        gone: whether it has stopped waiting.
        error: the reason if there will be no connection.
    """

    def __init__(self, deadline: float, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.deadline = deadline
        self.loop = loop
        self.gone = False
        self.error: BaseException | None = None
        self._handed: list[ConnectionT] = []

    @abstractmethod
    def wake(self) -> bool:
        """Let it check again. Return False if it cannot do so now, and perhaps never can."""

    def hand(self, connection: ConnectionT) -> bool:
        """Give it a connection. Return False if it did not take it. The call may stop waiting at the same time."""
        if self.gone or not self.wake():
            return False
        self._handed.append(connection)
        self.wake()
        return not self.gone or self.taken() is None

    def taken(self) -> ConnectionT | None:
        """Return the connection that it was given, and forget it."""
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
            BaseException: the reason, if there will be no connection.
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
        except RuntimeError:  # the loop is closed
            return False
        return self._running.is_running()  # a stopped loop may never run again

    async def wait(self, seconds: float) -> None:
        """Wait until it is woken, or so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()
        self._woken.clear()


class Attempt(ABC, Generic[ConnectionT]):
    """One attempt to open a connection, while calls wait for it.

    Args:
        opening: the parameters of the connection.
        ended: called with the attempt when it has ended.

    Attributes:
        began_at: by time.monotonic().
        connection: the result, if the attempt succeeded.
        error: the reason if it failed. Both are None if its task was stopped: then another attempt may succeed.
    """

    def __init__(self, opening: Opening, ended: Callable[[Attempt[ConnectionT]], None]) -> None:
        self._opening = opening
        self._ended: Callable[[Attempt[ConnectionT]], None] = ended
        self.began_at = time.monotonic()
        self.connection: ConnectionT | None = None
        self.error: BaseException | None = None

    @abstractmethod
    def begin(self) -> None:
        """Begin, without waiting."""

    @abstractmethod
    def goes_on(self) -> bool:
        """Return whether its thread or task still runs, so that it will call `ended`."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it if that is possible."""


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
        """Do nothing. The thread does not keep the process alive, and the pool closes the connection that it opens."""

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
        # if the loop is closed before the task has ended, asyncio would write a warning to stderr
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
        """Wait until its task has ended, if it runs in this event loop."""
        if self._task is not None and self._loop is asyncio.get_running_loop():
            await asyncio.wait([self._task], timeout=STOP_TIMEOUT)

    async def _open(self) -> None:
        try:
            self.connection = await OwnAsyncConnection.opened(self._opening)
        except Exception as error:
            self.error = error
        except BaseException as error:
            clear_frames(error.__traceback__)  # else they keep the session until a garbage collection
            raise
        finally:
            self._ended(self)  # also if the loop ends, since calls of other loops may wait
