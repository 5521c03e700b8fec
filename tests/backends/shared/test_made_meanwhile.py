"""A queue is used, too, if it is created between a refused request and the question whether it exists."""

from __future__ import annotations

import pytest

from fairlane.backends.shared.retry import Refused
from fairlane.backends.shared.sent_twice import EXISTS, SentTwiceCore
from fairlane.backends.stored import REVISION, Call, Rows
from fairlane.contract import CLIENT_REVISION
from fairlane.errors import SchemaNotReady
from fairlane.model import Revision
from fairlane.program import run


class Database:
    """Refuses everything until a client asks whether the queue exists. With `made`, it exists from then on."""

    def __init__(self, *, made: bool) -> None:
        self._made = made
        self._asked = False

    def execute(self, request: Call) -> Rows:
        if request.operation is EXISTS:
            self._asked = True
            return [{"found": int(self._made)}]
        if not (self._asked and self._made):
            raise Refused(RuntimeError("no such table"))
        return (
            [{"revision": CLIENT_REVISION, "serves": CLIENT_REVISION}]
            if request.operation is REVISION
            else [{"seq": 7}]
        )


def test_a_queue_that_is_made_just_now_is_used() -> None:
    """Guards against an untranslated driver error about a table that was missing a moment ago."""
    assert run(SentTwiceCore("q").publish("g", "1", 0, None), Database(made=True).execute) == 7


def test_a_queue_that_is_made_just_now_is_at_its_revision() -> None:
    assert run(SentTwiceCore("q").revision(), Database(made=True).execute) == Revision(CLIENT_REVISION, CLIENT_REVISION)


def test_a_queue_that_is_not_there_is_named() -> None:
    with pytest.raises(SchemaNotReady):
        run(SentTwiceCore("q").publish("g", "1", 0, None), Database(made=False).execute)


def test_a_queue_that_is_not_there_has_no_revision() -> None:
    assert run(SentTwiceCore("q").revision(), Database(made=False).execute) is None
