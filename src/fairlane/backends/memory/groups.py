"""The groups of a queue in memory, and the rows of the inspections."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Set
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


def state_of(group: Group, now: int, is_paused: bool) -> str:
    """Return the state of the group: `ready`, `parked`, `paused` or `in_flight`."""
    waits = group.state.ready_at > now
    if waits and group.state.token is not None:
        return "in_flight"
    if is_paused:
        return "paused"
    return "parked" if waits else "ready"


def queue_status(groups: Mapping[str, Group], paused: Set[str | None], now: int, queue: str) -> Rows:
    """Return the queue's figures."""
    states = [state_of(group, now, group_id in paused) for group_id, group in groups.items()]
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
            "paused": states.count("paused"),
            "is_paused": None in paused,
        }
    ]


def group_status(groups: Mapping[str, Group], paused: Set[str | None], now: int, limit: int) -> Rows:
    """Return groups in the order of the line, and behind them paused groups without messages."""
    line = heapq.nsmallest(
        limit, groups.items(), key=lambda item: (item[0] in paused, item[1].state.ready_at, item[1].state.turn)
    )
    empty = sorted(each for each in paused if each is not None and each not in groups)
    return [
        {
            "group_id": group_id,
            "state": state_of(group, now, group_id in paused),
            "priority": group.priority,
            "depth": len(group.messages),
            "oldest_seconds": (now - group.messages[0].published_at) / 1e6,
            "worker_id": group.state.worker_id,
            "attempts": group.state.attempts,
            "ready_in_seconds": max(0, group.state.ready_at - now) / 1e6,
        }
        for group_id, group in line
    ] + [
        {
            "group_id": group_id,
            "state": "paused",
            "priority": 0,
            "depth": 0,
            "oldest_seconds": None,
            "worker_id": None,
            "attempts": 0,
            "ready_in_seconds": 0.0,
        }
        for group_id in empty[: limit - len(line)]
    ]


def message_status(groups: Mapping[str, Group], now: int, group_id: str, limit: int) -> Rows:
    """Return the messages of a group, its head first."""
    group = groups.get(group_id)
    if group is None:
        return []
    leased = state_of(group, now, False) == "in_flight"
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
