"""One connection to Postgres: open it, detect a pooler, and limit the wait for an answer."""

from __future__ import annotations

import asyncio
import select
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
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn

from fairlane.backends.postgres.address import check_encoding
from fairlane.backends.postgres.errors import NoAnswer
from fairlane.backends.postgres.statements import Arguments, Statement
from fairlane.backends.postgres.wire import polled, readable
from fairlane.backends.stored import Row, Rows

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
ResultT = TypeVar("ResultT")
WaitT = TypeVar("WaitT")
ReadyT = TypeVar("ReadyT")

CONNECT_TIMEOUT = 10
"""Seconds for one attempt to connect, unless the URL has its own value."""

LIFETIME = 3600.0
"""Seconds after which a connection is replaced: its host may have a new address, and sessions use more memory."""

CANCEL_TIMEOUT = 5.0
"""Seconds for the request that cancels an abandoned call."""

LOOK_INTERVAL = 0.1
"""Seconds between two checks of the deadline while a call waits for its answer."""

PROBE = "select pg_backend_pid() as pid, current_setting('default_transaction_isolation') as isolation"
NOTHING: Arguments = {}
LESS_STRICT = "set default_transaction_isolation = 'read committed'"
BEGIN, COMMIT, ROLLBACK = "begin isolation level read committed", "commit", "rollback"


def until(steps: Generator[WaitT, ReadyT, ResultT], deadline: float) -> Generator[WaitT, ReadyT, ResultT]:
    """Run the steps of a generator of psycopg until a deadline by time.monotonic().

    The function that drives it sends a false value every LOOK_INTERVAL seconds while no data arrive.

    Raises:
        NoAnswer: there was no answer before the deadline.
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


@dataclass(frozen=True, slots=True)
class Opening:
    """The parameters for opening connections.

    Attributes:
        url: the URL for libpq, without Fairlane's options.
        timeout: seconds for the first statement.
        prepare_threshold: the option with this name, for connections without a pooler.
        arguments: keyword arguments of `psycopg.connect`.
    """

    url: str
    timeout: float
    prepare_threshold: int | None
    arguments: Mapping[str, Any]

    @classmethod
    def at(cls, url: str, options: Mapping[str, Any]) -> Opening:
        """Return the parameters for a URL and the options of `options.py`."""
        in_url = conninfo.conninfo_to_dict(url)
        defaults = {"connect_timeout": CONNECT_TIMEOUT, "fallback_application_name": "fairlane"}
        arguments: dict[str, Any] = {name: value for name, value in defaults.items() if name not in in_url}
        arguments |= {"autocommit": True, "prepare_threshold": None}
        arguments["client_encoding"] = "UTF8"  # any other encoding could not represent every event
        return cls(url, options["timeout"], options["prepare_threshold"], arguments)


class _Session:
    """The state of a connection that Fairlane opened.

    Attributes:
        deadline: the end of the call that uses it, by time.monotonic().
        loop: the event loop of that call; None for threads.
        dropped: it does not count any more, and the code that has it closes it.
        used_at: the time of the last answer, by time.monotonic().
        in_transactions: whether each call needs an explicit transaction with its isolation level.
        threshold: the option `prepare_threshold`; None behind a pooler.
    """

    pgconn: PGconn
    deadline = inf
    loop: asyncio.AbstractEventLoop | None = None
    dropped = False
    used_at = 0.0
    in_transactions = False
    threshold: int | None = None

    @cached_property
    def opened_at(self) -> float:
        return time.monotonic()

    def learn(self, found: Row, threshold: int | None) -> bool:
        """Read the answer to PROBE; return whether the session needs a less strict isolation level.

        A pooler has its own keys for cancelling, so the pid of the handshake is not the pid of the server process.
        Behind a pooler, nothing may be prepared, and no setting of the session may be changed. The next transaction may
        run in another server process, and that of another client in this one.
        """
        strict: bool = found["isolation"] != "read committed"
        if found["pid"] != self.pgconn.backend_pid:
            self.in_transactions = strict
            return False
        self.threshold = threshold
        return strict

    def is_fit(self) -> bool:
        """Return whether it can be used again. A server that ends a session sends data or closes the connection."""
        if self.dropped or time.monotonic() - self.opened_at >= LIFETIME:
            return False
        poll = self._poll
        return not (readable(self.pgconn) if poll is None else poll.poll(0))

    @cached_property
    def _poll(self) -> select.poll | None:
        return polled(self.pgconn)

    @cached_property
    def _statements(self) -> dict[str, Statement]:
        return {}

    def steps(self, text: str, arguments: Arguments) -> PQGen[Rows]:
        """Run one statement, and return its rows."""
        statement = self._statements.get(text)
        if statement is None:
            statement = self._statements[text] = Statement(text)
        return statement.steps(self.pgconn, arguments, self.threshold)

    @property
    def at_rest(self) -> bool:
        """Whether the last answer has been read, and no transaction is open."""
        return self.pgconn.transaction_status == TransactionStatus.IDLE

    def abandon(self) -> None:
        """Close it while the server may still carry out a call. A thread asks the server to cancel that call."""
        try:
            threading.Thread(target=self._cancel, name="fairlane-cancel", daemon=True).start()
        except RuntimeError:  # there are too many threads, or the interpreter ends
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
    """A connection that Fairlane opened."""

    @classmethod
    def opened(cls, opening: Opening) -> OwnConnection:
        """Connect, check the encoding, and detect a pooler."""
        made = cls.connect(opening.url, **opening.arguments)
        try:
            check_encoding(made)
            made.deadline = time.monotonic() + opening.timeout
            if made.learn(made.ask(PROBE)[0], opening.prepare_threshold):
                made.send(LESS_STRICT)
        except BaseException:
            made.pgconn.finish()
            raise
        return made

    def send(self, text: str) -> None:
        """Run a statement without rows."""
        self.wait(self.steps(text, NOTHING))

    def ask(self, text: str, arguments: Arguments = NOTHING) -> Rows:
        """Run one statement in its own transaction, and return its rows."""
        if self.in_transactions:
            self.send(BEGIN)
            try:
                rows = self.wait(self.steps(text, arguments))
            except psycopg.Error as error:
                if error.sqlstate is not None:
                    self.send(ROLLBACK)
                raise
            self.send(COMMIT)
            return rows
        try:
            return self.wait(self.steps(text, arguments))
        except psycopg.errors.InvalidSqlStatementName:  # another session got it: there is a pooler; nothing was done
            self.threshold = None
            return self.wait(self.steps(text, arguments))

    def wait(self, gen: PQGen[ResultT], interval: float = LOOK_INTERVAL, timeout: float | None = None) -> ResultT:
        """Wait until the deadline. psycopg's own method would wait for the server again after an interruption."""
        return waiting.wait(until(gen, self.deadline), self.pgconn.socket, interval)


