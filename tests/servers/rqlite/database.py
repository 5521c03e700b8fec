"""The SQLite database of one node, behaving as rqlite's db/db.go does."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .bodies import Changed, Failed, Result, Rows, Statement, Value
from .tokens import numbered, placeholders, remembered, statements, tokens

Kind = Literal["execute", "query", "request"]

WRITE_IN_QUERY = "attempt to change database via query operation"
EXPLICIT_TRANSACTION = (
    "the stand-in refuses BEGIN, COMMIT, ROLLBACK, SAVEPOINT and RELEASE: "
    "rqlite's documentation calls their behaviour not defined"
)
_TRANSACTION_WORDS = {"begin", "commit", "end", "rollback", "savepoint", "release"}
_DDL_WORDS = {"create", "drop", "alter", "pragma", "vacuum", "reindex", "attach", "detach"}


@dataclass(frozen=True)
class Quirks:
    """Differences between versions of rqlite with which a client must work; the defaults are those of v10.2.7."""

    # up to v9.4.1 a failing RETURNING statement does not abort ?transaction: rqlite issue 2530
    failed_returning_commits: bool = False
    # ?transaction of /db/request skips what cannot be prepared and commits the rest: changed by pull request 2792
    failed_prepare_commits: bool = True


class SqlError(Exception):
    """The text of an error in one statement."""


class Database:
    """One connection for everything: `last_insert_rowid()` and `changes()` are the connection's, as in rqlite."""

    def __init__(self, path: Path | None = None, quirks: Quirks | None = None) -> None:
        self.quirks = quirks or Quirks()
        self._connection = sqlite3.connect(
            path or ":memory:", isolation_level=None, check_same_thread=False, cached_statements=500
        )
        # invalid UTF-8 in a TEXT value leaves rqlite as U+FFFD (encoding/json of Go)
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._read_only: dict[str, bool] = {}
        self._declared: dict[str, str] | None = None
        if path:
            self._connection.execute("pragma journal_mode = wal").fetchall()
            self._connection.execute("pragma synchronous = off").fetchall()

    def close(self) -> None:
        self._connection.close()

    def copy_to(self, other: Database) -> None:
        """Copy this database, as installing a snapshot does."""
        self._connection.backup(other._connection)
        other._forget_schema()

    def run(self, kind: Kind, batch: Iterable[Statement], transaction: bool) -> list[Result]:
        """Run one request. Empty statements are skipped and have no result (db.go: `if ss == ""`)."""
        present = [statement for statement in batch if statement.sql]
        if kind == "query":
            return [self._query(statement) for statement in present]
        with self._maybe_transaction(transaction) as state:
            results: list[Result] = []
            for statement in present:
                result, aborts = (self._execute if kind == "execute" else self._request)(statement)
                results.append(result)
                if transaction and aborts:
                    state.failed = True
                    break
            return results

    def read_only(self, sql: str) -> bool:
        """`sqlite3_stmt_readonly` of the first statement in the text.

        A program writes if it begins a write transaction: https://www.sqlite.org/c3ref/stmt_readonly.html and
        `resolveP2Values` in SQLite's vdbeaux.c. EXPLAIN fails exactly where preparing the statement would.

        Raises:
            SqlError: it cannot be prepared.
        """
        if sql not in self._read_only:
            first = next(iter(statements(sql)), "")
            if not first or first.lstrip()[:7].lower() == "explain":
                return True
            try:
                rows = self._connection.execute(f"explain {numbered(first)}", _unbound(placeholders(first))).fetchall()
            except sqlite3.Error as error:
                raise SqlError(str(error)) from None
            self._read_only[sql] = not any(
                row[1] in ("Checkpoint", "Vacuum", "JournalMode") or (row[1] == "Transaction" and row[3])
                for row in rows
            )
        return self._read_only[sql]

    def is_read(self, sql: str) -> bool:
        """Return the same without an error: a statement that cannot be prepared counts as a write (store.go,
        `RequiresLeader`)."""
        try:
            return self.read_only(sql)
        except SqlError:
            return False

    def _execute(self, statement: Statement) -> tuple[Result, bool]:
        """`executeStmtWithConn`: return the result, and whether it ends a transaction."""
        try:
            if statement.returns_rows:
                return self._rows(statement), False
            return self._change(statement), False
        except SqlError as error:
            aborts = not (statement.returns_rows and self.quirks.failed_returning_commits)
            return Failed(str(error)), aborts

    def _request(self, statement: Statement) -> tuple[Result, bool]:
        """`Request`: reads and writes in one list."""
        try:
            read = self.read_only(statement.sql)
        except SqlError as error:
            return Failed(str(error)), not self.quirks.failed_prepare_commits
        if not read:
            return self._execute(statement)
        result = self._query(statement)
        return result, bool(result.error)

    def _query(self, statement: Statement) -> Rows:
        try:
            if not self.read_only(statement.sql):
                return Rows(error=WRITE_IN_QUERY)
            return self._rows(statement)
        except SqlError as error:
            return Rows(error=str(error))

    def _change(self, statement: Statement) -> Changed:
        """`exec` of go-sqlite3: every statement of the text, each taking its share of the parameters."""
        parts = statements(statement.sql)
        start = 0
        for part in parts:
            names = placeholders(part)
            if len(statement.parameters) - start < len(names):
                raise SqlError(f"not enough args to execute query: want {len(names)} got {len(statement.parameters)}")
            self._run(part, _bindings(names, statement.parameters, start))
            start += len(names)
        if not parts:
            return Changed()
        row = self._connection.execute("select last_insert_rowid(), changes()").fetchone()
        return Changed(last_insert_id=row[0], rows_affected=row[1])

    def _rows(self, statement: Statement) -> Rows:
        """`query` of go-sqlite3: it prepares every statement of the text, but runs only the last."""
        parts = statements(statement.sql)
        start = 0
        rows = Rows()
        for number, part in enumerate(parts, 1):
            names = placeholders(part)
            left = len(statement.parameters) - start
            if left < len(names):
                raise SqlError(f"not enough args to execute query: want {len(names)} got {left}")
            if number == len(parts):
                rows = self._run(part, _bindings(names, statement.parameters, start))
            else:
                self.read_only(part)  # prepared, so its errors count
            start += len(names)
        return rows

    def _run(self, sql: str, bindings: list[Value] | dict[str, Value]) -> Rows:
        first = tokens(sql)[0].word
        if first in _TRANSACTION_WORDS:
            raise SqlError(EXPLICIT_TRANSACTION)
        try:
            cursor = self._connection.execute(numbered(sql), bindings)
            fetched = cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            raise SqlError(str(error)) from None
        finally:
            if first in _DDL_WORDS:
                self._forget_schema()
        columns = [column[0] for column in cursor.description or ()]
        types = [self._type_of(_source(sql, name)) for name in columns]
        values = [[_normal(value, kind) for value, kind in zip(row, types, strict=True)] for row in fetched]
        if values:  # populateEmptyTypes: what has no declared type takes that of the first row
            types = [kind or _type_by_value(value) for kind, value in zip(types, values[0], strict=True)]
        return Rows(columns, types, values)

    def _type_of(self, column: str) -> str:
        """The declared type of a result column, found by its name: Python's sqlite3 does not tell it."""
        if self._declared is None:
            found: dict[str, str] = {}
            for name, kind in self._connection.execute(
                "select c.name, c.type from sqlite_master m, pragma_table_info(m.name) c where m.type = 'table'"
            ).fetchall():
                known = found.setdefault(name.lower(), kind.lower())
                found[name.lower()] = known if known == kind.lower() else ""
            self._declared = found
        return self._declared.get(column.lower(), "")

    def _forget_schema(self) -> None:
        self._read_only.clear()
        self._declared = None

    @contextlib.contextmanager
    def _maybe_transaction(self, wanted: bool) -> Iterator[_State]:
        state = _State()
        if not wanted:
            yield state
            return
        self._connection.execute("begin")
        try:
            yield state
        except BaseException:
            state.failed = True
            raise
        finally:
            if self._connection.in_transaction:  # ON CONFLICT ROLLBACK may have ended it
                self._connection.execute("rollback" if state.failed else "commit")
            if state.failed:
                self._forget_schema()


