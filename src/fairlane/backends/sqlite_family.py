"""What SQLite, libSQL and rqlite share: one set of statements, and asking again while the database is busy."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from fairlane.backends.base import ProcedureCore, Rows
from fairlane.errors import FairlaneError, LeaseLost
from fairlane.model import Lease
from fairlane.program import Call, Program, Sleep
from fairlane.templates import statement

PAUSE = (0.0003, 0.002)
"""Seconds between two tries, at random: waiters with even odds, where SQLite's own growing pauses starve some."""

MAX_INTEGER = 2**63 - 1


class Busy(Exception):
    """Told by an executor to its core: another connection holds the database, and nothing was done. Never leaves it.

    Attributes:
        error: what to raise when the patience has run out.
        patience: seconds for which asking again makes sense.
    """

    def __init__(self, error: FairlaneError, patience: float) -> None:
        super().__init__(error)
        self.error = error
        self.patience = patience


class FamilyCore(ProcedureCore):
    """The stored operations of the SQLite family. Clients make the tokens: a statement has no good source of them."""

    client_tokens = True

    def fence(self, lease: Lease) -> dict[str, Any]:
        """Name the message too, where a claim that arrives once more can lease another one under the same token."""
        fence = super().fence(lease)
        if self.client_tokens:
            if lease.seq > MAX_INTEGER:
                raise LeaseLost(lease.group_id, lease.seq)
            fence["p_seq"] = lease.seq
        return fence

    def _call(self, operation: str, arguments: Mapping[str, Any] | None = None) -> Program[Rows]:
        request = Call(operation, arguments or {})
        began: float | None = None
        while True:
            try:
                rows: Rows = yield request
                return rows
            except Busy as busy:
                began = began or time.monotonic()
                if time.monotonic() - began >= busy.patience:
                    raise busy.error from busy.__cause__
            yield Sleep(random.uniform(*PAUSE))


class Statements:
    """The rendered statements of one queue, without their comments."""

    def __init__(self, queue: str, dialect: str) -> None:
        self._variables = {"queue": queue, "dialect": dialect}
        self._texts: dict[tuple[str, int | None], str] = {}

    def __getitem__(self, call: Call) -> str:
        floor = call.arguments.get("p_min_priority")
        key = (call.operation, floor)
        text = self._texts.get(key)
        if text is None:
            extra = {} if floor is None else {"floor": floor}
            path = f"procedures/sqlite/{call.operation}.sql.j2"
            text = self._texts[key] = statement(path, **self._variables, **extra)
        return text
