"""Turn errors of Postgres and its driver into Fairlane's errors, by SQLSTATE. The server's text is only quoted."""

from __future__ import annotations

import re

import psycopg
import psycopg_pool

from fairlane.backends.stored import REVISION, Operation
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
"""There is no such schema, table or function: the queue does not exist."""

NO_TABLE = "42P01"
TORN = (
    "its functions do not find its tables, since the schema was renamed or a table was dropped: undo the renaming, or "
    "restore the table"
)
_NO_ROLE = frozenset({"22023", "42704"})
"""In a migration: there is no role with this name."""

_NAME_IN_USE = frozenset({"42P07", "42710", "42723", "42809"})
"""In a migration: another table, type, function or view has this name."""

_STILL_NEEDED = "2BP01"
"""In a migration: another view, function or table depends on an object that the migration drops."""

_MALFORMED_TEXT = "22P02"
IDLE_FOR_TOO_LONG = "57P05"
_CUT_OFF = frozenset({"57P01", "57P02", "57P03", "57P04", IDLE_FOR_TOO_LONG, "25P03", "25P04"})
"""The server has ended the session, for example because of a shutdown or a timeout."""

_READ_ONLY = "25006"
_ROLLED_BACK = frozenset({"53300", "57014", "55P03"})
"""Too many sessions, `statement_timeout`, `lock_timeout`: the transaction of the statement was rolled back."""

UNDONE = frozenset({"40001", "40P01"})
"""The server has rolled back this transaction because of another one. Trying again may succeed."""

CONTENDED = UNDONE | {"55P03"}
"""The same for a migration, which waits for locks for a short time only."""

_FULL = frozenset({"53000", "53100", "53200"})
_NOT_PREPARED = frozenset({"26000", "42P05"})
_NO_RIGHT = "42501"
_REFUSED = frozenset({"28000", "28P01", _NO_RIGHT})

_NO_THREADS = "allow more threads (ulimit -u, or the pids limit of the container), or run fewer of them"
_BUSY = "raise max_connections of the transport, allow more connections on the server, or run fewer calls at once"

# While connecting, libpq does not pass on the SQLSTATE, only the server's text in the server's language. If the text is
# not English, refused credentials raise BackendUnavailable with this text.
_REFUSAL = re.compile(
    r"password authentication failed|authentication failed for user|no password supplied|pg_hba\.conf"
    r"|role \"[^\"]*\" (does not exist|is not permitted to log in)|permission denied for database"
)
_NO_DATABASE = re.compile(r"database \"[^\"]*\" does not exist")


class NoAnswer(psycopg.OperationalError):
    """The server did not answer before the deadline, but the connection is open."""


class NoConnection(psycopg.OperationalError):
    """No connection became free before the deadline."""


class NoThread(psycopg.OperationalError):
    """The thread that opens a connection could not be started: there are too many, or the interpreter ends."""


class NotSent(Exception):
    """A call got no connection, so nothing was sent. `reason` is the driver's error. Never leaves the executor."""

    def __init__(self, reason: psycopg.Error) -> None:
        super().__init__(reason)
        self.reason = reason


