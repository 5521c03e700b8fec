"""What goes to libSQL and what comes back: statements, and which failures leave what behind.

A request may be refused (`Refused`), or stay without an answer (`Unanswered`), and then it may have been applied all
the same. What to do about it is up to `delivered`, and so to the core.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from libsql_client import LibsqlError

from fairlane.backends.shared.sqlite_statements import Statements
from fairlane.backends.stored import PUBLISH, Call
from fairlane.errors import AuthenticationFailed, BackendFull, BackendUnavailable, EventTooLarge, FairlaneError
from fairlane.program import AnswerT, Program, RequestT, Sleep

PAUSE = (0.05, 0.5)
"""Seconds before the second try, and at most between two."""

BUSY_PAUSE = (0.002, 0.03)
"""Seconds between two tries while others write, at random: the server itself has waited for 0.1 then."""

_BUSY = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "TRANSACTION_TIMEOUT", "TRANSACTION_BUSY"})
"""Nothing was changed: another connection held the database, or had it taken from this one's transaction."""

_NO_ANSWER = frozenset({"SERVER_ERROR", "HRANA_PROTO_ERROR", "HRANA_WEBSOCKET_ERROR", "HRANA_CLOSED_ERROR"})
"""The client's own names for what is no answer of the database."""

_TOO_LARGE = frozenset({"SQLITE_TOOBIG", "ARGS_INVALID"})
"""A row, or a value alone, above the server's limit; there is no code for the latter, but our arguments are valid."""

Part = tuple[str, dict[str, Any]]
"""A statement and its arguments."""

_NAME = re.compile(r":(p_\w+)")


class Refused(Exception):
    """Told by an executor to its core: a statement failed, and nothing was changed. Never leaves a core.

    Attributes:
        error: what to raise if the queue is there, so that this is not the reason.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Unanswered(Exception):
    """Told by an executor to its core: the request was not carried out, or nobody knows. Never leaves a core.

    Attributes:
        reason: for people.
        uncertain: the request may have been applied.
        busy: the server is there, and others are writing.
        patience: seconds for which trying again makes sense.
    """

    def __init__(self, host: str, reason: str, patience: float, *, uncertain: bool, busy: bool = False) -> None:
        super().__init__(reason)
        self.host = host
        self.reason = reason
        self.patience = patience
        self.uncertain = uncertain
        self.busy = busy

    def error(self, *, uncertain: bool) -> BackendUnavailable:
        """Return what callers see, of the last try and what is known of all of them."""
        outcome = "whether the request was carried out is not known" if uncertain else "nothing was changed"
        return BackendUnavailable("libsql", self.host, f"{self.reason} ({outcome})")


@dataclass(frozen=True, slots=True)
class Script:
    """Statements without parameters in one request: all of them are applied, or none. The answer is the rows of each.

    A single one is sent without the transaction around it.
    """

    statements: tuple[str, ...]


def is_write(request: Call | Script) -> bool:
    """Tell whether a request needs the server's write lock. A script of one statement looks at something."""
    return not request.operation.looks if isinstance(request, Call) else len(request.statements) > 1


def delivered(
    request: RequestT, *, repeatable: bool, patience: float | None = None
) -> Program[RequestT, AnswerT, AnswerT]:
    """Send a request until it has been answered, and return the answer.

    What was certainly not applied is sent again in any case, what may have been only if it is `repeatable`.

    Args:
        patience: seconds after which there is no further try, if not what the address says. 0 is one try.

    Raises:
        BackendUnavailable: it says whether the request may have been applied.
    """
    began, pause, uncertain = time.monotonic(), PAUSE[0], False
    while True:
        try:
            return (yield request)
        except Unanswered as failure:
            uncertain = uncertain or failure.uncertain
            if failure.busy:
                wait = random.uniform(*BUSY_PAUSE)
            else:
                wait, pause = pause * random.uniform(0.5, 1.0), min(2 * pause, PAUSE[1])
            late = time.monotonic() - began + wait >= (failure.patience if patience is None else patience)
            if late or (uncertain and not repeatable):
                raise failure.error(uncertain=uncertain) from failure.__cause__
        yield Sleep(wait)


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
        return cls(
            f"HTTP {status}: {_excerpt(text)}", uncertain=not 400 <= status < 500 or status == 408, status=status
        )


