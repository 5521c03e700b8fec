"""The statements that SQLite, libSQL and rqlite share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, cast

from typing_extensions import TypeVar

from fairlane.backends.stored import Call, Operation
from fairlane.templates import statement

TextT = TypeVar("TextT", bound=str, default=str)


def last_seq_damaged(queue: str) -> str:
    """Return the reason of a publish that violated a constraint. Only a wrong `last_seq` can cause that."""
    return f"the setting last_seq is missing or wrong: `fairlane migrate --queue {queue}` repairs it"


class Statements(Generic[TextT]):
    """The rendered statements of one queue, without their comments.

    Args:
        queue: its name.
        dialect: sqlite, libsql or rqlite.
        convert: makes the form that the backend's connections need from a text; None leaves a plain str.
    """

    def __init__(self, queue: str, dialect: str, convert: Callable[[str, Operation], TextT] | None = None) -> None:
        self._variables = {"queue": queue, "dialect": dialect}
        self._convert = convert
        self._texts: dict[Operation, TextT] = {}
        self._claims: dict[Operation, dict[int, TextT]] = {}  # a claim has one text for each priority floor

    def __getitem__(self, call: Call) -> TextT:
        operation = call.operation
        try:
            if operation in self._claims:
                return self._claims[operation][call.arguments["p_min_priority"]]
            return self._texts[operation]
        except KeyError:
            return self._rendered(operation, call.arguments.get("p_min_priority"))

    def _rendered(self, operation: Operation, floor: int | None) -> TextT:
        extra = {} if floor is None else {"floor": floor}
        text = statement(f"procedures/sqlite/{operation.name}.sql.j2", **self._variables, **extra)
        made = cast(TextT, text) if self._convert is None else self._convert(text, operation)
        if floor is None:
            self._texts[operation] = made
        else:
            self._claims.setdefault(operation, {})[floor] = made
        return made
