"""What goes to rqlite and what comes back: bodies, rows, and which answers leave what behind.

A request may be refused (`Refused`), or stay without an answer of a leader (`Unanswered`, which says whether it may
have been applied all the same). What to do about it is up to the core.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from fairlane.backends.rqlite.address import Address, Nodes, leader_in
from fairlane.backends.rqlite.errors import RqliteError, sql_error
from fairlane.backends.shared.http import PAUSES, excerpt, innermost
from fairlane.backends.shared.retry import Refused, Unanswered
from fairlane.backends.shared.sent_twice import EXISTS, Batch, Statement
from fairlane.backends.shared.sqlite_statements import Statements
from fairlane.backends.stored import REVISION, Call, Operation, Rows
from fairlane.errors import AuthenticationFailed, ConfigurationError, EventTooLarge

OLDEST = (8, 43)
"""The oldest rqlite whose source was consulted. Before 8.33 each node had a time of its own in 'now'."""

Result: TypeAlias = Mapping[str, Any]
"""What rqlite says of one statement: columns and values, or an error."""

_CLOCK = Call(Operation("clock", ()), {})
"""Writes the time into a setting, for the operation that follows in the same request."""

_EXISTS = Call(EXISTS, {})
_NO_LEADER = b"leader not found"
_REDIRECTS = frozenset({301, 302, 307, 308})
_VERSION_HEADER = "x-rqlite-version"


@dataclass(frozen=True, slots=True)
class Post:
    """An HTTP request, without the node it goes to."""

    path: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, and the node that gave it."""

    node: str
    status: int
    headers: Mapping[str, str]
    body: bytes


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
        reads = request.reads if isinstance(request, Batch) else request.operation.looks
        statements = request.statements if isinstance(request, Batch) else self._of_call(request)
        body = [[sql, _parameters(values)] if values else [sql] for sql, values in statements]
        path = "/db/query?level=strong&redirect" if reads else "/db/execute?transaction&redirect"
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        # only a token that somebody made up can hold a lone surrogate: changed, it is still nobody's
        return Post(path, text.encode("utf-8", "replace"), self._headers)

    def _of_call(self, call: Call) -> tuple[Statement, ...]:
        statement = (self._statements[call], call.arguments)
        if call.operation is REVISION:
            return (self._statements[_EXISTS], {}), statement
        if call.operation.looks:
            return (statement,)
        return (self._statements[_CLOCK], {}), statement

    def broken(self, node: str, error: Exception, *, sent: bool) -> Unanswered:
        """Return what a failure of the connection amounts to; `sent`: the node may have got the request."""
        self.nodes.failed(node)
        what = "no answer from" if sent else "no connection to"
        return self._unanswered(f"{what} {_shown(node)}: {innermost(error)}", uncertain=sent)

    def never_began(self) -> Unanswered:
        """Return what it amounts to that a request got no connection, which is no fault of the node."""
        return self._unanswered("earlier requests of this transport have no answer yet", uncertain=False, pause=True)

    def rows(self, call: Call, answer: Answer) -> Rows:
        """Return the rows of an operation.

        Raises:
            Refused, Unanswered: see there.
            AuthenticationFailed, ConfigurationError, RqliteError: it makes no sense to try again.
        """
        results = self._results(answer)
        if call.operation is REVISION and not self._rows(results[0])[0]["found"]:
            return []
        rows = self._rows(results[-1])
        if "columns" not in results[-1]:
            raise RqliteError(
                f"rqlite at {_shown(answer.node)} has carried out {call.operation.name}, but returns no rows"
            )
        return rows

    def rows_of_each(self, answer: Answer) -> list[Rows]:
        """Return the rows of each statement of a batch; errors as in `rows`."""
        return [self._rows(result) for result in self._results(answer)]

    def _results(self, answer: Answer) -> list[Result]:
        """Return what rqlite says of each statement."""
        if answer.status != 200:
            self._failed(answer)
        # an error at the top is that of the request as a whole, such as a leadership lost while it was written
        try:
            document = json.loads(answer.body)
            results: list[Result] = document["results"]
            error = document.get("error")
        except (ValueError, LookupError, TypeError):
            results, error = [], f"not an answer of rqlite: {excerpt(answer.body) or 'an empty answer'}"
        if error or not results:
            raise self._unanswered(f"{_shown(answer.node)}: {error or 'no results'}", uncertain=True, pause=True)
        _check_version(answer.headers.get(_VERSION_HEADER, ""))
        return results

    def _failed(self, answer: Answer) -> NoReturn:
        """Raise what an answer amounts to that brings no results."""
        node, status = answer.node, answer.status
        text = excerpt(answer.body) or "an empty answer"
        if status in _REDIRECTS:
            self._redirected(node, answer.headers.get("location", ""))
        if status in (401, 403):
            raise AuthenticationFailed(
                "rqlite",
                self.address.host,
                f"{_shown(node)} refused the credentials, or their user lacks the permission execute or query",
            )
        if status == 413:
            raise EventTooLarge(None, None)
        if status == 400:
            raise RqliteError(f"rqlite at {_shown(node)} does not take the request: {text}")
        self.nodes.failed(node)
        if status == 503 and answer.body.strip() == _NO_LEADER:
            raise self._unanswered(f"{_shown(node)} knows of no leader", uncertain=False, pause=True)
        # 404 and 405: this is no rqlite, so it has not done anything. The rest may come from a proxy, after the fact
        raise self._unanswered(
            f"{_shown(node)} answers with HTTP {status}: {text}", uncertain=status not in (404, 405), pause=True
        )

    def _redirected(self, node: str, location: str) -> NoReturn:
        leader = leader_in(location)
        if leader is None:
            reason = f"{_shown(node)} redirects to {location!r:.200}"
            self.nodes.failed(node)
            raise self._unanswered(reason, uncertain=False, pause=True)
        if self.address.secure and not leader.startswith("https:"):
            raise ConfigurationError(
                f"rqlite at {_shown(node)} names a leader without TLS, {_shown(leader)}: requests would leave TLS, and "
                "the password with them; let every node serve TLS, and advertise itself with it"
            )
        self.nodes.redirected(node, leader)
        raise self._unanswered(f"{_shown(node)} names {_shown(leader)} as the leader", uncertain=False)

    def _unanswered(self, reason: str, *, uncertain: bool, pause: bool = False) -> Unanswered:
        """`pause`: trying again makes sense only after a while; else another node is worth a try at once."""
        return Unanswered(
            "rqlite",
            self.address.host,
            reason,
            uncertain=uncertain,
            seconds=self.address.retry_seconds,
            pauses=PAUSES,
            elsewhere=0 if pause else self.nodes.count,
        )

    def _rows(self, result: Result) -> Rows:
        if "error" in result:
            text = str(result["error"])
            # there is no code; SQLite's own words for the result code CONSTRAINT
            raise Refused(sql_error(text, self.address.host), constraint=" constraint failed: " in text)
        columns: list[str] = result.get("columns") or []
        rows = [dict(zip(columns, values, strict=True)) for values in result.get("values") or []]
        reals = [name for name in columns if name.endswith("_seconds")]
        for row in rows:  # a REAL without a fraction arrives as an integer
            row.update({name: float(row[name]) for name in reals if row[name] is not None})
        return rows


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
