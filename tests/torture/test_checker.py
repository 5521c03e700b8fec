"""The checker finds each kind of violation that is planted in an otherwise correct history."""

from __future__ import annotations

from typing import Any

import pytest

from tests.torture.checker import check
from tests.torture.history import NEVER, Call

LIMIT = 25.0


class Story:
    """A history, written call by call."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def add(self, who: str, operation: str, start: float, end: float, result: Any = None, **more: Any) -> Story:
        outcome = more.pop("outcome", "ok")
        self.calls.append(Call(who, operation, start, end, outcome, more, result))
        return self

    def publish(self, event: str, start: float, *, group: str = "g", seq: Any = 1, **more: Any) -> Story:
        return self.add("p", "publish", start, start + 0.1, seq, group_id=group, event=event, **more)

    def claim(self, event: str | None, start: float, *, who: str = "w", token: str = "t", **more: Any) -> Story:
        found = {"group_id": "g", "event": event, "seq": 1, "token": token, "attempts": 1, **more.pop("facts", {})}
        result = None if event is None else found
        return self.add(who, "claim", start, start + 0.1, result, visibility=more.pop("visibility", 10.0), **more)

    def ack(self, start: float, *, who: str = "w", token: str = "t", **more: Any) -> Story:
        return self.add(who, "ack", start, start + 0.1, token=token, **more)

    def found(self, *, stopped: frozenset[str] = frozenset()) -> set[str]:
        """Return the kinds of violations."""
        ordered = sorted(self.calls, key=lambda call: call.start)
        return {line.partition(":")[0] for line in check(ordered, limit=LIMIT, stopped=stopped)}


def right() -> Story:
    """Make a correct history: two messages of one group, published, delivered and acked in order."""
    story = Story().publish("A", 0).publish("B", 1, seq=2)
    story.claim("A", 2, token="a").ack(3, token="a")
    return story.claim("B", 4, token="b", facts={"seq": 2}).ack(5, token="b").claim(None, 6)


def test_a_correct_history_has_no_violations() -> None:
    assert right().found() == set()


PLANTED = {
    "lost": lambda: right().publish("C", 0.5, group="other"),
    "doubled": lambda: right().claim("A", 20, token="again", facts={"attempts": 2}),
    "doubled by two numbers": lambda: right().claim("A", 1.5, token="x", facts={"seq": 9, "attempts": 0}),
    "invented": lambda: right().claim("Z", 20, token="z"),
    "invented by a rollback": lambda: right().publish("R", 0, seq="rolled back").claim("R", 20, token="r"),
    "order": lambda: (
        Story().publish("A", 0).publish("B", 1, seq=2)
        .claim("B", 2, token="b", facts={"seq": 2}).ack(3, token="b").claim("A", 4, token="a").ack(5, token="a")
    ),
    "overlap": lambda: (
        Story().publish("A", 0).publish("B", 0.5, seq=2).claim("A", 1, token="a")
        .claim("B", 2, who="v", token="b", facts={"seq": 2}).ack(3, token="a").ack(4, who="v", token="b")
    ),
    "stale": lambda: (
        Story().publish("A", 0).claim("A", 1, token="a", visibility=1.0)
        .claim("A", 4, who="v", token="b", facts={"attempts": 2}).ack(5, token="a")
    ),
    "attempts": lambda: (
        Story().publish("A", 0).claim("A", 1, token="a", visibility=1.0)
        .claim("A", 4, who="v", token="b").ack(5, who="v", token="b")
    ),
    "nothing": lambda: Story().publish("A", 0).claim(None, 1).claim("A", 2).ack(3),
    "raw": lambda: right().add("w", "ack", 7, 7.1, "ValueError: x", token="b", outcome="raw"),
    "slow": lambda: right().add("w", "claim", 7, 7 + LIMIT + 1, None, visibility=1.0, outcome="error"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_violation_is_found(kind: str) -> None:
    """Guards against a checker that finds nothing because it looks at nothing."""
    assert kind.partition(" ")[0] in PLANTED[kind]().found()


def test_what_is_excused_is_not_reported() -> None:
    """Guards against false alarms, which people learn to ignore."""
    killed = Story().publish("A", 0).add("w", "claim", 1, NEVER, None, visibility=2.0, outcome="pending")
    assert killed.claim(None, 2).claim("A", 9, facts={"attempts": 2}).ack(10).found() == set()
    failed_ack = Story().publish("A", 0).publish("B", 0.2, seq=2).claim("A", 1, token="a")
    failed_ack.ack(2, token="a", outcome="error")
    assert failed_ack.claim("B", 3, token="b", facts={"seq": 2}).ack(4, token="b").found() == set()
    frozen = right().add("w", "claim", 7, 7 + LIMIT + 1, None, visibility=1.0, outcome="error")
    assert frozen.found(stopped=frozenset({"w"})) == set()
    parked = Story().publish("A", 0).claim("A", 1, token="a").add("w", "nack", 2, 2.1, None, token="a", delay=5.0)
    assert parked.claim(None, 4).claim("A", 8, token="b", facts={"attempts": 2}).ack(9, token="b").found() == set()
