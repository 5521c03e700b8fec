"""What libSQL, libsql-client and aiohttp say, as Fairlane's errors: by code and class, never by text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import aiohttp
from libsql_client import LibsqlError

from fairlane.backends.shared.http import PAUSES, excerpt
from fairlane.backends.shared.retry import Pauses, Refused, Unanswered
from fairlane.errors import AuthenticationFailed, BackendFull, ConfigurationError, EventTooLarge, FairlaneError

BUSY_PAUSES = Pauses(0.03, 0.03, least=0.05)
"""Between two tries while others write: the server itself has waited for 0.1 s then."""

_BUSY = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "TRANSACTION_TIMEOUT", "TRANSACTION_BUSY"})
"""Nothing was changed: another connection held the database, or had it taken from this one's transaction."""

_NO_ANSWER = frozenset({"SERVER_ERROR", "HRANA_PROTO_ERROR", "HRANA_WEBSOCKET_ERROR", "HRANA_CLOSED_ERROR"})
"""The client's own names for what is no answer of the database."""

_TOO_LARGE = frozenset({"SQLITE_TOOBIG", "ARGS_INVALID"})
"""A row, or a value alone, above the server's limit; there is no code for the latter, but our arguments are valid."""


class Failed(Exception):
    """Raised by our client: the server did not carry out a request, or nobody knows. Not a word of the driver's.

    Attributes:
        uncertain: it may have been carried out.
        status: HTTP's number for it; 0 for none.
    """

    def __init__(self, reason: str, *, uncertain: bool, status: int = 0) -> None:
        super().__init__(reason)
        self.uncertain = uncertain
        self.status = status

    @classmethod
    def by(cls, status: int, text: str) -> Self:
        """Make it of an HTTP status: 4xx comes before anything is done, all else may come from a proxy after that."""
        uncertain = not 400 <= status < 500 or status == 408
        return cls(f"HTTP {status}: {excerpt(text)}", uncertain=uncertain, status=status)


@dataclass(frozen=True, slots=True)
class Errors:
    """Translates the errors of one server.

    Attributes:
        host: for messages.
        retry_seconds: see `TIMEOUTS`.
    """

    host: str
    retry_seconds: float

    def translate(self, error: Exception, *, publishes: bool = False) -> Exception | None:
        """Return what to raise in place of an error, with it as the cause; None: this error is not ours to explain.

        The driver's errors that hold the request, and so the token, are left out of the chain.

        Args:
            publishes: the request brought an event, which may be too large.
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
                f"libsql at {self.host} can only be read from: give the URL of the server that takes writes"
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
            "libsql", self.host, "the server refused the token, or the token does not let its holder write"
        )


def _reason(error: Exception) -> str:
    return excerpt(str(getattr(error, "strerror", None) or error)) or type(error).__name__
