"""The proofs fail when they should: each is shown a run that went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fairlane import Lease, QueueStatus
from fairlane.demo import Casualty, proofs
from fairlane.demo.application import Application, Delivery
from fairlane.demo.events import Event, by_package, parse, published, read_log

LOG = [Event(f"t{n}", f"status-{n}", package, str(n)) for n, package in enumerate("abacabc")]
CASUALTY = Casualty("worker-1", "a", 3, 2, 1, 10.0, True, "process 1, ended by signal 9")


def journal(order: Sequence[int] = range(len(LOG))) -> list[Delivery]:
    """A journal with these lines of the log; message n + 1 is line n."""
    return [
        Delivery(LOG[n], n + 1, 2 if n == 2 else 1, "worker-2", 10.0 + place, "applied", False)
        for place, n in enumerate(order)
    ]


def state(log: Sequence[Event] = LOG) -> dict[str, Event]:
    return {event.package: event for event in log}


def test_a_good_run_is_proven() -> None:
    empty = QueueStatus("q", 0, 0, 0, 0, 0, None)
    assert all(proof.holds for proof in proofs.all_proofs(LOG, state(), journal(), CASUALTY, empty))


def test_a_wrong_missing_or_additional_package_is_seen() -> None:
    assert not proofs.final_state(LOG, state(LOG[:-1])).holds
    assert not proofs.final_state(LOG, {k: v for k, v in state().items() if k != "a"}).holds
    assert not proofs.final_state(LOG, {**state(), "d": LOG[0]}).holds


def test_two_events_of_a_package_in_the_wrong_order_are_seen() -> None:
    swapped = proofs.order(LOG, journal([2, 1, 0, 3, 4, 5, 6]))
    assert not swapped.holds
    assert swapped.detail.startswith("2 violations")
    assert proofs.order(LOG, journal([3, 1, 0, 5, 2, 6, 4])).holds, "packages do not wait for each other"


def test_a_message_that_comes_after_a_later_one_is_seen() -> None:
    late = replace(journal()[0], outcome="overtaken")
    assert not proofs.order(LOG, [*journal(), late]).holds
    assert proofs.order(LOG, [*journal(), replace(late, late=True)]).holds, "its lease was lost: nobody's fault"


def test_a_message_delivered_twice_as_attempt_1_is_seen() -> None:
    again = replace(journal()[0], outcome="repeated")
    assert not proofs.order(LOG, [*journal(), again]).holds
    assert proofs.order(LOG, [*journal(), replace(again, attempts=2)]).holds


def test_a_lost_or_doubled_event_is_seen() -> None:
    assert not proofs.nothing_lost(LOG, journal()[1:]).holds
    assert not proofs.nothing_lost(LOG, [*journal(), journal()[0]]).holds


def test_a_recovery_must_be_the_next_message_of_the_package_and_attempt_2() -> None:
    assert proofs.recovered(journal(), CASUALTY).holds
    assert not proofs.recovered(journal(), None).holds
    assert not proofs.recovered(journal([0, 4, 2]), CASUALTY).holds, "a later one came first"
    assert not proofs.recovered([replace(entry, attempts=1) for entry in journal()], CASUALTY).holds
    assert not proofs.recovered([replace(entry, worker="worker-1") for entry in journal()], CASUALTY).holds
    assert not proofs.recovered([], CASUALTY).holds
    assert not proofs.killed(replace(CASUALTY, held=False)).holds
    assert not proofs.killed(None).holds
    assert proofs.killed(replace(CASUALTY, shown=False)).detail.endswith("the queue shows no leases")


def test_what_is_left_in_the_queue_is_seen() -> None:
    assert not proofs.drained(QueueStatus("q", 1, 1, 0, 0, 0, None)).holds
    assert not proofs.drained(QueueStatus("q", 0, 0, 0, 0, 1, 1.0)).holds


def test_the_log_is_the_one_we_know() -> None:
    log = read_log()
    assert len(log) == 3702
    assert len(by_package(log)) == 645
    assert log[0] == Event("2025-06-24 14:36:25", "triggers-pending", "libc-bin:amd64", "2.36-9+deb12u10")
    assert set(published(log[0])) == {"at", "status", "package", "version"}
    assert parse(["2025-06-24 14:36:25 startup archives unpack", "", "x status y"]) == []


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Any]:
    with Application.create(tmp_path / "application.db") as made:
        yield made


def lease(seq: int, n: int = 0, attempts: int = 1) -> Lease:
    now = datetime.now(UTC)
    return Lease("a", published(LOG[n]), seq, "token", attempts, now, now)


def test_the_application_handles_a_message_once_and_never_an_old_one(application: Application) -> None:
    huge = 2**70  # some backends number beyond 64 bits
    assert application.handle(lease(huge), "w")[1] == "applied"
    assert application.handle(lease(huge, attempts=2), "w")[1] == "repeated"
    assert application.handle(lease(huge + 1, 2), "w")[1] == "applied"
    assert application.handle(lease(huge, attempts=3), "w")[1] == "overtaken"
    assert application.count_applied() == 2
    assert application.packages() == {"a": LOG[2]}
    assert [entry.seq for entry in application.journal()] == [huge, huge, huge + 1, huge]


def test_work_that_is_cut_off_leaves_no_trace(application: Application) -> None:
    def cut() -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        application.handle(lease(1), "w", cut)
    assert application.journal() == []
    assert application.packages() == {}
