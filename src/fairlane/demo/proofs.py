"""The proofs: the application's own journal is compared with the log."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.demo.application import Delivery
from fairlane.demo.events import Event, by_package
from fairlane.demo.report import Casualty, Proof
from fairlane.model import QueueStatus


def all_proofs(
    log: Sequence[Event],
    state: dict[str, Event],
    journal: Sequence[Delivery],
    casualty: Casualty | None,
    left: QueueStatus,
) -> list[Proof]:
    """Return every proof of a run."""
    return [
        final_state(log, state),
        order(log, journal),
        nothing_lost(log, journal),
        killed(casualty),
        recovered(journal, casualty),
        drained(left),
    ]


def final_state(log: Sequence[Event], state: dict[str, Event]) -> Proof:
    """Check that every package is in the state of its last line in the log."""
    wanted = {event.package: event for event in log}
    right = sum(state.get(package) == event for package, event in wanted.items())
    holds = right == len(wanted) == len(state)
    return Proof("final state", holds, f"{right:,} of {len(wanted):,} packages are as their last line in the log says")


def order(log: Sequence[Event], journal: Sequence[Delivery]) -> Proof:
    """Each package's events took effect in the log's order, and what came again came before anything later."""
    handled = by_package(delivery.event for delivery in journal if delivery.outcome == "applied")
    wrong = sum(
        is_event != should_be
        for package, events in by_package(log).items()
        for is_event, should_be in zip(handled.get(package, []), events, strict=False)
    )
    # wrong: a message after a later one, or again with the same attempts, unless its lease was lost in between
    wrong += sum(
        delivery.outcome == "overtaken" or (delivery.outcome == "repeated" and delivery.attempts == 1)
        for delivery in journal
        if not delivery.late
    )
    return Proof("order", wrong == 0, f"{wrong} violations in {len(journal):,} deliveries")


def nothing_lost(log: Sequence[Event], journal: Sequence[Delivery]) -> Proof:
    """Every event took effect exactly once."""
    applied = [delivery for delivery in journal if delivery.outcome == "applied"]
    distinct = {(delivery.event.package, delivery.seq) for delivery in applied}
    lost = len(log) - len(distinct)
    again = len(journal) - len(applied)
    detail = f"{lost} of {len(log):,} events lost, {len(applied) - len(distinct)} applied twice"
    return Proof("nothing lost", lost == 0 and len(applied) == len(log), f"{detail}, {again} recognised as repeated")


def killed(casualty: Casualty | None) -> Proof:
    """A worker was killed while the queue showed that it held a message, or within its lease where none is shown."""
    if casualty is None:
        return Proof("killed", False, "no worker was killed: all was handled before")
    held = "held" if casualty.held else "did not hold"
    detail = f"{casualty.worker} ({casualty.end}) {held} message {casualty.seq} of {casualty.package}"
    told = "" if casualty.shown else ", by its lease's end; the queue shows no leases"
    return Proof("killed", casualty.held, detail + told)


def recovered(journal: Sequence[Delivery], casualty: Casualty | None) -> Proof:
    """The killed worker's message came back as the next one of its package, as attempt 2."""
    if casualty is None:
        return Proof("recovered", False, "there was nothing to recover")
    after = [entry for entry in journal if entry.event.package == casualty.package and entry.time > casualty.time]
    if not after:
        return Proof("recovered", False, f"message {casualty.seq} of {casualty.package} never came back")
    back = after[0]
    holds = back.seq == casualty.seq and back.attempts == 2 and back.worker != casualty.worker
    detail = f"message {back.seq} came back to {back.worker} as attempt {back.attempts}"
    return Proof("recovered", holds, f"{detail}, {back.time - casualty.time:.1f} s after the kill")


def drained(left: QueueStatus) -> Proof:
    """Nothing is left in the queue."""
    holds = left.messages == 0 and not left.groups
    groups = "" if left.groups is None else f" and {left.groups} groups"  # SQS does not count them
    return Proof("drained", holds, f"{left.messages} messages{groups} are left")
