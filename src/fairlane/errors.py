"""Every error that Fairlane raises on purpose.

All errors derive from `FairlaneError`. Each has its data as attributes, and its text says what to do next. Driver
errors that Fairlane does not know pass through unchanged. No text contains a password: hosts come from
`urls.host_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlane.model import Lease

USUAL_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
    RecursionError,
)
"""The errors that a codec or another foreign class usually raises when it cannot handle a value.

`Exception` would be too wide. A signal handler may raise any error at any moment, for example the time limit of a
task queue. Callers must receive such an error unchanged.
"""


class FairlaneError(Exception):
    """Root of all errors that Fairlane raises on purpose."""


class LeaseLost(FairlaneError):
    """The lease no longer holds: its token was replaced, or its message was finished. Nothing was changed.

    If the answer to an `ack` or `nack` did not arrive and the repeated call raises this, then either the first call
    succeeded or the lease was lost.
    """

    def __init__(self, group_id: str, seq: int) -> None:
        super().__init__(group_id, seq)
        self.group_id = group_id
        self.seq = seq

    def __str__(self) -> str:
        return (
            f"the lease on message {self.seq} of group {self.group_id!r} no longer holds; nothing was changed: "
            "discard this worker's result, since the message was finished or belongs to another worker now"
        )


class EventEncodingError(FairlaneError, ValueError):
    """The event cannot be stored. Nothing was written."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the event cannot be encoded: {self.reason}"


class EventTooLarge(EventEncodingError):
    """The encoded event is larger than the backend or Fairlane accepts. Nothing was written.

    `size` and `limit` are bytes of UTF-8. Each is None if the server did not report it.
    """

    def __init__(self, size: int | None, limit: int | None) -> None:
        super().__init__(
            f"it takes {'too many' if size is None else format(size, ',')} bytes, the limit is "
            f"{'lower' if limit is None else format(limit, ',')}; store it elsewhere and publish a reference"
        )
        self.args = (size, limit)
        self.size = size
        self.limit = limit


class EventDecodingError(FairlaneError):
    """The event of a claimed message cannot be decoded. The attribute `lease` holds; its `event` is the stored text.

    After `claim_many`, `others` has the leases whose events were decoded, and `undecoded` those whose events were not.
    """

    def __init__(
        self, lease: Lease[Any], others: Sequence[Lease[Any]] = (), undecoded: Sequence[Lease[Any]] = ()
    ) -> None:
        super().__init__(lease)
        self.lease = lease
        self.others = tuple(others)
        self.undecoded = tuple(undecoded) or (lease,)

    def __str__(self) -> str:
        return (
            f"message {self.lease.seq} of group {self.lease.group_id!r} is leased, but its event cannot be decoded; "
            "the attribute .lease of this error is its lease: ack it to discard the message, or nack it with a delay"
        )


class SchemaNotReady(FairlaneError):
    """The queue does not exist, is older than this client needs, or no longer serves clients this old.

    `host` is the server that reported it; None if the backend has only one server.
    """

    def __init__(
        self, queue: str, found: str | None, needed: str, serves: str | None = None, host: str | None = None
    ) -> None:
        super().__init__(queue, found, needed, serves)
        self.queue = queue
        self.found = found
        self.needed = needed
        self.serves = serves
        self.host = host

    def __str__(self) -> str:
        if self.found is not None and self.found >= self.needed:
            return (
                f"queue {self.queue!r} is at revision {self.found}, which serves clients from revision {self.serves} "
                f"on; this client was made for revision {self.needed}: upgrade the fairlane package"
            )
        state = "not there" if self.found is None else f"at revision {self.found}"
        if self.host is not None:
            state += f" on {self.host}"
        return (
            f"queue {self.queue!r} is {state}, this client needs revision {self.needed}: "
            f"run `fairlane migrate --queue {self.queue}`"
        )


class BackendError(FairlaneError):
    """A problem with the server of a backend. `host` names the server, without credentials; `reason` is the problem."""

    def __init__(self, backend: str, host: str, reason: str) -> None:
        super().__init__(backend, host, reason)
        self.backend = backend
        self.host = host
        self.reason = reason


class BackendUnavailable(BackendError):
    """The server cannot be reached, broke the connection, or was busy until the deadline.

    The text says so if the call was certainly not carried out. Otherwise the outcome is unknown, and a lease that no
    worker received expires by itself. `remedy` says what to do if trying again does not help.
    """

    def __init__(self, backend: str, host: str, reason: str, remedy: str | None = None) -> None:
        super().__init__(backend, host, reason)
        self.remedy = remedy

    def __str__(self) -> str:
        if self.remedy is not None:
            return f"{self.backend} at {self.host}: {self.reason}; {self.remedy}"
        return f"{self.backend} at {self.host} is not available: {self.reason}; check the server and try again"


class AuthenticationFailed(BackendError):
    """The server refused the credentials, or their user lacks a right that the call needs."""

    def __init__(self, backend: str, host: str, reason: str = "the server refused the credentials") -> None:
        super().__init__(backend, host, reason)

    def __str__(self) -> str:
        return f"{self.backend} at {self.host}: {self.reason}; check user, password or token, and roles"


class BackendFull(BackendError):
    """The server has no memory or disk space left. Nothing was written. `claim` and `ack` work as far as they can."""

    def __str__(self) -> str:
        return f"{self.backend} at {self.host} is full: {self.reason}; drain the queue or give the server more room"


class QueueDamaged(FairlaneError):
    """The stored data contradict each other. No message was changed. `reason` says what is wrong and the remedy."""

    def __init__(self, queue: str, reason: str) -> None:
        super().__init__(queue, reason)
        self.queue = queue
        self.reason = reason

    def __str__(self) -> str:
        return f"queue {self.queue!r} is damaged: {self.reason}"


class UnsupportedByBackend(FairlaneError):
    """The call asks for something that this backend cannot do. The call was refused; nothing was changed."""

    def __init__(self, backend: str, feature: str, instead: str = "choose another backend") -> None:
        super().__init__(backend, feature, instead)
        self.backend = backend
        self.feature = feature
        self.instead = instead

    def __str__(self) -> str:
        return f"{self.backend} does not support {self.feature}: {self.instead}"


class ConfigurationError(FairlaneError, ValueError):
    """A URL, an option, or a setting of the environment or the server is wrong, or contradicts another one."""


class MissingExtra(FairlaneError, ImportError):
    """The driver of a backend is not installed."""

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.backend = backend

    def __str__(self) -> str:
        return f"the driver for {self.backend} is not installed: pip install 'fairlane[{self.backend}]'"


class TransportClosed(FairlaneError):
    """The transport is closed; make a new one."""

    def __str__(self) -> str:
        return "this transport is closed: make a new one with connect()"
