"""Connections of an own pool, and the place outside of the pool where one of them lies between two calls."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cached_property
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.rows import dict_row

KEEP_SECONDS = 60.0
"""Seconds after which a connection that was kept out of its pool goes back into it, once."""

IDLE_SECONDS = 600.0
"""Seconds without use after which a connection is opened anew: something on the way may have forgotten it."""


class Kept:
    """What an own pool knows of one of its connections.

    Attributes:
        home: the pool that it came from.
        keep_until: by time.monotonic(): goes back into the pool afterwards, which looks at its age.
        idle_since: by time.monotonic(): when it was last in use.
    """

    home: Any = None
    keep_until = 0.0
    idle_since = 0.0

    def came_from(self, pool: object) -> None:
        """Note what the pool cannot know."""
        self.home = pool
        self.idle_since = time.monotonic()
        self.keep_until = self.idle_since + KEEP_SECONDS


class OwnConnection(psycopg.Connection[Any], Kept):
    """A connection of a pool opened here. It keeps one cursor, since a new one learns the columns of every answer anew,
    which takes a third of a call.
    """

    @cached_property
    def calls(self) -> psycopg.Cursor[Any]:
        return psycopg.Cursor(self, row_factory=dict_row)


class OwnAsyncConnection(psycopg.AsyncConnection[Any], Kept):
    """The same for asyncio."""

    @cached_property
    def calls(self) -> psycopg.AsyncCursor[Any]:
        return psycopg.AsyncCursor(self, row_factory=dict_row)


C = TypeVar("C", bound=Kept)


class Spares(Generic[C]):
    """Connections that stay out of their pool between two calls: in and out again costs a sixth of a claim and its ack.

    Nobody may wait for the pool while one lies here. So whoever is about to ask the pool says so first (`asking`) and
    looks here once more, and whoever has put one here looks whether somebody asks. Threads do this without a lock,
    each step being one of a list.
    """

    def __init__(self) -> None:
        self.asking: list[None] = []
        self._connections: list[C] = []

    def take(self) -> C | None:
        """Take one out."""
        try:
            return self._connections.pop()
        except IndexError:
            return None

    def put(self, connection: C, pool: object) -> bool:
        """Put one here, where `pool` is the one in use; False: it has to go back to the pool it came from."""
        now = connection.idle_since = time.monotonic()
        if self.asking or self._connections or now > connection.keep_until or pool is not connection.home:
            return False
        self._connections.append(connection)
        return True

    def forget(self, connection: C) -> None:
        """Take out a certain one, if it is here."""
        with suppress(ValueError):
            self._connections.remove(connection)

    @staticmethod
    def is_stale(connection: C, pool: object) -> bool:
        """Tell whether its pool is not the one in use, or nobody has used it for so long that the network may have
        forgotten it.
        """
        return connection.home is not pool or time.monotonic() - connection.idle_since > IDLE_SECONDS
