"""What must be true of a queue's keys at any moment."""

from __future__ import annotations

from math import inf
from typing import Any

from tests.backends.redis.library import Library

PRIORITIES = range(5)
PAUSED = 2.0**53
KEYS = ("meta", "groups", "messages", "events", "dedup", "heads", "parked", *(f"floor:{n}" for n in range(5)))


def check(library: Library) -> None:
    """Assert that all keys of a queue agree with each other."""
    client = library.client
    groups = client.hgetall(library.key("groups"))
    floors = [dict(client.zrange(library.key(f"floor:{n}"), 0, -1, withscores=True)) for n in PRIORITIES]
    messages = [_parts(member) for member in client.zrange(library.key("messages"), 0, -1)]
    heads = _heads(messages)

    assert set(groups) == set(floors[0]) == set(heads), "each group is in line, has a state and has messages"
    states = {group: _state(state) for group, state in groups.items()}
    for n in PRIORITIES:
        expected = {group: floors[0][group] for group, state in states.items() if state["priority"] >= n}
        assert floors[n] == expected, f"floor {n} holds the groups that reach it, at their place"
    places = [place for place in floors[0].values() if place < PAUSED]
    assert len(set(places)) == len(places), "no two groups have an equal place, which names would decide"

    assert dict(client.zrange(library.key("heads"), 0, -1, withscores=True)) == heads
    events = set(client.hkeys(library.key("events")))
    assert events == {b"%016d" % seq for _, seq, _ in messages}, "each message has its event"
    dedup = {name: int(seq) for name, seq in client.hgetall(library.key("dedup")).items()}
    assert dedup == {name: seq for _, seq, name in messages if name}

    marks = dict(client.zrange(library.key("parked"), 0, -1, withscores=True))
    paused = {group for group, mark in marks.items() if mark >= PAUSED}
    assert {group for group, place in floors[0].items() if place >= PAUSED} == paused & set(groups)
    assert {group for group, mark in marks.items() if mark == inf} == paused - set(groups)
    parked = {group: mark for group, mark in marks.items() if mark != PAUSED and mark != inf}
    assert parked.items() <= floors[0].items(), "a parked group is parked until its place comes"
    for group in parked:
        assert states[group]["token"] == b"-"
    for group, state in states.items():
        if state["token"] != b"-":
            assert state["seq"] == heads[group], "the leased message is the head"
            assert state["attempts"] >= 1
        else:
            assert state["worker"] == b""


def contents(library: Library) -> dict[str, Any]:
    """The content of all keys, without the clock and the last number: these two may grow at any time."""
    found = {}
    for name in KEYS:
        key = library.key(name)
        kind = library.client.type(key).decode()
        if kind == "zset":
            found[name] = library.client.zrange(key, 0, -1, withscores=True)
        elif kind == "hash":
            found[name] = library.client.hgetall(key)
    for field in (b"time", b"ahead", b"seq"):
        found.get("meta", {}).pop(field, None)
    return found


def _parts(member: bytes) -> tuple[bytes, int, bytes]:
    group, _, rest = member.partition(b"\0")
    assert rest[:32].isdigit()
    return group, int(rest[:16]), rest[32:]


def _heads(messages: list[tuple[bytes, int, bytes]]) -> dict[bytes, int]:
    heads: dict[bytes, int] = {}
    for group, seq, _ in messages:
        heads[group] = min(seq, heads.get(group, seq))
    return heads


def _state(text: bytes) -> dict[str, Any]:
    priority, attempts, token, seq, worker = text.split(b" ", 4)
    return {
        "priority": int(priority),
        "attempts": int(attempts),
        "token": token,
        "seq": int(seq),
        "worker": worker,
    }
