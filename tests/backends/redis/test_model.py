"""The functions beside a model of the contract, on a clock that often stands still and sometimes goes back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.redis.invariants import check
from tests.backends.redis.library import NOON, SECOND, LeaseLost, Library
from tests.backends.redis.model import Model

STEPS = 700
GROUPS = ["b", "a", "A", "a ", "é", "e\u0301", "{x}", "a:b", '"', "😀", "ab", "z" * 512]
# Each length has a fraction of its own, so that two of them end together only if they began together: then the order
# of the events must count.
VISIBILITIES = [n * SECOND + 100_000 + n * 30_000 for n in range(6)]
HEAD_STARTS = ["always", "0", "1.507"]
DELAYS = [0, *(n * SECOND + 115_000 + n * 30_000 for n in range(6))]


class Pair:
    """Does the same to a library and to the model, and compares the answers."""

    def __init__(self, library: Library, model: Model, dice: random.Random) -> None:
        self.library = library
        self.model = model
        self.dice = dice
        self.tokens: list[tuple[str, str]] = [("b", "never")]

    def step(self) -> None:
        actions: dict[Callable[[], None], int] = {
            self.publish: 8,
            self.claim: 10,
            self.ack: 6,
            self.nack: 3,
            self.extend: 2,
            self.wait: 4,
            self.look: 1,
        }
        self.dice.choices(list(actions), list(actions.values()))[0]()

    def publish(self) -> None:
        group, priority = self.dice.choice(GROUPS), self.dice.randrange(5)
        dedup = self.dice.choice(["", "", f"id{self.dice.randrange(6)}"])
        assert self.library.publish(group, '"x"', priority, dedup) == self.model.publish(group, priority, dedup)

    def claim(self) -> None:
        visibility, floor = self.dice.choice(VISIBILITIES), self.dice.choice([0, 0, 0, 1, 2, 3, 4])
        token = f"token-{self.model.events}-{self.dice.random()}"
        reply = self.library.claim(token, visibility, floor)
        expected = self.model.claim(visibility, floor, token)
        found = None if reply is None else (reply[0].decode(), reply[1], reply[4])
        assert found == expected
        if expected:
            self.tokens.append((expected[0], token))

    def lease(self) -> tuple[str, str]:
        return self.dice.choice(self.tokens[-6:] if self.dice.random() < 0.8 else self.tokens)

    def compare(self, expected: bool, function: str, *argv: Any) -> None:
        try:
            self.library.call(function, *argv)
        except LeaseLost:
            assert not expected
        else:
            assert expected

    def ack(self) -> None:
        group, token = self.lease()
        self.compare(self.model.ack(group, token), "ack", group, token)

    def nack(self) -> None:
        (group, token), delay = self.lease(), self.dice.choice(DELAYS)
        self.compare(self.model.nack(group, token, delay), "nack", group, token, delay)

    def extend(self) -> None:
        (group, token), visibility = self.lease(), self.dice.choice(VISIBILITIES)
        self.compare(self.model.extend(group, token, visibility), "extend", group, token, visibility)

    def wait(self) -> None:
        if self.dice.random() < 0.1:
            self.set_back()
            return
        micros = self.dice.randrange(1, 4) * SECOND
        self.library.pass_time(micros)
        self.model.now += micros

    def set_back(self) -> None:
        """Set the server's clock back: for the queue, time goes on from the last that it has seen."""
        seen = self.library.client.hget(self.library.key("meta"), "time")
        if seen is not None:
            self.library.pass_time(-self.dice.randrange(1, 100) * 1000 * SECOND)
            self.model.now = int(seen) // SECOND * SECOND
            self.claim()  # now it sees the step; what passes unseen between step and look would be lost

    def look(self) -> None:
        rows = self.library.call("group_status", 100)
        line = self.model.line()
        states = [self.model.state(group) for group in line]
        assert [row[0].decode() for row in rows] == line
        assert [row[1].decode() for row in rows] == states
        assert [row[3] for row in rows] == [len(self.model.groups[group].messages) for group in line]
        assert [row[6] for row in rows] == [self.model.groups[group].attempts for group in line]
        counts = [states.count(state) for state in ("ready", "in_flight", "parked")]
        messages = sum(len(group.messages) for group in self.model.groups.values())
        assert self.library.call("queue_status")[1:6] == [len(line), *counts, messages]
        check(self.library)


@pytest.mark.parametrize("head_start", HEAD_STARTS)
@pytest.mark.parametrize("seed", range(8))
def test_the_functions_answer_as_the_model_does(timed: Callable[..., Library], seed: int, head_start: str) -> None:
    library = timed(head_start=head_start)
    pair = Pair(library, Model(NOON, head_start), random.Random(seed))
    for _ in range(STEPS):
        pair.step()
    pair.look()
