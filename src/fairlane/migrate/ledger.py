"""The ledger lets Alembic's commands work on backends that Alembic cannot connect to.

Alembic gets a temporary in-memory SQLite database that contains only the target's current revision. The revisions
pass their rendered scripts to the ledger. After each revision a hook sends its scripts and the new revision id to the
target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from fairlane.backends.targets import LedgerTarget
from fairlane.migrate.records import serves_of

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext, MigrationInfo

LEDGER = "sqlite://"
"""The URL of the database that Alembic gets in place of the target."""


class Ledger:
    """Collects the scripts of a step, and sends them to the target when Alembic has recorded its revision."""

    def __init__(self, target: LedgerTarget, emit: Callable[[str], None] | None = None) -> None:
        self._target = target
        self._emit = emit
        self._scripts: list[str] = []

    def sink(self, script: str) -> None:
        """Collect one rendered script."""
        self._scripts.append(script)

    def on_version_apply(
        self, ctx: MigrationContext, step: MigrationInfo, heads: Collection[str], run_args: object
    ) -> None:
        """Send the collected scripts and the revision to the target. Alembic calls this after each step."""
        scripts, self._scripts = self._scripts, []
        revision = next(iter(heads), None)
        serves = serves_of(step, revision)
        if self._emit is None:
            self._target.apply(scripts, revision, serves=serves, stamp=step.is_stamp)
        else:
            self._emit(self._target.offline(scripts, revision, serves=serves))
