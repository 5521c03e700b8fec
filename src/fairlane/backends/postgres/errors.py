"""What Postgres and its driver say, as Fairlane's errors. By SQLSTATE; the server's wording is only passed on."""

from __future__ import annotations

import re

import psycopg
import psycopg_pool

from fairlane.backends.stored import PUBLISH, Operation
from fairlane.errors import (
    AuthenticationFailed,
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    EventEncodingError,
    EventTooLarge,
)

LEASE_LOST = "QF001"
WRONG_ISOLATION = "QF002"
SEQUENCE_BEHIND = "QF003"
NOT_THERE = frozenset({"3F000", "42P01", "42883"})
"""No such schema, table, function: the queue is not there."""

NO_TABLE = "42P01"
TORN = "its functions do not find its tables: the schema was renamed, or a table dropped; rename it back, or restore it"
_NO_ROLE = frozenset({"22023", "42704"})
"""In a migration, which sets a role and grants to roles: there is none of that name."""

_IN_THE_WAY = frozenset({"42P07", "42710", "42723", "42809"})
"""In a migration: there is a table, type, function or view of that name already."""

_STILL_NEEDED = "2BP01"
"""In a migration: a view, a function or a table of somebody else depends on what is to be dropped."""

_MALFORMED_TEXT = "22P02"
IDLE_FOR_TOO_LONG = "57P05"
_CUT_OFF = frozenset({"57P01", "57P02", "57P03", "57P04", IDLE_FOR_TOO_LONG, "25P03", "25P04"})
"""The server has ended the session: on its own account, or for a timeout of idle sessions or long transactions."""

_READ_ONLY = "25006"
_GIVEN_UP = frozenset({"53300", "57014", "55P03"})
"""Too many sessions, `statement_timeout`, `lock_timeout`: the statement, which is a transaction, was rolled back."""

UNDONE = frozenset({"40001", "40P01"})
"""Given up in favour of another transaction; the same again may work."""

_FULL = frozenset({"53000", "53100", "53200"})
_NOT_PREPARED = frozenset({"26000", "42P05"})
_NO_RIGHT = "42501"
_REFUSED = frozenset({"28000", "28P01", _NO_RIGHT})

_BUSY = "give the transport more connections, the server more room, or let fewer calls run at once"

# While connecting, libpq passes on no SQLSTATE, only the server's words (in its own language) and these codes of
# `psycopg.pq.PGconn`. Where the words are not English, a refusal counts as unavailable and shows them.
_REFUSAL = re.compile(
    r"password authentication failed|authentication failed for user|no password supplied|pg_hba\.conf"
    r"|role \"[^\"]*\" (does not exist|is not permitted to log in)|permission denied for database"
)
_NO_DATABASE = re.compile(r"database \"[^\"]*\" does not exist")


class NoAnswer(psycopg.OperationalError):
    """The server keeps the connection open, and has not answered in time."""


class NoConnection(psycopg.OperationalError):
    """No connection was free in time."""


class NotSent(Exception):
    """The call had no connection, so nothing was sent. `reason` is the driver's error. Never leaves the executor."""

    def __init__(self, reason: psycopg.Error) -> None:
        super().__init__(reason)
        self.reason = reason


def translate(error: BaseException, host: str, *, sent: bool = True) -> Exception | None:
    """Return the error to raise instead of a driver's, None to let it through.

    Args:
        sent: the request may have reached the server.
    """
    if not isinstance(error, psycopg.Error):
        return None
    state, text = error.sqlstate, _text(error)
    if state is None:
        return _without_state(error, host, text, sent)
    if state in _REFUSED:
        return AuthenticationFailed("postgres", host, text)
    if state == _READ_ONLY:
        return BackendUnavailable(
            "postgres",
            host,
            f"{text} (nothing was changed)",
            "the server, or the setting default_transaction_read_only, lets nobody write: connect to the primary; "
            "target_session_attrs=read-write in the URL chooses it among several hosts",
        )
    if state in _GIVEN_UP:
        return BackendUnavailable("postgres", host, f"{text} (nothing was changed)")
    if state in _CUT_OFF or state.startswith(("08", "58", "XX")):  # the connection, the disk, the server itself
        return BackendUnavailable("postgres", host, _with_outcome(text, sent))
    if state in _FULL:
        return BackendFull("postgres", host, text)
    if state == "3D000":
        return ConfigurationError(f"postgres at {host}: {text}; create the database, or correct the URL")
    if state in _NOT_PREPARED:
        return ConfigurationError(
            f"postgres at {host}: {text}; a pooler hands every transaction to another server connection: "
            "set prepare_threshold=None on the given pool or connection"
        )
    if state == WRONG_ISOLATION:
        return ConfigurationError(
            f"postgres at {host}: {text}; claim, ack, nack and extend work in READ COMMITTED transactions only: "
            "set the isolation level of the given connection, or default_transaction_isolation for its role"
        )
    return None