class Wire:
    """Translates for the executors of one queue; holds no connection."""

    def __init__(self, queue: str, host: str, patience: float) -> None:
        self._host = host
        self._patience = patience
        self._statements = Statements(queue, "libsql")
        self._names: dict[str, tuple[str, ...]] = {}

    def parts(self, request: Call | Script) -> list[Part]:
        """Return the statements of a request with their arguments: one for `execute`, several for `batch`."""
        if isinstance(request, Call):
            return [self._statement(request)]
        return [(text, {}) for text in request.statements]

    @staticmethod
    def answer(request: Call | Script, results: Sequence[Any]) -> Any:
        """Return the rows of a call, or of each statement of a script."""
        rows = [[row.asdict() for row in result.rows] for result in results]
        return rows[0] if isinstance(request, Call) else rows

    def _statement(self, call: Call) -> Part:
        """Take the arguments that occur in the statement: others are an error here."""
        text = self._statements[call]
        names = self._names.get(text)
        if names is None:
            names = self._names[text] = tuple(dict.fromkeys(_NAME.findall(text)))
        arguments = {name: call.arguments[name] for name in names}
        token = arguments.get("p_token")
        if isinstance(token, str) and not token.isascii():
            # only one that somebody made up can hold a lone surrogate: changed, it is still nobody's
            arguments["p_token"] = token.encode("utf-8", "replace").decode()
        return text, arguments

    def failure(self, request: Call | Script, error: Exception) -> Exception | None:
        """Return what to raise in place of an error, with it as the cause; None: this error is not ours to explain.

        The driver's errors that hold the request, and so the token, are left out of the chain.
        """
        if isinstance(error, FairlaneError):
            return None
        found = self._sql_failure(request, error) if isinstance(error, LibsqlError) else self._http_failure(error)
        if found is not None and not isinstance(error, aiohttp.ClientResponseError):
            found.__cause__ = error
        return found

    def _sql_failure(self, request: Call | Script, error: LibsqlError) -> Exception:
        code = error.code
        if code in _BUSY:
            return self._unanswered("it stayed busy with other writers", uncertain=False, busy=True)
        if code in _NO_ANSWER:
            return self._unanswered(_excerpt(error.explanation), uncertain=True)
        if code in _TOO_LARGE and isinstance(request, Call) and request.operation is PUBLISH:
            return EventTooLarge(None, None)
        if code == "SQLITE_FULL":
            return BackendFull("libsql", self._host, _excerpt(error.explanation))
        if code == "SQLITE_AUTH":
            return self._denied()
        return Refused(error)

    def _http_failure(self, error: Exception) -> Exception | None:
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
        if isinstance(error, aiohttp.ClientError | OSError):  # the latter includes TimeoutError
            return self._unanswered(f"no answer: {_reason(error)}", uncertain=True)
        if isinstance(error, ValueError | LookupError | TypeError):
            return self._unanswered(f"not an answer of libSQL: {type(error).__name__}", uncertain=True)
        return None

    def _unanswered(self, reason: str, *, uncertain: bool, busy: bool = False) -> Unanswered:
        return Unanswered(self._host, reason, self._patience, uncertain=uncertain, busy=busy)

    def _denied(self) -> FairlaneError:
        return AuthenticationFailed(
            "libsql", self._host, "the server refused the token, or the token does not let its holder write"
        )


def _reason(error: Exception) -> str:
    return _excerpt(str(getattr(error, "strerror", None) or error)) or type(error).__name__


def _excerpt(text: str) -> str:
    return " ".join(text[:400].split())[:200]
