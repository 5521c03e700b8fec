"""Migrations of rqlite. One request is one transaction with the statements of a step and the new revision."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from fairlane.backends.rqlite.executor import RqliteExecutor
from fairlane.backends.shared.sqlite_target import FamilyTarget
from fairlane.backends.targets import Choices

_CURL = """\
# One request, which applies all or nothing. RQLITE is a node, such as http://localhost:4001, and RQLITE_LOGIN is
# user:password
curl --silent --show-error --fail --location-trusted --post301 ${RQLITE_LOGIN:+--user "$RQLITE_LOGIN"} \\
  --header 'Content-Type: application/json' --data-binary @- "$RQLITE/db/execute?transaction&redirect&pretty" <<'END'
"""


class RqliteTarget(FamilyTarget):
    """A queue of rqlite as the target of migrations."""

    dialect: ClassVar[str] = "rqlite"

    def __init__(self, url: str, choices: Choices) -> None:
        super().__init__(choices.queue, RqliteExecutor.from_url(url, choices.queue))

    def printed(self, statements: Sequence[str]) -> str:
        """Return a shell script that sends the statements with curl."""
        lines = ",\n".join(json.dumps(statement, ensure_ascii=False) for statement in statements)
        return f"{_CURL}[\n{lines}\n]\nEND\n"
