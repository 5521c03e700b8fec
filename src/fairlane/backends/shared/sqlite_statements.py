"""What SQLite, libSQL and rqlite share: one set of statements."""

from __future__ import annotations

from fairlane.backends.base import ProcedureCore
from fairlane.program import Call
from fairlane.templates import statement


class SentTwiceCore(ProcedureCore):
    """The stored operations where a request may be applied although its answer was lost, and is then sent again.

    Clients make the tokens, so that a claim finds the lease that it has made.
    """

    client_tokens = True
    sent_twice = True


class Statements:
    """The rendered statements of one queue, without their comments."""

    def __init__(self, queue: str, dialect: str) -> None:
        self._variables = {"queue": queue, "dialect": dialect}
        self._texts: dict[str | int, str] = {}

    def __getitem__(self, call: Call) -> str:
        # a claim has one text for each floor: that number stands for it
        key = call.arguments["p_min_priority"] if call.operation == "claim" else call.operation
        return self._texts.get(key) or self._rendered(key, call)

    def _rendered(self, key: str | int, call: Call) -> str:
        extra = {"floor": key} if isinstance(key, int) else {}
        path = f"procedures/sqlite/{call.operation}.sql.j2"
        text = self._texts[key] = statement(path, **self._variables, **extra)
        return text
