"""The programs of the SQLite backend."""

from __future__ import annotations

from fairlane.backends.shared.family import FamilyCore
from fairlane.backends.shared.retry import Unanswered, delivered
from fairlane.backends.stored import Call, Rows
from fairlane.program import Program, Sleep


class SqliteCore(FamilyCore):
    """The stored operations of a queue in an SQLite file. The statements make the tokens: no answer can be lost."""

    def send(self, request: Call) -> Program[Call, Rows, Rows]:
        """Send a request. Repeat it while other connections lock the file, since nothing was changed then."""
        try:
            return (yield request)  # the usual case, without the cost of `delivered`
        except Unanswered as busy:
            if busy.seconds <= 0:
                raise busy.error(uncertain=False) from busy.__cause__
            pause = busy.pauses.after(1)
        yield Sleep(pause)
        return (yield from delivered(request, repeatable=True))
