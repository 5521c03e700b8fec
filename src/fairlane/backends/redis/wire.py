"""The commands and replies of Redis: function calls, and the rows in replies. This module does no input or output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import hiredis

from fairlane.backends.redis.errors import Unclaimed
from fairlane.backends.stored import (
    ACK,
    ACK_AND_CLAIM,
    ACK_MANY,
    ANNOUNCE,
    BATCHES,
    CLAIM,
    CLAIM_MANY,
    EXTEND,
    GROUP_STATUS,
    MESSAGE_STATUS,
    NACK,
    NEXT_READY,
    PAUSE,
    PUBLISH,
    PUBLISH_MANY,
    PURGE,
    QUEUE_STATUS,
    RELEASE,
    RESUME,
    REVISION,
    Call,
    Operation,
    Row,
    Rows,
)
from fairlane.errors import ConfigurationError
from fairlane.templates import environment

_KEYS_TEMPLATE = "lua/keys.lua.j2"
_MICROSECONDS = 1_000_000
REPLICA_SECONDS = 1.0
"""Seconds for which a call waits until replicas confirm a change."""

Argument = bytes | str | int
_COUNT = len(b"*9\r\n")
"""The length of the beginning of a packed command with one to nine parts, which is the number of parts."""
Arguments = Mapping[str, Any]

Reply: TypeAlias = Any
"""A reply as hiredis returns it: bytes, int, None, or a list of them; a `ResponseError` for an error reply."""

pack: Callable[[tuple[Argument, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]  # wrong declaration


def keys_of(queue: str) -> list[str]:
    """Return the keys of a queue in the order of `lua/keys.lua.j2`, which all functions use."""
    listed = environment().get_template(_KEYS_TEMPLATE).make_module({"queue": queue}).keys  # type: ignore[attr-defined]
    return [f"{{{queue}}}:{name}" for _, name, _ in listed]


def library_of(queue: str) -> str:
    """Return the name of a queue's function library."""
    return f"fairlane_{queue}"


def _bytes(value: str | None) -> bytes:
    return b"" if value is None else value.encode(errors="surrogateescape")  # see `_str`; callers' texts are checked


def _text(arguments: Arguments, name: str) -> bytes:
    return _bytes(arguments[name])


