"""Migrations of libSQL: each step is one atomic batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fairlane.backends.libsql.executor import LibsqlExecutor
from fairlane.backends.shared.sqlite_target import FamilyTarget
from fairlane.backends.targets import Choices


class LibsqlTarget(FamilyTarget):
    """A queue of libSQL as the target of migrations."""

    dialect: ClassVar[str] = "libsql"

    def __init__(self, url: str, choices: Choices) -> None:
        super().__init__(choices.queue, LibsqlExecutor.from_url(url, choices.queue))

    def printed(self, statements: Sequence[str]) -> str:
        """Return a script for a shell of libSQL, such as `turso db shell`."""
        return "\n\n".join(["begin immediate;", *(f"{text.rstrip(';')};" for text in statements), "commit;\n"])
