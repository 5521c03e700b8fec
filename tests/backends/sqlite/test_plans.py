"""Query plans are a few index searches, with and without statistics."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.sqlite.database import OPERATIONS, Database, text_of


@pytest.fixture(params=["fresh", "analysed", "stale"])
def filled(request: Any, db: Database) -> Any:
    """A queue without statistics, or with them. Stale statistics are from a time when the queue was almost empty."""
    if request.param == "stale":
        db.publish("only", priority=4)
        db.connection.execute("analyze")
    db.connection.execute("begin")
    for number in range(400):
        db.publish(f"g{number}", priority=number % 5)
        db.publish(f"g{number}", dedup_id=f"d{number}")
    db.connection.execute("commit")
    if request.param == "analysed":
        db.connection.execute("analyze")
    return db


def plan(db: Database, operation: str, floor: int = 0) -> list[str]:
    text = text_of(operation, db.dialect, floor=floor)
    values = dict.fromkeys(re.findall(r":(p_\w+)", text), 1)
    return [row[3] for row in db.connection.execute(f"explain query plan {text}", values)]


@pytest.mark.parametrize("floor", range(5))
def test_a_claim_finds_its_group_in_the_index_of_its_floor(filled: Any, floor: Any) -> None:
    steps = plan(filled, "claim", floor)
    search = rf"SEARCH q_groups USING .*INDEX q_groups_floor_{floor} \(ready_at>\? AND ready_at<\?\)"
    assert any(re.match(search, each) for each in steps)
    # index 0 may be there, too: it is searched for a free place in line, among all groups
    assert set(re.findall(r"q_groups_floor_\d", "\n".join(steps))) <= {f"q_groups_floor_{floor}", "q_groups_floor_0"}


@pytest.mark.parametrize("operation", ["publish", "claim", "claim_next", "ack", "nack", "extend"])
def test_an_operation_scans_no_table(filled: Any, operation: Any) -> None:
    for floor in range(5):
        for step in plan(filled, operation, floor):
            assert not re.match(r"SCAN q_", step), step


def steps_of(db: Database, act: Callable[[], object]) -> int:
    """Count the instructions of SQLite's virtual machine, in tens."""
    count = itertools.count()
    db.connection.set_progress_handler(lambda: next(count) < 0, 10)
    act()
    db.connection.set_progress_handler(None, 0)
    return next(count)


@pytest.mark.parametrize("statistics", ["none", "good", "stale"])
@pytest.mark.parametrize("crowd", ["ready", "parked", "leased", "low"])
def test_the_cost_does_not_grow_with_the_queue(db: Database, crowd: Any, statistics: Any) -> None:
    floor = 3 if crowd == "low" else 0

    def add(start: int, end: int) -> None:
        db.connection.execute("begin")
        for number in range(start, end):
            db.publish(f"crowd{number}", priority=0 if crowd == "low" else 3)
            db.publish(f"crowd{number}")
        if crowd == "parked":
            db.connection.execute("update q_groups set ready_at = ready_at + 4e15 where group_id like 'crowd%'")
        if crowd == "leased":
            db.connection.execute(
                "update q_groups set ready_at = ready_at + 4e15, token = group_id where group_id like 'crowd%'"
            )
        db.connection.execute("commit")
        if statistics == "good":
            db.connection.execute("analyze")

    def cycle() -> None:
        leases.append(db.must_claim(floor=floor))
        db.nack(leases[-1], delay=1)
        db.publish(leases[-1]["group_id"])
        db.now += 3_000_000
        leases.append(db.must_claim(floor=floor))
        db.extend(leases[-1])
        db.ack(leases[-1])

    leases: list[dict[str, Any]] = []
    for number in range(5):
        db.publish(f"mine{number}", priority=4)
        if statistics == "stale" and not number:
            db.connection.execute("analyze")
    add(0, 50)
    cycle()
    few = min(steps_of(db, cycle) for _ in range(3))
    add(50, 3000)
    many = max(steps_of(db, cycle) for _ in range(3))
    assert many <= few * 1.3


def test_every_operation_has_a_plan(filled: Any) -> None:
    for operation in OPERATIONS:
        assert plan(filled, operation) or operation in ("publish", "pause")  # an insert has none
