"""The contract as a model that is obviously correct: lists and counters, slow, without a server.

Its clock stands still until a test moves it. All leases and delays of a test are either longer than the test, or the
test waits for them (`expire`). Then the speed of the machine never decides what is claimable, and in which order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

SECOND = 1_000_000
"""The model counts in microseconds."""


@dataclass
class Message:
    seq: int
    event: Any
    dedup_id: str | None


@dataclass
class Group:
    priority: int
    place: tuple[int, int, int]
    """With the head start `always` groups that were never served come first, by seq. The others follow by time, and
    then by the order of the events that gave them their places."""
    messages: list[Message] = field(default_factory=list)
    token: str | None = None
    attempts: int = 0


class Model:
    """A model of one queue: what the queue must do."""

    def __init__(self, head_start: float | str, now: int = 0) -> None:
        self.now = now
        self.groups: dict[str, Group] = {}
        self.paused: set[str | None] = set()
        self.last_seq = 0
        self._head_start = None if head_start == "always" else round(float(head_start) * SECOND)
        self._dedup: dict[str, int] = {}
        self._events = itertools.count(1)

    # what was done; called after the queue did it

    def publish(self, seq: int, group_id: str, event: Any, priority: int, dedup_id: str | None) -> int:
        """Publish a message that would get the number `seq`. Return the number that the caller must have got."""
        if dedup_id is not None and dedup_id in self._dedup:
            return self._dedup[dedup_id]
        self.last_seq = seq
        if dedup_id is not None:
            self._dedup[dedup_id] = seq
        if group_id not in self.groups:
            place = (0, seq, 0) if self._head_start is None else self._place(-self._head_start)
            self.groups[group_id] = Group(priority, place)
        self.groups[group_id].messages.append(Message(seq, event, dedup_id))
        return seq

    def publish_many(self, seqs: list[int], messages: Sequence[Any]) -> None:
        """Publish messages. Their numbers grow in each group; a backend may number the groups in any order."""
        expected: list[int] = []
        for seq, message in sorted(zip(seqs, messages, strict=True), key=lambda each: each[0]):
            expected.append(self.publish(seq, message.group_id, message.event, message.priority, message.dedup_id))
        assert expected == sorted(seqs)

    def claim(self, group_id: str, token: str, visibility: int) -> Message:
        """Lease a group of the line. Return the message that the caller must have got."""
        group = self.groups[group_id]
        group.token, group.place = token, self._place(visibility)
        group.attempts += 1
        return group.messages[0]

    def ack(self, group_id: str) -> None:
        group = self.groups[group_id]
        done = group.messages.pop(0)
        if done.dedup_id is not None:
            del self._dedup[done.dedup_id]
        group.token, group.attempts, group.place = None, 0, self._place()
        if not group.messages:
            del self.groups[group_id]

    def nack(self, group_id: str, delay: int = 0) -> None:
        group = self.groups[group_id]
        group.token, group.place = None, self._place(delay)

    def extend(self, group_id: str, visibility: int) -> None:
        self.groups[group_id].place = self._place(visibility)

    def release(self, group_id: str) -> bool:
        """End the lease of a group; one that has expired keeps the group's place."""
        group = self.groups.get(group_id)
        if group is None or group.token is None:
            return False
        if self.state(group_id) != "ready":
            group.place = self._place()
        group.token = None
        return True

    def purge(self, group_id: str) -> int:
        """Remove all messages of a group that are not leased."""
        group = self.groups.get(group_id)
        if group is None:
            return 0
        purged = group.messages[group.token is not None :]
        for message in purged:
            if message.dedup_id is not None:
                del self._dedup[message.dedup_id]
        del group.messages[group.token is not None :]
        if not group.messages:
            del self.groups[group_id]
        return len(purged)

    def pause(self, group_id: str | None) -> bool:
        """Pause a group, or the queue. An empty group can be paused too."""
        done = group_id not in self.paused
        self.paused.add(group_id)
        return done

    def resume(self, group_id: str | None) -> bool:
        """End a pause. A group that waits for nothing goes to the back of the line."""
        if group_id not in self.paused:
            return False
        self.paused.remove(group_id)
        if group_id in self.groups and self.state(group_id) == "ready":
            self.groups[group_id].place = self._place()
        return True

    def expire(self, group_id: str) -> None:
        """Let a lease run out; its token holds until somebody claims the group."""
        self.groups[group_id].place = self._place()

    def _place(self, later: int = 0) -> tuple[int, int, int]:
        return (1, self.now + later, next(self._events))

    # what must be there

    def order(self) -> list[str]:
        """Return all groups, in the order of their places."""
        return sorted(self.groups, key=lambda group_id: (group_id in self.paused, self.groups[group_id].place))

    def line(self, floor: int = 0) -> list[str]:
        """Return the claimable groups, first the one that the next claim must return."""
        if None in self.paused:
            return []
        return [name for name in self.order() if self.groups[name].priority >= floor and self.state(name) == "ready"]

    def state(self, group_id: str) -> str:
        group = self.groups[group_id]
        waits = group.place[0] == 1 and group.place[1] > self.now
        if waits and group.token is not None:
            return "in_flight"
        if group_id in self.paused:
            return "paused"
        return "parked" if waits else "ready"

    def states(self) -> list[int]:
        """Return how many groups there are, and how many of them are ready, in flight, parked and paused."""
        found = [self.state(group_id) for group_id in self.groups]
        return [len(found), *(found.count(state) for state in ("ready", "in_flight", "parked", "paused"))]

    def messages(self) -> int:
        """Return how many messages there are."""
        return sum(len(group.messages) for group in self.groups.values())

    def holds(self, group_id: str, token: str) -> bool:
        """Return whether a token may act on its group."""
        return group_id in self.groups and self.groups[group_id].token == token
