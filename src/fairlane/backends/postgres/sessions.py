"""One connection to Postgres: how it is opened, what is found out about it, and until when it waits for an answer."""

from __future__ import annotations

import secrets
import select
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo, generators, waiting
from psycopg._preparing import PrepareManager
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import dict_row

from fairlane.backends.postgres.address import check_encoding
from fairlane.backends.postgres.errors import NoAnswer
from fairlane.backends.stored import Row, Rows

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
Arguments = Mapping[str, Any]
ResultT = TypeVar("ResultT")
WaitT = TypeVar("WaitT")

CONNECT_TIMEOUT = 10
"""Seconds for one attempt to connect, unless the URL says otherwise."""

LIFETIME = 3600.0
"""Seconds after which a connection is opened anew: names may mean other servers by then, and sessions grow."""

CANCEL_TIMEOUT = 5.0
"""Seconds for asking the server to give up a call that nobody waits for any more."""

LOOK_INTERVAL = 0.1
"""Seconds between two looks at the time while an answer is waited for."""

PROBE = "select pg_backend_pid() as pid, current_setting('default_transaction_isolation') as isolation"
LESS_STRICT = "set default_transaction_isolation = 'read committed'"
BEGIN, COMMIT, ROLLBACK = "begin isolation level read committed", "commit", "rollback"


def until(steps: Generator[WaitT, Any, ResultT], deadline: float) -> Generator[WaitT, Any, ResultT]:
    """Go through the steps of psycopg until a time by time.monotonic().

    Whoever drives it sends a false value every LOOK_INTERVAL while nothing comes.

    Raises:
        NoAnswer: the time is over.
    """
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() >= deadline:
                raise NoAnswer("the server has not answered in time")
            wanted = steps.send(ready)
    except StopIteration as end:
        result: ResultT = end.value
        return result


def polled(pgconn: PGconn) -> select.poll | None:
    """Return what tells whether something has come; None on Windows."""
    if sys.platform == "win32":
        return None
    made = select.poll()
    made.register(pgconn.socket, select.POLLIN)
    return made


def readable(pgconn: PGconn) -> bool:
    """Tell whether something has come that nobody has read."""
    poll = polled(pgconn)
    return bool(select.select([pgconn.socket], [], [], 0)[0] if poll is None else poll.poll(0))


def is_over(pgconn: PGconn) -> bool:
    """Tell whether the server has ended the session meanwhile. A notice or a notification may come at any time."""
    try:
        if readable(pgconn):
            pgconn.consume_input()  # what the server said last
            pgconn.consume_input()  # the end
    except psycopg.Error:
        return True
    return pgconn.status != ConnStatus.OK


@dataclass(frozen=True, slots=True)
class Opening:
    """How connections are opened.

    Attributes:
        url: of libpq, without the options that are Fairlane's.
        timeout: seconds for the first question to the server.
        prepare_threshold: the option of this name, for connections without a pooler.
        arguments: of `psycopg.connect`.
    """

    url: str
    timeout: float
    prepare_threshold: int | None
    arguments: Mapping[str, Any]

    @classmethod
    def at(cls, url: str, options: Mapping[str, Any]) -> Opening:
        """Return how to open connections at a URL, with the options that `options.py` lists."""
        given = conninfo.conninfo_to_dict(url)
        defaults = {"connect_timeout": CONNECT_TIMEOUT, "fallback_application_name": "fairlane"}
        arguments: dict[str, Any] = {name: value for name, value in defaults.items() if name not in given}
        arguments |= {"autocommit": True, "prepare_threshold": None}
        arguments["client_encoding"] = "UTF8"  # another one, wherever it is set, could not hold every event
        return cls(url, options["timeout"], options["prepare_threshold"], arguments)


class _Session:
    """What is known of a connection that was opened here.

    Attributes:
        deadline: by time.monotonic(): how long it waits for an answer.
        used_at: by time.monotonic(): when the last answer came.
        in_transactions: each call needs a transaction that says its isolation level.
    """

    pgconn: PGconn
    prepare_threshold: int | None
    _prepared: PrepareManager
    deadline = inf
    used_at = 0.0
    in_transactions = False

    @cached_property
    def opened_at(self) -> float:
        return time.monotonic()

    def learn(self, found: Row, threshold: int | None) -> bool:
        """Take in the answer to PROBE, and what to prepare; True: tell the server to be less strict.

        A pooler hands out keys of its own for cancelling, so the pid of the handshake is not that of the server
        process. Behind one, nothing may be prepared and no setting of the session be changed: the next transaction may
        run in another server process, and another client's in this one.
        """
        strict: bool = found["isolation"] != "read committed"
        if found["pid"] != self.pgconn.backend_pid:
            self.in_transactions = strict
            return False
        self.prepare_threshold = threshold
        return strict

    def name_statements(self) -> None:
        """Give prepared statements names that no other client has.

        psycopg counts them from 0 in every connection. Should a pooler that did not show itself run a call in the
        session of another client, the name is not known there: an error, and not the statement of somebody else.
        """
        self._prepared._prepared_idx = secrets.randbits(62)

    def is_fit(self) -> bool:
        """Tell whether it can be used again. A server that ends a session says so, or closes; both can be read."""
        return not self._readable() and time.monotonic() - self.opened_at < LIFETIME

    def _readable(self) -> bool:
        return bool(self._poll.poll(0)) if self._poll is not None else readable(self.pgconn)

    @cached_property
    def _poll(self) -> select.poll | None:
        return polled(self.pgconn)

    @property
    def at_rest(self) -> bool:
        """Whether the last answer has been read, and no transaction is open."""
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    def abandon(self) -> None:
        """Close it while the server may still be at work, which it is asked to give up; nobody waits for that."""
        try:
            threading.Thread(target=self._cancel, name="fairlane-cancel", daemon=True).start()
        except RuntimeError:  # the interpreter ends
            self.pgconn.finish()

    def _cancel(self) -> None:
        with suppress(psycopg.Error):
            try:
                request = self.pgconn.cancel_conn()
            except psycopg.NotSupportedError:  # libpq before 17
                self.pgconn.get_cancel().cancel()
            else:
                request.start()
                steps = generators.cancel(request)
                waiting.wait_conn(until(steps, time.monotonic() + CANCEL_TIMEOUT), LOOK_INTERVAL)
        self.pgconn.finish()