class OwnAsyncConnection(_Session, psycopg.AsyncConnection[Any]):
    """The same for asyncio. It does not belong to an event loop: any loop may use it, one at a time."""

    @classmethod
    async def opened(cls, opening: Opening) -> OwnAsyncConnection:
        """Connect, check the encoding, and detect a pooler."""
        made = await cls.connect(opening.url, **opening.arguments)
        try:
            check_encoding(made)
            made.deadline = time.monotonic() + opening.timeout
            if made.learn((await made.ask(PROBE))[0], opening.prepare_threshold):
                await made.send(LESS_STRICT)
        except BaseException:
            made.pgconn.finish()
            raise
        return made

    async def send(self, text: str) -> None:
        """Run a statement without rows."""
        await self.wait(self.steps(text, NOTHING))

    async def ask(self, text: str, arguments: Arguments = NOTHING) -> Rows:
        """Run one statement in its own transaction, and return its rows."""
        if self.in_transactions:
            await self.send(BEGIN)
            try:
                rows = await self.wait(self.steps(text, arguments))
            except psycopg.Error as error:
                if error.sqlstate is not None:
                    await self.send(ROLLBACK)
                raise
            await self.send(COMMIT)
            return rows
        try:
            return await self.wait(self.steps(text, arguments))
        except psycopg.errors.InvalidSqlStatementName:
            self.threshold = None
            return await self.wait(self.steps(text, arguments))

    async def wait(self, gen: PQGen[ResultT], interval: float = LOOK_INTERVAL, timeout: float | None = None) -> ResultT:
        """Wait until the deadline. psycopg's own method would wait for the server again after a cancellation."""
        return await waiting.wait_async(until(gen, self.deadline), self.pgconn.socket, interval)
