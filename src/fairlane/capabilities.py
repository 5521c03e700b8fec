"""The numbered promises of the contract, and which of them a backend keeps.

Each backend declares its capabilities in its manifest. A field that it leaves out means that it keeps the promise in
full. `fairlane backends`, the tables in the documents and the contract suite all read these declarations. The suite
skips a test if the backend declares that it does not keep the promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fairlane.codec import MAX_EVENT_BYTES
from fairlane.contract import MAX_DELAY

PROMISES: Mapping[int, tuple[str, str]] = {
    1: ("order", "Messages of a group are delivered in publish order; after a nack a message is at the head again."),
    2: ("exclusivity", "At most one message of a group is in flight; a claim finds a free group if there is one."),
    3: ("leases", "Only the newest token of a group may ack, nack or extend; an abandoned lease ends by itself."),
    4: ("clock", "Leases and delays run by one clock, whatever the clients' clocks say."),
    5: ("fairness", "The group that has waited longest goes first; a new one has a head start of a second."),
    6: ("priority floor", "min_priority is exact, however many groups lie below it."),
    7: ("cost", "Every operation is O(log n); a drained group leaves nothing behind."),
    8: ("delivery count", "attempts is 1 on first delivery and grows by one with every further one."),
    9: ("deduplication", "While a message with a dedup_id is in the queue, publishing it again adds nothing."),
    10: ("events", "JSON values come back equal, type by type; all else is refused before it is written."),
    11: ("identifiers", "Any text is a group id, compared byte for byte."),
    12: ("arguments", "Bad arguments are refused before anything is sent."),
    13: ("refusal", "What a backend cannot keep it refuses; it never ignores it silently."),
    14: ("lease", "A lease is immutable and says all about its message; times are UTC."),
}
"""The promises by number: a short name, and what is promised in one sentence."""

Clock = Literal["server", "process", "client"]
Reach = Literal["process", "machine", "network"]
Durability = Literal["none", "configurable", "always"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of one backend.

    Attributes:
        backend: its name, as in `STM_TRANSPORT_BACKEND`.
        server: the server that it needs, as text for people.
        reach: which processes can share a queue: `process` (only one), `machine` (those of one machine) or `network`.
        durability: whether accepted messages survive a crash of the server: `none`, `always`, or `configurable` (the
            server's own settings decide).
        clock: the clock that measures leases and delays.
        resolution: seconds to which visibilities and delays are rounded up.
        priorities: groups have priorities, and `min_priority` works. If not, both are refused.
        fairness: groups are served in the order of promise 5.
        strict_ties: groups that were acked or nacked within one tick of the clock keep the order of these calls.
        head_start: the DBA can choose the head start of new groups.
        extend_after_expiry: an expired lease can be acked, nacked or extended until a worker claims its group.
        dedup_seconds: None if a `dedup_id` counts as long as its message is in the queue. Otherwise it counts for this
            many seconds from the publish, even if the message was acked.
        release: an operator can end a lease, and purge a group.
        pause: an operator can pause a group or the queue.
        atomic_batches: one request of `publish_many` is carried out in full or not at all.
        transactional_publish: a publish can be part of the application's own transaction.
        exact_counts: the figures of `inspect` are exact.
        inspect_messages: `inspect.groups` and `inspect.messages` work.
        sql_views: the queue has views for SQL.
        claim_wait: seconds for which a claim may search before it returns None.
        max_event_bytes: largest encoded event in bytes. The server's own settings may allow less.
        max_delay: longest delay in seconds.
        tested_messages: the largest number of messages that the contract suite puts into one queue.
        differences: the promises that do not hold in full: for each number, what holds instead.
    """

    backend: str
    server: str
    reach: Reach = "network"
    durability: Durability = "configurable"
    clock: Clock = "server"
    resolution: float = 1e-6
    priorities: bool = True
    fairness: bool = True
    strict_ties: bool = True
    head_start: bool = True
    extend_after_expiry: bool = True
    dedup_seconds: float | None = None
    release: bool = True
    pause: bool = True
    atomic_batches: bool = True
    transactional_publish: bool = False
    exact_counts: bool = True
    inspect_messages: bool = True
    sql_views: bool = False
    claim_wait: float = 0.0
    max_event_bytes: int = MAX_EVENT_BYTES
    max_delay: float = MAX_DELAY
    tested_messages: int = 10_000
    differences: Mapping[int, str] = field(default_factory=dict)

    def keeps(self, promise: int) -> bool:
        """Return whether the promise of this number holds in full."""
        if promise not in PROMISES:
            raise ValueError(f"promise must be 1 to {len(PROMISES)}: {promise!r}")
        return promise not in self.differences
