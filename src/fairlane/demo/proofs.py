"""The proofs: they compare the application's journal with the log."""

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
    return Proof("final state", holds, f"{right:,} of {len(wanted):,} packages have the state of their last log line")


def order(log: Sequence[Event], journal: Sequence[Delivery]) -> Proof:
    """Check that each package's events were applied in the log's order, and repeated ones came before later ones."""
    handled = by_package(delivery.event for delivery in journal if delivery.outcome == "applied")
    wrong = sum(
        is_event != should_be
        for package, events in by_package(log).items()
        for is_event, should_be in zip(handled.get(package, []), events, strict=False)
    )
    # wrong: a message after a later one, or a repeated one with attempts 1, unless its lease was lost before the ack
    wrong += sum(
        delivery.outcome == "overtaken" or (delivery.outcome == "repeated" and delivery.attempts == 1)
        for delivery in journal
        if not delivery.late
    )
    return Proof("order", wrong == 0, f"{wrong} violations in {len(journal):,} deliveries")


def nothing_lost(log: Sequence[Event], journal: Sequence[Delivery]) -> Proof:
    """Check that every event was applied exactly once."""
    applied = [delivery for delivery in journal if delivery.outcome == "applied"]
    distinct = {(delivery.event.package, delivery.seq) for delivery in applied}
    lost = len(log) - len(distinct)
    again = len(journal) - len(applied)
    detail = f"{lost} of {len(log):,} events lost, {len(applied) - len(distinct)} applied twice"
    return Proof("nothing lost", lost == 0 and len(applied) == len(log), f"{detail}, {again} recognised as repeated")


def killed(casualty: Casualty | None) -> Proof:
    """Check that a worker was killed while it held a message.

    The queue must show its lease. If the backend shows no leases, the worker must have ended before its lease did.
    """
    if casualty is None:
        return Proof("killed", False, "no worker was killed: all events were handled before")
    held = "held" if casualty.held else "did not hold"
    detail = f"{casualty.worker} ({casualty.end}) {held} message {casualty.seq} of {casualty.package}"
    source = "" if casualty.shown else ", by the time of its lease; the queue shows no leases"
    return Proof("killed", casualty.held, detail + source)


def recovered(journal: Sequence[Delivery], casualty: Casualty | None) -> Proof:
    """Check that the killed worker's message was the next one of its package, as attempt 2."""
    if casualty is None:
        return Proof("recovered", False, "there was nothing to recover")
    after = [entry for entry in journal if entry.event.package == casualty.package and entry.time > casualty.time]
    if not after:
        return Proof("recovered", False, f"message {casualty.seq} of {casualty.package} was not delivered again")
    back = after[0]
    holds = back.seq == casualty.seq and back.attempts == 2 and back.worker != casualty.worker
    detail = f"message {back.seq} was delivered to {back.worker} as attempt {back.attempts}"
    return Proof("recovered", holds, f"{detail}, {back.time - casualty.time:.1f} s after the kill")


def drained(left: QueueStatus) -> Proof:
    """Check that the queue is empty."""
    holds = left.messages == 0 and not left.groups
    groups = "" if left.groups is None else f" and {left.groups} groups"  # SQS does not count them
    return Proof("drained", holds, f"{left.messages} messages{groups} are left")
