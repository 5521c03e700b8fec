"""The requests and answers of libSQL: statements with their arguments, and rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from libsql_client import ResultSet

from fairlane.backends.shared.family_batches import BATCHES, answer_of
from fairlane.backends.shared.sent_twice import Batch
from fairlane.backends.shared.sqlite_statements import Statements
from fairlane.backends.stored import Call, Rows

Part: TypeAlias = tuple[str, dict[str, Any]]
"""A statement and its arguments."""

_NAME = re.compile(r":(p_\w+)")


class Wire:
    """Makes requests for the executors of one queue. It has no connection."""

    def __init__(self, queue: str) -> None:
        self._statements = Statements(queue, "libsql")
        self._names: dict[str, tuple[str, ...]] = {}

    def parts(self, request: Call | Batch) -> list[Part]:
        """Return the statements of a request with their arguments: one for `execute`, several for `batch`."""
        if isinstance(request, Batch):
            return [(text, dict(arguments)) for text, arguments in request.statements]
        if request.operation in BATCHES:
            return [self._part(call) for call in request.arguments["calls"]]
        return [self._part(request)]

    def _part(self, call: Call) -> Part:
        """Return a statement with only the arguments that it uses, since libSQL refuses others."""
        text = self._statements[call]
        names = self._names.get(text)
        if names is None:
            names = self._names[text] = tuple(dict.fromkeys(_NAME.findall(text)))
        arguments = {name: call.arguments[name] for name in names}
        token = arguments.get("p_token")
        if isinstance(token, str) and not token.isascii():
            # a token with other characters is wrong; it is still wrong after the replacement of lone surrogates
            arguments["p_token"] = token.encode("utf-8", "replace").decode()
        return text, arguments


def rows_of(results: Sequence[ResultSet]) -> list[Rows]:
    """Return the rows of each statement."""
    return [[row.asdict() for row in result.rows] for result in results]


def answer_to(call: Call, results: Sequence[ResultSet]) -> Rows:
    """Return the rows of an operation, or the answer of a batch."""
    rows = rows_of(results)
    return answer_of(rows) if call.operation in BATCHES else rows[0]
