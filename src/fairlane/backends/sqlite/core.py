"""The programs of the SQLite backend."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.backends.shared.family import FamilyCore
from fairlane.backends.shared.retry import Unanswered, delivered
from fairlane.backends.stored import Call, Operation, Rows
from fairlane.program import Program, Sleep


class SqliteCore(FamilyCore):
    """The stored operations of a queue in an SQLite file. The statements make the tokens: no answer can be lost."""

    def call(self, operation: Operation, arguments: Mapping[str, object] | None = None) -> Program[Call, Rows, Rows]:
        """Request one operation. Repeat it while other connections lock the file, since nothing was changed then."""
        request = Call(operation, arguments or {})
        try:
            return (yield request)  # the usual case, without the cost of `delivered`
        except Unanswered as busy:
            if busy.seconds <= 0:
                raise busy.error(uncertain=False) from busy.__cause__
            pause = busy.pauses.after(1)
        yield Sleep(pause)
        return (yield from delivered(request, repeatable=True))
