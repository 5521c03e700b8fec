"""What travels between Fairlane and SQS: requests, names, ids, texts, tokens and error codes.

SQS takes as group and deduplication ids 1 to 128 printable ASCII characters, and as texts what XML 1.0 may hold.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore import exceptions
from botocore.parsers import ResponseParserError

from fairlane.errors import AuthenticationFailed, BackendUnavailable, FairlaneError

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

MISSING = frozenset({"NonExistentQueue", "QueueDoesNotExist"})
LOST = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight", "InvalidIdFormat"})
REFUSED = frozenset({"InvalidParameterValue", "InvalidAttributeValue", "InvalidMessageContents", "ValidationError"})
"""What SQS (the first) or ElasticMQ says of a message that is too large, among other things."""

_CREDENTIALS = frozenset(
    {"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidAccessKeyId",
     "IncompleteSignature", "MissingAuthenticationToken", "MissingAuthenticationTokenException", "InvalidSecurity",
     "InvalidSignatureException", "IncompleteSignatureException", "ExpiredToken", "ExpiredTokenException",
     "TokenRefreshRequired", "NotAuthorized", "OptInRequired"}
)  # fmt: skip
_RIGHTS = frozenset({"AccessDenied", "AccessDeniedException"})
_BUSY = frozenset({"Throttling", "ThrottlingException", "RequestThrottled", "RequestThrottledException", "OverLimit",
                   "TooManyRequestsException", "SlowDown", "KmsThrottled", "QueueDeletedRecently"})  # fmt: skip
_NO_CREDENTIALS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.TokenRetrievalError,
)


@dataclass(frozen=True, slots=True)
class Request:
    """One call of the SQS API, by the client's name for it."""

    operation: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Busy(BackendUnavailable):
    """SQS asked for patience; nothing was done."""


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


def code_of(error: BaseException) -> str:
    """Return the code of an error that SQS answered with, without what some servers put before it; "" if none."""
    response = getattr(error, "response", None)
    if not isinstance(error, exceptions.ClientError) or not isinstance(response, dict):
        return ""
    code = str(response.get("Error", {}).get("Code", ""))
    return code.rpartition("#")[2].rpartition(".")[2]


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error that the server answered with; 0 if there is none."""
    response = getattr(error, "response", None) or {}
    found = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if isinstance(response, dict) else 0
    return int(found)


def translate(error: Exception, host: str) -> FairlaneError | None:
    """Turn an error of botocore into one of Fairlane's; None for those that it, or a program, has a name for."""
    code = code_of(error)
    if code in _CREDENTIALS:
        return AuthenticationFailed("sqs", host)
    if code in _RIGHTS:
        return AuthenticationFailed("sqs", host, "the user lacks a right that this call needs")
    if isinstance(error, _NO_CREDENTIALS):
        return AuthenticationFailed("sqs", host, "no credentials were found: put them into the URL, or set up AWS's")
    if code in _BUSY:
        return Busy("sqs", host, f"it is too busy ({code})")
    if code and status_of(error) >= 500:
        return BackendUnavailable("sqs", host, f"it answered {status_of(error)} ({code})")
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError | TimeoutError | ConnectionError):
        return BackendUnavailable("sqs", host, type(error).__name__)
    if isinstance(error, ResponseParserError):
        return BackendUnavailable("sqs", host, "it does not answer as SQS does")
    return None
