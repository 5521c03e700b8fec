"""Migrations of rqlite: the statements of a step and the new revision in one transaction, which is one request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fairlane.backends.rqlite.executor import RqliteExecutor
from fairlane.backends.rqlite.wire import Batch, Refused, delivered
from fairlane.backends.shared.sqlite_target import FamilyTarget
from fairlane.backends.stored import Rows
from fairlane.backends.targets import Choices
from fairlane.program import run

_CURL = """\
# One request, all of it or nothing. RQLITE is a node, such as http://localhost:4001; RQLITE_LOGIN is user:password
curl --silent --show-error --fail --location-trusted --post301 ${RQLITE_LOGIN:+--user "$RQLITE_LOGIN"} \\
  --header 'Content-Type: application/json' --data-binary @- "$RQLITE/db/execute?transaction&redirect&pretty" <<'END'
"""


class RqliteTarget(FamilyTarget):
    """A queue in rqlite as the migrations' ledger sees it."""

    refused: ClassVar[type[Refused]] = Refused

    def __init__(self, url: str, choices: Choices) -> None:
        super().__init__(choices.queue, RqliteExecutor.from_url(url, choices.queue))

    def send(self, statements: Sequence[str], *, reads: bool = False, patience: float | None = None) -> list[Rows]:
        """Carry out statements in one request, and return the rows of each."""
        nothing: Mapping[str, Any] = {}
        batch = Batch(tuple((statement, nothing) for statement in statements), reads)
        # safe to repeat: the check at the beginning of a step lets it happen once
        rows: list[Rows] = run(delivered(batch, repeatable=True, patience=patience), self._executor.execute)
        return rows

    def printed(self, statements: Sequence[str]) -> str:
        """Return a shell script that sends the statements with curl."""
        lines = ",\n".join(json.dumps(statement, ensure_ascii=False) for statement in statements)
        return f"{_CURL}[\n{lines}\n]\nEND\n"
