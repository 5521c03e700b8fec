"""What goes to Redis and what comes back: function calls, replies, error codes. No input or output happens here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis

from fairlane.backends.base import LeaseGone
from fairlane.backends.stored import (
    ACK,
    CLAIM,
    EXTEND,
    GROUP_STATUS,
    MESSAGE_STATUS,
    NACK,
    PUBLISH,
    QUEUE_STATUS,
    REVISION,
    Call,
    Operation,
    Row,
    Rows,
)
from fairlane.errors import (
    AuthenticationFailed,
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    FairlaneError,
)
from fairlane.templates import environment

BACKEND_NAME = "redis"
_KEYS_TEMPLATE = "lua/keys.lua.j2"
_MICROSECONDS = 1_000_000

Argument = bytes | str | int
Arguments = Mapping[str, Any]


class Refused(Exception):
    """The function of a call found no queue; or the code is the unspecific ERR: it does not exist, or it failed.

    Attributes:
        error: what to raise when nothing more is known.
    """

    def __init__(self, error: FairlaneError) -> None:
        super().__init__(error)
        self.error = error


def keys_of(queue: str) -> list[str]:
    """Return the keys of a queue in the order that every function declares, from the template that holds it."""
    listed = environment().get_template(_KEYS_TEMPLATE).make_module({"queue": queue}).keys  # type: ignore[attr-defined]
    return [f"{{{queue}}}:{name}" for _, name, _ in listed]


def library_of(queue: str) -> str:
    """Return the name of a queue's function library."""
    return f"fairlane_{queue}"


def _text(arguments: Arguments, name: str) -> bytes:
    value: str | None = arguments[name]
    return b"" if value is None else value.encode()


def _micros(seconds: float) -> int:
    return math.ceil(seconds * _MICROSECONDS)


_ARGV: dict[Operation, Callable[[Arguments], tuple[Argument, ...]]] = {
    REVISION: lambda a: (),
    PUBLISH: lambda a: (
        _text(a, "p_group_id"),
        _text(a, "p_event"),
        a["p_priority"],
        _text(a, "p_dedup_id"),
    ),
    CLAIM: lambda a: (
        _text(a, "p_worker_id"),
        _micros(a["p_visibility"]),
        a["p_min_priority"],
        _text(a, "p_token"),
    ),
    ACK: lambda a: (_text(a, "p_group_id"), _text(a, "p_token")),
    NACK: lambda a: (_text(a, "p_group_id"), _text(a, "p_token"), _micros(a["p_delay"])),
    EXTEND: lambda a: (_text(a, "p_group_id"), _text(a, "p_token"), _micros(a["p_visibility"])),
    QUEUE_STATUS: lambda a: (),
    GROUP_STATUS: lambda a: (a["p_limit"],),
    MESSAGE_STATUS: lambda a: (_text(a, "p_group_id"), a["p_limit"]),
}


def _bulk(argument: Argument) -> bytes:
    """Return an argument as a bulk string of the Redis protocol."""
    data = argument if isinstance(argument, bytes) else str(argument).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _command(operation: Operation) -> str:
    """Return the command for a function; for those that only look, the one that needs no right to write."""
    return "FCALL_RO" if operation.looks else "FCALL"


class Calls:
    """Turns requests of the core into commands. The part of a command that never changes is made once."""

    def __init__(self, queue: str) -> None:
        keys = keys_of(queue)
        self.key = keys[0]
        encoded = [key.encode() for key in keys]
        self._fixed: dict[Operation, tuple[Argument, ...]] = {
            operation: (_command(operation), f"{queue}_{operation.name}".encode(), len(keys), *encoded)
            for operation in _ARGV
        }

        self._heads = {operation: b"".join(map(_bulk, fixed)) for operation, fixed in self._fixed.items()}

    def command(self, request: Call) -> tuple[Any, ...]:
        """Return the command for a request, as arguments of the driver."""
        return self._fixed[request.operation] + _ARGV[request.operation](request.arguments)

    def packed(self, request: Call) -> bytes:
        """Return the command for a request as it goes over the wire."""
        argv = _ARGV[request.operation](request.arguments)
        size = len(self._fixed[request.operation]) + len(argv)
        return b"*%d\r\n%b%b" % (size, self._heads[request.operation], b"".join(map(_bulk, argv)))


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / _MICROSECONDS


def _str(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _claimed(reply: Any) -> Rows:
    if reply is None:
        return []
    group_id, event, facts = reply
    seq, token, attempts, published_at, expires_at = facts.decode().split(" ")
    row = (group_id.decode(), seq, event.decode(), token, attempts, published_at, expires_at)
    return [dict(zip(CLAIM.columns, row, strict=True))]


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "queue": _str,
    "group_id": _str,
    "state": _str,
    "worker_id": _str,
    "dedup_id": _str,
    "event": _str,
    "revision": _str,
    "serves": _str,
    "oldest_seconds": _seconds,
    "ready_in_seconds": _seconds,
    "age_seconds": _seconds,
}
"""Columns that the functions return in another form: texts as bytes, seconds as microseconds."""


