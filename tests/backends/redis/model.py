"""The contract as plainly as Python can say it: what the functions must answer. Slow, and obviously right."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Group:
    priority: int
    place: tuple[int, int, int]
    """With the head start `always` the never served first, by seq; then by time; equal times by the order of events."""
    messages: list[int] = field(default_factory=list)
    token: str | None = None
    attempts: int = 0


class Model:
    """One queue. Time stands still until it is told."""

    def __init__(self, now: int, head_start: str) -> None:
        self.now = now
        self.head_start = None if head_start == "always" else round(float(head_start) * 1_000_000)
        self.groups: dict[str, Group] = {}
        self.dedup: dict[str, int] = {}
        self.seq = 0
        self.events = 0

    def _place(self, time: int) -> tuple[int, int, int]:
        self.events += 1
        return (1, time, self.events)

    def publish(self, group_id: str, priority: int, dedup_id: str) -> int:
        if dedup_id in self.dedup:
            return self.dedup[dedup_id]
        self.seq += 1
        if group_id not in self.groups:
            place = (0, self.seq, 0) if self.head_start is None else self._place(self.now - self.head_start)
            self.groups[group_id] = Group(priority, place)
        self.groups[group_id].messages.append(self.seq)
        if dedup_id:
            self.dedup[dedup_id] = self.seq
        return self.seq

    def line(self) -> list[str]:
        return sorted(self.groups, key=lambda group_id: self.groups[group_id].place)

    def claim(self, visibility: int, floor: int, token: str) -> tuple[str, int, int] | None:
        for group_id in self.line():
            group = self.groups[group_id]
            if group.priority >= floor and (group.place[0] == 0 or group.place[1] <= self.now):
                group.token = token
                group.attempts += 1
                group.place = self._place(self.now + visibility)
                return group_id, group.messages[0], group.attempts
        return None

    def _held(self, group_id: str, token: str) -> Group | None:
        group = self.groups.get(group_id)
        return group if group is not None and group.token == token else None

    def ack(self, group_id: str, token: str) -> bool:
        group = self._held(group_id, token)
        if group is None:
            return False
        done = group.messages.pop(0)
        self.dedup = {name: seq for name, seq in self.dedup.items() if seq != done}
        group.token, group.attempts = None, 0
        if group.messages:
            group.place = self._place(self.now)
        else:
            del self.groups[group_id]
        return True

    def nack(self, group_id: str, token: str, delay: int) -> bool:
        group = self._held(group_id, token)
        if group is None:
            return False
        group.token = None
        group.place = self._place(self.now + delay)
        return True

    def extend(self, group_id: str, token: str, visibility: int) -> bool:
        group = self._held(group_id, token)
        if group is None:
            return False
        group.place = self._place(self.now + visibility)
        return True

    def state(self, group_id: str) -> str:
        group = self.groups[group_id]
        if group.place[0] == 0 or group.place[1] <= self.now:
            return "ready"
        return "parked" if group.token is None else "in_flight"
