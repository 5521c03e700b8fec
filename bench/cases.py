"""The situations in which a claim is measured."""

from __future__ import annotations

from dataclasses import dataclass

READY_MESSAGES = 2
"""Messages in each ready group. For each message that is acked another one is published, so the groups keep their
size."""

BASE = 100
"""The number of ready groups in the cases with many parked groups, or with many groups below the floor."""


@dataclass(frozen=True, slots=True)
class Case:
    """One filled queue.

    Attributes:
        ready: groups that can be claimed.
        parked: groups that wait for a delay of an hour.
        low: groups with priority 0 below the floor, ready.
        floor: `min_priority` of the claims, and the priority of the ready groups.
    """

    name: str
    ready: int
    parked: int = 0
    low: int = 0
    floor: int = 0


CASES = (
    Case("100 ready", 100),
    Case("10,000 ready", 10_000),
    Case("100,000 ready", 100_000),
    Case("10,000 parked", BASE, parked=10_000),
    Case("100,000 parked", BASE, parked=100_000),
    Case("floor 3, 100,000 low", BASE, low=100_000, floor=3),
)


def scaled(case: Case, scale: float) -> Case:
    """Return the case with its large figures divided, for a quick look."""
    ready, parked, low = (n if n <= BASE else max(BASE, int(n * scale)) for n in (case.ready, case.parked, case.low))
    return Case(case.name if scale == 1 else f"{case.name} x {scale:g}", ready, parked, low, case.floor)
