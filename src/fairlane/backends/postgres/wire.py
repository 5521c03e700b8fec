"""Data that a server has sent and nobody has read."""

from __future__ import annotations

import select
import sys

import psycopg
from psycopg.pq import ConnStatus
from psycopg.pq.abc import PGconn


def polled(pgconn: PGconn) -> select.poll | None:
    """Return an object that shows whether data have arrived; None on Windows."""
    if sys.platform == "win32":
        return None
    made = select.poll()
    made.register(pgconn.socket, select.POLLIN)
    return made


def readable(pgconn: PGconn) -> bool:
    """Return whether data have arrived that were not read yet."""
    poll = polled(pgconn)
    return bool(select.select([pgconn.socket], [], [], 0)[0] if poll is None else poll.poll(0))


def wait_readable(pgconn: PGconn, seconds: float) -> bool:
    """Wait until data have arrived, at most these seconds; return whether some have."""
    poll = polled(pgconn)
    if poll is None:
        return bool(select.select([pgconn.socket], [], [], seconds)[0])
    return bool(poll.poll(seconds * 1000))


def is_over(pgconn: PGconn) -> bool:
    """Return whether the server has ended the session. Data alone do not show it, since notices may arrive any time."""
    try:
        if readable(pgconn):
            pgconn.consume_input()  # the last message of the server
            pgconn.consume_input()  # the end of the connection
    except psycopg.Error:
        return True
    return pgconn.status != ConnStatus.OK
