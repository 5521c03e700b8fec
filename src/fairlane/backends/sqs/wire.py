"""The values that are exchanged with SQS: requests, names, ids, texts and tokens.

Group and deduplication ids of SQS are 1 to 128 printable ASCII characters. Texts may have all characters of XML 1.0.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from fairlane.program import Program, ResultT

GROUP = "fairlane_group"
"""The message attribute with the group id, if SQS gets a hash in its place."""

REVISION, SERVES = "fairlane:revision", "fairlane:serves"
"""The tags with the revision of a queue, and with the oldest revision that it serves."""

LONGEST = 12 * 3600
"""The longest time in seconds for which SQS hides a message, counted from the claim."""

HASHED = "fairlane:sha256:"
FRESH = "fairlane:"

_PLAIN = re.compile(r"[!-~]{1,128}")
_FORBIDDEN = re.compile("[\ufffe\uffff]")  # JSON text never contains the other characters that XML 1.0 forbids


@dataclass(slots=True)
class Request:
    """One call of the SQS API.

    Attributes:
        operation: the name of the client's method.
        arguments: its keyword arguments.
        ends: the deadline for the answer, by time.monotonic(). The executor sets it if it is None.
    """

    operation: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    ends: float | None = field(default=None, compare=False)


Answer: TypeAlias = Mapping[str, Any]
"""The answer to a request, as the API of SQS documents it."""

Steps: TypeAlias = Program[Request, Answer, ResultT]
"""A program of this backend. The parameter is the type of its result."""


class Client(Protocol):
    """A client of boto3."""

    meta: Any

    def receive_message(self, **arguments: object) -> Answer: ...
    def delete_message(self, **arguments: object) -> object: ...
    def close(self) -> None: ...


class AsyncClient(Protocol):
    """A client of aiobotocore."""

    meta: Any

    def receive_message(self, **arguments: object) -> Awaitable[Answer]: ...
    def delete_message(self, **arguments: object) -> Awaitable[object]: ...
    def close(self) -> Awaitable[None]: ...


def queue_name(queue: str) -> str:
    """Return the name of a queue in SQS."""
    return f"{queue}.fifo"


def id_of(text: str) -> str:
    """Return a group or deduplication id for SQS: the text itself, or a hash of it."""
    if _PLAIN.fullmatch(text) and not text.startswith(FRESH):
        return text
    return HASHED + hashlib.sha256(text.encode()).hexdigest()


def group_attributes(group_id: str, sent: str) -> dict[str, Any]:
    """Return the message attribute with the group id if SQS gets a hash of it. It has bytes, which allow any text."""
    if sent == group_id:
        return {}
    return {GROUP: {"DataType": "Binary", "BinaryValue": group_id.encode()}}


def group_of(message: Mapping[str, Any]) -> str:
    """Return the group id of a received message."""
    true = message.get("MessageAttributes", {}).get(GROUP)
    if true is not None:
        return bytes(true["BinaryValue"]).decode()
    return str(message["Attributes"]["MessageGroupId"])


def body_of(payload: str) -> str:
    """Replace characters that XML forbids by JSON escapes; in JSON text they occur only in strings."""
    return _FORBIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", payload)


def size_of(arguments: Mapping[str, Any]) -> int:
    """Return the size of a message in bytes, as SQS counts it: its body, and name, type and value of each attribute."""
    size = len(arguments["MessageBody"].encode())
    for name, value in arguments.get("MessageAttributes", {}).items():
        size += len(name) + len(value["DataType"]) + len(value["BinaryValue"])
    return size


def token_of(handle: str, group_id: str, seq: int, end: int) -> str:
    """Return the token of a lease: the end of its longest time, a hash of its message, and the receipt handle.

    Args:
        end: the second since the epoch at which SQS ends the lease at the latest.
    """
    return f"{end}~{_owner(group_id, seq)}~{handle}"


def handle_of(token: str, group_id: str, seq: int) -> tuple[str, int] | None:
    """Return the receipt handle and the end of a token, or None if it is not a token of this message."""
    end, _, rest = token.partition("~")
    owner, _, handle = rest.partition("~")
    if not handle or not re.fullmatch("[0-9]{1,12}", end) or owner != _owner(group_id, seq):
        return None
    return handle, int(end)


def _owner(group_id: str, seq: int) -> str:
    return hashlib.sha256(f"{seq}:{group_id}".encode("utf-8", "replace")).hexdigest()[:12]
