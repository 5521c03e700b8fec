"""The requests and answers of rqlite: bodies, rows, and the meaning of errors.

rqlite may refuse a request (`Refused`), or no leader may answer it (`Unanswered`, which says whether the request may
have been applied). The core decides what to do then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from fairlane.backends.rqlite.address import Address, Nodes, leader_in
from fairlane.backends.rqlite.errors import RqliteError, sql_error
from fairlane.backends.shared.family_batches import BATCHES, CLAIM_NEXT, answer_of
from fairlane.backends.shared.http import PAUSES, excerpt, innermost
from fairlane.backends.shared.retry import Refused, Unanswered
from fairlane.backends.shared.sent_twice import EXISTS, Batch, Statement
from fairlane.backends.shared.sqlite_statements import Statements
from fairlane.backends.stored import CLAIM, REVISION, Call, Operation, Rows
from fairlane.errors import AuthenticationFailed, ConfigurationError, EventTooLarge

OLDEST = (8, 43)
"""The oldest supported rqlite; older source code was not checked. Before 8.33, 'now' was different on each node."""

Result: TypeAlias = Mapping[str, Any]
"""The result of one statement: columns and values, or an error."""

_CLOCK = Call(Operation("clock", ()), {})
"""Writes the time into a setting, for the operation that follows it in the same request."""

_EXISTS = Call(EXISTS, {})
_CLAIMS = frozenset({CLAIM, CLAIM_NEXT})
_REPLACED = "\ufffd"
_SIZES = {"group_id": "group_bytes", "event": "event_bytes"}
"""Columns of a claim that hold text, and those that say how many bytes it has where it is stored."""

_NO_LEADER = b"leader not found"
_REDIRECTS = frozenset({301, 302, 307, 308})
_VERSION_HEADER = "x-rqlite-version"


@dataclass(frozen=True, slots=True)
class Post:
    """An HTTP request, without its node."""

    path: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, and the node that sent it."""

    node: str
    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """Makes requests and reads answers for the executors of one queue. It has no connection."""

    def __init__(self, address: Address, queue: str) -> None:
        self.address = address
        self.nodes = Nodes(address.nodes)
        self._statements = Statements(queue, "rqlite")
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if address.authorization:
            self._headers["Authorization"] = address.authorization

    def post(self, request: Call | Batch) -> Post:
        """Return the HTTP request for a request.

        With `redirect` a follower names the leader. Otherwise it would forward the request, possibly twice. With
        `transaction` all statements are applied, or none; they are one entry of the log in any case.
        """
        reads = request.reads if isinstance(request, Batch) else request.operation.looks
        statements = request.statements if isinstance(request, Batch) else self._of_call(request)
        body = [[sql, _parameters(values)] if values else [sql] for sql, values in statements]
        path = "/db/query?level=strong&redirect" if reads else "/db/execute?transaction&redirect"
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        # only a wrong token can have a lone surrogate; it is still wrong after the replacement
        return Post(path, text.encode("utf-8", "replace"), self._headers)

    def _of_call(self, call: Call) -> tuple[Statement, ...]:
        """Return the statements of a request. Writes need the clock; a batch has one clock for all its calls."""
        if call.operation in BATCHES:
            calls = [(self._statements[each], each.arguments) for each in call.arguments["calls"]]
            return (*calls,) if call.operation.looks else ((self._statements[_CLOCK], {}), *calls)
        statement = (self._statements[call], call.arguments)
        if call.operation is REVISION:
            return (self._statements[_EXISTS], {}), statement
        if call.operation.looks:
            return (statement,)
        return (self._statements[_CLOCK], {}), statement

    def broken(self, node: str, error: Exception, *, sent: bool) -> Unanswered:
        """Return the error for a failed connection.

        Args:
            sent: whether the node may have received the request.
        """
        self.nodes.failed(node)
        failure = "no answer from" if sent else "no connection to"
        return self._unanswered(f"{failure} {_shown(node)}: {innermost(error)}", uncertain=sent)

    def no_free_connection(self) -> Unanswered:
        """Return the error for a request that found no free connection in time. The node is not the cause."""
        return self._unanswered("earlier requests of this transport have no answer yet", uncertain=False, pause=True)

    def rows(self, call: Call, answer: Answer) -> Rows:
        """Return the rows of an operation.

        Raises:
            Refused, Unanswered: see these classes.
            AuthenticationFailed, ConfigurationError, RqliteError: trying again does not help.
        """
        results = self._results(answer)
        if call.operation is REVISION and not self._rows(results[0])[0]["found"]:
            return []
        if call.operation in BATCHES:
            return self._rows_of_batch(call, results, answer.node)
        return self._rows_of_call(call, results[-1], answer.node)

    def _rows_of_batch(self, batch: Call, results: list[Result], node: str) -> Rows:
        """Return the answer of a batch.

        Up to rqlite 9.4, the failure of a statement with RETURNING does not end the transaction. So there a batch that
        fails in the middle, since the disk is full, may be carried out in part.
        """
        for result in results:
            self._rows(result)  # the first error is the reason, and the last result
        calls = batch.arguments["calls"]
        if len(results) < len(calls):
            raise RqliteError(f"rqlite at {_shown(node)} has answered only a part of {batch.operation.name}")
        return answer_of(
            self._rows_of_call(call, result, node) for call, result in zip(calls, results[-len(calls) :], strict=True)
        )

    def _rows_of_call(self, call: Call, result: Result, node: str) -> Rows:
        rows = self._rows(result)
        if call.operation.columns and "columns" not in result:
            raise RqliteError(
                f"rqlite at {_shown(node)} has carried out {call.operation.name}, but its answer has no rows"
            )
        return _as_stored(rows) if call.operation in _CLAIMS else rows

    def rows_of_each(self, answer: Answer) -> list[Rows]:
        """Return the rows of each statement of a batch; errors as in `rows`."""
        return [self._rows(result) for result in self._results(answer)]

    def _results(self, answer: Answer) -> list[Result]:
        """Return the result of each statement."""
        if answer.status != 200:
            self._failed(answer)
        # an error at the top concerns the whole request, for example "leadership lost" while the log was written
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
        """Raise the error for an answer without results."""
        node, status = answer.node, answer.status
        text = excerpt(answer.body) or "an empty answer"
        if status in _REDIRECTS:
            self._redirected(node, answer.headers.get("location", ""))
        if status in (401, 403):
            raise AuthenticationFailed(
                "rqlite",
                self.address.host,
                f"{_shown(node)} refused the credentials, or the user lacks the permission execute or query",
            )
        if status == 413:
            raise EventTooLarge(None, None)
        if status == 400:
            raise RqliteError(f"rqlite at {_shown(node)} refused the request: {text}")
        self.nodes.failed(node)
        if status == 503 and answer.body.strip() == _NO_LEADER:
            raise self._unanswered(f"{_shown(node)} does not know a leader", uncertain=False, pause=True)
        # 404 and 405 come from a server that is not rqlite, so nothing was done; a proxy may send any other status
        # although rqlite has applied the request
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
                f"rqlite at {_shown(node)} names a leader without TLS, {_shown(leader)}: requests and the password "
                "would not be encrypted; configure TLS on every node, and advertise https addresses"
            )
        self.nodes.redirected(node, leader)
        raise self._unanswered(f"{_shown(node)} names {_shown(leader)} as the leader", uncertain=False)

    def _unanswered(self, reason: str, *, uncertain: bool, pause: bool = False) -> Unanswered:
        """Return an `Unanswered`.

        Args:
            pause: whether to wait before the next try. Otherwise another node is tried at once.
        """
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
            # rqlite sends no code; this is SQLite's text for the result code CONSTRAINT
            raise Refused(sql_error(text, self.address.host), constraint=" constraint failed: " in text)
        columns: list[str] = result.get("columns") or []
        rows = [dict(zip(columns, values, strict=True)) for values in result.get("values") or []]
        reals = [name for name in columns if name.endswith("_seconds")]
        for row in rows:  # JSON has an integer for a REAL without a fraction
            row.update({name: float(row[name]) for name in reals if row[name] is not None})
        return rows


def _check_version(version: str) -> None:
    """Refuse an old rqlite. The first request of a transport only reads, so nothing was changed then."""
    found = re.match(r"v?(\d+)\.(\d+)\b", version)
    if found and (int(found[1]), int(found[2])) < OLDEST:
        raise ConfigurationError(f"rqlite {'.'.join(map(str, OLDEST))} or newer is needed; this is {version}")


def _parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Put a letter before every text, since rqlite stores a text like x'6869' as a BLOB. Statements remove it."""
    return {name: f"t{value}" if isinstance(value, str) else value for name, value in values.items()}


def _as_stored(rows: Rows) -> Rows:
    """Return what was claimed with text that is no UTF-8 as bytes: rqlite puts a sign of replacement in its place."""
    return [{**row} | {name: _true_text(row[name], row[size]) for name, size in _SIZES.items()} for row in rows]


def _true_text(text: Any, size: Any) -> Any:
    if not isinstance(text, str) or _REPLACED not in text:
        return text
    stored = text.encode()
    return text if len(stored) == size else stored.replace(_REPLACED.encode(), b"\xff")


def _shown(node: str) -> str:
    return node.partition("://")[2]
