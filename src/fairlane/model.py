"""The values that Fairlane gives to its callers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

T = TypeVar("T", default=Any)
"""The type of an event, which is what the codec's `decode` returns. `Any` for JSON."""

GroupState = Literal["ready", "in_flight", "parked", "paused"]
MessageState = Literal["in_flight", "waiting"]


@dataclass(frozen=True, slots=True)
class Message(Generic[T]):
    """One message to publish with `publish_many`. The arguments are those of `publish`."""

    group_id: str
    event: T
    priority: int = 0
    dedup_id: str | None = None


@dataclass(frozen=True, slots=True)
class Lease(Generic[T]):
    """One message that is leased to one worker.

    The lease holds until `expires_at`. It still holds after that time until another worker claims the message.

    Attributes:
        group_id: the group. It has no other message in flight while this lease holds.
        event: the published value, decoded.
        seq: number of the message; a larger number was published later.
        token: proves to the server that this lease still holds. Every claim makes a new token.
        attempts: 1 on first delivery; every claim of this message adds one.
        published_at: UTC, by the server's clock.
        expires_at: UTC, by the server's clock. From then on the message is claimable again.
    """

    group_id: str
    event: T
    seq: int
    token: str
    attempts: int
    published_at: datetime
    expires_at: datetime


_put_group_id, _put_event, _put_seq, _put_token, _put_attempts, _put_published_at, _put_expires_at = (
    getattr(Lease, name).__set__ for name in Lease.__slots__
)


def new_lease(
    group_id: str,
    event: T,
    seq: int,
    token: str,
    attempts: int,
    published_at: datetime,
    expires_at: datetime,
) -> Lease[T]:
    """Make a lease in half the time of its constructor, which looks up each attribute of a frozen class by name."""
    lease: Lease[T] = object.__new__(Lease)
    _put_group_id(lease, group_id)
    _put_event(lease, event)
    _put_seq(lease, seq)
    _put_token(lease, token)
    _put_attempts(lease, attempts)
    _put_published_at(lease, published_at)
    _put_expires_at(lease, expires_at)
    return lease


def instant(microseconds: int) -> datetime:
    """Turn microseconds since the epoch into a UTC datetime."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC)  # a float holds microseconds exactly until 2255


@dataclass(frozen=True, slots=True)
class Revision:
    """The revision of a queue in its database (`found`), and the oldest revision whose clients it still serves."""

    found: str
    serves: str


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The figures of the whole queue. `oldest_seconds` is the age of the oldest message, None for an empty queue.

    `paused` counts the groups that are paused and not in flight. `is_paused` says whether the whole queue is paused.
    With `is_estimate`, figures above 10,000 are estimates, and `oldest_seconds` is a lower bound.
    SQS gives only `in_flight` (which includes parked groups) and `messages`, both approximate. Its other figures
    are None.
    """

    queue: str
    groups: int | None
    ready: int | None
    in_flight: int
    parked: int | None
    messages: int
    oldest_seconds: float | None
    is_estimate: bool = False
    paused: int | None = 0
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group.

    Attributes:
        state: `in_flight` while a lease runs, `paused` while the group is paused, `parked` while a delay runs, else
            `ready`. Groups that are paused are shown also if they have no messages.
        depth: number of messages in the group, the leased one included; see `depth_is_capped`.
        oldest_seconds: age of its oldest message.
        worker_id: the worker that holds the lease or held the expired one; None if the group is not leased.
        attempts: number of deliveries of the message at the head so far.
        ready_in_seconds: seconds until the group is claimable; 0 if it is claimable now. Of a paused group: seconds
            until it would be claimable if it was resumed now.
        depth_is_capped: the group has more messages than `depth`; the rest was not counted.
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

    `event` is decoded with the transport's codec. If the codec fails, it is the stored text.
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
