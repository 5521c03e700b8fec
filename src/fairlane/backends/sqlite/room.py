"""Where claims on a file wait: they are rung in this process, and look for the commits of other processes."""

from __future__ import annotations

import sqlite3
import weakref
from pathlib import Path

from fairlane.backends.shared.ears import Watch
from fairlane.backends.shared.waiting import Room
from fairlane.backends.sqlite.address import Location
from fairlane.backends.sqlite.connections import OwnConnection
from fairlane.backends.sqlite.file import Opener
from fairlane.errors import FairlaneError

WATCH_INTERVAL = 0.015
"""Seconds between two looks for commits. A look takes some microseconds, and only the first waiting claim looks."""

_rooms: weakref.WeakValueDictionary[tuple[Path, str], SqliteRoom] = weakref.WeakValueDictionary()


class SqliteRoom(Room):
    """The room of a queue in a file, for all transports of this process.

    `pragma data_version` changes with each commit of another connection to the file. It reads no page of the file, if
    nothing was committed.
    """

    def __init__(self, location: Location, queue: str) -> None:
        super().__init__(watch=Watch(self._changed, WATCH_INTERVAL))
        self._connection = OwnConnection(Opener(location, queue))
        self._version = -1

    @classmethod
    def of(cls, location: Location, queue: str) -> SqliteRoom:
        """Return the room of this process for a file and a queue."""
        key = location.path, queue
        room = _rooms.get(key)
        return _rooms.setdefault(key, cls(location, queue)) if room is None else room

    def _changed(self) -> bool:
        try:
            version = self._connection.version()
        except (sqlite3.Error, FairlaneError, OSError):
            return False  # the next look for messages meets the same fault and raises it
        before, self._version = self._version, version
        return version != before

    def close(self) -> None:
        """Close the file, if no claim waits. Each transport calls this when it is closed."""
        if not self:
            self._connection.rest()