def translate(error: BaseException, host: str, *, sent: bool = True) -> Exception | None:
    """Return the error to raise instead of a driver's error, or None to let it pass.

    Args:
        error: the driver's error.
        host: the host of the server, for the message.
        sent: whether the server may have received the request.
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
            "the server or the setting default_transaction_read_only forbids writes: connect to the primary; "
            "target_session_attrs=read-write in the URL chooses it among several hosts",
        )
    if state in _ROLLED_BACK:
        return BackendUnavailable("postgres", host, f"{text} (nothing was changed)")
    if state in _CUT_OFF or state.startswith(("08", "58", "XX")):  # the connection, the disk, the server itself
        return BackendUnavailable("postgres", host, _with_outcome(text, sent))
    if state in _FULL:
        return BackendFull("postgres", host, text)
    if state == "3D000":
        return ConfigurationError(f"postgres at {host}: {text}; create the database, or correct the URL")
    if state in _NOT_PREPARED:
        return ConfigurationError(
            f"postgres at {host}: {text}; a pooler runs each transaction on another server connection: "
            "set prepare_threshold=None on the application's pool or connection"
        )
    if state == WRONG_ISOLATION:
        return ConfigurationError(
            f"postgres at {host}: {text}; claim, ack, nack and extend work in READ COMMITTED transactions only: "
            "set the isolation level of the application's connection, or default_transaction_isolation for its role"
        )
    return None


def for_migration(error: BaseException, host: str) -> Exception | None:
    """Return Fairlane's error for an error in a migration, or None to let it pass."""
    if not isinstance(error, psycopg.Error):
        return None
    if error.sqlstate in _NO_ROLE:
        return ConfigurationError(f"postgres at {host}: {_text(error)}; a migration creates no roles: create it first")
    if error.sqlstate in _NAME_IN_USE:
        return ConfigurationError(
            f"postgres at {host}: {_text(error)}; nothing was changed: a queue needs its own schema, so choose another "
            "name for the queue"
        )
    if error.sqlstate == _NO_RIGHT:
        return AuthenticationFailed("postgres", host, _with_hint(error))
    if error.sqlstate == _STILL_NEEDED:
        needed = " ".join((error.diag.message_detail or "").split())
        return ConfigurationError(
            f"postgres at {host}: {_text(error)}: {needed}; nothing was changed: drop the dependent object first"
        )
    if error.sqlstate in NOT_THERE:
        return ConfigurationError(
            f"postgres at {host}: {_text(error)}; nothing was changed: the queue is damaged, {TORN}"
        )
    return undone(error, host) or translate(error, host)


def for_operation(error: psycopg.Error, operation: Operation, queue: str, host: str) -> Exception | None:
    """Return the special error of one operation for an error, or None if there is none."""
    if error.sqlstate == _NO_RIGHT:
        option = "--reader-role" if operation.looks else "--app-role"
        command = f"`fairlane migrate --queue {queue} {option} ROLE`"
        if operation is REVISION:  # the first call of everybody, so it does not tell what the user wants to do
            command = f"`fairlane migrate --queue {queue} --app-role ROLE` (or --reader-role)"
        return AuthenticationFailed(
            "postgres", host, f"{_text(error)}: {command} gives a role the right to {operation.name}"
        )
    if not operation.adds:
        return None
    if error.sqlstate in {_MALFORMED_TEXT, "22P05", "54001"}:
        return EventEncodingError(f"PostgreSQL does not accept it as JSON: {_text(error)}")
    if error.sqlstate == "54000":
        return EventTooLarge(None, None)
    return None


def undone(error: psycopg.Error, host: str) -> Exception | None:
    """Return the error for a call whose transaction the server has rolled back; None if that is not the case."""
    if error.sqlstate not in UNDONE:
        return None
    return BackendUnavailable("postgres", host, f"{_text(error)} (nothing was changed)")


def lost_lease(error: psycopg.Error, operation: Operation) -> bool:
    """Return whether the token of a lease does not hold. A token that is not a UUID never held."""
    if error.sqlstate == LEASE_LOST:
        return True
    return error.sqlstate == _MALFORMED_TEXT and operation.fenced


def sequence_behind(queue: str) -> str:
    """Return the reason and the remedy if `message_seq` is behind the messages."""
    return (
        "the sequence message_seq is behind the messages, for example after a switch-over, since logical replication "
        f"does not copy sequences: run `fairlane migrate --queue {queue}`, which repairs it"
    )


def broken(error: psycopg.Error) -> bool:
    """Return whether the connection of a call is broken. Then other connections may be broken too."""
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
    if isinstance(error, NoThread):
        return BackendUnavailable("postgres", host, f"{text} (nothing was changed)", _NO_THREADS)
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
    hint = error.diag.message_hint or "a migration needs the rights of the queue's owner"
    return f"{_text(error)}: {hint}"


def _text(error: psycopg.Error) -> str:
    """Return the text of an error as one line."""
    return " ".join((error.diag.message_primary or str(error) or type(error).__name__).split())
