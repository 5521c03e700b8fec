"""The queue itself: the contract in plain Python.

A `MemoryStore` keeps one line (a heap) per priority, ordered by `ready_at`, which is lease expiry, park deadline and
place in line at once, as in the other layouts. An entry whose group has moved since is stale and skipped; a line with
more stale entries than live ones is rebuilt, so that every operation costs O(log n), amortised.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, ClassVar, Literal
from uuid import uuid4

from fairlane.backends.shared import forks
from fairlane.backends.stored import (
    ACK,
    CLAIM,
    EXTEND,
    GROUP_STATUS,
    MESSAGE_STATUS,
    NACK,
    PUBLISH,
    QUEUE_STATUS,
    REVISION,
    Operation,
    Row,
    Rows,
)
from fairlane.contract import ALWAYS, CLIENT_REVISION, DEFAULT_QUEUE, check_head_start

PRIORITIES = 5
_MICROSECONDS = 1_000_000


@dataclass(slots=True)
class _Message:
    seq: int
    event: str
    dedup_id: str | None
    published_at: int


@dataclass(slots=True)
class _Group:
    priority: int
    ready_at: int
    turn: int  # breaks ties of ready_at by the order of events; also tells the live entry from stale ones
    messages: deque[_Message] = field(default_factory=deque)
    token: str | None = None
    worker_id: str | None = None
    attempts: int = 0


class MemoryStore(forks.ForkAwareWithLock):
    """The messages of one queue in this process. An operation holds the lock for its whole length.

    Give a store of its own to `InMemoryTransport`, or ask for the one that `memory://` uses: `MemoryStore.shared`.
    """

    _shared: ClassVar[dict[str, MemoryStore]] = {}

    @classmethod
    def shared(cls, queue: str = DEFAULT_QUEUE) -> MemoryStore:
        """Return the store that all transports of one queue name share in this process."""
        return cls._shared.get(queue) or cls._shared.setdefault(queue, MemoryStore())

    def __init__(self, head_start: float | Literal["always"] = 1.0) -> None:
        """Make an empty queue.

        Args:
            head_start: how many seconds before the time of its first message a new group stands in line, 0 to 86,400;
                0 is the order of arrival, `always` before every served group.
        """
        super().__init__()
        chosen = check_head_start(head_start)
        self._head_start = None if chosen == ALWAYS else round(float(chosen) * _MICROSECONDS)
        self._empty()

    def _empty(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._lines: list[list[tuple[int, int, str]]] = [[] for _ in range(PRIORITIES)]
        self._sizes = [0] * PRIORITIES  # live entries of each line
        self._dedup: dict[str, int] = {}
        self._seq = itertools.count(1)
        self._turn = itertools.count(1)
        # the wall clock may be set while we run; time must not jump, so it only anchors the monotonic one
        self._offset = time.time_ns() - time.monotonic_ns()

    def reset(self) -> None:
        """Be as a new store: without messages, leases and dedup ids, seq 1 next, and with the time of day."""
        with self._lock:
            self._empty()

    def advance(self, seconds: float) -> None:
        """Move the store's clock forward, so that a test need not wait until a lease or a delay is over.

        Args:
            seconds: 0 or more.
        """
        if not 0 <= seconds < inf:
            raise ValueError(f"seconds must be 0 or more: {seconds!r}")
        with self._lock:
            self._offset += ceil(seconds * 1e9)

    def now(self) -> int:
        """Return the time in microseconds since the epoch; never goes back."""
        return (time.monotonic_ns() + self._offset) // 1000

    def perform(self, operation: Operation, arguments: Mapping[str, Any]) -> Rows:
        """Carry out one operation."""
        with self._lock:
            return _METHODS[operation](self, **arguments)

    def _place(self, group_id: str, group: _Group, ready_at: int) -> None:
        group.ready_at, group.turn = ready_at, next(self._turn)
        line = self._lines[group.priority]
        if len(line) > 2 * self._sizes[group.priority] + 64:
            line[:] = [entry for entry in line if self._live(entry)]
            heapq.heapify(line)
        heapq.heappush(line, (ready_at, group.turn, group_id))

    def _live(self, entry: tuple[int, int, str]) -> bool:
        group = self._groups.get(entry[2])
        return group is not None and group.turn == entry[1]

    def _first(self, min_priority: int, now: int) -> str | None:
        best: tuple[int, int, str] | None = None
        for line in self._lines[min_priority:]:
            while line and not self._live(line[0]):
                heapq.heappop(line)
            if line and line[0][0] <= now and (best is None or line[0] < best):
                best = line[0]
        return best[2] if best else None

    def _held(self, group_id: str, token: str) -> _Group | None:
        group = self._groups.get(group_id)
        return group if group is not None and group.token == token else None

    def _revision(self) -> Rows:
        return [{"revision": CLIENT_REVISION, "serves": CLIENT_REVISION}]

    def _publish(self, p_group_id: str, p_event: str, p_priority: int, p_dedup_id: str | None) -> Rows:
        if p_dedup_id is not None and p_dedup_id in self._dedup:
            return [{"seq": self._dedup[p_dedup_id]}]
        seq, now = next(self._seq), self.now()
        group = self._groups.get(p_group_id)
        if group is None:
            group = self._groups[p_group_id] = _Group(p_priority, 0, 0)
            self._sizes[p_priority] += 1
            self._place(p_group_id, group, seq if self._head_start is None else now - self._head_start)
        group.messages.append(_Message(seq, p_event, p_dedup_id, now))
        if p_dedup_id is not None:
            self._dedup[p_dedup_id] = seq
        return [{"seq": seq}]

    def _claim(self, p_worker_id: str, p_visibility: float, p_min_priority: int) -> Rows:
        now = self.now()
        group_id = self._first(p_min_priority, now)
        if group_id is None:
            return []
        group = self._groups[group_id]
        group.token, group.worker_id = str(uuid4()), p_worker_id
        group.attempts += 1
        self._place(group_id, group, now + ceil(p_visibility * _MICROSECONDS))
        head = group.messages[0]
        return [
            {
                "group_id": group_id,
                "seq": head.seq,
                "event": head.event,
                "token": group.token,
                "attempts": group.attempts,
                "published_at": head.published_at,
                "expires_at": group.ready_at,
            }
        ]

    def _ack(self, p_group_id: str, p_token: str) -> Rows:
        group = self._held(p_group_id, p_token)
        if group is None:
            return []
        done = group.messages.popleft()
        if done.dedup_id is not None:
            del self._dedup[done.dedup_id]
        group.token, group.worker_id, group.attempts = None, None, 0
        if group.messages:
            self._place(p_group_id, group, self.now())
        else:
            del self._groups[p_group_id]
            self._sizes[group.priority] -= 1
            if not self._sizes[group.priority]:
                self._lines[group.priority].clear()
        return [{"group_id": p_group_id}]

    def _nack(self, p_group_id: str, p_token: str, p_delay: float) -> Rows:
        group = self._held(p_group_id, p_token)
        if group is None:
            return []
        group.token, group.worker_id = None, None
        self._place(p_group_id, group, self.now() + ceil(p_delay * _MICROSECONDS))
        return [{"group_id": p_group_id}]

    def _extend(self, p_group_id: str, p_token: str, p_visibility: float) -> Rows:
        group = self._held(p_group_id, p_token)
        if group is None:
            return []
        self._place(p_group_id, group, self.now() + ceil(p_visibility * _MICROSECONDS))
        return [{"expires_at": group.ready_at}]

    def _state(self, group: _Group, now: int) -> str:
        if group.ready_at <= now:
            return "ready"
        return "parked" if group.token is None else "in_flight"

    def _queue_status(self, p_queue: str) -> Rows:
        now = self.now()
        states = [self._state(group, now) for group in self._groups.values()]
        times = [message.published_at for group in self._groups.values() for message in group.messages]
        return [
            {
                "queue": p_queue,
                "groups": len(states),
                "ready": states.count("ready"),
                "in_flight": states.count("in_flight"),
                "parked": states.count("parked"),
                "messages": len(times),
                "oldest_seconds": (now - min(times)) / 1e6 if times else None,
            }
        ]

    def _group_status(self, p_limit: int) -> Rows:
        now = self.now()
        line = heapq.nsmallest(p_limit, self._groups.items(), key=lambda item: (item[1].ready_at, item[1].turn))
        return list(self._group_rows(line, now))

    def _group_rows(self, line: list[tuple[str, _Group]], now: int) -> Iterator[Row]:
        for group_id, group in line:
            yield {
                "group_id": group_id,
                "state": self._state(group, now),
                "priority": group.priority,
                "depth": len(group.messages),
                "oldest_seconds": (now - group.messages[0].published_at) / 1e6,
                "worker_id": group.worker_id,
                "attempts": group.attempts,
                "ready_in_seconds": max(0, group.ready_at - now) / 1e6,
            }

    def _message_status(self, p_group_id: str, p_limit: int) -> Rows:
        now = self.now()
        group = self._groups.get(p_group_id)
        if group is None:
            return []
        leased = self._state(group, now) == "in_flight"
        return [
            {
                "group_id": p_group_id,
                "seq": message.seq,
                "state": "in_flight" if leased and position == 1 else "waiting",
                "position": position,
                "attempts": group.attempts if position == 1 else 0,
                "dedup_id": message.dedup_id,
                "published_at": message.published_at,
                "age_seconds": (now - message.published_at) / 1e6,
                "event": message.event,
            }
            for position, message in enumerate(itertools.islice(group.messages, p_limit), 1)
        ]


_METHODS: Mapping[Operation, Callable[..., Rows]] = {
    REVISION: MemoryStore._revision,
    PUBLISH: MemoryStore._publish,
    CLAIM: MemoryStore._claim,
    ACK: MemoryStore._ack,
    NACK: MemoryStore._nack,
    EXTEND: MemoryStore._extend,
    QUEUE_STATUS: MemoryStore._queue_status,
    GROUP_STATUS: MemoryStore._group_status,
    MESSAGE_STATUS: MemoryStore._message_status,
}
