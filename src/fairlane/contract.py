"""The rules for arguments and the limits, once for all backends.

The procedures repeat only the rules that a caller from SQL could break.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from fairlane.errors import USUAL_ERRORS, LeaseLost
from fairlane.model import Lease, T

DEFAULT_QUEUE = "fairlane"
CLIENT_REVISION = "0002"
"""The oldest revision of the layouts that this client works with."""

MAX_PRIORITY = 4
MAX_VISIBILITY = 12 * 3600.0
MAX_DELAY = 365 * 86400.0
MAX_WAIT = 12 * 3600.0
MAX_HEAD_START = 86400.0
DEFAULT_HEAD_START = "1"
ALWAYS = "always"
"""The head start with which a new group always stands before all served groups."""
MAX_ID_BYTES = 512
MAX_DEDUP_LENGTH = 128
MAX_LIMIT = 10_000
MAX_BATCH = 1_000
"""The largest number of messages in one request, and of leases that one claim returns."""
MAX_SEQ = 2**128 - 1  # the sequence numbers of SQS have 128 bits
MAX_TOKEN_LENGTH = 16_384

_QUEUE_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_RESERVED = re.compile(r"public|information_schema|pg_.*|sqlite.*")


def check_queue(queue: object) -> str:
    """Return the name of a queue.

    Raises:
        ValueError: it is not an identifier of the permitted form.
    """
    name = _text("queue", queue)
    if not _QUEUE_NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise ValueError(
            f"queue must match [a-z][a-z0-9_]{{0,30}} and not be public, pg_…, sqlite… or information_schema: {name!r}"
        )
    return name


def check_id(name: str, value: object) -> str:
    """Return a group or worker id: 1 to 512 bytes of UTF-8 without NUL."""
    if type(value) is str and value.isascii() and 0 < len(value) <= MAX_ID_BYTES and "\0" not in value:
        return value  # the usual case, without encoding it
    text = _text(name, value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} must not hold a lone surrogate: {text!r:.200}") from None
    if not text or "\0" in text or size > MAX_ID_BYTES:
        raise ValueError(f"{name} must be 1 to {MAX_ID_BYTES} bytes of UTF-8 without NUL: {text!r:.200}")
    return text


def check_dedup_id(value: object) -> str | None:
    """Return a deduplication id: None, or 1 to 128 characters without NUL."""
    if value is None:
        return None
    text = _text("dedup_id", value)
    if not 1 <= len(text) <= MAX_DEDUP_LENGTH or "\0" in text:
        raise ValueError(f"dedup_id must be 1 to {MAX_DEDUP_LENGTH} characters without NUL: {text!r:.200}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"dedup_id must not hold a lone surrogate: {text!r}") from None
    return text


def check_priority(name: str, value: object) -> int:
    """Return a priority: an int from 0 to 4, and not a bool."""
    if type(value) is int and 0 <= value <= MAX_PRIORITY:
        return value
    return _integer(name, value, 0, MAX_PRIORITY)


def check_limit(value: object) -> int:
    """Return the largest number of rows that an inspection returns, 1 to 10,000."""
    return _integer("limit", value, 1, MAX_LIMIT)


def check_batch(value: object) -> int:
    """Return the largest number of leases that a claim returns, 1 to 1,000."""
    return _integer("limit", value, 1, MAX_BATCH)


def check_visibility(value: object) -> float:
    """Return a visibility in seconds: 0 < visibility <= 12 hours."""
    if (type(value) is float or type(value) is int) and 0 < value <= MAX_VISIBILITY:
        return float(value)  # the usual case
    seconds = _seconds("visibility", value)
    if not 0 < seconds <= MAX_VISIBILITY:
        raise ValueError(f"visibility must be more than 0 and at most {MAX_VISIBILITY:g} seconds: {_shown(value)}")
    return seconds


def check_delay(value: object) -> float:
    """Return a delay in seconds: 0 <= delay <= 365 days."""
    seconds = _seconds("delay", value)
    if not 0 <= seconds <= MAX_DELAY:
        raise ValueError(f"delay must be 0 to {MAX_DELAY:.0f} seconds: {_shown(value)}")
    return seconds


def check_wait(value: object) -> float:
    """Return the seconds for which a claim waits: 0 <= wait <= 12 hours."""
    seconds = _seconds("wait", value)
    if not 0 <= seconds <= MAX_WAIT:
        raise ValueError(f"wait must be 0 to {MAX_WAIT:.0f} seconds: {_shown(value)}")
    return seconds


def check_head_start(value: object) -> str:
    """Return a head start as queues store it: `always`, or seconds from 0 to 86,400 with up to six decimals."""
    if value == ALWAYS:
        return ALWAYS
    try:
        seconds = float(value) if isinstance(value, str) else _seconds("head_start", value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds <= MAX_HEAD_START:  # refuses NaN too
        raise ValueError(f"head_start must be 0 to {MAX_HEAD_START:g} seconds, or {ALWAYS}: {_shown(value)}")
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def check_lease(value: Lease[T]) -> Lease[T]:
    """Return the lease after checking its fields, since an application may construct a `Lease` itself.

    Raises:
        LeaseLost: no claim can have made this token: it is not ASCII, contains NUL, or is too long.
    """
    if not isinstance(value, Lease):  # possible without a type checker
        raise TypeError(f"lease must be a Lease, as claim() returns it: {_shown(value)}")
    group_id, token, seq = value.group_id, value.token, value.seq
    if type(group_id) is not str or not group_id.isascii() or not 0 < len(group_id) <= MAX_ID_BYTES or "\0" in group_id:
        group_id = check_id("lease.group_id", group_id)
    if type(token) is not str:
        token = _text("lease.token", token)
    if type(seq) is not int or not 0 <= seq <= MAX_SEQ:
        seq = _integer("lease.seq", seq, 0, MAX_SEQ)
    if not token.isascii() or "\0" in token or len(token) > MAX_TOKEN_LENGTH:
        raise LeaseLost(group_id, seq)  # some drivers would raise errors of their own for such text
    if group_id is value.group_id and token is value.token:
        return value
    return replace(value, group_id=group_id, token=token)


def _shown(value: object) -> str:
    """Return a value as an error message shows it, at most 200 characters long."""
    try:
        return repr(value)[:200]
    except ValueError:  # Python does not convert integers of more than 4,300 digits to text
        return "a very large number"
    except (*USUAL_ERRORS, RuntimeError):  # the repr() of the value's class failed
        return f"an object of {type(value).__name__}"


def _text(name: str, value: object) -> str:
    """Return a text as a plain str, since drivers treat subclasses of str (an enum, for example) differently."""
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str: {_shown(value)}")
    return str.__str__(value)


def _integer(name: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int from {low} to {high}: {_shown(value)}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be an int from {low} to {high}: {_shown(value)}")
    return int(value)


def _seconds(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds: {_shown(value)}")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if math.isnan(seconds):
        raise ValueError(f"{name} must be a number of seconds: {_shown(value)}")
    return seconds
