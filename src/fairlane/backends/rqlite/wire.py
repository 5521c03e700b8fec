"""What goes to rqlite and what comes back: bodies, answers, and which failures leave what behind.

A request may be refused (`Refused`), never reach a leader, or be applied although its answer is lost (`Undelivered`,
which says whether that can be). What to do about it is up to `delivered`, and so to the cores.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlane.backends.rqlite.address import Address, Nodes, node_of
from fairlane.backends.shared.sqlite_statements import EXISTS, Statements
from fairlane.backends.stored import REVISION, Call, Operation, Rows
from fairlane.errors import (
    AuthenticationFailed,
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    EventTooLarge,
    FairlaneError,
)
from fairlane.program import AnswerT, Program, RequestT, Sleep

OLDEST = (8, 43)
"""The oldest rqlite whose source was consulted. Before 8.33 each node had a time of its own in 'now'."""

PAUSE = (0.05, 0.5)
"""Seconds before the second round of tries, and at most."""

_CLOCK = Call(Operation("clock", ()), {})
"""Writes the time into a setting, for the operation that follows in the same request."""

_EXISTS = Call(EXISTS, {})
_NO_LEADER = b"leader not found"
_VERSION_HEADER = "x-rqlite-version"


class RqliteError(FairlaneError):
    """rqlite refused a request in a way that Fairlane has no better name for. Nothing was changed."""


class Refused(Exception):
    """Told by an executor to its core: a statement failed, and nothing was changed. Never leaves a core.

    Attributes:
        error: what to raise if the queue is there, so that this is not the reason.
    """

    def __init__(self, error: FairlaneError) -> None:
        super().__init__(error)
        self.error = error


class Undelivered(Exception):
    """Told by an executor to its core: no leader has answered. Never leaves a core.

    Attributes:
        reason: for people.
        uncertain: the request may have been applied.
        pause: trying again makes sense only after a while; else another node is worth a try at once.
    """

    def __init__(self, address: Address, nodes: Nodes, reason: str, *, uncertain: bool, pause: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.uncertain = uncertain
        self.pause = pause
        self.patience = address.retry_seconds
        self.nodes = nodes.count
        self.host = address.host

    def error(self, *, uncertain: bool) -> BackendUnavailable:
        """Return what callers see, of the last try and what is known of all of them."""
        outcome = "whether the request was carried out is not known" if uncertain else "nothing was changed"
        return BackendUnavailable("rqlite", self.host, f"{self.reason} ({outcome})")


@dataclass(frozen=True, slots=True)
class Batch:
    """Several statements in one request: all of them are applied, or none. The answer is the rows of each."""

    statements: tuple[tuple[str, Mapping[str, Any]], ...]
    reads: bool = False


def delivered(
    request: RequestT, *, repeatable: bool, patience: float | None = None
) -> Program[RequestT, AnswerT, AnswerT]:
    """Send a request until a leader has answered it, and return the answer.

    What was certainly not applied is sent again in any case: to another node at once, and when all have had their
    turn, after a pause. What may have been applied is sent again only if it is `repeatable`.

    Args:
        patience: seconds after which there is no further try, if not what the address says. 0 is one round.

    Raises:
        BackendUnavailable: it says whether the request may have been applied.
    """
    began = time.monotonic()
    tries, pause, uncertain = 0, PAUSE[0], False
    while True:
        try:
            return (yield request)
        except Undelivered as failure:
            tries += 1
            uncertain = uncertain or failure.uncertain
            round_over = failure.pause or tries > failure.nodes
            limit = failure.patience if patience is None else patience
            left = limit - (time.monotonic() - began)
            if (uncertain and not repeatable) or (left <= 0 and (round_over or failure.uncertain)):
                raise failure.error(uncertain=uncertain) from failure.__cause__
        if round_over:
            yield Sleep(min(left, pause * random.uniform(0.5, 1.0)))
            tries, pause = 0, min(2 * pause, PAUSE[1])


@dataclass(frozen=True, slots=True)
class Post:
    """An HTTP request, without the node it goes to."""

    path: str
    body: bytes
    headers: Mapping[str, str]


class Wire:
    """Translates for both executors of one queue; holds no connection."""

    def __init__(self, address: Address, queue: str) -> None:
        self.address = address
        self.nodes = Nodes(address.nodes)
        self._statements = Statements(queue, "rqlite")
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if address.authorization:
            self._headers["Authorization"] = address.authorization

    def post(self, request: Call | Batch) -> Post:
        """Return a request in HTTP.

        `redirect`: a follower must name the leader instead of passing the request on, which it may do twice.
        `transaction`: all statements or none; they go into the log as one entry in any case.
        """
        if isinstance(request, Batch):
            statements: Sequence[tuple[str, Mapping[str, Any]]] = request.statements
            reads = request.reads
        else:
            reads = request.operation.looks
            statements = [(self._statements[request], request.arguments)]
            if request.operation is REVISION:
                statements = [(self._statements[_EXISTS], {}), *statements]
            elif not reads:
                statements = [(self._statements[_CLOCK], {}), *statements]
        body = [[sql, _parameters(values)] if values else [sql] for sql, values in statements]
        path = "/db/query?level=strong&redirect" if reads else "/db/execute?transaction&redirect"
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        # only a token that somebody made up can hold a lone surrogate: changed, it is still nobody's
        return Post(path, text.encode("utf-8", "replace"), self._headers)

    def broken(self, node: str, error: Exception, *, sent: bool) -> Undelivered:
        """Return what a failure of the connection amounts to; `sent`: the node may have got the request."""
        self.nodes.failed(node)
        what = "no answer from" if sent else "no connection to"
        return self._undelivered(f"{what} {_shown(node)}: {_innermost(error)}", uncertain=sent)

    def answer(self, request: Call | Batch, node: str, status: int, headers: Mapping[str, str], body: bytes) -> Any:
        """Return the rows of an answer: of the last statement for a `Call`, of each for a `Batch`.

        Raises:
            Undelivered, Refused: see there.
            AuthenticationFailed, ConfigurationError, RqliteError: it makes no sense to try again.
        """
        if status == 200:
            results = self._results(node, body)
            self._check_version(headers.get(_VERSION_HEADER, ""))
            if isinstance(request, Batch):
                return [self._rows(result) for result in results]
            if request.operation is REVISION and not self._rows(results[0])[0]["found"]:
                return []
            rows = self._rows(results[-1])
            if "columns" not in results[-1]:
                raise RqliteError(
                    f"rqlite at {_shown(node)} has carried out {request.operation.name}, but returns no rows"
                )
            return rows
        if status in (301, 302, 307, 308):
            leader = self._leader(node, headers.get("location", ""))
            self.nodes.redirected(node, leader)
            raise self._undelivered(f"{_shown(node)} names {_shown(leader)} as the leader", uncertain=False)
        self._check_status(node, status, body)
        self.nodes.failed(node)
        if status == 503 and body.strip() == _NO_LEADER:
            raise self._undelivered(f"{_shown(node)} knows of no leader", uncertain=False, pause=True)
        reason = f"{_shown(node)} answers with HTTP {status}: {_excerpt(body)}"
        # 404 and 405: this is no rqlite, so it has not done anything. The rest may come from a proxy, after the fact
        raise self._undelivered(reason, uncertain=status not in (404, 405), pause=True)

    def _undelivered(self, reason: str, *, uncertain: bool, pause: bool = False) -> Undelivered:
        return Undelivered(self.address, self.nodes, reason, uncertain=uncertain, pause=pause)

    def _check_status(self, node: str, status: int, body: bytes) -> None:
        if status in (401, 403):
            raise AuthenticationFailed(
                "rqlite",
                self.address.host,
                f"{_shown(node)} refused the credentials, or their user lacks the permission execute or query",
            )
        if status == 413:
            raise EventTooLarge(None, None)
        if status == 400:
            raise RqliteError(f"rqlite at {_shown(node)} does not take the request: {_excerpt(body)}")

    def _leader(self, node: str, location: str) -> str:
        """Return the node that a redirect names, without the path, which is that of our request."""
        scheme, _, rest = location.partition("://")
        try:
            leader = node_of(rest.partition("/")[0], default={"http": 80, "https": 443}[scheme])
        except (ConfigurationError, KeyError):
            reason = f"{_shown(node)} redirects to {location!r:.200}"
            raise self._undelivered(reason, uncertain=False, pause=True) from None
        if self.address.secure and scheme != "https":
            raise ConfigurationError(
                f"rqlite at {_shown(node)} names a leader without TLS, {leader}: requests would leave TLS, and the "
                "password with them; let every node serve TLS, and advertise itself with it"
            )
        return f"{scheme}://{leader}"

    def _results(self, node: str, body: bytes) -> list[dict[str, Any]]:
        """Return the results of the statements.

        An error at the top is that of the request as a whole, such as a leadership lost while it was written.
        """
        try:
            document = json.loads(body)
            results: list[dict[str, Any]] = document["results"]
            error = document.get("error")
        except (ValueError, LookupError, TypeError):
            results, error = [], f"not an answer of rqlite: {_excerpt(body)}"
        if error or not results:
            raise self._undelivered(f"{_shown(node)}: {error or 'no results'}", uncertain=True, pause=True)
        return results

    def _rows(self, result: Mapping[str, Any]) -> Rows:
        if "error" in result:
            raise Refused(self._sql_error(str(result["error"])))
        columns: list[str] = result.get("columns") or []
        rows = [dict(zip(columns, values, strict=True)) for values in result.get("values") or []]
        reals = [name for name in columns if name.endswith("_seconds")]
        for row in rows:  # a REAL without a fraction arrives as an integer
            row.update({name: float(row[name]) for name in reals if row[name] is not None})
        return rows

    def _sql_error(self, text: str) -> FairlaneError:
        """Give an SQL error its name. There is only text: SQLite's own for its result codes FULL and TOOBIG."""
        if text == "database or disk is full":
            return BackendFull("rqlite", self.address.host, text)
        if text == "string or blob too big":
            return EventTooLarge(None, None)
        return RqliteError(f"rqlite at {self.address.host} refused a statement: {text}")

    @staticmethod
    def _check_version(version: str) -> None:
        """Refuse an old rqlite. The first request of everybody is one that only reads."""
        found = re.match(r"v?(\d+)\.(\d+)\b", version)
        if found and (int(found[1]), int(found[2])) < OLDEST:
            raise ConfigurationError(f"rqlite {'.'.join(map(str, OLDEST))} or newer is needed; this is {version}")


def _parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Put a letter before every text, which the statements take off: rqlite stores one like x'6869' as a BLOB."""
    return {name: f"t{value}" if isinstance(value, str) else value for name, value in values.items()}


def _shown(node: str) -> str:
    return node.partition("://")[2]


def _excerpt(body: bytes) -> str:
    return " ".join(body[:400].decode("utf-8", "replace").split())[:200] or "an empty answer"


def _innermost(error: BaseException) -> str:
    """Return the text of the error at the bottom: HTTP clients wrap what the network said several times over."""
    seen: list[BaseException] = [error]
    while (inner := seen[-1].__cause__ or seen[-1].__context__ or getattr(seen[-1], "reason", None)) is not None:
        if not isinstance(inner, BaseException) or inner in seen:
            break
        seen.append(inner)
    said = [str(each) for each in seen if str(each)]
    return said[-1] if said else type(error).__name__
