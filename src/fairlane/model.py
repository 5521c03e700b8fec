"""The values that Fairlane gives to its callers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

T = TypeVar("T", default=Any)
"""The type of an event: what the codec decodes to. `Any` for JSON."""

GroupState = Literal["ready", "in_flight", "parked"]
MessageState = Literal["in_flight", "waiting"]


@dataclass(frozen=True, slots=True)
class Lease(Generic[T]):
    """One message, held by one worker until `expires_at` or until somebody claims it after that.

    Attributes:
        group_id: the group, which has nothing else in flight while this lease holds.
        event: the published value, decoded.
        seq: number of the message; larger means published later.
        token: what `ack`, `nack` and `extend` prove their right with. Fresh for every claim.
        attempts: 1 on first delivery, one more with every claim of this message.
        published_at: UTC, by the server's clock.
        expires_at: UTC, by the server's clock; after it the message is claimable again.
    """

    group_id: str
    event: T
    seq: int
    token: str
    attempts: int
    published_at: datetime
    expires_at: datetime


def instant(microseconds: int | str) -> datetime:
    """Turn microseconds since the epoch into a UTC datetime."""
    return datetime.fromtimestamp(int(microseconds) / 1e6, UTC)  # exact: a float holds them until the year 2255


@dataclass(frozen=True, slots=True)
class Revision:
    """What a database says of itself: its revision, and the oldest revision whose clients it still serves."""

    found: str
    serves: str


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The whole queue in one row. `oldest_seconds` is the age of the oldest message, None when empty.

    With `is_estimate`, figures above 10,000 are estimates, and the oldest message is at least so old.
    SQS tells only `in_flight` (parked groups among them) and `messages`, approximately; the rest is None there.
    """

    queue: str
    groups: int | None
    ready: int | None
    in_flight: int
    parked: int | None
    messages: int
    oldest_seconds: float | None
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group.

    Attributes:
        state: `in_flight` while a lease runs, `parked` while a delay runs, else `ready`.
        depth: messages in the group, the leased one included; see `depth_is_capped`.
        oldest_seconds: age of its oldest message.
        worker_id: who holds the lease, or held the one that ran out; None otherwise.
        attempts: deliveries of the message at the head so far.
        ready_in_seconds: until the group is claimable; 0 when it is.
        depth_is_capped: the group has more messages than `depth` says, which were not counted.
    """

    group_id: str
    state: GroupState
    priority: int
    depth: int
    oldest_seconds: float | None
    worker_id: str | None
    attempts: int
    ready_in_seconds: float
    depth_is_capped: bool = False


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """One message of a group; `position` 1 is the head, `attempts` counts deliveries so far.

    `event` is decoded with the transport's codec; the stored text where that fails.
    """

    group_id: str
    seq: int
    state: MessageState
    position: int
    attempts: int
    dedup_id: str | None
    published_at: datetime
    age_seconds: float
    event: Any
