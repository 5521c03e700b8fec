"""The functions give the same answers as a model of the contract. The clock often stands still or goes back."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.backends.redis.invariants import check
from tests.backends.redis.library import NOON, LeaseLost, Library
from tests.harness.model import SECOND, Model

STEPS = 700
GROUPS = ["b", "a", "A", "a ", "é", "e\u0301", "{x}", "a:b", '"', "😀", "ab", "z" * 512]
# Each length has its own fraction of a second. So two leases end at the same time only if they began at the same time.
# Then the order of the events must decide.
VISIBILITIES = [n * SECOND + 100_000 + n * 30_000 for n in range(6)]
HEAD_STARTS = ["always", "0", "1.507"]
DELAYS = [0, *(n * SECOND + 115_000 + n * 30_000 for n in range(6))]


class Pair:
    """Calls the library and the model with the same operations, and compares the answers."""

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
            self.pause: 2,
            self.resume: 3,
            self.look: 1,
        }
        self.dice.choices(list(actions), list(actions.values()))[0]()

    def publish(self) -> None:
        group, priority = self.dice.choice(GROUPS), self.dice.randrange(5)
        dedup = self.dice.choice(["", "", f"id{self.dice.randrange(6)}"])
        expected = self.model.publish(self.model.last_seq + 1, group, "x", priority, dedup or None)
        assert self.library.publish(group, '"x"', priority, dedup) == expected

    def claim(self) -> None:
        visibility, floor = self.dice.choice(VISIBILITIES), self.dice.choice([0, 0, 0, 1, 2, 3, 4])
        token = f"token-{self.dice.random()}"
        line = self.model.line(floor)
        reply = self.library.claim(token, visibility, floor)
        if not line:
            assert reply is None
            return
        message = self.model.claim(line[0], token, visibility)
        assert (reply[0].decode(), reply[1], reply[4]) == (line[0], message.seq, self.model.groups[line[0]].attempts)
        self.tokens.append((line[0], token))

    def lease(self) -> tuple[str, str]:
        return self.dice.choice(self.tokens[-6:] if self.dice.random() < 0.8 else self.tokens)

    def with_lease(self, function: str, *arguments: int) -> None:
        """Call a function that must succeed if, and only if, the model says that the lease holds."""
        group, token = self.lease()
        try:
            self.library.call(function, group, token, *arguments)
        except LeaseLost:
            assert not self.model.holds(group, token)
        else:
            assert self.model.holds(group, token)
            getattr(self.model, function)(group, *arguments)

    def ack(self) -> None:
        self.with_lease("ack")

    def nack(self) -> None:
        self.with_lease("nack", self.dice.choice(DELAYS))

    def extend(self) -> None:
        self.with_lease("extend", self.dice.choice(VISIBILITIES))

    def pause(self) -> None:
        group = self.dice.choice([*GROUPS, None]) if self.dice.random() < 0.2 else self.dice.choice(GROUPS)
        assert self.library.call("pause", group or "") == self.model.pause(group)

    def resume(self) -> None:
        group = self.dice.choice([*GROUPS, None, None, None])
        assert self.library.call("resume", group or "") == self.model.resume(group)

    def wait(self) -> None:
        if self.dice.random() < 0.1:
            self.set_back()
            return
        micros = self.dice.randrange(1, 4) * SECOND
        self.library.pass_time(micros)
        self.model.now += micros

    def set_back(self) -> None:
        """Set the server's clock back. For the queue, time continues from the last time that it has seen."""
        seen = self.library.client.hget(self.library.key("meta"), "time")
        if seen is not None:
            self.library.pass_time(-self.dice.randrange(1, 100) * 1000 * SECOND)
            self.model.now = int(seen) // SECOND * SECOND
            self.claim()  # so that the queue sees the step now; time that passes before that would not count

    def look(self) -> None:
        rows = self.library.call("group_status", 100)
        order = self.model.order()
        empty = sorted((name for name in self.model.paused - set(order) if name is not None), key=str.encode)
        assert [[row[0].decode(), *row[1:]] for row in rows[len(order) :]] == [
            [group, b"paused", 0, 0, None, None, 0, 0] for group in empty
        ]
        rows = rows[: len(order)]
        waiting = len(order) - len(self.model.paused & set(order))
        # places of paused groups are even numbers, so two of them may be equal
        assert [row[0].decode() for row in rows[:waiting]] == order[:waiting]
        assert {row[0].decode() for row in rows[waiting:]} == set(order[waiting:])
        order = [row[0].decode() for row in rows]
        assert [row[1].decode() for row in rows] == [self.model.state(group) for group in order]
        assert [row[3] for row in rows] == [len(self.model.groups[group].messages) for group in order]
        assert [row[6] for row in rows] == [self.model.groups[group].attempts for group in order]
        figures = self.library.call("queue_status", 1)
        *states, paused = self.model.states()
        assert figures[1:6] == [*states, self.model.messages()]
        assert figures[7:] == [paused, None in self.model.paused]
        assert self.library.call("queue_status") == figures[:7], "what clients of revision 0001 know"
        check(self.library)


@pytest.mark.parametrize("head_start", HEAD_STARTS)
@pytest.mark.parametrize("seed", range(8))
def test_the_functions_answer_as_the_model_does(timed: Callable[..., Library], seed: int, head_start: str) -> None:
    library = timed(head_start=head_start)
    pair = Pair(library, Model(head_start, NOON), random.Random(seed))
    for _ in range(STEPS):
        pair.step()
    pair.look()