@dataclass
class _State:
    failed: bool = False


def _bindings(
    names: tuple[str | None, ...], parameters: tuple[tuple[str, Value], ...], start: int
) -> list[Value] | dict[str, Value]:
    """Return the parameters as go-sqlite3's `bind` sets them: values without a place are ignored, places without a
    value are NULL."""
    end = start + len(names)
    own = list(parameters[start:end])
    own += [each for at, each in enumerate(parameters) if not start <= at < end and each[0]]
    bound: list[Value] = [None] * len(names)
    for at, (name, value) in enumerate(own):
        if name and not name[0].isalpha():  # database/sql, validateNamedValueName
            raise SqlError(f'sql: converting argument ${at + 1} type: name "{name}" does not begin with a letter')
        for position, placeholder in enumerate(names):
            if (placeholder is not None and placeholder[1:] == name) if name else position == at:
                bound[position] = value
    if names and all(names):
        return {str(name)[1:]: value for name, value in zip(names, bound, strict=True)}
    return bound


@remembered
def _source(sql: str, column: str) -> str:
    """Return the table's column of a result column: `n` for `n as age`, nothing for an expression with a name."""
    found = tokens(sql)
    for at, token in enumerate(found[:-1]):
        if at > 1 and token.word == "as" and found[at + 1].text.strip('"').lower() == column.lower():
            plain = found[at - 1].kind == "word" and found[at - 2].word in (",", "select", "distinct", "returning", ".")
            return found[at - 1].text if plain else ""
    return column


def _unbound(names: tuple[str | None, ...]) -> list[None] | dict[str, None]:
    return {str(name)[1:]: None for name in names} if names and all(names) else [None] * len(names)


def _normal(value: Value, kind: str) -> Value:
    """`normalizeRowValues`: a BLOB leaves as text unless its column is declared as something else than text."""
    if isinstance(value, bytes) and (kind in ("", "text", "json") or kind.startswith(_TEXT_TYPES)):
        return value.decode("utf-8", "replace")
    if isinstance(value, int) and kind == "boolean":
        return value > 0
    return value


_TEXT_TYPES = ("varchar", "varying character", "nchar", "native character", "nvarchar", "clob")


def _type_by_value(value: Value) -> str:
    kinds = {bool: "boolean", int: "integer", float: "real", bytes: "blob", str: "text"}
    return kinds.get(type(value), "")
