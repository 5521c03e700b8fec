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
        self._texts: dict[Operation | tuple[Operation, int], TextT] = {}

    def __getitem__(self, call: Call) -> TextT:
        operation, floor = call.operation, call.arguments.get("p_min_priority")
        # a claim has one text for each priority floor
        key = operation if floor is None else (operation, floor)
        return self._texts.get(key) or self._rendered(key, operation)

    def _rendered(self, key: Operation | tuple[Operation, int], operation: Operation) -> TextT:
        extra = {"floor": key[1]} if isinstance(key, tuple) else {}
        text = statement(f"procedures/sqlite/{operation.name}.sql.j2", **self._variables, **extra)
        made = self._texts[key] = cast(TextT, text) if self._convert is None else self._convert(text, operation)
        return made
