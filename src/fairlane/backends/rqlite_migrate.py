"""Migrations of rqlite: the statements of a step and the new revision in one transaction, which is one request.

The first statements of each step check that the queue still is where the step begins. So a step that is sent twice, or
that somebody else was quicker with, fails as a whole; what counts then is where the queue is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from fairlane.backends.base import Rows
from fairlane.backends.rqlite import RqliteExecutor
from fairlane.backends.rqlite_wire import Batch, Refused, delivered
from fairlane.errors import ConfigurationError
from fairlane.program import run
from fairlane.templates import ident, literal, render, split_sqlite

STARTUP_PATIENCE = 5.0
"""Seconds for which a migration waits for a server that is not up yet, or a cluster that has no leader."""

_CURL = """\
# One request, all of it or nothing. RQLITE is a node, such as http://localhost:4001; RQLITE_LOGIN is user:password
curl --silent --show-error --fail --location-trusted --post301 ${RQLITE_LOGIN:+--user "$RQLITE_LOGIN"} \\
  --header 'Content-Type: application/json' --data-binary @- "$RQLITE/db/execute?transaction&redirect&pretty" <<'END'
"""


class Choices(Protocol):
    """What a migration is told, as far as rqlite is concerned."""

    @property
    def queue(self) -> str: ...


class RqliteTarget:
    """A queue in rqlite as the migrations' ledger sees it."""

    def __init__(self, url: str, settings: Choices) -> None:
        self._queue = settings.queue
        self._executor = RqliteExecutor.from_url(url, settings.queue)
        self._table = f"{settings.queue}_alembic_version"
        self._at: str | None = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Do nothing: rqlite carries out one request after another, and each step checks where it begins."""
        yield

    def read(self) -> str | None:
        """Return the current revision, None when the queue is not there."""
        self._at = self._read(STARTUP_PATIENCE)
        return self._at

    def _read(self, patience: float | None = None) -> str | None:
        if not self._has_table(self._table, patience):
            return None
        rows = self._look(f"select version_num from {ident(self._table)}", patience)
        return str(rows[0][0]) if rows else None

    def _has_table(self, name: str, patience: float | None = None) -> bool:
        query = f"select count(*) from sqlite_master where type = 'table' and name = {literal(name)}"
        return bool(self._look(query, patience)[0][0])

    def _look(self, query: str, patience: float | None) -> Rows:
        try:
            rows: Rows = self._send([query], reads=True, patience=patience)[0]
        except Refused as refused:
            raise refused.error from refused
        return rows

    def _send(self, statements: Sequence[str], *, reads: bool = False, patience: float | None = None) -> Any:
        nothing: Mapping[str, Any] = {}
        batch = Batch(tuple((statement, nothing) for statement in statements), reads)
        return run(delivered(batch, repeatable=True, patience=patience), self._executor.execute)

    def apply(self, scripts: Sequence[str], revision: str | None, *, serves: str | None, stamp: bool) -> None:
        """Bring the queue to a revision, or find that it has got there in the meantime."""
        if stamp:
            has_queue = self._has_table(f"{self._queue}_settings")
            scripts = [self._recorded(revision, serves)] if has_queue else []
        elif revision is not None:
            scripts = [*scripts, self._recorded(revision, serves)]
        try:
            self._send([*self._check(), *self._step(scripts, revision, keep=stamp)])
        except Refused as refused:
            found = self._read()
            if not _reached(found, self._at, revision):
                raise self._unexpected(found, revision, refused) from refused.__cause__
        self._at = revision

    def _recorded(self, revision: str | None, serves: str | None) -> str:
        return render("schema/sqlite/recorded.sql.j2", queue=self._queue, revision=revision, serves=serves)

    def _check(self) -> list[str]:
        """Fail unless the queue still is where it was: with a row that cannot be written, for want of a better way."""
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

        None of them returns rows: up to rqlite 9.4 a failure of one that does would not have ended the transaction.
        """
        table = ident(self._table)
        statements = [statement for script in scripts for statement in split_sqlite(script)]
        statements += [self._version_table(), f"delete from {table}"]
        if revision is not None:
            statements.append(f"insert into {table} (version_num) values ({literal(revision)})")
        elif not keep:
            statements += split_sqlite(render("schema/sqlite/removed.sql.j2", queue=self._queue))
        return statements

    def _unexpected(self, found: str | None, wanted: str | None, refused: Refused) -> Exception:
        if found == self._at:
            return refused.error
        return ConfigurationError(
            f"another migration has taken queue {self._queue!r} to revision {found or 'base'} while this one was going "
            f"from {self._at or 'base'} to {wanted or 'base'}: look at it, and migrate again"
        )

    def offline(self, scripts: Sequence[str], revision: str | None, *, serves: str | None) -> str:
        """Return a shell script that sends the step with curl."""
        if revision is not None:
            scripts = [*scripts, self._recorded(revision, serves)]
        lines = ",\n".join(json.dumps(statement, ensure_ascii=False) for statement in self._step(scripts, revision))
        return f"{_CURL}[\n{lines}\n]\nEND\n"

    def close(self) -> None:
        """Release the connections."""
        self._executor.close()


def _reached(found: str | None, start: str | None, wanted: str | None) -> bool:
    """Tell whether a queue is at the end of a step, or further in its direction."""
    if (wanted or "") >= (start or ""):
        return (found or "") >= (wanted or "")
    return (found or "") <= (wanted or "")
