"""Turn errors of libSQL, libsql-client and aiohttp into Fairlane's errors, by code and class, never by text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import aiohttp
from libsql_client import LibsqlError

from fairlane.backends.shared.http import PAUSES, excerpt
from fairlane.backends.shared.retry import Pauses, Refused, Unanswered
from fairlane.errors import AuthenticationFailed, BackendFull, ConfigurationError, EventTooLarge, FairlaneError

BUSY_PAUSES = Pauses(0.03, 0.03, least=0.05)
"""Pauses between two tries while others write. They are short, since the server has already waited for 0.1 s."""

_BUSY = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "TRANSACTION_TIMEOUT", "TRANSACTION_BUSY"})
"""Codes of a busy database: another connection has the lock, or the server ended the transaction. Nothing changed."""

_NO_ANSWER = frozenset({"SERVER_ERROR", "HRANA_PROTO_ERROR", "HRANA_WEBSOCKET_ERROR", "HRANA_CLOSED_ERROR"})
"""Codes of the client for a response that is not an answer of the database."""

_TOO_LARGE = frozenset({"SQLITE_TOOBIG", "ARGS_INVALID"})
"""Codes for a row (the first) or a single value (the second) above the server's limit.

ARGS_INVALID has other meanings too, but Fairlane's arguments are otherwise valid.
"""


class Failed(Exception):
    """Raised by `Client`: the server did not carry out a request, or that is unknown. It contains no driver error.

    Attributes:
        uncertain: whether the request may have been carried out.
        status: the HTTP status; 0 for none.
    """

    def __init__(self, reason: str, *, uncertain: bool, status: int = 0) -> None:
        super().__init__(reason)
        self.uncertain = uncertain
        self.status = status

    @classmethod
    def by(cls, status: int, text: str) -> Self:
        """Return the error for an HTTP status. 4xx means that nothing was done; others may come from a proxy later."""
        uncertain = not 400 <= status < 500 or status == 408
        return cls(f"HTTP {status}: {excerpt(text)}", uncertain=uncertain, status=status)


@dataclass(frozen=True, slots=True)
class Errors:
    """Translates errors of one server.

    Attributes:
        host: for messages.
        retry_seconds: see `TIMEOUTS`.
    """

    host: str
    retry_seconds: float

    def translate(self, error: Exception, *, publishes: bool = False) -> Exception | None:
        """Return the error to raise instead, with this error as its cause; None if this error must pass unchanged.

        A driver error that contains the request, and so the token, does not become the cause.

        Args:
            publishes: whether the request has an event, which may be too large.
        """
        if isinstance(error, FairlaneError):
            return None
        found = self._of_sql(error, publishes) if isinstance(error, LibsqlError) else self._of_http(error)
        if found is not None and not isinstance(error, aiohttp.ClientResponseError):
            found.__cause__ = error
        return found

    def _of_sql(self, error: LibsqlError, publishes: bool) -> Exception:
        code = error.code
        if code in _BUSY:
            return self._unanswered("it stayed busy with other writers", uncertain=False, pauses=BUSY_PAUSES)
        if code in _NO_ANSWER:
            return self._unanswered(excerpt(error.explanation), uncertain=True)
        if code in _TOO_LARGE and publishes:
            return EventTooLarge(None, None)
        if code == "SQLITE_FULL":
            return BackendFull("libsql", self.host, excerpt(error.explanation))
        if code == "SQLITE_AUTH":
            return self._denied()
        if code == "SQLITE_READONLY":
            return ConfigurationError(
                f"libsql at {self.host} is read-only: use the URL of a server that accepts writes"
            )
        return Refused(error, constraint=code.startswith("SQLITE_CONSTRAINT"))

    def _of_http(self, error: Exception) -> Exception | None:
        if isinstance(error, Failed):
            if error.status in (401, 403):
                return self._denied()
            if error.status == 413:
                return EventTooLarge(None, None)
            return self._unanswered(str(error), uncertain=error.uncertain)
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            return self._unanswered(f"no connection: {_reason(error)}", uncertain=False)
        if isinstance(error, aiohttp.ClientResponseError):
            return self._unanswered(f"not an answer of libSQL (HTTP {error.status})", uncertain=True)
        if isinstance(error, TimeoutError):
            return self._unanswered("no answer in time", uncertain=True)
        if isinstance(error, aiohttp.ClientError | OSError):
            return self._unanswered(f"no answer: {_reason(error)}", uncertain=True)
        if isinstance(error, ValueError | LookupError | TypeError):
            return self._unanswered(f"not an answer of libSQL: {type(error).__name__}", uncertain=True)
        return None

    def _unanswered(self, reason: str, *, uncertain: bool, pauses: Pauses = PAUSES) -> Unanswered:
        return Unanswered("libsql", self.host, reason, uncertain=uncertain, seconds=self.retry_seconds, pauses=pauses)

    def _denied(self) -> FairlaneError:
        return AuthenticationFailed(
            "libsql", self.host, "the server refused the token, or the token does not allow writes"
        )


def _reason(error: Exception) -> str:
    return excerpt(str(getattr(error, "strerror", None) or error)) or type(error).__name__
