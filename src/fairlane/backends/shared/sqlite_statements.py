"""What SQLite, libSQL and rqlite share: one set of statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, cast

from typing_extensions import TypeVar

from fairlane.backends.stored import CLAIM, Call, Operation
from fairlane.templates import statement

TextT = TypeVar("TextT", bound=str, default=str)


def last_seq_damaged(queue: str) -> str:
    """Say why a publish got no seq: `check` and key of the table of messages refuse nothing else."""
    return f"the setting last_seq is missing, or no number that fits: `fairlane migrate --queue {queue}` puts it right"


class Statements(Generic[TextT]):
    """The rendered statements of one queue, without their comments.

    Args:
        queue: its name.
        dialect: sqlite, libsql or rqlite.
        kind: makes of a text what the backend's connections take; a plain str unless given.
    """

    def __init__(self, queue: str, dialect: str, kind: Callable[[str, Operation], TextT] | None = None) -> None:
        self._variables = {"queue": queue, "dialect": dialect}
        self._kind = kind
        self._texts: dict[Operation | int, TextT] = {}

    def __getitem__(self, call: Call) -> TextT:
        # a claim has one text for each floor: that number stands for it
        key = call.arguments["p_min_priority"] if call.operation is CLAIM else call.operation
        return self._texts.get(key) or self._rendered(key, call.operation)

    def _rendered(self, key: Operation | int, operation: Operation) -> TextT:
        extra = {"floor": key} if isinstance(key, int) else {}
        text = statement(f"procedures/sqlite/{operation.name}.sql.j2", **self._variables, **extra)
        made = self._texts[key] = cast(TextT, text) if self._kind is None else self._kind(text, operation)
        return made
