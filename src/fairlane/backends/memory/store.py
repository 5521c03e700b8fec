"""A queue in memory: the contract in plain Python.

A `MemoryStore` has one line (a heap) per priority, ordered by `ready_at`. As in the other layouts, this is the end of
a lease, the end of a delay, and the place in line. If a group gets a new place, its old entry becomes stale and is
skipped. A line with many stale entries is rebuilt, so that every operation costs O(log n), amortised.

A signal handler may raise in the middle of an operation. So each operation changes the essential data in one step: it
adds or removes a group, appends a message, or replaces the state of a group. Lines, sizes and dedup ids are derived
from these data. If an operation is interrupted, the next one derives them again.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping
from math import ceil, inf
from typing import Any, ClassVar, Literal, TypeAlias
from uuid import uuid4

from fairlane.backends.memory.groups import Group, Message, State, group_status, message_status, queue_status
from fairlane.backends.shared import forks
from fairlane.backends.shared.ears import Ring
from fairlane.backends.shared.waiting import Room
from fairlane.backends.stored import (
    ACK,
    CLAIM,
    EXTEND,
    GROUP_STATUS,
    MESSAGE_STATUS,
    NACK,
    NEXT_READY,
    PAUSE,
    PUBLISH,
    PURGE,
    QUEUE_STATUS,
    RELEASE,
    RESUME,
    REVISION,
    Operation,
    Rows,
)
from fairlane.contract import ALWAYS, CLIENT_REVISION, DEFAULT_QUEUE, check_head_start

Entry: TypeAlias = tuple[float, int, str]
"""The place of a group in its line: time, turn, and group id."""

PRIORITIES = 5
_MICROSECONDS = 1_000_000


class MemoryStore(forks.ForkAwareWithLock):
    """The messages of one queue in this process. Each operation holds a lock from its beginning to its end.

    `InMemoryTransport` takes a store of its own. `MemoryStore.shared` returns the store that `memory://` uses.
    """

    _shared: ClassVar[dict[str, MemoryStore]] = {}

    @classmethod
    def shared(cls, queue: str = DEFAULT_QUEUE) -> MemoryStore:
        """Return the store that all transports with this name of the queue share in this process."""
        return cls._shared.get(queue) or cls._shared.setdefault(queue, MemoryStore())

    def __init__(self, head_start: float | Literal["always"] = 1.0) -> None:
        """Make an empty queue.

        Args:
            head_start: seconds, 0 to 86,400: a new group stands in line this long before the time of its first
                message. 0 is the order of arrival; with `always` it stands before every served group.
        """
        super().__init__()
        chosen = check_head_start(head_start)
        self._head_start = None if chosen == ALWAYS else round(float(chosen) * _MICROSECONDS)
        self._empty()
        self.room = Room(told=True)
        self._consistent = True  # False during an operation and after an interrupted one

    def _empty(self) -> None:
        self._groups: dict[str, Group] = {}
        self._paused: set[str | None] = set()  # None stands for the whole queue
        self._lines: list[list[Entry]] = [[] for _ in range(PRIORITIES)]
        self._sizes = [0] * PRIORITIES  # live entries of each line
        self._dedup: dict[str, int] = {}
        self._seq = itertools.count(1)
        self._turn = itertools.count(1)
        # the system clock may be set at any time, but this clock must not jump: so it follows the monotonic clock
        self._offset = time.time_ns() - time.monotonic_ns()

    def reset(self) -> None:
        """Remove all messages, leases and dedup ids. The next seq is 1, and the clock is the system clock again."""
        with self._lock:
            self._consistent = False
            self._empty()
            self._consistent = True

    def advance(self, seconds: float) -> None:
        """Move the store's clock forward, so that a test need not wait for the end of a lease or a delay.

        Args:
            seconds: 0 or more.
        """
        if not 0 <= seconds < inf:
            raise ValueError(f"seconds must be 0 or more: {seconds!r}")
        with self._lock:
            self._offset += ceil(seconds * 1e9)
        self.room.ring(Ring.LOOK)

    def now(self) -> int:
        """Return the time of the store's clock in microseconds since the epoch. It never goes back."""
        return (time.monotonic_ns() + self._offset) // 1000

    def perform(self, operation: Operation, arguments: Mapping[str, Any]) -> Rows:
        """Carry out one operation."""
        with self._lock:
            if not self._consistent:
                self._derive()
            self._consistent = False
            rows = _METHODS[operation](self, **arguments)
            self._consistent = True
        if operation.wakes and rows and self.room.floors:
            self.room.ring()
        return rows

    def _derive(self) -> None:
        """Derive lines, sizes and dedup ids from the groups again, after an interrupted operation."""
        self._lines = [[] for _ in range(PRIORITIES)]
        self._sizes = [0] * PRIORITIES
        self._dedup = {}
        for group_id, group in self._groups.items():
            while group.messages[0].seq < group.state.head:
                group.messages.popleft()
            self._lines[group.priority].append(self._entry(group_id, group))
            self._sizes[group.priority] += 1
            self._dedup |= {each.dedup_id: each.seq for each in group.messages if each.dedup_id is not None}
        for line in self._lines:
            heapq.heapify(line)

    def _line_up(self, group_id: str, group: Group) -> None:
        line = self._lines[group.priority]
        if len(line) > 2 * self._sizes[group.priority] + 64:
            line[:] = [entry for entry in line if self._live(entry)]
            heapq.heapify(line)
        heapq.heappush(line, self._entry(group_id, group))

    def _entry(self, group_id: str, group: Group) -> Entry:
        """Return the place of a group in its line. A paused group stands at its end, where no claim looks."""
        return inf if group_id in self._paused else group.state.ready_at, group.state.turn, group_id

    def _live(self, entry: Entry) -> bool:
        group = self._groups.get(entry[2])
        return group is not None and group.state.turn == entry[1]

    def _first(self, min_priority: int, now: int) -> str | None:
        best: Entry | None = None
        if None in self._paused:
            return None
        for line in self._lines[min_priority:]:
            while line and not self._live(line[0]):
                heapq.heappop(line)
            if line and line[0][0] <= now and (best is None or line[0] < best):
                best = line[0]
        return best[2] if best else None

    def _held(self, group_id: str, token: str) -> Group | None:
        group = self._groups.get(group_id)
        return group if group is not None and group.state.token == token else None

    def _revision(self) -> Rows:
        return [{"revision": CLIENT_REVISION, "serves": CLIENT_REVISION}]

    def _publish(self, p_group_id: str, p_event: str, p_priority: int, p_dedup_id: str | None) -> Rows:
        if p_dedup_id is not None and p_dedup_id in self._dedup:
            return [{"seq": self._dedup[p_dedup_id]}]
        seq, now = next(self._seq), self.now()
        message = Message(seq, p_event, p_dedup_id, now)
        group = self._groups.get(p_group_id)
        if group is not None:
            group.messages.append(message)
        else:
            place = seq if self._head_start is None else now - self._head_start
            group = Group(p_priority, deque([message]), State(place, next(self._turn), seq))
            self._groups[p_group_id] = group
            self._sizes[p_priority] += 1
            self._line_up(p_group_id, group)
        if p_dedup_id is not None:
            self._dedup[p_dedup_id] = seq
        return [{"seq": seq}]

    def _claim(self, p_worker_id: str, p_visibility: float, p_min_priority: int) -> Rows:
        now = self.now()
        group_id = self._first(p_min_priority, now)
        if group_id is None:
            return []
        group = self._groups[group_id]
        head, ends, attempts = group.messages[0], now + ceil(p_visibility * _MICROSECONDS), group.state.attempts + 1
        token = str(uuid4())
        group.state = State(ends, next(self._turn), head.seq, token, p_worker_id, attempts)
        self._line_up(group_id, group)
        return [
            {
                "group_id": group_id,
                "seq": head.seq,
                "event": head.event,
                "token": token,
                "attempts": attempts,
                "published_at": head.published_at,
                "expires_at": ends,
            }
        ]

    def _next_ready(self, p_min_priority: int) -> Rows:
        best = inf  # the place of paused groups, too
        for line in self._lines[p_min_priority:]:
            while line and not self._live(line[0]):
                heapq.heappop(line)
            if line:
                best = min(best, line[0][0])
        waits = best < inf and None not in self._paused
        return [{"ready_in_seconds": (best - self.now()) / _MICROSECONDS if waits else None}]

    def _ack(self, p_group_id: str, p_token: str) -> Rows:
        group = self._held(p_group_id, p_token)
        if group is None:
            return []
        done = group.messages[0]
        if len(group.messages) > 1:
            group.state = State(self.now(), next(self._turn), group.messages[1].seq)
            group.messages.popleft()
            self._line_up(p_group_id, group)
        else:
            self._drop(p_group_id, group)
        if done.dedup_id is not None:
            del self._dedup[done.dedup_id]
        return [{"group_id": p_group_id}]

    def _nack(self, p_group_id: str, p_token: str, p_delay: float) -> Rows:
        group = self._held(p_group_id, p_token)
        if group is None:
            return []
        ready_at = self.now() + ceil(p_delay * _MICROSECONDS)
        group.state = State(ready_at, next(self._turn), group.state.head, attempts=group.state.attempts)
        self._line_up(p_group_id, group)
        return [{"group_id": p_group_id}]

    def _extend(self, p_group_id: str, p_token: str, p_visibility: float) -> Rows:
        group = self._held(p_group_id, p_token)
        if group is None:
            return []
        ends = self.now() + ceil(p_visibility * _MICROSECONDS)
        group.state = group.state._replace(ready_at=ends, turn=next(self._turn))
        self._line_up(p_group_id, group)
        return [{"expires_at": ends}]

    def _release(self, p_group_id: str) -> Rows:
        group = self._groups.get(p_group_id)
        if group is None or group.state.token is None:
            return []
        place = min(group.state.ready_at, self.now())
        group.state = State(place, next(self._turn), group.state.head, attempts=group.state.attempts)
        self._line_up(p_group_id, group)
        return [{"group_id": p_group_id}]

    def _purge(self, p_group_id: str, p_limit: int) -> Rows:
        group = self._groups.get(p_group_id)
        if group is None:
            return []
        purged: list[Message] = []
        while len(group.messages) > 1 and len(purged) < p_limit:
            purged.append(group.messages.pop())
        if group.state.token is None and len(purged) < p_limit:
            self._drop(p_group_id, group)
            purged.append(group.messages[0])
        for message in purged:
            if message.dedup_id is not None:
                del self._dedup[message.dedup_id]
        return [{"seq": message.seq} for message in purged]

    def _pause(self, p_group_id: str | None) -> Rows:
        done = p_group_id not in self._paused
        self._paused.add(p_group_id)
        self._move(p_group_id, lambda ready_at: ready_at)
        return [{"done": done}]

    def _resume(self, p_group_id: str | None) -> Rows:
        if p_group_id not in self._paused:
            return [{"done": False}]
        self._paused.remove(p_group_id)
        self._move(p_group_id, lambda ready_at: max(ready_at, self.now()))
        return [{"done": True}]

    def _move(self, group_id: str | None, place: Callable[[int], int]) -> None:
        group = None if group_id is None else self._groups.get(group_id)
        if group_id is not None and group is not None:
            group.state = group.state._replace(ready_at=place(group.state.ready_at), turn=next(self._turn))
            self._line_up(group_id, group)

    def _drop(self, group_id: str, group: Group) -> None:
        del self._groups[group_id]
        self._sizes[group.priority] -= 1
        if not self._sizes[group.priority]:
            self._lines[group.priority].clear()

    def _queue_status(self, p_queue: str) -> Rows:
        return queue_status(self._groups, self._paused, self.now(), p_queue)

    def _group_status(self, p_limit: int) -> Rows:
        return group_status(self._groups, self._paused, self.now(), p_limit)

    def _message_status(self, p_group_id: str, p_limit: int) -> Rows:
        return message_status(self._groups, self.now(), p_group_id, p_limit)


_METHODS: Mapping[Operation, Callable[..., Rows]] = {
    REVISION: MemoryStore._revision,
    PUBLISH: MemoryStore._publish,
    CLAIM: MemoryStore._claim,
    NEXT_READY: MemoryStore._next_ready,
    ACK: MemoryStore._ack,
    NACK: MemoryStore._nack,
    EXTEND: MemoryStore._extend,
    RELEASE: MemoryStore._release,
    PURGE: MemoryStore._purge,
    PAUSE: MemoryStore._pause,
    RESUME: MemoryStore._resume,
    QUEUE_STATUS: MemoryStore._queue_status,
    GROUP_STATUS: MemoryStore._group_status,
    MESSAGE_STATUS: MemoryStore._message_status,
}
