"""What travels between Fairlane and SQS: requests, names, ids, texts and tokens.

SQS takes as group and deduplication ids 1 to 128 printable ASCII characters, and as texts what XML 1.0 may hold.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from fairlane.program import Program, ResultT

GROUP = "fairlane_group"
"""The message attribute with the true group id, where a hash travels in its place."""

REVISION, SERVES = "fairlane:revision", "fairlane:serves"
"""The tags of a queue that say what a migration has made."""

LONGEST = 12 * 3600
"""Seconds for which SQS keeps a message invisible, counted from the claim."""

HASHED = "fairlane:sha256:"
FRESH = "fairlane:"

_PLAIN = re.compile(r"[!-~]{1,128}")
_FORBIDDEN = re.compile("[\ufffe\uffff]")  # JSON text cannot hold the other characters that XML 1.0 forbids


@dataclass(slots=True)
class Request:
    """One call of the SQS API, by the client's name for it.

    Attributes:
        ends: by time.monotonic(), when its call must be over; the executor fills it in if nobody else has.
    """

    operation: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    ends: float | None = field(default=None, compare=False)


Answer: TypeAlias = Mapping[str, Any]
"""What SQS answers a request with, as its API documents it."""

Steps: TypeAlias = Program[Request, Answer, ResultT]
"""A program of this backend, by what it returns."""


class Client(Protocol):
    """What carries requests: a client of boto3."""

    meta: Any

    def receive_message(self, **arguments: Any) -> Any: ...
    def delete_message(self, **arguments: Any) -> Any: ...
    def close(self) -> None: ...


class AsyncClient(Protocol):
    """The same for asyncio: a client of aiobotocore."""

    meta: Any

    def receive_message(self, **arguments: Any) -> Awaitable[Any]: ...
    def delete_message(self, **arguments: Any) -> Awaitable[Any]: ...
    def close(self) -> Awaitable[None]: ...


def queue_name(queue: str) -> str:
    """Return what SQS calls a queue."""
    return f"{queue}.fifo"


def id_of(text: str) -> str:
    """Return a group or deduplication id as SQS takes it: the text itself, or a hash of it."""
    if _PLAIN.fullmatch(text) and not text.startswith(FRESH):
        return text
    return HASHED + hashlib.sha256(text.encode()).hexdigest()


def group_attributes(group_id: str, sent: str) -> dict[str, Any]:
    """Return the message attributes that carry a group id which SQS itself cannot; as bytes, which hold any text."""
    if sent == group_id:
        return {}
    return {GROUP: {"DataType": "Binary", "BinaryValue": group_id.encode()}}


def group_of(message: Mapping[str, Any]) -> str:
    """Return the true group id of a message that was received."""
    true = message.get("MessageAttributes", {}).get(GROUP)
    if true is not None:
        return bytes(true["BinaryValue"]).decode()
    return str(message["Attributes"]["MessageGroupId"])


def body_of(payload: str) -> str:
    """Return JSON text as XML may hold it. What it may not can only stand inside strings, where an escape means it."""
    return _FORBIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", payload)


def size_of(arguments: Mapping[str, Any]) -> int:
    """Return the size of a message as SQS counts it: the body, and name, type and value of each attribute."""
    size = len(arguments["MessageBody"].encode())
    for name, value in arguments.get("MessageAttributes", {}).items():
        size += len(name) + len(value["DataType"]) + len(value["BinaryValue"])
    return size


def token_of(handle: str, group_id: str, seq: int, end: int) -> str:
    """Return a lease's token: the receipt handle, whose message it is, and the second at which SQS takes it back."""
    return f"{end}~{_owner(group_id, seq)}~{handle}"


def handle_of(token: str, group_id: str, seq: int) -> tuple[str, int] | None:
    """Return the receipt handle and the last second of a token; None if it is not one of this message."""
    end, _, rest = token.partition("~")
    owner, _, handle = rest.partition("~")
    if not handle or not re.fullmatch("[0-9]{1,12}", end) or owner != _owner(group_id, seq):
        return None
    return handle, int(end)


def _owner(group_id: str, seq: int) -> str:
    return hashlib.sha256(f"{seq}:{group_id}".encode("utf-8", "replace")).hexdigest()[:12]