def is_encodable(text: str) -> bool:
    """Return whether a stored text is valid UTF-8; see `_str`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _micros(seconds: float) -> int:
    return math.ceil(seconds * _MICROSECONDS)


def _messages(a: Arguments) -> tuple[Argument, ...]:
    argv: list[Argument] = []
    for group_id, event, priority, dedup_id in zip(
        a["p_group_ids"], a["p_events"], a["p_priorities"], a["p_dedup_ids"], strict=True
    ):
        argv += (_bytes(group_id), _bytes(event), priority, _bytes(dedup_id))
    return tuple(argv)


def _leases(a: Arguments) -> tuple[Argument, ...]:
    return tuple(_bytes(each) for pair in zip(a["p_group_ids"], a["p_tokens"], strict=True) for each in pair)


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
    NEXT_READY: lambda a: (a["p_min_priority"],),
    ANNOUNCE: lambda a: (a["p_min_priority"], _micros(a["p_seconds"])),
    ACK: lambda a: (_text(a, "p_group_id"), _text(a, "p_token")),
    NACK: lambda a: (_text(a, "p_group_id"), _text(a, "p_token"), _micros(a["p_delay"])),
    EXTEND: lambda a: (_text(a, "p_group_id"), _text(a, "p_token"), _micros(a["p_visibility"])),
    RELEASE: lambda a: (_text(a, "p_group_id"),),
    PURGE: lambda a: (_text(a, "p_group_id"), a["p_limit"]),
    PAUSE: lambda a: (_text(a, "p_group_id"),),
    RESUME: lambda a: (_text(a, "p_group_id"),),
    QUEUE_STATUS: lambda a: () if a.get("is_old") else (1,),
    GROUP_STATUS: lambda a: (a["p_limit"],),
    MESSAGE_STATUS: lambda a: (_text(a, "p_group_id"), a["p_limit"]),
    PUBLISH_MANY: _messages,
    CLAIM_MANY: lambda a: (
        _text(a, "p_worker_id"),
        _micros(a["p_visibility"]),
        a["p_min_priority"],
        a["p_limit"],
        _text(a, "p_token"),
    ),
    ACK_MANY: _leases,
    ACK_AND_CLAIM: lambda a: (
        _text(a, "p_group_id"),
        _text(a, "p_token"),
        _text(a, "p_worker_id"),
        _micros(a["p_visibility"]),
        a["p_min_priority"],
        _text(a, "p_new_token"),
    ),
}


def _command(operation: Operation) -> str:
    """Return the command that calls a function. Functions that only read need no right to write."""
    return "FCALL_RO" if operation.looks else "FCALL"


class Calls:
    """Turns requests of the core into commands. The constant part of a command is packed only once.

    Attributes:
        key: one of the queue's keys, which determines the node of a cluster.
        wait_replicas: the number of replicas that must confirm a change.
    """

    def __init__(self, queue: str, wait_replicas: int = 0) -> None:
        self.wait_replicas = wait_replicas
        self._wait = pack(("WAIT", wait_replicas, int(REPLICA_SECONDS * 1000)))
        keys = keys_of(queue)
        self.key = keys[0].encode()
        encoded = [key.encode() for key in keys]
        self._fixed: dict[Operation, tuple[Argument, ...]] = {
            operation: (_command(operation), f"{queue}_{operation.name}".encode(), len(keys), *encoded)
            for operation in _ARGV
        }
        self._heads: dict[Operation, bytes] = {}

    def command(self, request: Call) -> tuple[Argument, ...]:
        """Return the command for a request, as arguments for the driver."""
        return self._fixed[request.operation] + _ARGV[request.operation](request.arguments)

    def packed(self, request: Call) -> bytes:
        """Return the command for a request as bytes of the protocol."""
        operation = request.operation
        argv = _ARGV[operation](request.arguments)
        head = self._heads.get(operation)
        if head is None:
            if operation in BATCHES:  # the number of their arguments varies, and with it the head
                return pack(self._fixed[operation] + argv)
            head = self._heads[operation] = self._head(operation, len(argv))
        return head + pack(argv)[_COUNT:] if argv else head

    def sent(self, request: Call) -> tuple[bytes, int]:
        """Return the bytes for a request, and the number of replies: two if replicas must confirm it."""
        packed = self.packed(request)
        if self.wait_replicas and not request.operation.looks:
            return packed + self._wait, 2
        return packed, 1

    def _head(self, operation: Operation, more: int) -> bytes:
        fixed = self._fixed[operation]
        packed = pack(fixed)
        return b"*%d%b" % (len(fixed) + more, packed[packed.index(b"\r\n") :])


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / _MICROSECONDS


def _str(value: bytes | None) -> str | None:
    """Return a text. Bytes that are not UTF-8, which were stored by hand, become lone surrogates."""
    return None if value is None else value.decode(errors="surrogateescape")


def _claimed(reply: Reply) -> Rows:
    return [] if reply is None else [_lease(reply)]


def _lease(reply: Reply) -> Row:
    group_id, event, facts = reply
    seq, token, attempts, published_at, expires_at = facts.decode().split(" ")
    row = (_str(group_id), int(seq), _str(event), token, int(attempts), int(published_at), int(expires_at))
    return dict(zip(CLAIM.columns, row, strict=True))


def _acked_and_claimed(reply: Reply) -> Rows:
    _, claimed = reply
    if isinstance(claimed, bytes):
        raise Unclaimed
    return _claimed(claimed)


_CONVERT: dict[str, Callable[[Reply], object]] = {
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
"""Conversions of columns: the functions return texts as bytes, and seconds as microseconds."""


def _row(operation: Operation, values: Sequence[Reply]) -> Row:
    return {
        name: _CONVERT[name](value) if name in _CONVERT else value
        for name, value in zip(operation.columns, values, strict=True)
    }


_ROWS: dict[Operation, Callable[[Reply], Rows]] = {
    CLAIM: _claimed,
    RELEASE: lambda reply: [] if reply is None else [{"group_id": reply}],
    NEXT_READY: lambda reply: [_row(NEXT_READY, (reply,))],
    ANNOUNCE: lambda reply: [_row(ANNOUNCE, (reply,))],
    PURGE: lambda reply: [{"seq": int(seq)} for seq in reply],
    QUEUE_STATUS: lambda reply: [_row(QUEUE_STATUS, (*reply, 0, 0)[: len(QUEUE_STATUS.columns)])],
    GROUP_STATUS: lambda reply: [_row(GROUP_STATUS, values) for values in reply],
    MESSAGE_STATUS: lambda reply: [_row(MESSAGE_STATUS, values) for values in reply],
    PUBLISH_MANY: lambda reply: [{"seq": seq} for seq in reply],
    CLAIM_MANY: lambda reply: [_lease(each) for each in reply],
    ACK_MANY: lambda reply: [{"lost": number} for number, finished in enumerate(reply) if not finished],
    ACK_AND_CLAIM: _acked_and_claimed,
}


def rows_of(operation: Operation, reply: Reply) -> Rows:
    """Return the rows of a reply. Texts are bytes in the reply.

    Raises:
        Unclaimed: the message of `ack_and_claim` is finished, and a claim must follow.
    """
    convert = _ROWS.get(operation)
    return [{operation.columns[0]: reply}] if convert is None else convert(reply)


def revision_rows(reply: Reply, *, allow_eviction: bool) -> Rows:
    """Return the row of `revision`, and refuse a server that may evict messages.

    Raises:
        ConfigurationError: the eviction policy of the server is not `noeviction`, or it is unknown.
    """
    found, serves, _, policy = reply
    if found is not None:
        check_policy(_str(policy), allow_eviction=allow_eviction)
    return [_row(REVISION, (found, serves))]


def check_policy(policy: str | None, *, allow_eviction: bool) -> None:
    """Refuse a server that evicts keys when its memory is full.

    Raises:
        ConfigurationError: the eviction policy of the server is not `noeviction`, or it is unknown.
    """
    if allow_eviction or policy == "noeviction":
        return
    state = "cannot be read with this user (INFO is forbidden)" if policy is None else f"is {policy}"
    raise ConfigurationError(
        f"the eviction policy of this Redis server {state}; every policy except noeviction may lose messages when the "
        "memory is full: set maxmemory-policy to noeviction, or accept the risk with allow_eviction=1 in the URL"
    )
