"""Migrations of libSQL and rqlite. One request applies the statements of a step and the new revision, or nothing.

The first statements of each step check that the queue still has the revision before the step. So a step fails as a
whole if it is applied twice, or if another migration was faster. Then the revision of the queue decides.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Protocol

from fairlane.backends.shared.retry import Refused, delivered
from fairlane.backends.shared.sent_twice import Batch
from fairlane.backends.stored import Rows, as_text
from fairlane.backends.targets import LedgerTarget, shown
from fairlane.errors import ConfigurationError
from fairlane.program import run
from fairlane.templates import ident, literal, render, split_sqlite, statement

STARTUP_SECONDS = 5.0
"""Seconds for which a migration waits for a server that is not up yet, or a cluster that has no leader."""


class BatchExecutor(Protocol):
    """The methods of an executor that a migration needs."""

    def together(self, batch: Batch, /) -> list[Rows]:
        """Carry out several statements in one request, and return the rows of each."""

    def close(self) -> None:
        """Close the connections."""


class FamilyTarget(LedgerTarget):
    """A queue of libSQL or rqlite as the target of migrations."""

    dialect: ClassVar[str]
    """`libsql` or `rqlite`."""

    def __init__(self, queue: str, executor: BatchExecutor) -> None:
        self._queue = queue
        self._executor = executor
        self._table = f"{queue}_alembic_version"
        self._at: str | None = None

    def send(self, statements: Sequence[str], *, reads: bool = False, seconds: float | None = None) -> list[Rows]:
        """Carry out statements in one request, and return the rows of each.

        Args:
            statements: the statements, without parameters.
            reads: whether no statement changes anything.
            seconds: time for all tries; None leaves it to the backend.
        """
        batch = Batch(tuple((statement, {}) for statement in statements), reads)
        # repeatable, since the check at the beginning of a step prevents that it is applied twice
        return run(delivered(batch, repeatable=True, seconds=seconds), self._executor.together)

    @abstractmethod
    def printed(self, statements: Sequence[str]) -> str:
        """Return the text that a DBA can run to carry out statements in one request."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Do nothing: each step checks where it begins, in the transaction that makes it."""
        yield

    def read(self) -> str | None:
        """Return the current revision, None when the queue is not there."""
        self._at = self._read(STARTUP_SECONDS)
        return self._at

    def _read(self, seconds: float | None = None) -> str | None:
        if not self._has_table(self._table, seconds):
            return None
        rows = self._look(f"select version_num from {ident(self._table)}", seconds)
        return str(rows[0]["version_num"]) if rows else None

    def _has_table(self, name: str, seconds: float | None = None) -> bool:
        query = f"select count(*) as found from sqlite_master where type = 'table' and name = {literal(name)}"
        return bool(self._look(query, seconds)[0]["found"])

    def _look(self, query: str, seconds: float | None) -> Rows:
        try:
            return self.send([query], reads=True, seconds=seconds)[0]
        except Refused as refused:
            raise refused.error from refused

    def apply(self, scripts: Sequence[str], revision: str | None, *, serves: str | None, stamp: bool) -> None:
        """Apply one step, unless the queue has reached its revision in the meantime."""
        if stamp:
            has_queue = self._has_table(f"{self._queue}_settings")
            scripts = [self._recorded(revision, serves)] if has_queue else []
        elif revision is not None:
            scripts = [*scripts, self._recorded(revision, serves)]
        try:
            self.send([*self._check(), *self._step(scripts, revision, keep=stamp)])
        except Refused as refused:
            found = self._read()
            if not _reached(found, self._at, revision):
                raise self._unexpected(found, revision, refused.error) from refused.__cause__
        self._at = revision

    def _recorded(self, revision: str | None, serves: str | None) -> str:
        return render("schema/sqlite/recorded.sql.j2", queue=self._queue, revision=revision, serves=serves)

    def _check(self) -> list[str]:
        """Return statements that fail if the queue has another revision now: they insert a row that is not allowed."""
        table = ident(self._table)
        if self._at is None:
            elsewhere = f"exists (select 1 from {table})"
        else:
            elsewhere = f"not exists (select 1 from {table} where version_num = {literal(self._at)})"
        return [self._version_table(), f"insert into {table} (version_num) select null where {elsewhere}"]

    def _version_table(self) -> str:
        return f"create table if not exists {ident(self._table)} (version_num varchar(32) not null primary key)"

    def _step(self, scripts: Sequence[str], revision: str | None, *, keep: bool = False) -> list[str]:
        """Return the statements of a step.

        No statement returns rows: up to rqlite 9.4, the failure of such a statement does not end the transaction.
        """
        table = ident(self._table)
        statements = [statement for script in scripts for statement in split_sqlite(script)]
        statements += [self._version_table(), f"delete from {table}"]
        if revision is not None:
            statements.append(f"insert into {table} (version_num) values ({literal(revision)})")
        elif not keep:
            statements += split_sqlite(render("schema/sqlite/removed.sql.j2", queue=self._queue))
        return statements

    def _unexpected(self, found: str | None, wanted: str | None, error: Exception) -> Exception:
        if found == self._at:
            return error
        return ConfigurationError(
            f"another migration has changed queue {self._queue!r} to revision {found or 'base'} while this one was "
            f"migrating from {self._at or 'base'} to {wanted or 'base'}: check the revision, and migrate again"
        )

    def stored(self) -> dict[str, str | None] | None:
        """Return the settings that the queue stores, with its revision. None if the queue is not there."""
        if not self._has_table(f"{self._queue}_settings", STARTUP_SECONDS):
            return None
        query = statement("schema/sqlite/stored.sql.j2", queue=self._queue, dialect=self.dialect)
        found = {as_text(row["name"]): shown(row["value"]) for row in self._look(query, None)}
        return found | {"revision": self._read()}

    def configure(self, changes: Mapping[str, str], scripts: Sequence[str]) -> None:
        """Change settings of an existing queue, unless it has another revision now."""
        scripts = [*scripts, render("schema/sqlite/configured.sql.j2", queue=self._queue, changes=changes)]
        statements = [statement for script in scripts for statement in split_sqlite(script)]
        try:
            self.send([*self._check(), *statements])
        except Refused as refused:
            raise self._unexpected(self._read(), self._at, refused.error) from refused.__cause__

    def repair(self) -> None:
        """Repair data that were changed by hand, in one request, if a query finds any damage."""
        if self._at is None or not self._has_table(f"{self._queue}_settings"):
            return
        names = {"queue": self._queue, "dialect": self.dialect}
        if self._look(statement("schema/sqlite/damaged.sql.j2", as_of=self._at, **names), None)[0]["damaged"]:
            try:
                self.send(list(split_sqlite(render("schema/sqlite/repaired.sql.j2", as_of=self._at, **names))))
            except Refused as refused:
                raise refused.error from refused.__cause__

    def offline(self, scripts: Sequence[str], revision: str | None, *, serves: str | None) -> str:
        """Return the text that a DBA can run to apply the step by hand."""
        if revision is not None:
            scripts = [*scripts, self._recorded(revision, serves)]
        return self.printed(self._step(scripts, revision))

    def close(self) -> None:
        """Close the connections."""
        self._executor.close()


def _reached(found: str | None, start: str | None, wanted: str | None) -> bool:
    """Return whether a queue has reached the end of a step, or is beyond it in the same direction."""
    if (wanted or "") >= (start or ""):
        return (found or "") >= (wanted or "")
    return (found or "") <= (wanted or "")
