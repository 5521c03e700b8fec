"""Text that is safe in a terminal, and JSON that is the same everywhere.

Applications may publish any characters in group ids and events. None of them may move the cursor, change a colour or
be invisible.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from fairlane.urls import split_url

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# control characters, invisible format characters (direction overrides too), lone surrogates, line separators
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_SECRET_OPTIONS = ("password", "token", "secret", "key")
_SHORTEST_SECRET = 3

NONE = "-"
"""What tables show where there is nothing. An id that is the same is shown as a JSON string."""


def one_line(text: object) -> str:
    """Return a text as one line without control characters."""
    return escaped(" ".join(str(text).split()))


def escaped(text: str) -> str:
    """Replace each character that could control a terminal or be invisible by its `\\u` escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if _unsafe(char) else char for char in text)


def quoted_if_odd(text: str) -> str:
    """Return an id unchanged if people can read it without doubt, else as a JSON string."""
    odd = text != text.strip() or text.startswith('"') or text == NONE
    plain = not odd and not any(_unsafe(char) for char in text)
    return text if plain else event_text(text)


def message_count(number: int) -> str:
    """Return how many messages there are, in words: `1 message`, `2,000 messages`."""
    return "1 message" if number == 1 else f"{number:,} messages"


def event_text(event: object, longest: int | None = None) -> str:
    """Return an event as readable JSON of at most `longest` characters."""
    text = escaped(json.dumps(event, ensure_ascii=False))
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def json_line(value: object) -> str:
    """Return a value as one line of JSON in ASCII, which is the same in every locale and safe in every terminal."""
    text = json.dumps(value, default=_plain, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f")


def record(row: DataclassInstance) -> dict[str, Any]:
    """Return a row as a dict with the names of its columns, for `json_line`, which writes times as ISO 8601 in UTC."""
    return asdict(row)


def age(seconds: float | None) -> str:
    """Return a duration in seconds as text for people, in at most two units."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def without_secrets(text: str, urls: Iterable[str]) -> str:
    """Replace the secrets of these URLs in a message. Fairlane's messages contain none, but a driver's message may."""
    for secret in sorted({secret for url in urls for secret in _secrets(url)}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(url: str) -> Iterable[str]:
    authority = url.partition("://")[2]
    _, at, _ = authority.rpartition("@")
    found = [authority.rpartition("@")[0].partition(":")[2]] if at else []
    with suppress(ValueError):  # not a URL: it is refused elsewhere
        found += [value for name, value in parse_qsl(split_url(url).query) if _is_secret(name)]
    for raw in found:
        # a driver may split a password at unescaped characters and show one part as a host
        for secret in (raw, unquote(raw), *re.split("[@/#?:]", raw)):
            if len(secret) >= _SHORTEST_SECRET:
                yield secret


def _is_secret(option: str) -> bool:
    return any(part in option.lower() for part in _SECRET_OPTIONS)


def _unsafe(char: str) -> bool:
    category = unicodedata.category(char)
    return category in _UNSAFE or (category == "Zs" and char != " ")


def _escape(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    raise TypeError(f"{type(value).__name__} is not JSON")
