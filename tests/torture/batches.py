"""What a client does with many messages at once.

Each message and each lease of a batch is a call of its own in the journal. All of them begin and end together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from fairlane import Lease, Message
from tests.torture.history import Entry, Journal

Facts = Callable[[Lease[Any]], dict[str, Any]]


@contextmanager
def publishing(
    journal: Journal, chosen: Sequence[tuple[str, str, int]]
) -> Iterator[tuple[list[Message[Any]], list[Entry]]]:
    """Write down a `publish_many`. The caller ends the entries with the seqs."""
    with ExitStack() as stack:
        entries = [
            stack.enter_context(journal.call("publish", group_id=group_id, event=event, priority=priority))
            for group_id, event, priority in chosen
        ]
        yield [Message(*each) for each in chosen], entries


@contextmanager
def claiming(
    journal: Journal, facts: Facts, visibility: float, limit: int
) -> Iterator[Callable[[list[Lease[Any]]], None]]:
    """Write down a `claim_many`. The caller passes the leases to the function. If they are fewer than the limit, the
    rest are claims that found nothing."""
    with ExitStack() as stack:
        entries = [stack.enter_context(journal.call("claim", visibility=visibility)) for _ in range(limit)]

        def claimed(leases: list[Lease[Any]]) -> None:
            for number, entry in enumerate(entries):
                entry.returned(facts(leases[number]) if number < len(leases) else None)

        yield claimed


@contextmanager
def acking(journal: Journal, leases: Sequence[Lease[Any]]) -> Iterator[Callable[[list[Lease[Any]]], None]]:
    """Write down an `ack_many`. The caller passes the lost leases to the function."""
    with ExitStack() as stack:
        entries = {lease.token: stack.enter_context(journal.call("ack", token=lease.token)) for lease in leases}

        def acked(lost: list[Lease[Any]]) -> None:
            gone = {lease.token for lease in lost}
            for token, entry in entries.items():
                entry.lost() if token in gone else entry.returned()

        yield acked


@contextmanager
def going_on(
    journal: Journal, facts: Facts, lease: Lease[Any], visibility: float
) -> Iterator[Callable[[Lease[Any] | None], None]]:
    """Write down an `ack_and_claim`. The caller passes the next lease to the function."""
    with journal.call("ack", token=lease.token) as acked, journal.call("claim", visibility=visibility) as claimed:

        def went_on(found: Lease[Any] | None) -> None:
            acked.returned()
            claimed.returned(facts(found) if found else None)

        yield went_on
