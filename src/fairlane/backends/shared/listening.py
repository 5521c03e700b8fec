"""A room that the server rings, over one connection that listens for all claims of a transport.

A thread has the connection while claims wait, for blocking code and for asyncio alike. Nobody depends on it: a claim
that is not rung finds its message at its next look, at most a second later. So a connection that is broken, or silent,
costs no more than that. The thread then opens another one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from fairlane.backends.shared.ears import Ring
from fairlane.backends.shared.waiting import POLL, Room

_log = logging.getLogger("fairlane")

HEARTBEAT = 20.0
"""Seconds after which a silent connection is checked."""

IDLE = 5.0
"""Seconds after the last claim has left until the connection is closed."""

TIRED = 0.02
"""Seconds of rest after a wake-up that no claim here could use, so that it reaches another transport."""


class CannotListen(Exception):
    """Raised instead of opening a connection: the server cannot ring. The message says why."""


class Connection(Protocol):
    """A connection that listens, for one thread.

    Attributes:
        name: the name under which the server knows it.
    """

    name: str

    def hear(self, seconds: float) -> list[int]:
        """Wait for wake-ups, at most these seconds and until the first; return the floor of each."""

    def check(self) -> None:
        """Raise an error if the server does not answer."""

    def pass_on(self, floor: int) -> None:
        """Give a wake-up to another transport."""

    def interrupt(self) -> None:
        """End `hear`, from any thread. The connection cannot be used afterwards."""

    def close(self) -> None:
        """Close the connection."""


class ListeningRoom(Room):
    """The room of one transport, which a server rings.

    Args:
        connect: opens a connection that listens. It raises `CannotListen` if the server cannot ring.
        where: the server, for messages.
    """

    def __init__(self, connect: Callable[[], Connection], where: str) -> None:
        super().__init__()
        self._connect = connect
        self._where = where
        self._begin()
        self._closed = self._refused = False

    def _begin(self) -> None:
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._needed = threading.Event()

    def listening(self) -> str | None:
        """Return the name under which the server rings this room; None if no connection listens (yet)."""
        if self._refused or self._closed:
            return None
        self._needed.set()
        if self._thread is None and self._starting.acquire(blocking=False):
            try:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._listen, name="fairlane-listener", daemon=True)
                    self._thread.start()
            finally:
                self._starting.release()
        connection = self._connection
        return None if connection is None else connection.name

    def _listen(self) -> None:
        """Keep a connection while claims wait. This is the thread."""
        try:
            while not self._closed and self._is_needed():
                try:
                    self._hear_on(self._connect())
                except CannotListen as reason:
                    self._refused = True
                    _log.warning("%s: claims that wait ask the server once a second, since %s", self._where, reason)
                except Exception as error:  # whatever it is, the claims look meanwhile
                    _log.debug("%s: the connection that listens has failed: %s", self._where, error)
                    if not self._closed:
                        time.sleep(POLL)
                if self._refused:
                    return
        finally:
            self._thread = None

    def _hear_on(self, connection: Connection) -> None:
        self._connection = connection
        try:
            for floor in tuple(self.floors.values()):
                floor.ring(Ring.LOOK)  # so that the first of them tells the server the name
            while not self._closed and self._is_needed():
                heard = connection.hear(HEARTBEAT)
                if not heard and not self._closed:
                    connection.check()
                for number in heard:
                    if not self.floor(number).ring(Ring.CLAIM):
                        connection.pass_on(number)
                        time.sleep(TIRED)
        finally:
            self._connection = None
            with suppress(Exception):
                connection.close()

    def _is_needed(self) -> bool:
        """Return whether a claim waits. If none does, wait for the next one, but not for long."""
        while not self:
            self._needed.clear()
            if not self and not self._needed.wait(IDLE):
                return False
            if self._closed:
                return False
            if not self:  # a claim has come and gone
                return True
        return True

    def close(self) -> None:
        """Close the connection, and never open another one."""
        self._closed = True
        self._needed.set()
        connection = self._connection
        if connection is not None:
            with suppress(Exception):
                connection.interrupt()

    def after_fork_in_child(self) -> object:
        """Forget the parent's thread and connection; see `forks`."""
        left = super().after_fork_in_child(), self._connection
        self._begin()
        return left
