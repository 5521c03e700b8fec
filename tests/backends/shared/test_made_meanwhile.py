"""A queue that is made between the refusal of a request and the question whether there is one."""

from __future__ import annotations

import pytest

from fairlane.backends.libsql import wire as libsql_wire
from fairlane.backends.libsql.executor import LibsqlCore
from fairlane.backends.rqlite import wire as rqlite_wire
from fairlane.backends.rqlite.executor import RqliteCore
from fairlane.backends.stored import PUBLISH, REVISION, Call, Rows
from fairlane.errors import SchemaNotReady
from fairlane.model import Revision
from fairlane.program import run

REFUSED = {"libsql": libsql_wire.Refused, "rqlite": rqlite_wire.Refused}
CORES = {"libsql": LibsqlCore, "rqlite": RqliteCore}


class Database:
    """Refuses everything until somebody asks whether the queue is there; by then it is, unless it is never made."""

    def __init__(self, backend: str, *, made: bool) -> None:
        self._backend = backend
        self._made = made
        self._asked = False

    def execute(self, request: Call) -> Rows:
        operation = request.operation
        revision = [{"revision": "0001", "serves": "0001"}]
        if operation is PUBLISH or (operation is REVISION and self._backend == "libsql"):
            if self._asked and self._made:
                return revision if operation is REVISION else [{"seq": 7}]
            raise REFUSED[self._backend](RuntimeError("no such table"))
        self._asked = True
        if operation is REVISION:
            return revision if self._made else []
        return [{"found": int(self._made)}]


@pytest.mark.parametrize("backend", CORES)
def test_a_queue_that_is_made_just_now_is_used(backend: str) -> None:
    """Guards against the driver's own error, of a table that was missing a moment ago."""
    assert run(CORES[backend]("q").publish("g", "1", 0, None), Database(backend, made=True).execute) == 7


@pytest.mark.parametrize("backend", CORES)
def test_a_queue_that_is_made_just_now_is_at_its_revision(backend: str) -> None:
    assert run(CORES[backend]("q").revision(), Database(backend, made=True).execute) == Revision("0001", "0001")


@pytest.mark.parametrize("backend", CORES)
def test_a_queue_that_is_not_there_is_named(backend: str) -> None:
    with pytest.raises(SchemaNotReady):
        run(CORES[backend]("q").publish("g", "1", 0, None), Database(backend, made=False).execute)
