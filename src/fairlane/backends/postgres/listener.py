"""The connection on which the server notifies a transport. It is beside the pool, and never taken from it."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from secrets import token_hex

import psycopg
from psycopg import Notify

from fairlane.backends.postgres.core import WAKE, statements
from fairlane.backends.postgres.errors import translate
from fairlane.backends.postgres.sessions import Opening, OwnConnection
from fairlane.backends.postgres.wire import wait_readable
from fairlane.backends.shared.listening import CannotListen
from fairlane.errors import BackendUnavailable

CHECK_TIMEOUT = 5.0
"""Seconds that the server may take for an answer on this connection."""

PID = "select pg_backend_pid() as pid"
POOLER = "there is a pooler before the server, and behind a pooler no session can listen"


class Listener:
    """One connection with one channel; see `listening.Connection`.

    Args:
        connection: it listens already.
        channel: see `waiters` in the layout.
        queue: the queue.
    """

    def __init__(self, connection: OwnConnection, channel: str, queue: str) -> None:
        self.name = channel
        self._connection = connection
        self._wake = statements(queue)[WAKE]
        self._heard: list[int] = []
        connection.add_notify_handler(self._add)
        # a second handle of the socket, so that another thread can end a wait without touching the connection
        self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))

    @classmethod
    def opened(cls, opening: Opening, queue: str, where: str) -> Listener:
        """Connect, and listen on a new channel.

        Raises:
            CannotListen: there is a pooler.
            BackendUnavailable: the server cannot be reached.
        """
        try:
            connection = OwnConnection.opened(opening)
            try:
                if connection.ask(PID)[0]["pid"] != connection.pgconn.backend_pid:
                    raise CannotListen(POOLER)
                channel = f"fairlane_{token_hex(8)}"
                connection.send(f'listen "{channel}"')
                return cls(connection, channel, queue)
            except BaseException:
                connection.pgconn.finish()
                raise
        except psycopg.Error as error:
            known = translate(error, where)
            raise known or BackendUnavailable("postgres", where, str(error)) from error

    def _add(self, notify: Notify) -> None:
        self._heard.append(_floor(notify.payload))

    def hear(self, seconds: float) -> list[int]:
        """See `listening.Connection`."""
        pgconn = self._connection.pgconn
        try:
            if not self._heard and wait_readable(pgconn, seconds):
                pgconn.consume_input()
                while (notify := pgconn.notifies()) is not None:
                    self._heard.append(_floor(notify.extra.decode()))
        except psycopg.Error as error:
            raise ConnectionError(str(error)) from error
        heard, self._heard = self._heard, []
        return heard

    def check(self) -> None:
        """See `listening.Connection`."""
        self._ask(PID, 0)

    def pass_on(self, floor: int) -> None:
        """See `listening.Connection`."""
        self._ask(self._wake, floor)

    def _ask(self, text: str, floor: int) -> None:
        self._connection.deadline = time.monotonic() + CHECK_TIMEOUT
        try:
            self._connection.ask(text, {"p_priority": floor})
        except psycopg.Error as error:
            raise ConnectionError(str(error)) from error

    def interrupt(self) -> None:
        """See `listening.Connection`."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """See `listening.Connection`."""
        with suppress(OSError):
            self._socket.close()
        self._connection.pgconn.finish()


def _floor(payload: str) -> int:
    """Return the floor in a notification. Anybody may send one, so a wrong one counts for all floors: the lowest."""
    return int(payload) if payload.isascii() and payload.isdecimal() else 0
