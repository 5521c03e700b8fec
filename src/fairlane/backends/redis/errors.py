"""Turn the driver's errors and the error replies of Redis into Fairlane's errors, by the codes of replies."""

from __future__ import annotations

import re

import redis

from fairlane.backends.base import LeaseGone
from fairlane.errors import (
    AuthenticationFailed,
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    FairlaneError,
    QueueDamaged,
)

BACKEND_NAME = "redis"
NOTHING_CHANGED = "nothing was changed"
OUTCOME_UNKNOWN = "whether the call was carried out is not known"


class NotSent(Exception):
    """Raised by connections for an executor: the request was not sent to the server. `__cause__` is the reason."""


class AllBusy(Exception):
    """Raised by connections for an executor: all connections were in use until the deadline of the call."""


class TooFewReplicas(Exception):
    """Raised by connections for an executor: the call was carried out, but too few replicas have confirmed it."""

    def __init__(self, confirmed: int, wanted: int) -> None:
        super().__init__(confirmed, wanted)
        self.reason = f"it was carried out on the primary, but {confirmed} of {wanted} replicas have confirmed it"


class Refused(Exception):
    """The server refused a call: its function found no queue, or is missing, or failed. The last two have the code ERR.

    Attributes:
        error: the error to raise if the reason cannot be found.
    """

    def __init__(self, error: BackendUnavailable) -> None:
        super().__init__(error)
        self.error = error


class Unfinished(Exception):
    """Raised by an executor for its core: the function has removed many damaged entries and must be called again."""


class Unclaimed(Exception):
    """Raised by an executor for its core: the first half of `ack_and_claim` is done, and a claim must follow."""


_CODE = re.compile(r"[A-Z]{2,}(?= |$)")
_WAIT = {
    "CLUSTERDOWN": "the cluster is down",
    "MASTERDOWN": "the replica has lost the connection to its primary",
    "TRYAGAIN": "the cluster is moving this queue to another node",
    "NOREPLICAS": "too few replicas are connected, so it refuses writes",
    "MISCONF": "it cannot save to disk, so it refuses writes",
    "LOADING": "it is loading its data",
    "BUSY": "it is busy with a script",
}
_ELSEWHERE = {"MOVED", "ASK", "CROSSSLOT"}
_CLASSES: tuple[tuple[type[Exception], str], ...] = (
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.AskError, "ASK"),
)


def code_of(error: redis.exceptions.ResponseError) -> str:
    """Return the code of an error reply. If the driver has a class for a code, it removes the code from the text."""
    for cls, code in _CLASSES:
        if isinstance(error, cls):
            return code
    found = _CODE.match(str(error))
    return found.group() if found else "ERR"


def translate(error: Exception, host: str, queue: str) -> Exception | None:
    """Return Fairlane's error for an error of the driver, or None if there is none.

    Args:
        host: the host of the server, for the message.
        queue: the name of the queue.
    """
    outcome = OUTCOME_UNKNOWN
    if isinstance(error, NotSent) and isinstance(error.__cause__, Exception):
        error, outcome = error.__cause__, NOTHING_CHANGED
    if isinstance(error, redis.exceptions.ResponseError):
        if outcome == NOTHING_CHANGED and code_of(error) == "ERR":  # the reply to what comes before the call
            return ConfigurationError(f"redis at {host} refused the connection: {error}: correct the URL or the client")
        return _translate_reply(error, host, queue)
    if isinstance(error, redis.exceptions.AuthenticationError):
        return AuthenticationFailed(BACKEND_NAME, host)
    if isinstance(error, AllBusy):
        busy = f"all {error} connections were in use for too long ({NOTHING_CHANGED})"
        return BackendUnavailable(BACKEND_NAME, host, busy, "raise max_connections, or use more transports")
    if isinstance(error, TooFewReplicas):
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""  # for example a missing right
        remedy = "the change is lost if the primary fails now"
        return BackendUnavailable(BACKEND_NAME, host, error.reason + cause, remedy)
    reason = _reason(error)
    return None if reason is None else BackendUnavailable(BACKEND_NAME, host, f"{reason} ({outcome})")


def _reason(error: Exception) -> str | None:
    """Return why a call has no answer, or None if the error does not concern the connection."""
    if isinstance(error, redis.exceptions.TimeoutError | TimeoutError):
        return "it did not answer in time"
    if isinstance(error, redis.exceptions.InvalidResponse):
        return "its answer is not in the protocol of Redis"
    unreachable = (
        redis.exceptions.ConnectionError,
        redis.exceptions.ClusterError,
        redis.exceptions.RedisClusterException,
        OSError,
    )
    if isinstance(error, unreachable):
        return str(error).splitlines()[0] if str(error) else "no connection"
    return None


def _translate_reply(
    error: redis.exceptions.ResponseError, host: str, queue: str
) -> FairlaneError | LeaseGone | Refused | Unfinished | None:
    code = code_of(error)
    text = str(error).removeprefix(code).strip()
    if code == "LEASELOST":
        return LeaseGone()
    if code == "AGAIN":
        return Unfinished()
    if code in ("ERR", "NOQUEUE"):
        return Refused(BackendUnavailable(BACKEND_NAME, host, f"it refused the call: {error}"))
    if code == "OOM":
        return BackendFull(BACKEND_NAME, host, "it has reached maxmemory")
    if code == "NOPERM":
        return AuthenticationFailed(BACKEND_NAME, host, text)  # the server's text names the command, or mentions a key
    if code == "WRONGKEY":
        return QueueDamaged(queue, f"the key {text}. Delete or restore that key, then run `fairlane migrate`")
    if code == "WRONGSEQ":
        return QueueDamaged(queue, f"{text}: `fairlane migrate` repairs it")
    if code in ("NOAUTH", "WRONGPASS"):
        return AuthenticationFailed(BACKEND_NAME, host)
    if code == "READONLY":
        reason = f"it is a replica, which is read-only ({NOTHING_CHANGED})"
        return BackendUnavailable(BACKEND_NAME, host, reason, "connect to the primary; after a failover try again")
    if code in _WAIT:
        return BackendUnavailable(BACKEND_NAME, host, f"{_WAIT[code]} ({NOTHING_CHANGED})")
    if code == "DB":  # "DB index is out of range": the driver has removed ERR
        return ConfigurationError(f"redis at {host} has no database of this number: correct the URL")
    if code in _ELSEWHERE:
        return ConfigurationError(f"redis at {host} is one node of a cluster: use a redis+cluster:// URL")
    return None
