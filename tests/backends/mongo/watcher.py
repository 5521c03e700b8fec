"""A watcher of all steps: it remembers what happened, and raises an error when a promise is broken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fairlane.backends.mongo.wire import GROUPS, LINE, Insert, Update
from fairlane.model import Lease
from tests.backends.mongo.fake import FakeServer

Path = Any
"""The steps so far: (the path before, the last step), or None. They become text only for an error."""


@dataclass(frozen=True)
class Ghost:
    """What has happened so far. The clients do not see it."""

    inserted: tuple[tuple[int, str], ...] = ()  # seq and event
    published: frozenset[str] = frozenset()  # their publish has returned
    delivered: tuple[str, ...] = ()  # in the order of their first delivery
    acked: frozenset[str] = frozenset()  # from the step that frees the group
    acked_before: tuple[tuple[str, frozenset[str]], ...] = ()  # by client: when its claim took its group
    held: tuple[tuple[str, Lease], ...] = ()  # by client
    paused: bool = False  # the pause of the group g has returned, and its resume has not begun


class Violation(AssertionError):
    """A promise was broken. The text has all steps before it."""


def delivered(
    ghost: Ghost,
    name: str,
    lease: Lease,
    server: FakeServer,
    path: Path,
    before: tuple[tuple[str, str], ...],
) -> Ghost:
    """Check that a delivery keeps the promises, and note it."""

    def broken(what: str) -> Violation:
        return Violation(told(path, f"{name} was given {lease.event}: {what}"))

    event = lease.event
    if event in dict(ghost.acked_before)[name]:
        raise broken("it was acked before")
    for first, second in before:
        if event == second and first not in ghost.acked:
            raise broken(f"{first} is not finished")
    open_ones = [other for other in ghost.delivered if other not in ghost.acked and other[0] == event[0]]
    if open_ones and event not in open_ones and event not in ghost.acked:
        raise broken(f"{open_ones} came first and is not finished")
    if lease.expires_at > server.now:
        for other, held in ghost.held:
            if other != name and held.group_id == lease.group_id and held.expires_at > server.now:
                raise broken(f"{other} has {held.event}")
    known = ghost.delivered if event in ghost.delivered else (*ghost.delivered, event)
    held_now = {key: value for key, value in ghost.held if key != name} | {name: lease}
    return replace(ghost, delivered=known, held=tuple(sorted(held_now.items())))


def watched(ghost: Ghost, name: str, request: Any, answer: Any) -> Ghost:
    """Note the important steps: when a claim takes its group, and when an ack or a nack frees one."""
    if isinstance(request, Insert) and answer is None:
        return replace(ghost, inserted=(*ghost.inserted, (request.document["_id"], request.document["event"])))
    if not isinstance(request, Update) or request.collection != GROUPS or not isinstance(answer, dict):
        return ghost
    if request.sort is LINE:
        moments = dict(ghost.acked_before) | {name: ghost.acked}
        return replace(ghost, acked_before=tuple(sorted(moments.items())))
    change = request.update[0]["$set"] if isinstance(request.update, list) else {}
    if "token" not in change or change["token"] is not None:
        return ghost
    held = tuple((key, lease) for key, lease in ghost.held if key != name)
    if "acked" not in change:
        return replace(ghost, held=held)
    return replace(ghost, held=held, acked=ghost.acked | {dict(ghost.inserted)[answer["leased"]]})


def told(path: Path, end: str) -> str:
    """Return the steps as text."""
    steps = [end]
    while path is not None:
        path, step = path
        steps.append(step if isinstance(step, str) else "{}: {} -> {}".format(*step))
    return "\n".join(reversed(steps))
