"""Migrations of libSQL: each step is one atomic batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fairlane.backends.libsql.executor import LibsqlExecutor
from fairlane.backends.libsql.wire import Refused, Script, delivered
from fairlane.backends.shared.sqlite_target import FamilyTarget
from fairlane.backends.stored import Rows
from fairlane.backends.targets import Choices
from fairlane.program import run


class LibsqlTarget(FamilyTarget):
    """A queue in libSQL as the migrations' ledger sees it."""

    refused: ClassVar[type[Refused]] = Refused

    def __init__(self, url: str, choices: Choices) -> None:
        super().__init__(choices.queue, LibsqlExecutor.from_url(url, choices.queue))

    def send(self, statements: Sequence[str], *, reads: bool = False, patience: float | None = None) -> list[Rows]:
        """Carry out statements in one transaction, and return the rows of each."""
        # safe to repeat: the check at the beginning of a step lets it happen once
        script = Script(tuple(statements))
        rows: list[Rows] = run(delivered(script, repeatable=True, patience=patience), self._executor.execute)
        return rows

    def printed(self, statements: Sequence[str]) -> str:
        """Return a script for any shell that speaks libSQL, such as `turso db shell`."""
        return "\n\n".join(["begin immediate;", *(f"{text.rstrip(';')};" for text in statements), "commit;\n"])
