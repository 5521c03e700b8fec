"""The groups of a queue in memory, and the rows of the inspections."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from fairlane.backends.stored import Rows


@dataclass(slots=True)
class Message:
    seq: int
    event: str
    dedup_id: str | None
    published_at: int


class State(NamedTuple):
    """The values of a group that change. They are replaced together, in one assignment."""

    ready_at: int
    turn: int  # orders equal ready_at by the order of events; an entry of a line is live if it has this turn
    head: int  # seq of the first message; messages before it are finished
    token: str | None = None
    worker_id: str | None = None
    attempts: int = 0


@dataclass(slots=True)
class Group:
    priority: int
    messages: deque[Message]
    state: State


def state_of(group: Group, now: int) -> str:
    """Return the state of the group: `ready`, `parked` or `in_flight`."""
    if group.state.ready_at <= now:
        return "ready"
    return "parked" if group.state.token is None else "in_flight"


def queue_status(groups: Mapping[str, Group], now: int, queue: str) -> Rows:
    """Return the queue's figures."""
    states = [state_of(group, now) for group in groups.values()]
    times = [message.published_at for group in groups.values() for message in group.messages]
    return [
        {
            "queue": queue,
            "groups": len(states),
            "ready": states.count("ready"),
            "in_flight": states.count("in_flight"),
            "parked": states.count("parked"),
            "messages": len(times),
            "oldest_seconds": (now - min(times)) / 1e6 if times else None,
        }
    ]


def group_status(groups: Mapping[str, Group], now: int, limit: int) -> Rows:
    """Return groups in the order of the line."""
    line = heapq.nsmallest(limit, groups.items(), key=lambda item: (item[1].state.ready_at, item[1].state.turn))
    return [
        {
            "group_id": group_id,
            "state": state_of(group, now),
            "priority": group.priority,
            "depth": len(group.messages),
            "oldest_seconds": (now - group.messages[0].published_at) / 1e6,
            "worker_id": group.state.worker_id,
            "attempts": group.state.attempts,
            "ready_in_seconds": max(0, group.state.ready_at - now) / 1e6,
        }
        for group_id, group in line
    ]


def message_status(groups: Mapping[str, Group], now: int, group_id: str, limit: int) -> Rows:
    """Return the messages of a group, its head first."""
    group = groups.get(group_id)
    if group is None:
        return []
    leased = state_of(group, now) == "in_flight"
    return [
        {
            "group_id": group_id,
            "seq": message.seq,
            "state": "in_flight" if leased and position == 1 else "waiting",
            "position": position,
            "attempts": group.state.attempts if position == 1 else 0,
            "dedup_id": message.dedup_id,
            "published_at": message.published_at,
            "age_seconds": (now - message.published_at) / 1e6,
            "event": message.event,
        }
        for position, message in enumerate(islice(group.messages, limit), 1)
    ]
