"""Wait until something is deliverable: the program of `claim(wait=…)`, and the rooms where waiting claims sleep.

A waiting claim looks whether there is a message, and then sleeps in a `Room`. It wakes up when somebody rings, when a
delay or a lease ends, or when it is time for the next look. Nobody depends on being rung: a wake-up may be lost, for
example with a broken connection. Then the next look finds the message, at most `POLL` seconds later.

Of the claims that wait in one room for the same floor, only the first looks and hears. The others sleep until one of
these:

- A wake-up for a message: it wakes one claim that was not woken yet, and this one claims.
- A claim has got a lease, and leaves: there may be more, so the next one looks.
- The first one leaves for another reason: the next one takes its place.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, runtime_checkable

from fairlane.backends.shared import forks
from fairlane.backends.shared.ears import Ear, Nap, Ring, Watch
from fairlane.errors import TransportClosed
from fairlane.program import AnswerT, Program, RequestT, ResultT

POLL = 1.0
"""Seconds between two looks of an idle room. The time between two looks is at most an eighth longer, at random."""

FIRST_POLL = 0.02
"""Seconds until the second look where nobody rings. The time doubles with each look, up to `POLL`."""

EARLY = 0.0005
"""Seconds by which a sleep is longer than the time until a group is claimable, so that it does not end too early."""


class Floor:
    """The claims of a room that wait for the same floor. The first of them looks, the others only listen.

    Attributes:
        look_at: the time of the next look, by time.monotonic().
        due_at: the time when a group becomes claimable.
    """

    def __init__(self) -> None:
        self._ears: list[Ear] = []
        self._looks = 0
        self.look_at = 0.0
        self.due_at = inf

    def enter(self) -> Ear:
        """Add a waiting claim."""
        ear = Ear()
        if not self._ears:
            self.look_at, self.due_at, self._looks = 0.0, inf, 0
        self._ears.append(ear)
        return ear

    def leads(self, ear: Ear) -> bool:
        """Return whether this claim is the first."""
        try:
            return self._ears[0] is ear
        except IndexError:  # the ears of the parent were forgotten after a fork
            return True

    def leave(self, ear: Ear, *, served: bool) -> None:
        """Remove a claim. If it was woken for nothing, or has got a lease, the next one looks."""
        led = self.leads(ear)
        with suppress(ValueError):
            self._ears.remove(ear)
        if served:
            self._looks = 0
        if ear.rung > Ring.MOVED:
            self.ring(ear.rung)
        elif served:
            self.ring(Ring.LOOK)
        elif led:
            self.ring(Ring.MOVED)

    def ring(self, reason: Ring) -> bool:
        """Wake the first claim that was not woken yet; return False if there is none."""
        for ear in tuple(self._ears):
            if ear.rung:
                continue
            if ear.ring(reason):
                return True
            with suppress(ValueError):
                self._ears.remove(ear)
        return False

    def ring_all(self, reason: Ring) -> None:
        """Wake all claims."""
        for ear in tuple(self._ears):
            ear.ring(reason)

    def looks(self, now: float, pause: float) -> None:
        """Begin a look, so that nobody else looks meanwhile."""
        self._looks += 1
        self.look_at, self.due_at = now + pause, inf

    def pause(self, *, told: bool) -> float:
        """Return the seconds until the next look.

        Args:
            told: somebody rings. If not, the first looks follow each other quickly.
        """
        pause = POLL if told else min(POLL, FIRST_POLL * 2.0 ** min(self._looks, 16))
        return pause * random.uniform(1.0, 1.125)

    def __bool__(self) -> bool:
        return bool(self._ears)


class Room(forks.ForkAware):
    """The waiting claims of a transport, or of all transports that share a store or a file.

    Args:
        told: whether whatever makes a message claimable rings, so that a look is only a precaution.
        watch: shows changes that nobody rings for.

    Attributes:
        floors: the claims by their min_priority; empty until the first claim waits. Executors look at this before they
            ring, since `bool(room)` would take longer in each call.
    """

    def __init__(self, *, told: bool = False, watch: Watch | None = None) -> None:
        self.told = told
        self.watch = watch
        self.floors: dict[int, Floor] = {}
        forks.register(self)

    def floor(self, min_priority: int) -> Floor:
        """Return the claims with this min_priority."""
        return self.floors.get(min_priority) or self.floors.setdefault(min_priority, Floor())

    def ring(self, reason: Ring = Ring.CLAIM) -> bool:
        """Wake one claim on each floor; return False if none was left to be woken."""
        rung = False
        for floor in tuple(self.floors.values()):
            rung = floor.ring(reason) or rung
        return rung

    def ring_all(self, reason: Ring) -> None:
        """Wake all claims."""
        for floor in tuple(self.floors.values()):
            floor.ring_all(reason)

    def listening(self) -> str | None:
        """Return the name under which the server rings this room; None if it does not."""
        return None

    def close(self) -> None:
        """Give back what the room has opened."""

    def __bool__(self) -> bool:
        """Return whether a claim waits."""
        return any(self.floors.values())

    def after_fork_in_child(self) -> object:
        """Forget the claims, which wait in the parent."""
        left, self.floors = self.floors, {}
        return left


@runtime_checkable
class Roomy(Protocol):
    """An executor with a room of its own, which it rings. The transport of any other has a silent room."""

    room: Room


@dataclass(slots=True)
class Wanted(Generic[RequestT, AnswerT, ResultT]):
    """What a claim waits for.

    Attributes:
        min_priority: its floor.
        claim: makes the program that claims. Its result is None if nothing is deliverable.
        look: makes the program that asks for how many seconds nothing is claimable (0 or less: a group is; None: no
            group waits for a time). It also tells the server the name under which to ring, unless that is None.
        closed: whether the transport was closed.
    """

    min_priority: int
    claim: Callable[[], Program[RequestT, AnswerT, ResultT | None]]
    look: Callable[[int, str | None], Program[RequestT, AnswerT, float | None]]
    closed: Callable[[], bool]


def waiting(
    wish: Wanted[RequestT, AnswerT, ResultT], room: Room, seconds: float
) -> Program[RequestT, AnswerT, ResultT | None]:
    """Claim, and if nothing is deliverable wait for it, at most for these seconds.

    Raises:
        TransportClosed: the transport was closed meanwhile.
    """
    ends = time.monotonic() + seconds
    lease = yield from wish.claim()
    if lease is not None:
        return lease
    floor = room.floor(wish.min_priority)
    ear = floor.enter()
    try:
        lease = yield from _waiting(wish, room, floor, ear, ends)
        return lease
    finally:
        floor.leave(ear, served=lease is not None)


def _waiting(
    wish: Wanted[RequestT, AnswerT, ResultT], room: Room, floor: Floor, ear: Ear, ends: float
) -> Program[RequestT, AnswerT, ResultT | None]:
    looks, claims = False, False
    while True:
        if claims:
            lease = yield from wish.claim()
            if lease is not None:
                return lease
        now = time.monotonic()
        if now >= ends:  # the last look of this claim may be long ago
            return None if claims else (yield from wish.claim())
        if looks or claims or (floor.leads(ear) and now >= floor.look_at):
            ready = yield from _looked(wish, room, floor, now)
            if ready and not claims:  # a group that cannot be claimed now is tried again only after the pause
                looks, claims = False, True
                continue
        yield _nap(room, floor, ear, ends)
        if wish.closed():
            raise TransportClosed()
        heard = ear.heard()
        looks = heard is Ring.LOOK
        claims = heard is Ring.CLAIM or (floor.leads(ear) and time.monotonic() >= floor.due_at)


def _looked(
    wish: Wanted[RequestT, AnswerT, ResultT], room: Room, floor: Floor, now: float
) -> Program[RequestT, AnswerT, bool]:
    """Look when the next group is claimable; return whether one is claimable now."""
    name = room.listening()
    told = room.told or room.watch is not None or name is not None
    pause = floor.pause(told=told)
    floor.looks(now, pause)
    left = yield from wish.look(wish.min_priority, name)
    if left is None:
        return False
    if left <= 0:
        floor.look_at = min(floor.look_at, now + floor.pause(told=False))
        return True
    floor.due_at = time.monotonic() + left + EARLY
    return False


def _nap(room: Room, floor: Floor, ear: Ear, ends: float) -> Nap:
    now = time.monotonic()
    if not floor.leads(ear):
        return Nap(max(0.0, ends - now), ear)
    return Nap(max(0.0, min(ends, floor.look_at, floor.due_at) - now), ear, room.watch)
