"""The ledger: how Alembic's commands work on backends that Alembic cannot connect to.

Alembic is given a throw-away in-memory SQLite database that holds only the target's current revision. The revisions
hand their rendered scripts to the ledger; after each, a hook sends scripts and new revision to the target together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Protocol

from fairlane.migrate.records import serves_of
from fairlane.migrate.settings import Settings


class Target(Protocol):
    """A backend that is migrated through the ledger."""

    def lock(self) -> AbstractContextManager[None]:
        """Let one migration of this queue run at a time; wait for another one, for a bounded time."""

    def read(self) -> str | None:
        """Return the current revision, None when the queue is not there."""

    def apply(self, scripts: Sequence[str], revision: str | None, *, serves: str | None, stamp: bool) -> None:
        """Bring the target to a revision: scripts and revision id together, or as near to that as it can.

        Args:
            scripts: rendered templates of the step.
            revision: the revision reached; None after the downgrade of the first, which removes the queue.
            serves: the oldest revision whose clients it serves.
            stamp: only write the revision, whatever the scripts.
        """

    def offline(self, scripts: Sequence[str], revision: str | None, *, serves: str | None) -> str:
        """Return what a DBA would type or pipe in to apply the step by hand."""

    def close(self) -> None:
        """Release the connection."""


TARGETS = {
    "redis": "fairlane.backends.redis.target:RedisTarget",
    "mongo": "fairlane.backends.mongo.target:MongoTarget",
    "libsql": "fairlane.backends.libsql.target:LibsqlTarget",
    "rqlite": "fairlane.backends.rqlite.target:RqliteTarget",
    "sqs": "fairlane.backends.sqs.target:SqsTarget",
}
"""Each class is made with a URL and the settings of the migration."""


def open_target(settings: Settings) -> Target:
    """Return the target that a URL points to; nothing is sent yet."""
    module, _, name = TARGETS[settings.backend].partition(":")
    target: Target = getattr(import_module(module), name)(settings.url, settings)
    return target


class Ledger:
    """Collects the scripts of a step and passes them on when Alembic has recorded its revision."""

    def __init__(self, target: Target, emit: Any = None) -> None:
        self._target = target
        self._emit = emit
        self._scripts: list[str] = []

    def sink(self, script: str) -> None:
        """Keep one rendered script."""
        self._scripts.append(script)

    def on_version_apply(self, ctx: Any, step: Any, heads: Collection[Any], run_args: Any) -> None:
        """Send what was kept, and the revision, to the target; Alembic calls this after each step."""
        scripts, self._scripts = self._scripts, []
        revision = next(iter(heads), None)
        serves = serves_of(step, revision)
        if self._emit is None:
            self._target.apply(scripts, revision, serves=serves, stamp=step.is_stamp)
        else:
            self._emit(self._target.offline(scripts, revision, serves=serves))