def _row(operation: Operation, values: Sequence[Any]) -> Row:
    return {
        name: _CONVERT[name](value) if name in _CONVERT else value
        for name, value in zip(operation.columns, values, strict=True)
    }


def rows_of(operation: Operation, reply: Any) -> Rows:
    """Return the rows that a core expects from the reply to one of its requests; texts come as bytes."""
    if operation is CLAIM:
        return _claimed(reply)
    if operation is QUEUE_STATUS:
        return [_row(operation, reply)]
    if operation in (GROUP_STATUS, MESSAGE_STATUS):
        return [_row(operation, values) for values in reply]
    return [{operation.columns[0]: reply}]


def revision_rows(reply: Any, *, allow_eviction: bool) -> Rows:
    """Return the row of `revision`, and refuse a server that may evict messages.

    Raises:
        ConfigurationError: its eviction policy is another than `noeviction`, or unknown.
    """
    found, serves, _, policy = reply
    if found is not None:
        check_policy(_str(policy), allow_eviction=allow_eviction)
    return [_row(REVISION, (found, serves))]


def check_policy(policy: str | None, *, allow_eviction: bool) -> None:
    """Refuse a server that throws keys away when its memory is full.

    Raises:
        ConfigurationError: its eviction policy is another than `noeviction`, or unknown.
    """
    if allow_eviction or policy == "noeviction":
        return
    state = "cannot be read with this user (INFO is forbidden)" if policy is None else f"is {policy}"
    raise ConfigurationError(
        f"the eviction policy of this Redis server {state}; any other than noeviction may lose messages when memory is "
        "full: set maxmemory-policy to noeviction, or accept the risk with allow_eviction=1 in the URL"
    )


_CODE = re.compile(r"[A-Z]{2,}(?= |$)")
_WAIT = {
    "CLUSTERDOWN": "the cluster is down",
    "MASTERDOWN": "the replica has lost its primary",
    "TRYAGAIN": "the cluster is moving this queue to another node",
    "NOREPLICAS": "too few replicas are connected, so it refuses writes",
    "MISCONF": "it cannot save to disk, so it refuses writes",
    "LOADING": "it is loading its data",
    "READONLY": "it is a replica, which takes no writes",
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
    """Return the code of an error reply. The driver cuts it off the text of those that it has a class for."""
    for kind, code in _CLASSES:
        if isinstance(error, kind):
            return code
    found = _CODE.match(str(error))
    return found.group() if found else "ERR"


def translate(error: Exception, host: str) -> Exception | None:
    """Return Fairlane's error for one of the driver's, None when it has none."""
    if isinstance(error, redis.exceptions.ResponseError):
        return _translate_reply(error, host)
    if isinstance(error, redis.exceptions.AuthenticationError):
        return AuthenticationFailed(BACKEND_NAME, host)
    if isinstance(error, redis.exceptions.TimeoutError | TimeoutError):
        return BackendUnavailable(BACKEND_NAME, host, "it did not answer in time")
    if isinstance(error, redis.exceptions.InvalidResponse):
        return BackendUnavailable(BACKEND_NAME, host, "what answers there does not speak the protocol of Redis")
    unreachable = (
        redis.exceptions.ConnectionError,
        redis.exceptions.ClusterError,
        redis.exceptions.RedisClusterException,
        OSError,
    )
    if isinstance(error, unreachable):
        return BackendUnavailable(BACKEND_NAME, host, str(error).splitlines()[0] if str(error) else "no connection")
    return None


def _translate_reply(error: redis.exceptions.ResponseError, host: str) -> FairlaneError | LeaseGone | Refused | None:
    code = code_of(error)
    if code == "LEASELOST":
        return LeaseGone()
    if code in ("ERR", "NOQUEUE"):
        return Refused(BackendUnavailable(BACKEND_NAME, host, f"it refused the call: {error}"))
    if code == "OOM":
        return BackendFull(BACKEND_NAME, host, "it has reached maxmemory")
    if code == "NOPERM":
        return AuthenticationFailed(BACKEND_NAME, host, "this user may not run the queue's functions on its keys")
    if code in ("NOAUTH", "WRONGPASS"):
        return AuthenticationFailed(BACKEND_NAME, host)
    if code in _WAIT:
        return BackendUnavailable(BACKEND_NAME, host, _WAIT[code])
    if code == "DB":  # "DB index is out of range", once the driver has cut off the ERR
        return ConfigurationError(f"redis at {host} has no database of this number: correct the URL")
    if code in _ELSEWHERE:
        return ConfigurationError(f"redis at {host} is one node of a cluster: use a redis+cluster:// URL")
    return None