def for_migration(error: BaseException, host: str) -> Exception | None:
    """Return what an error means in a migration, None to let it through."""
    if not isinstance(error, psycopg.Error):
        return None
    if error.sqlstate in _NO_ROLE:
        return ConfigurationError(f"postgres at {host}: {_text(error)}; a migration makes no roles: create it first")
    if error.sqlstate in _IN_THE_WAY:
        return ConfigurationError(
            f"postgres at {host}: {_text(error)}; nothing was changed: the schema of a queue is for the queue alone, "
            "choose another name for the queue"
        )
    if error.sqlstate == _NO_RIGHT:
        return AuthenticationFailed("postgres", host, _with_hint(error))
    if error.sqlstate == _STILL_NEEDED:
        needed = " ".join((error.diag.message_detail or "").split())
        return ConfigurationError(
            f"postgres at {host}: {_text(error)}: {needed}; nothing was changed: drop that first, or leave the queue"
        )
    if error.sqlstate in NOT_THERE:
        return ConfigurationError(
            f"postgres at {host}: {_text(error)}; nothing was changed: the queue is damaged, {TORN}"
        )
    return undone(error, host) or translate(error, host)


def for_operation(error: psycopg.Error, operation: Operation, queue: str, host: str) -> Exception | None:
    """Return what an error means for one operation in particular; None if nothing."""
    if error.sqlstate == _NO_RIGHT:
        option = "--reader-role" if operation.looks else "--app-role"
        return AuthenticationFailed(
            "postgres",
            host,
            f"{_text(error)}: `fairlane migrate --queue {queue} {option} ROLE` lets a role do this ({operation.name})",
        )
    if operation is not PUBLISH:
        return None
    if error.sqlstate in {_MALFORMED_TEXT, "22P05", "54001"}:
        return EventEncodingError(f"PostgreSQL does not take it as JSON: {_text(error)}")
    if error.sqlstate == "54000":
        return EventTooLarge(None, None)
    return None


def undone(error: psycopg.Error, host: str) -> Exception | None:
    """Return what it means that a call, which is a transaction of its own, was given up; None if it was not."""
    if error.sqlstate not in UNDONE:
        return None
    return BackendUnavailable("postgres", host, f"{_text(error)} (nothing was changed)")


def lost_lease(error: psycopg.Error, operation: Operation) -> bool:
    """Tell whether the server says that a token does not hold; one that is not even a UUID never held."""
    if error.sqlstate == LEASE_LOST:
        return True
    return error.sqlstate == _MALFORMED_TEXT and operation.fenced


def sequence_behind(queue: str) -> str:
    """Return what it means that `message_seq` is behind the messages, and what to do."""
    return (
        "the sequence message_seq is behind the messages, as after a switch-over, since logical replication does not "
        f"carry sequences: run `fairlane migrate --queue {queue}`, which sets it right"
    )


def broken(error: psycopg.Error) -> bool:
    """Tell whether the connection of the call is gone, and others with it perhaps."""
    if isinstance(error, NoAnswer | psycopg_pool.PoolTimeout | psycopg_pool.TooManyRequests):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith("08") or state in _CUT_OFF or state == _READ_ONLY


def _without_state(error: psycopg.Error, host: str, text: str, sent: bool) -> Exception | None:
    if isinstance(error, psycopg_pool.PoolTimeout):
        text = f"no connection of the pool became free in time: {text}"
        return BackendUnavailable("postgres", host, f"{text} (nothing was changed)", _BUSY)
    if isinstance(error, NoConnection):
        return BackendUnavailable("postgres", host, f"{text} (nothing was changed)", _BUSY)
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return None
    if _REFUSAL.search(text) or (error.pgconn is not None and error.pgconn.needs_password):
        return AuthenticationFailed("postgres", host, text)
    if _NO_DATABASE.search(text):
        return ConfigurationError(f"postgres at {host}: {text}; create the database, or correct the URL")
    return BackendUnavailable("postgres", host, _with_outcome(text, sent))


def _with_outcome(text: str, sent: bool) -> str:
    return f"{text} ({'whether the request was carried out is not known' if sent else 'nothing was changed'})"


def _with_hint(error: psycopg.Error) -> str:
    hint = error.diag.message_hint
    return f"{_text(error)}: {hint}" if hint else _text(error)


def _text(error: psycopg.Error) -> str:
    """Return what went wrong in one line."""
    return " ".join((error.diag.message_primary or str(error) or type(error).__name__).split())
