"""The contract as a model that is obviously correct: lists and a counter, no clock and no cost.

Leases and delays either last longer than any test (`blocked`) or were waited for and are over. So what is claimable,
and in which order, never depends on how fast anything ran.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Message:
    seq: int
    event: Any
    dedup_id: str | None


@dataclass
class Group:
    priority: int
    place: tuple[int, int]  # (1, number of the event); before the first claim (0, seq) with a head start
    messages: list[Message] = field(default_factory=list)
    token: str | None = None
    blocked: bool = False  # in flight or parked, for longer than the test lasts
    attempts: int = 0

    @property
    def state(self) -> str:
        if not self.blocked:
            return "ready"
        return "parked" if self.token is None else "in_flight"


class Model:
    """What a queue must do, with a head start that lasts longer than any test, or with none."""

    def __init__(self, *, head_start: bool) -> None:
        self.head_start = head_start
        self.groups: dict[str, Group] = {}
        self.dedup: dict[str, int] = {}
        self._events = itertools.count(1)

    def publish(self, seq: int, group_id: str, event: Any, priority: int, dedup_id: str | None) -> int:
        """Take note of a publish that the queue numbered `seq`; returns what it must have returned."""
        if dedup_id is not None:
            if dedup_id in self.dedup:
                return self.dedup[dedup_id]
            self.dedup[dedup_id] = seq
        if group_id not in self.groups:
            self.groups[group_id] = Group(priority, (0, seq) if self.head_start else (1, next(self._events)))
        group = self.groups[group_id]
        group.messages.append(Message(seq, event, dedup_id))
        return seq

    def line(self, floor: int = 0) -> list[str]:
        """The claimable groups, the one first that the next claim must give."""
        able = [name for name, group in self.groups.items() if not group.blocked and group.priority >= floor]
        return sorted(able, key=lambda name: self.groups[name].place)

    def claim(self, group_id: str, token: str) -> Message:
        """Take note of a claim that gave this group; returns the message it must have given."""
        group = self.groups[group_id]
        group.token, group.blocked = token, True
        group.attempts += 1
        return group.messages[0]

    def holds(self, group_id: str, token: str) -> bool:
        """Whether a token may act on its group."""
        return group_id in self.groups and self.groups[group_id].token == token

    def ack(self, group_id: str) -> None:
        group = self.groups[group_id]
        done = group.messages.pop(0)
        if done.dedup_id is not None:
            del self.dedup[done.dedup_id]
        group.attempts = 0
        self._give_back(group)
        if not group.messages:
            del self.groups[group_id]

    def nack(self, group_id: str, *, parked: bool) -> None:
        group = self.groups[group_id]
        self._give_back(group)
        group.blocked = parked

    def extend(self, group_id: str) -> None:
        self.groups[group_id].blocked = True

    def expire(self, group_id: str) -> None:
        """Take note that a lease ran out; its token holds until somebody claims the group."""
        group = self.groups[group_id]
        group.blocked = False
        group.place = (1, next(self._events))

    def _give_back(self, group: Group) -> None:
        group.token, group.blocked = None, False
        group.place = (1, next(self._events))