class OwnConnection(_Session, psycopg.Connection[Any]):
    """A connection that was opened here. It keeps one cursor, since a new one learns the columns of every answer anew,
    which takes a third of a call.
    """

    @classmethod
    def opened(cls, opening: Opening) -> OwnConnection:
        """Connect, and find out what is on the other side."""
        made = cls.connect(opening.url, **opening.arguments)
        made.name_statements()
        try:
            check_encoding(made)
            made.deadline = time.monotonic() + opening.timeout
            if made.learn(made.ask(PROBE)[0], opening.prepare_threshold):
                made.calls.execute(LESS_STRICT)
        except BaseException:
            made.pgconn.finish()
            raise
        return made

    @cached_property
    def calls(self) -> psycopg.Cursor[Any]:
        return psycopg.Cursor(self, row_factory=dict_row)

    def ask(self, text: str, arguments: Arguments | None = None) -> Rows:
        """Send one statement, which is a transaction of its own, and return its rows."""
        if self.in_transactions:
            self.calls.execute(BEGIN)
            try:
                rows = self.calls.execute(text, arguments).fetchall()
            except psycopg.Error as error:
                if error.sqlstate is not None:
                    self.calls.execute(ROLLBACK)
                raise
            self.calls.execute(COMMIT)
            return rows
        try:
            return self.calls.execute(text, arguments).fetchall()
        except psycopg.errors.InvalidSqlStatementName:  # it ran elsewhere: there is a pooler, and nothing was done
            self.prepare_threshold = None
            return self.calls.execute(text, arguments).fetchall()

    def wait(self, gen: PQGen[ResultT], interval: float = LOOK_INTERVAL, timeout: float | None = None) -> ResultT:
        """Wait until the deadline. After an interruption psycopg would wait for the server once more."""
        return waiting.wait(until(gen, self.deadline), self.pgconn.socket, interval)


class OwnAsyncConnection(_Session, psycopg.AsyncConnection[Any]):
    """The same for asyncio. Nothing in it belongs to an event loop, so any may use it, one at a time."""

    @classmethod
    async def opened(cls, opening: Opening) -> OwnAsyncConnection:
        """Connect, and find out what is on the other side."""
        made = await cls.connect(opening.url, **opening.arguments)
        made.name_statements()
        try:
            check_encoding(made)
            made.deadline = time.monotonic() + opening.timeout
            if made.learn((await made.ask(PROBE))[0], opening.prepare_threshold):
                await made.calls.execute(LESS_STRICT)
        except BaseException:
            made.pgconn.finish()
            raise
        return made

    @cached_property
    def calls(self) -> psycopg.AsyncCursor[Any]:
        return psycopg.AsyncCursor(self, row_factory=dict_row)

    async def ask(self, text: str, arguments: Arguments | None = None) -> Rows:
        """Send one statement, which is a transaction of its own, and return its rows."""
        if self.in_transactions:
            await self.calls.execute(BEGIN)
            try:
                rows = await self._rows(text, arguments)
            except psycopg.Error as error:
                if error.sqlstate is not None:
                    await self.calls.execute(ROLLBACK)
                raise
            await self.calls.execute(COMMIT)
            return rows
        try:
            return await self._rows(text, arguments)
        except psycopg.errors.InvalidSqlStatementName:
            self.prepare_threshold = None
            return await self._rows(text, arguments)

    async def _rows(self, text: str, arguments: Arguments | None) -> Rows:
        await self.calls.execute(text, arguments)
        return await self.calls.fetchall()

    async def wait(self, gen: PQGen[ResultT], interval: float = LOOK_INTERVAL, timeout: float | None = None) -> ResultT:
        """Wait until the deadline. Cancelled, psycopg would wait for the server once more."""
        return await waiting.wait_async(until(gen, self.deadline), self.pgconn.socket, interval)
